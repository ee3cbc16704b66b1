"""Slots of a graph: what shares one, in which order, and how fine slots lie in coarse ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.graph import By, Graph, Operator, Tensor, data_bytes, grouped
from gnomon.errors import ProblemError, UsageError

LEVELS: tuple[By, ...] = ("operator", "group", "type")
SIZES = {"float32": 4, "int8": 1, "int64": 8}


def graph_of(*rows: tuple[str, tuple[int, ...] | None, str]) -> Graph:
    """A chain of operators (type, shape of its output, element type); the input is one float."""
    tensors = [Tensor(name="in", shape=(1,), dtype="float32", size_bytes=4)]
    operators = []
    for index, (kind, shape, dtype) in enumerate(rows):
        size = SIZES[dtype]
        for length in shape or ():
            size *= length
        fixed = shape is not None and -1 not in shape
        tensors.append(Tensor(name=f"t{index}", shape=shape, dtype=dtype, size_bytes=size if fixed else None))
        operators.append(
            Operator(index=index, name=f"op{index}", type=kind, inputs=(0,), outputs=(index + 1,), macs=None)
        )
    return Graph(
        name="g",
        format="circle",
        digest="",
        tensors=tuple(tensors),
        operators=tuple(operators),
        inputs=(0,),
        outputs=(len(rows),),
    )


shapes = st.none() | st.lists(st.sampled_from([-1, 1, 2, 4]), max_size=3).map(tuple)
rows = st.lists(st.tuples(st.sampled_from("ABC"), shapes, st.sampled_from(sorted(SIZES))), max_size=12)
graphs = rows.map(lambda found: graph_of(*found))

EXAMPLE = graph_of(
    ("CONV_2D", (8,), "float32"),
    ("ADD", (8,), "float32"),
    ("CONV_2D", (32,), "int8"),
    ("MUL", (8,), "float32"),
    ("CONV_2D", (8,), "int8"),
    ("ADD", (-1,), "float32"),
    ("ADD", None, "float32"),
    ("ADD", (-1,), "float32"),
)
OPCODES = ["Conv2D", "BinaryArithmetic", "Conv2D", "BinaryArithmetic", "Conv2D"] + ["BinaryArithmetic"] * 3


def test_by_type_in_the_order_of_first_appearance() -> None:
    found = grouped(EXAMPLE, "type", OPCODES)
    assert [group.name for group in found.groups] == ["Conv2D", "BinaryArithmetic"]
    assert found.slot_of == (0, 1, 0, 1, 0, 1, 1, 1)
    assert found.groups[0].operators == (0, 2, 4)
    assert found.groups[1].types == ("ADD", "MUL")
    assert [group.name for group in grouped(EXAMPLE, "type").groups] == ["CONV_2D", "ADD", "MUL"]


def test_by_group_the_size_is_that_of_the_tensors_own_elements() -> None:
    found = grouped(EXAMPLE, "group", OPCODES)
    # Eight floats are as large as 32 bytes, and larger than eight; ADD and MUL are different operators.
    assert [group.name for group in found.groups] == [
        "CONV_2D 36 B",
        "ADD 36 B",
        "MUL 36 B",
        "CONV_2D 12 B",
        "ADD dynamic 1",
        "ADD dynamic 2",
    ]
    assert found.slot_of == (0, 1, 0, 2, 3, 4, 5, 4)
    assert [group.data_bytes for group in found.groups] == [36, 36, 36, 12, None, None]


def test_by_operator_each_has_its_own_slot() -> None:
    found = grouped(EXAMPLE, "operator")
    assert [group.name for group in found.groups] == [f"op{i}" for i in range(8)]
    assert found.space(("cpu", "gpu")).size == 2**8


@given(graphs, st.sampled_from(LEVELS))
def test_every_operator_is_in_one_slot_and_slots_are_numbered_as_they_appear(graph: Graph, by: By) -> None:
    found = grouped(graph, by)
    assert sorted(index for group in found.groups for index in group.operators) == list(range(len(graph.operators)))
    for slot, group in enumerate(found.groups):
        assert all(found.slot_of[index] == slot for index in group.operators)
        assert len({graph.operators[index].type for index in group.operators}) == 1
    assert list(dict.fromkeys(found.slot_of)) == list(range(len(found.groups)))
    assert len(found.space(("a", "b")).slots) == len(found.groups)  # the names are unique


@given(graphs)
def test_like_operators_and_only_they_share_a_group(graph: Graph) -> None:
    found = grouped(graph, "group")
    for one in graph.operators:
        for other in graph.operators:
            sizes = data_bytes(graph, one), data_bytes(graph, other)
            ends = graph.tensors[one.outputs[0]], graph.tensors[other.outputs[0]]
            dynamic = sizes == (None, None) and (ends[0].shape, ends[0].dtype) == (ends[1].shape, ends[1].dtype)
            like = one.type == other.type and (dynamic if None in sizes else sizes[0] == sizes[1])
            assert (found.slot_of[one.index] == found.slot_of[other.index]) == like


@given(graphs, st.integers(0, 2), st.integers(0, 2))
def test_each_fine_slot_lies_in_one_coarse_slot(graph: Graph, first: int, second: int) -> None:
    fine, coarse = grouped(graph, LEVELS[min(first, second)]), grouped(graph, LEVELS[max(first, second)])
    assert len(set(zip(fine.slot_of, coarse.slot_of, strict=True))) == len(fine.groups)


def test_what_cannot_be_meant_is_told() -> None:
    with pytest.raises(ProblemError, match="1 kinds are given for 8"):
        grouped(EXAMPLE, "type", ["Conv2D"])
    with pytest.raises(UsageError, match="no slots by 'layer'"):
        grouped(EXAMPLE, "layer")  # type: ignore[arg-type]
