"""A model as placement sees it: operators, tensors, and the edges between operators.

`grouped` makes the slots of a graph: one for each operator type, for each group of similar operators, or for each
operator. A group holds the operators of one type that move the same number of bytes, counting both inputs and outputs.
This is the granularity "index" of pareto_profiler (``tools/pareto_profiler/generator/gen_oplist.py`` of Samsung ONE),
except that each element counts with the size of its type instead of always four bytes.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from gnomon.core.brief import brief
from gnomon.core.space import Slot, Space
from gnomon.errors import ProblemError, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A value that flows between operators, or a constant.

    `shape` has -1 for a dimension that the file does not fix, and is None if the rank is unknown.
    `dtype` is the numpy name ("float32", "int8", "bfloat16", "string", ..). `size_bytes` is None if the
    shape is not fixed. `dims` has the name of each dimension that the file leaves open and names, and "" for the
    others; it is empty if the file names none.
    """

    name: str
    shape: tuple[int, ...] | None
    dtype: str
    size_bytes: int | None
    constant: bool = False
    dims: tuple[str, ...] = ()


def element_bits(dtype: str) -> int:
    """The bits of an element, from the name of its type ("float32"); 0 if the name contains no number ("string")."""
    bits = re.search("[0-9]+", dtype)
    return 8 if dtype == "bool" else int(bits[0]) if bits else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator of a model.

    `index` is its position in the file, which is also the number that runtimes give it. `name` is unique in the graph.
    `type` is the file format's own name for the operator type ("Conv", "CONV_2D"). `inputs` and `outputs` are indices
    into `Graph.tensors`; absent optional inputs are left out. `macs` is the number of multiply-accumulates of one
    inference, 0 for operators that have none, and None if the shapes are not fixed.
    """

    index: int
    name: str
    type: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    macs: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A tensor that one operator writes and another reads."""

    producer: int
    consumer: int
    tensor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A model: operators in execution order, and their tensors.

    `format` is the format of the file ("onnx", "tflite", "openvino", ..); `digest` is the SHA-256 of the bytes that
    were read; `inputs` and `outputs` are indices into `tensors`.
    """

    name: str
    format: str
    digest: str
    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    __repr__ = brief

    def edges(self) -> Iterator[Edge]:
        """Each (producer, consumer, tensor) once, in the order of the consumers."""
        producer = {t: op.index for op in self.operators for t in op.outputs}
        for op in self.operators:
            for tensor in dict.fromkeys(op.inputs):
                if tensor in producer:
                    yield Edge(producer=producer[tensor], consumer=op.index, tensor=tensor)

    def of_types(self) -> dict[str, list[int]]:
        """The indices of the operators of each type."""
        indices: dict[str, list[int]] = {}
        for operator in self.operators:
            indices.setdefault(operator.type, []).append(operator.index)
        return indices

    @property
    def macs(self) -> int | None:
        """The multiply-accumulates of one inference, or None if those of an operator are unknown."""
        return sum_of_known([op.macs for op in self.operators])


By = Literal["type", "group", "operator"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Operators that take the same choice.

    `name` is unique among the slots, `types` are the file format's names for the operators' types, and `operators` are
    the operators' indices in order. `data_bytes` is the number of bytes that each operator reads and writes in one
    inference, including constants; None if the numbers differ or a shape is not fixed.
    """

    name: str
    types: tuple[str, ...]
    operators: tuple[int, ...]
    data_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """The slots of a graph, in the order of their first operators in the graph.

    `slot_of` has the slot of each operator of the graph, in the graph's order.
    """

    by: By
    groups: tuple[Group, ...]
    slot_of: tuple[int, ...]

    def space(self, choices: Sequence[str]) -> Space:
        """The space in which each slot takes one of the choices."""
        return Space(tuple(Slot(group.name, tuple(choices)) for group in self.groups))


def grouped(graph: Graph, by: By, kinds: Sequence[str] | None = None) -> Grouping:
    """The slots of a graph.

    By "type", operators of the same kind share a slot; `kinds` has the kind of each operator, such as a runtime's own
    name for it (None: the file format's types). By "group", operators of the same type and size share a slot; if a
    shape is not fixed, the element types and shapes of all their tensors must agree instead. UsageError for any other
    `by`.
    """
    if by not in get_args(By):
        raise UsageError(f"there are no slots by {by!r}", hint=f"Use one of: {', '.join(get_args(By))}.")
    operators = graph.operators
    if kinds is None:
        kinds = [op.type for op in operators]
    if len(kinds) != len(operators):
        raise ProblemError(f"{len(kinds)} kinds are given for {len(operators)} operators", hint="Give one for each.")
    keys: list[Hashable]
    if by == "type":
        keys = list(kinds)
    elif by == "group":
        keys = [(op.type, _size_key(graph, op)) for op in operators]
    else:
        keys = [op.index for op in operators]
    slots: dict[Hashable, int] = {}
    slot_of = tuple(slots.setdefault(key, len(slots)) for key in keys)
    members: list[list[int]] = [[] for _ in slots]
    for position, slot in enumerate(slot_of):
        members[slot].append(position)
    names = _names(graph, by, kinds, members)
    groups = tuple(_group(graph, name, positions) for name, positions in zip(names, members, strict=True))
    return Grouping(by=by, groups=groups, slot_of=slot_of)


def data_bytes(graph: Graph, operator: Operator) -> int | None:
    """The bytes that an operator reads and writes per inference, including constants; None if a shape is not fixed."""
    return sum_of_known([graph.tensors[tensor].size_bytes for tensor in (*operator.inputs, *operator.outputs)])


def sum_of_known(values: Sequence[int | None]) -> int | None:
    """The sum of the values, or None if one of them is unknown."""
    return None if None in values else sum(value or 0 for value in values)


def _size_key(graph: Graph, operator: Operator) -> Hashable:
    size = data_bytes(graph, operator)
    if size is not None:
        return size
    tensors = [graph.tensors[index] for index in (*operator.inputs, *operator.outputs)]
    return tuple((tensor.dtype, tensor.shape) for tensor in tensors)


def _names(graph: Graph, by: By, kinds: Sequence[str], members: list[list[int]]) -> list[str]:
    """The name of each slot: the type, the type with the size of its data, or the operator's own name."""
    if by == "type":
        return [kinds[positions[0]] for positions in members]
    firsts = [graph.operators[positions[0]] for positions in members]
    if by == "operator":
        return [op.name for op in firsts]
    names = []
    dynamic: dict[str, int] = {}
    for op in firsts:
        size = data_bytes(graph, op)
        if size is None:
            dynamic[op.type] = dynamic.get(op.type, 0) + 1
        names.append(f"{op.type} dynamic {dynamic[op.type]}" if size is None else f"{op.type} {size} B")
    return names


def _group(graph: Graph, name: str, members: list[int]) -> Group:
    operators = [graph.operators[position] for position in members]
    sizes = {data_bytes(graph, op) for op in operators}
    return Group(
        name=name,
        types=tuple(dict.fromkeys(op.type for op in operators)),
        operators=tuple(op.index for op in operators),
        data_bytes=sizes.pop() if len(sizes) == 1 else None,
    )
