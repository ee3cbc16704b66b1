"""Buffers, seeded inputs and the comparison of outputs."""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gnomon.agent.arrays import (
    BFLOAT16,
    InputError,
    fill,
    finite_share,
    largest_difference,
    make_buffers,
    rounded,
    vary,
    widened,
)

INF, NAN = math.inf, math.nan


def compare(got: Any, expected: Any, dtype: str = "float32") -> tuple[float, float]:
    found = largest_difference({"y": np.asarray(got, dtype)}, {"y": np.asarray(expected, dtype)})
    return found["absolute"], found["relative"]


@pytest.mark.parametrize(
    ("got", "expected", "absolute", "relative"),
    [
        ([1, 3], [1, 4], 1.0, 0.25),
        ([0, 1], [0, 0], 1.0, INF),  # there is no magnitude to measure by
        ([NAN, 1], [2, 1], INF, INF),
        ([INF, 1], [2, 1], INF, INF),
        ([2, 1], [NAN, 1], INF, INF),
        ([-INF, 1], [INF, 1], INF, INF),
        ([INF, 2], [INF, 4], 2.0, 0.5),
        ([1.0], [INF], INF, INF),
        ([], [], 0.0, 0.0),
    ],
)
def test_differences(got: list[float], expected: list[float], absolute: float, relative: float) -> None:
    assert compare(got, expected) == (absolute, relative)


def test_another_shape_is_infinitely_different_and_integers_do_not_wrap_around() -> None:
    assert compare([[1, 2]], [1, 2]) == (INF, INF)
    assert compare([255], [0], "uint8")[0] == compare([127], [-128], "int8")[0] == 255.0


def test_the_worst_output_counts_each_by_its_own_magnitude() -> None:
    got = {"a": np.asarray([1.1]), "b": np.asarray([1010.0])}
    found = largest_difference(got, {"a": np.asarray([1.0]), "b": np.asarray([1000.0])})
    assert found["absolute"] == pytest.approx(10.0)
    assert found["relative"] == pytest.approx(0.1)


@given(
    st.lists(st.floats(width=32), min_size=1, max_size=8),
    st.lists(st.floats(width=32), min_size=1, max_size=8),
)
def test_a_difference_is_never_nan(a: list[float], b: list[float]) -> None:
    size = min(len(a), len(b))
    for number in compare(a[:size], b[:size]):
        assert number >= 0.0
    assert compare(a, a) == (0.0, 0.0)


SPECS: Any = {
    "f": {"shape": [2, 3], "dtype": "float32"},
    "h": {"shape": [5], "dtype": "float16"},
    "i": {"shape": [4], "dtype": "int64"},
    "b": {"shape": [9], "dtype": "bool"},
    "s": {"shape": [], "dtype": "float32"},
}


def filled(seed: int) -> dict[str, Any]:
    buffers = make_buffers(SPECS)
    fill(buffers, {name: {} for name in SPECS}, seed)
    return buffers


def test_inputs_follow_from_the_seed() -> None:
    one, again, other = filled(1), filled(1), filled(2)
    for name, spec in SPECS.items():
        assert one[name].shape == tuple(spec["shape"])
        assert one[name].dtype == spec["dtype"]
        assert (one[name] == again[name]).all()
    assert (one["f"] != other["f"]).any()
    assert set(one["i"].tolist()) <= {0, 1}
    assert (one["f"].ravel()[:5] != one["h"]).any()  # inputs do not repeat each other


def test_inputs_from_files(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", np.arange(6.0).reshape(2, 3))
    buffers = make_buffers(SPECS)
    fill(buffers, {"f": {"file": str(tmp_path / "f.npy")}}, 0)
    assert buffers["f"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert buffers["f"].dtype == "float32"
    np.save(tmp_path / "f.npy", np.arange(6.0))
    with pytest.raises(ValueError, match=r"\(6,\).*\(2, 3\)"):
        fill(buffers, {"f": {"file": str(tmp_path / "f.npy")}}, 0)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe is not a regular file"):
        fill(buffers, {"f": {"file": str(tmp_path / "pipe")}}, 0)


def converted(folder: Path, value: Any, dtype: str) -> Any:
    """What a model that wants `dtype` gets of a file of `value`."""
    value = np.asarray(value)
    np.save(folder / "x.npy", value)
    buffers = make_buffers({"x": {"shape": value.shape, "dtype": dtype}})
    fill(buffers, {"x": {"file": str(folder / "x.npy")}}, 0)
    return buffers["x"]


@pytest.mark.parametrize(
    ("value", "held", "wanted"),
    [
        (0.1, "float64", "float32"),  # rounded
        ([1e-300, NAN, -INF], "float64", "float32"),
        ([[], []], "float64", "uint8"),
        ([1.5, 2.5], ">f4", "float32"),
    ],
)
def test_values_that_survive_are_converted(tmp_path: Path, value: Any, held: str, wanted: str) -> None:
    given = np.asarray(value, held)
    got = converted(tmp_path, given, wanted)
    assert got.dtype == wanted
    assert np.array_equal(got, given.astype(wanted), equal_nan=got.dtype.kind == "f")


@pytest.mark.parametrize(
    ("value", "held", "wanted"),
    [
        ([0.25, 0.75], "float32", "uint8"),  # an image in [0, 1]
        ([1e300], "float64", "float32"),
        ([1 + 2j], "complex64", "float32"),
        ([1], "complex64", "int32"),
    ],
)
def test_values_that_do_not_survive_are_refused(tmp_path: Path, value: Any, held: str, wanted: str) -> None:
    with pytest.raises(InputError, match=rf"input 'x': x\.npy holds {held}, the model needs {wanted}, .*save it as"):
        converted(tmp_path, np.asarray(value, held), wanted)


NUMBERS = st.sampled_from(["bool", "int8", "uint8", "int32", "int64", "uint64", "float16", "float32", "float64"])


@given(NUMBERS.flatmap(lambda d: arrays.arrays(d, 4)), NUMBERS)
def test_what_is_not_refused_is_what_python_says_too(value: Any, dtype: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            got = converted(Path(folder), value, dtype)
        except InputError:
            got = None
    if np.dtype(dtype).kind == "f" == value.dtype.kind:
        return
    # Python's numbers are compared exactly, whatever their types.
    wanted: list[Any] | None = value.tolist()
    if np.dtype(dtype).kind != "f":
        low, high = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        if not all(math.isfinite(v) and v == int(v) and low <= int(v) <= high for v in value.tolist()):
            wanted = None
    else:
        with np.errstate(over="ignore"):
            if value.astype(dtype).tolist() != wanted:
                wanted = None
    assert (None if got is None else got.tolist()) == wanted


def test_a_file_that_is_no_array_is_one_clear_error(tmp_path: Path) -> None:
    np.savez(tmp_path / "several.npz", a=np.zeros(3))
    np.save(tmp_path / "objects.npy", np.asarray([{"a": 1}], object), allow_pickle=True)
    np.save(tmp_path / "words.npy", np.asarray(["a", "b"]))
    (tmp_path / "text.npy").write_text("1 2 3")
    (tmp_path / "empty.npy").write_bytes(b"")
    np.save(tmp_path / "whole.npy", np.zeros(100))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "whole.npy").read_bytes()[:200])
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
    with (tmp_path / "bomb.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
    good = (tmp_path / "whole.npy").read_bytes()
    (tmp_path / "header.npy").write_bytes(good.replace(b"'shape': (100,), }", b"'shape': (100,  } "))
    bad = ("header", "objects", "words", "text", "empty", "cut", "bomb", "missing")
    for name in ("several.npz", ".", *(f"{name}.npy" for name in bad)):
        told = tmp_path.name if name == "." else name
        with pytest.raises(InputError, match=f"^input 'f': {told} ") as refused:
            fill(make_buffers(SPECS), {"f": {"file": f"{tmp_path}/{name}".removesuffix("/.")}}, 0)
        assert "\n" not in str(refused.value)


def test_text_that_is_none_is_told(tmp_path: Path) -> None:
    """A letter is a number of Unicode's 1,114,112, and a file may say another."""
    np.save(tmp_path / "words.npy", np.asarray(["ab", "cd"]))
    data = bytearray((tmp_path / "words.npy").read_bytes())
    data[-4:] = b"\xff\xff\xff\x7f"
    (tmp_path / "words.npy").write_bytes(data)
    specs: Any = {"t": {"shape": [2], "dtype": "string"}}
    with pytest.raises(
        InputError, match=r"^input 't': words\.npy holds text with a character code that Unicode does not define"
    ):
        fill(make_buffers(specs), {"t": {"file": f"{tmp_path}/words.npy"}}, 0)


VALUES = st.sampled_from(["bool", "int8", "uint8", "int64", "float32"]).flatmap(
    lambda d: arrays.arrays(d, arrays.array_shapes(max_dims=3, max_side=4))
)


@given(VALUES, st.integers(0, 9))
def test_a_varied_input_is_another_valid_one(value: Any, seed: int) -> None:
    varied = vary(value, np.random.default_rng(seed))
    assert (varied.shape, varied.dtype) == (value.shape, value.dtype)
    assert np.array_equal(varied, vary(value, np.random.default_rng(seed)), equal_nan=value.dtype.kind == "f")
    if value.dtype.kind != "f":
        assert (varied <= value).all()  # an index stays inside the table that it had
        assert set(varied.ravel().tolist()) <= set(value.ravel().tolist())
        assert (varied != value).any() == (len(set(value.ravel().tolist())) > 1)


def test_varied_floats_stay_in_range_and_differ() -> None:
    for value in (np.full((2, 3), 0.5, np.float32), np.linspace(0, 1, 100, dtype=np.float32)):
        varied = vary(value, np.random.default_rng(4))
        assert (varied != value).mean() > 0.9
        assert 0 <= varied.min() <= varied.max() <= value.max()


def test_the_share_of_finite_values_is_that_of_the_worst_output() -> None:
    assert finite_share({"a": np.ones(3), "b": np.asarray([1, NAN, INF, 2.0])}) == 0.5
    assert finite_share({"a": np.ones(3, int), "b": np.full(2, NAN, np.float16)}) == 0.0
    assert finite_share({"a": np.ones(0), "b": np.asarray([True])}) == 1.0
    assert finite_share({}) == 1.0


def test_tensors_of_one_slab_share_its_memory_and_others_do_not() -> None:
    made = make_buffers(
        {
            "a": {"shape": [4], "dtype": "float32", "slab": 0},
            "b": {"shape": [2, 4], "dtype": "float32", "slab": 0},
            "c": {"shape": [4], "dtype": "float32", "slab": 1},
            "d": {"shape": [4], "dtype": "float32"},
            "e": {"shape": [16], "dtype": "uint8", "slab": 0},
        }
    )
    made["b"][:] = 7
    assert (made["a"] == 7).all()
    assert np.shares_memory(made["e"], made["b"])
    for name in "cd":
        assert not made[name].any()
        assert made[name].flags.c_contiguous


@given(arrays.arrays(np.float32, arrays.array_shapes(min_dims=0, min_side=0, max_dims=3)))
def test_bfloat16_is_rounded_as_others_round_it(value: Any) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    made = rounded(value)
    with np.errstate(invalid="ignore"):
        expected = value.astype(ml_dtypes.bfloat16).astype(np.float32)
    assert (made.dtype, made.shape) == (BFLOAT16, value.shape)
    assert widened(made).dtype == np.float32
    assert np.array_equal(widened(made), expected, equal_nan=True)
    assert np.array_equal(np.signbit(widened(made)), np.signbit(expected))


def test_every_bfloat16_is_itself_when_it_is_rounded() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(BFLOAT16)
    back = rounded(widened(every))
    numbers = ~np.isnan(widened(every))
    assert (back["bfloat16"][numbers] == every["bfloat16"][numbers]).all()
    assert np.isnan(widened(back[~numbers])).all()


def half(folder: Path, value: Any) -> Any:
    """What a model that wants bfloat16 gets of a file of `value`, as float32."""
    return widened(converted(folder, value, "bfloat16"))


def test_bfloat16_is_drawn_and_read_from_files(tmp_path: Path) -> None:
    buffers = make_buffers({"x": {"shape": [4, 2], "dtype": "bfloat16", "slab": 0}})
    assert (buffers["x"].dtype, buffers["x"].nbytes) == (BFLOAT16, 16)
    feeds: Any = (({}, -5, 5), ({"least": 2, "most": 3}, 2, 3), ({"values": [1.5] * 8}, 1.5, 1.5))
    for feed, least, most in feeds:
        fill(buffers, {"x": feed}, 7)
        drawn = widened(buffers["x"])
        assert drawn.any() and ((least <= drawn) & (drawn <= most)).all()
    assert half(tmp_path, [0.1, NAN, -INF]).tolist() == pytest.approx([0.10009765625, NAN, -INF], nan_ok=True)
    assert half(tmp_path, [3, 256]).tolist() == [3, 256]
    assert half(tmp_path, rounded(np.asarray([0.5, 7.0]))).tolist() == [0.5, 7]
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert half(tmp_path, np.asarray([0.5, -7.0], ml_dtypes.bfloat16)).tolist() == [0.5, -7]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.asarray([3.4e38], np.float32), "would change values"),  # the next bfloat16 is infinity
        (np.asarray([257]), "would change values"),
        (np.asarray([1j]), "would change values"),
        (np.zeros(2, "V4"), "not bfloat16"),
        (np.zeros(2, "U1"), "not numbers"),
    ],
)
def test_what_is_no_bfloat16_is_refused(tmp_path: Path, value: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        half(tmp_path, value)
    with pytest.raises(InputError, match="not numbers"):
        converted(tmp_path, rounded(np.zeros(2)), "float32")


def test_files_of_bfloat16_vary_as_others_do(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.asarray([1.0, 2.0, 4.0], np.float32))
    buffers = make_buffers({"x": {"shape": [3], "dtype": "bfloat16"}})
    fill(buffers, {"x": {"file": str(tmp_path / "x.npy")}}, 1, varied=True)
    varied = widened(buffers["x"])
    assert (varied != [1, 2, 4]).all() and varied.max() <= 4
