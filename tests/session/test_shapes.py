"""Shapes of inputs by the names of their dimensions: what is given for one holds for all that share a name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.graph import Tensor
from gnomon.errors import UsageError
from gnomon.session.model import Shapes, array_shape, fixed_shapes

Shape = tuple[int, ...]


def tensor(name: str, *dims: str | int) -> Tensor:
    """An input: a text is an open dimension of that name, "" one without a name."""
    shape = tuple(size if isinstance(size, int) else -1 for size in dims)
    names = tuple("" if isinstance(size, int) else size for size in dims)
    return Tensor(name=name, shape=shape, dtype="float32", size_bytes=None, dims=names if any(names) else ())


def fixed(
    inputs: Sequence[Tensor],
    shapes: dict[str, Shape] | None = None,
    dims: dict[str, int] | None = None,
    feeds: dict[str, Shape] | None = None,
) -> Shapes:
    return fixed_shapes(inputs, shapes=shapes or {}, dims=dims or {}, feeds=feeds or {})


BERT = [tensor(name, "batch_size", "sequence_length") for name in ("input_ids", "attention_mask", "token_type_ids")]
NAMES = ("batch", "seq", "atoms", "past seq", "été")
INPUTS = st.lists(
    st.lists(st.one_of(st.sampled_from(NAMES), st.integers(1, 5)), min_size=1, max_size=4), min_size=1, max_size=4
).map(lambda rows: [tensor(f"x{k}", *row) for k, row in enumerate(rows)])
SIZES = st.fixed_dictionaries({name: st.integers(0, 9) for name in NAMES})


def true_shape(one: Tensor, sizes: dict[str, int]) -> Shape:
    assert one.shape is not None
    return tuple(sizes[one.dims[k]] if size == -1 else size for k, size in enumerate(one.shape))


@given(INPUTS, SIZES, st.data())
def test_a_name_has_one_size_wherever_it_stands(
    inputs: list[Tensor], sizes: dict[str, int], data: st.DataObject
) -> None:
    """Whether a size comes from --dim, a shape or an array, all inputs get it."""
    dims: dict[str, int] = {}
    shapes: dict[str, Shape] = {}
    feeds: dict[str, Shape] = {}
    for name in {name for one in inputs for name in one.dims if name}:
        holders = [one for one in inputs if name in one.dims]
        way, holder = data.draw(st.sampled_from((None, shapes, feeds))), data.draw(st.sampled_from(holders))
        if way is None:
            dims[name] = sizes[name]
        else:
            way[holder.name] = true_shape(holder, sizes)
    found = fixed(inputs, shapes, dims, feeds)
    expected = {one.name: true_shape(one, sizes) for one in inputs}
    assert found.shapes == {name: shape for name, shape in expected.items() if name in found.shapes}
    assert found.shapes.keys() >= {one.name for one in inputs if any(one.dims)}
    assert (found.given, found.doubts) == (found.shapes, ())
    assert found.dims == {name: sizes[name] for one in inputs for name in one.dims if name}


@given(
    st.lists(
        st.lists(st.sampled_from(("", "seq", "n", "batch", "a + b", 3)), min_size=1, max_size=4), min_size=1, max_size=3
    )
)
def test_the_options_of_the_hint_fix_every_dimension(rows: list[list[str | int]]) -> None:
    inputs = [tensor(f"x{k}", *row) for k, row in enumerate(rows)]
    try:
        fixed(inputs)
    except UsageError as error:
        pairs = list(zip(error.words[::2], error.words[1::2], strict=True))
        assert error.hint.endswith(" ".join(f"{o} '{v}'" if " " in v else f"{o} {v}" for o, v in pairs))
        split = [(option, *value.rsplit("=", 1)) for option, value in pairs]
        shapes = {name: tuple(map(int, text.split(","))) for option, name, text in split if option == "--shape"}
        fixed(inputs, shapes, {name: int(text) for option, name, text in split if option == "--dim"})


def test_a_shape_of_one_input_fixes_the_others() -> None:
    assert set(fixed(BERT, {"input_ids": (1, 16)}).shapes.values()) == {(1, 16)}
    assert set(fixed(BERT, feeds={"input_ids": (2, 32)}).shapes.values()) == {(2, 32)}


def test_what_is_called_a_batch_is_1_and_the_rest_is_asked_for_by_name() -> None:
    found = fixed(BERT, dims={"sequence_length": 16})
    assert (set(found.shapes.values()), found.dims) == ({(1, 16)}, {"batch_size": 1, "sequence_length": 16})
    assert [(d.kind, d.hint) for d in found.doubts] == [("assumed-shape", "To use another size: --dim batch_size=N")]
    with pytest.raises(UsageError, match=r"\(batch_size, sequence_length\), which leaves sequence_length open") as told:
        fixed(BERT)
    assert told.value.words == ("--dim", "sequence_length=64")


@pytest.mark.parametrize(
    "inputs",
    [
        [tensor("x", "n", 3, 8, 8)],
        [tensor("x", "anything", 4)],
        [tensor("x", "anything", 4), tensor("y", "anything")],
        [tensor("x", "unk__1", 4), tensor("y", "unk__2", 4)],
        [tensor("x", "", 4), tensor("y", "", 2)],
    ],
)
def test_what_alone_is_open_and_stands_first_is_1(inputs: list[Tensor]) -> None:
    found = fixed(inputs)
    assert {shape[0] for shape in found.shapes.values()} == {1}
    assert found.given == {}


def test_sizes_of_a_graph_network_are_not_taken_for_a_batch() -> None:
    inputs = [tensor("x", "num_atoms", 5), tensor("edges", 2, "num_edges"), tensor("residue", "num_atoms")]
    with pytest.raises(UsageError) as told:
        fixed(inputs)
    assert told.value.words == ("--dim", "num_atoms=64", "--dim", "num_edges=64")
    with pytest.raises(UsageError) as told:
        fixed([tensor("x", "N", 5), tensor("edges", 2, "E")])
    assert told.value.words == ("--dim", "N=64", "--dim", "E=64")


def test_a_sum_of_names_is_computed() -> None:
    inputs = [tensor("ids", "batch", "seq"), tensor("mask", "batch", "past + seq"), tensor("kv", "batch", 4, "past", 8)]
    with pytest.raises(UsageError) as told:
        fixed(inputs)
    assert told.value.words == ("--dim", "seq=64", "--dim", "past=64")
    assert fixed(inputs, dims={"seq": 1, "past": 16}).shapes["mask"] == (1, 17)
    with pytest.raises(UsageError, match=r"'past \+ seq' cannot be both 9 .* and 17 \(past is 16 and seq is 1\)"):
        fixed(inputs, {"mask": (1, 9)}, {"seq": 1, "past": 16})


@pytest.mark.parametrize(
    ("shapes", "dims", "feeds", "told"),
    [
        ({"a": (1, 16), "b": (1, 8)}, {}, {}, r"'seq' cannot be both 16 \(--shape a=1,16\) and 8 \(--shape b=1,8\)"),
        ({"a": (1, 16)}, {"seq": 8}, {}, r"'seq' cannot be both 8 \(--dim seq=8\) and 16 \(--shape a=1,16\)"),
        ({"a": (1, 16)}, {}, {"b": (1, 8)}, r"both 16 \(--shape a=1,16\) and 8 \(--input b of shape 1,8\)"),
        ({"a": (1, 16)}, {}, {"a": (1, 8)}, "--shape a=1,16 contradicts --input a of shape 1,8"),
        ({"a": (1, 16, 2)}, {}, {}, r"--shape a=1,16,2 contradicts the model's own \(batch, seq\)"),
        ({}, {}, {"d": (1, 5)}, r"--input d of shape 1,5 contradicts the model's own \(batch, 4\)"),
        ({"seq": (16,)}, {}, {}, "--shape: the model has no input 'seq'"),
        ({}, {"width": 4}, {}, "--dim: the model has no dimension 'width'"),
    ],
)
def test_a_contradiction_is_one_error_by_the_names(
    shapes: dict[str, Shape], dims: dict[str, int], feeds: dict[str, Shape], told: str
) -> None:
    inputs = [*(tensor(name, "batch", "seq") for name in "abc"), tensor("d", "batch", 4)]
    with pytest.raises(UsageError, match=told) as error:
        fixed(inputs, shapes, dims, feeds)
    assert error.value.hint


def test_a_name_for_two_things_is_taken_as_it_is_where_all_shapes_are_given() -> None:
    inputs = [tensor("a", "n", 4), tensor("b", "n", 4), tensor("c", 3)]
    found = fixed(inputs, {"a": (5, 4)}, feeds={"b": (7, 4)})
    assert (found.shapes, found.dims) == ({"a": (5, 4), "b": (7, 4)}, {})
    assert [doubt.kind for doubt in found.doubts] == ["unlike-dimensions"]


def test_names_are_quoted_for_the_shell() -> None:
    with pytest.raises(UsageError) as told:
        fixed([tensor("入力 画像:0", "N", 3, "H", "larg eur")])
    assert told.value.hint.endswith("for example: --dim H=224 --dim 'larg eur=224'")
    with pytest.raises(UsageError) as told:
        fixed([tensor("入力 画像:0", "", 3, "", "")])
    assert told.value.hint.endswith("for example: --shape '入力 画像:0=1,3,224,224'")


@pytest.mark.parametrize(("dims", "told"), [((3, "", ""), "x=3,64,64"), ((2, "", 128), "x=2,1,128")])
def test_an_example_is_a_picture_of_those_channels_or_one_of_a_batch(dims: tuple[str | int, ...], told: str) -> None:
    with pytest.raises(UsageError) as refused:
        fixed([tensor("x", *dims)])
    assert refused.value.words == ("--shape", told)


def test_the_shape_of_an_array_is_that_of_its_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 0, 3)))
    assert array_shape("x", tmp_path / "x.npy") == (2, 0, 3)
    (tmp_path / "y.npy").write_bytes(b"\x93NUMPY and no more")
    with pytest.raises(UsageError, match=r"input 'y': y\.npy is not a usable \.npy file"):
        array_shape("y", tmp_path / "y.npy")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="it is not a regular file"):
        array_shape("pipe", tmp_path / "pipe")
    with pytest.raises(UsageError, match="--input z: there is no file"):
        array_shape("z", tmp_path / "z.npy")
