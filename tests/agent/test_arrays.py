"""Buffers, seeded inputs and the comparison of outputs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.agent.arrays import fill, largest_difference, make_buffers

INF, NAN = math.inf, math.nan


def compare(got: Any, expected: Any, dtype: str = "float32") -> tuple[float, float]:
    found = largest_difference({"y": np.asarray(got, dtype)}, {"y": np.asarray(expected, dtype)})
    return found["absolute"], found["relative"]


@pytest.mark.parametrize(
    ("got", "expected", "absolute", "relative"),
    [
        ([1, 2], [1, 2], 0.0, 0.0),
        ([1, 3], [1, 4], 1.0, 0.25),
        ([0, 0], [0, 0], 0.0, 0.0),
        ([0, 1], [0, 0], 1.0, INF),  # there is no magnitude to measure by
        ([NAN, 1], [2, 1], INF, INF),
        ([INF, 1], [2, 1], INF, INF),
        ([2, 1], [NAN, 1], INF, INF),
        ([NAN, 1], [NAN, 1], 0.0, 0.0),
        ([INF, 1], [INF, 1], 0.0, 0.0),
        ([-INF, 1], [INF, 1], INF, INF),
        ([INF, 2], [INF, 4], 2.0, 0.5),
        ([NAN], [NAN], 0.0, 0.0),
        ([1.0], [INF], INF, INF),
        ([], [], 0.0, 0.0),
    ],
)
def test_differences(got: list[float], expected: list[float], absolute: float, relative: float) -> None:
    assert compare(got, expected) == (absolute, relative)


def test_another_shape_is_infinitely_different() -> None:
    assert compare([[1, 2]], [1, 2]) == (INF, INF)


def test_integers_do_not_wrap_around() -> None:
    assert compare([255], [0], "uint8")[0] == 255.0
    assert compare([127], [-128], "int8")[0] == 255.0


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


SPECS: dict[str, dict[str, Any]] = {
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
    np.save(tmp_path / "f.npy", np.asarray([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle"):
        fill(buffers, {"f": {"file": str(tmp_path / "f.npy")}}, 0)


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
