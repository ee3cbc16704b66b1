"""NAS-Bench-201: a cell of four nodes with one of five operations on each of its six edges. Dong and Yang, ICLR 2020.

The nets are those that the benchmark trained (D-X-Y/NAS-Bench-201, TinyNetwork, C = 16, N = 5, CIFAR-10): a stem, three
stages of five cells, a residual block between stages, and a head. `none` gives zeros, which are computed and added as
in the original.

All 15,625 nets are counted at once. The fifteen cells of a net differ only in their shapes, and the two convolutions
differ only in their kernels. Nodes are therefore grouped once for each structure, which is an assignment without the
kernels of its convolutions; nodes are then just numbers, without shapes.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from gnomon.core.space import Slot, Space
from gnomon.errors import ProblemError
from gnomon.spaces.features import Assignment, CountTables, Step
from gnomon.spaces.fuse import UNFUSED, Chain, FusionRules, groups
from gnomon.spaces.layers import layer
from gnomon.spaces.unit import Net, Symbol, Trace, Unit

T = TypeVar("T")

OPERATIONS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
"""The source and the target node of each edge; the slots are in this order."""

CELLS = 5
CHANNELS = (16, 32, 64)
CLASSES = 10
SIZE = 32
NEEDED = ("needed", *(f"needed {name}" for name in OPERATIONS[1:]))
"""The space's counts in addition to those of units: whether the output depends on the input at all, and how many times
it needs each operation of the cell. Some compilers drop operations that are not needed, as measurements of whole nets
show.
"""

Token = str | int
"""A node of a cell: its kind of layer, or the number of its edge if it is a convolution."""

Label = tuple[int, Token]
"""A node of a net: its stage and token, or `_OUTSIDE` and its number among the nodes outside cells."""

_OUTSIDE = -1
_NARROW, _WIDE = OPERATIONS.index("nor_conv_1x1"), OPERATIONS.index("nor_conv_3x3")
_NODE = re.compile(r"(?P<operation>[a-z0-9_]+)~(?P<source>[0-9])")


def whole_net(operations: Sequence[int]) -> Net:
    """The net with these operations on the edges of each of its cells, including dead parts."""
    trace = Trace(((1, 3, SIZE, SIZE),))
    x = stem(trace.input())
    for stage, channels in enumerate(CHANNELS):
        if stage:
            x = residual(x, channels)
        for _ in range(CELLS):
            x = cell(x, operations)
    return trace.net(head(x))


def stem(x: Symbol) -> Symbol:
    """The layers before the first cell."""
    return x.conv(CHANNELS[0], 3).batch_norm()


def residual(x: Symbol, channels: int) -> Symbol:
    """The layers between two stages: a ResNet basic block with stride 2."""
    y = x.relu().conv(channels, 3, stride=2).batch_norm()
    y = y.relu().conv(channels, 3).batch_norm()
    return x.average_pool(2, stride=2).conv(channels, 1) + y


def head(x: Symbol) -> Symbol:
    """The layers after the last cell."""
    return x.batch_norm().relu().global_average_pool().linear(CLASSES)


def cell(x: Symbol, operations: Sequence[int]) -> Symbol:
    """A cell: each node is the sum of the operations on its edges."""
    return _wired(x, lambda edge, source: operation(OPERATIONS[operations[edge]], source), operator.add)


def _wired(x: T, operation: Callable[[int, T], T], add: Callable[[T, T], T]) -> T:
    """The last node of a cell; `operation` makes a term from an edge's number and source node, and `add` adds two
    terms.
    """
    nodes = [x]
    for target in (1, 2, 3):
        terms = [operation(edge, nodes[source]) for edge, (source, end) in enumerate(EDGES) if end == target]
        nodes.append(reduce(add, terms))
    return nodes[-1]


def operation(name: str, x: Symbol) -> Symbol:
    """The operation on an edge."""
    if name == "skip_connect":
        return x
    if name == "none":
        return x.layer("Zeros")
    if name == "avg_pool_3x3":
        return x.average_pool(3, pad=1)
    return x.relu().conv(x.channels, 1 if name == "nor_conv_1x1" else 3).batch_norm()


@dataclass(slots=True)
class _Graph:
    """Nodes by number, each with its token and the numbers of the nodes that it reads."""

    tokens: list[Token] = field(default_factory=list)
    inputs: list[tuple[int, ...]] = field(default_factory=list)
    output: int = -1

    def add(self, token: Token, *inputs: int) -> int:
        self.tokens.append(token)
        self.inputs.append(inputs)
        return len(self.tokens) - 1


def tables_of(space: Space, rules: FusionRules) -> CountTables:
    """The counts of all nets as a single look-up by all six operations."""
    nets = _Nets()
    rows: dict[frozenset[tuple[int, int]], int] = {}
    index = np.zeros((1, space.size), np.int64)
    structures: dict[tuple[int, ...], tuple[dict[int, int], list[_Varying]]] = {}
    every = [net[::-1] for net in itertools.product(*(range(len(slot.choices)) for slot in reversed(space.slots)))]
    for code, operations in enumerate(every):
        structure = tuple(_NARROW if choice == _WIDE else choice for choice in operations)
        if structure not in structures:
            structures[structure] = nets.split(nets.groups(_cell_graph(structure), rules))
        fixed, varying = structures[structure]
        counts = dict(fixed)
        for group in varying:
            number = nets.number(group.labels, tuple(operations[edge] for edge in group.edges))
            counts[number] = counts.get(number, 0) + group.count
        index[0, code] = rows.setdefault(frozenset(counts.items()), len(rows))
    table = np.zeros((len(rows), len(nets.units)), np.float32)
    for row, number in rows.items():
        for unit, count in row:
            table[number, unit] = count
    # Nets with equal counts may need different operations, so rows are made for each net and then joined if equal.
    table = np.concatenate([table[index[0]], _needed_operations(np.array(every))], axis=1)
    table, back = np.unique(table, axis=0, return_inverse=True)
    index = back.reshape(1, -1).astype(np.int64)
    step = Step(slots=tuple(range(len(EDGES))), row=index, next_state=np.zeros_like(index))
    return CountTables(space=space, units=tuple(nets.units), steps=(step,), rows=table, extras=NEEDED)


def _needed_operations(nets: NDArray[np.intp]) -> NDArray[np.float32]:
    """The values of `NEEDED` for nets (N, edges) with these operations."""
    used = nets > 0
    reached, leads = (np.zeros((len(nets), 4), bool) for _ in range(2))
    reached[:, 0] = leads[:, 3] = True
    for edge, (source, target) in sorted(enumerate(EDGES), key=lambda pair: pair[1][1]):
        reached[:, target] |= reached[:, source] & used[:, edge]
    for edge, (source, target) in sorted(enumerate(EDGES), key=lambda pair: -pair[1][0]):
        leads[:, source] |= leads[:, target] & used[:, edge]
    # Operations on zeros are computed too.
    kept = leads[:, [target for _, target in EDGES]]
    counts = [(kept & (nets == choice)).sum(axis=1) for choice in range(1, len(OPERATIONS))]
    counted = np.stack([np.ones(len(nets), np.intp), *counts], axis=1) * reached[:, 3:]
    return counted.astype(np.float32)


@dataclass(frozen=True, slots=True)
class _Varying:
    """A group of nodes that includes convolutions of cells; the operations on the `edges` of these convolutions decide
    which unit the group is.
    """

    labels: tuple[Label, ...]
    edges: tuple[int, ...]
    count: int


class _Nets:
    """Assembles nets from cells, and knows the unit of each node."""

    def __init__(self) -> None:
        trace = Trace(((1, 3, SIZE, SIZE),))
        x = stem(trace.input())
        ends = [x.ref]
        cells: dict[Label, Unit] = {}
        for stage, channels in enumerate(CHANNELS):
            if stage:
                x = residual(x, channels)
                ends.append(x.ref)
            aside = Trace((x.shape,))
            for name in OPERATIONS:
                operation(name, aside.input())
            aside.apply(layer("Add"), aside.input(), aside.input())
            for node in aside.nodes:
                op = node.unit.layers[0]
                token = op.kind if op.kind != "Conv" else f"Conv{op.pair('kernel')[0]}"
                cells[stage, token] = node.unit
        self._outside = trace.net(head(x))
        self._ends = {ref: stage for stage, ref in enumerate(ends)}
        self._cells = cells
        self._numbers: dict[tuple[tuple[Label, ...], tuple[int, ...]], int] = {}
        self.units: dict[Unit, int] = {}

    def groups(self, cell: _Graph, rules: FusionRules) -> Counter[tuple[Label, ...]]:
        """The number of times that each group of nodes occurs in the net that is built from a cell."""
        if not rules.chains:
            alone: Counter[tuple[Label, ...]] = Counter()
            for label in ((stage, token) for stage in range(len(CHANNELS)) for token in cell.tokens):
                alone[(label,)] += CELLS
            alone.update(((_OUTSIDE, number),) for number in range(len(self._outside.nodes)))
            return alone
        labels: list[Label] = []
        inputs: list[tuple[int, ...]] = []
        stands: dict[int, int] = {-1: -1}  # outer node -> its number, or that of the output of the cells after it
        for number, node in enumerate(self._outside.nodes):
            inputs.append(tuple(stands[ref] for ref in node.inputs))
            labels.append((_OUTSIDE, number))
            stands[number] = len(labels) - 1
            if number in self._ends:
                for _ in range(CELLS):
                    start, before = len(labels), stands[number]
                    labels += [(self._ends[number], token) for token in cell.tokens]
                    inputs += [tuple(ref + start if ref >= 0 else before for ref in refs) for refs in cell.inputs]
                    stands[number] = cell.output + start if cell.output >= 0 else before
        read = Counter([*(ref for refs in inputs for ref in refs), stands[len(self._outside.nodes) - 1]])
        readers = [read[index] for index in range(len(labels))]
        kinds = [(self._kind(label),) for label in labels]
        return Counter(tuple(labels[n] for n in group) for group in groups(kinds, inputs, readers, rules))

    def split(self, counts: Counter[tuple[Label, ...]]) -> tuple[dict[int, int], list[_Varying]]:
        """The counts of the units that all nets of a structure share, by the unit's number, and the groups whose unit
        varies.
        """
        fixed: dict[int, int] = {}
        varying: list[_Varying] = []
        for labels, count in counts.items():
            edges = tuple(token for stage, token in labels if stage != _OUTSIDE and isinstance(token, int))
            if edges:
                varying.append(_Varying(labels, edges, count))
            else:
                number = self.number(labels, ())
                fixed[number] = fixed.get(number, 0) + count
        return fixed, varying

    def number(self, labels: tuple[Label, ...], operations: tuple[int, ...]) -> int:
        """The number of the unit of a group of nodes whose convolutions in cells have these operations."""
        key = (labels, operations)
        if key not in self._numbers:
            unit = self._unit(labels, operations)
            self._numbers[key] = self.units.setdefault(unit, len(self.units))
        return self._numbers[key]

    def _unit(self, labels: tuple[Label, ...], operations: tuple[int, ...]) -> Unit:
        waiting = list(operations)
        singles = []
        for stage, token in labels:
            if isinstance(token, str):
                singles.append(self._cells[stage, token])
            elif stage == _OUTSIDE:
                singles.append(self._outside.nodes[token].unit)
            else:
                singles.append(self._cells[stage, "Conv3" if waiting.pop(0) == _WIDE else "Conv1"])
        others = tuple(shape for unit in singles[1:] for shape in unit.inputs[1:])
        return Unit(layers=tuple(unit.layers[0] for unit in singles), inputs=singles[0].inputs + others)

    def _kind(self, label: Label) -> str:
        stage, token = label
        if isinstance(token, str):
            return token
        return self._outside.nodes[token].unit.kinds[0] if stage == _OUTSIDE else "Conv"


def _cell_graph(operations: Sequence[int]) -> _Graph:
    """The nodes of a cell; the number -1 stands for its input."""
    graph = _Graph()
    graph.output = _wired(
        -1, lambda edge, source: _edge(graph, edge, OPERATIONS[operations[edge]], source), partial(graph.add, "Add")
    )
    return graph


def _edge(graph: _Graph, edge: int, name: str, x: int) -> int:
    """The number of the last node of the operation on an edge."""
    if name == "skip_connect":
        return x
    if name == "none":
        return graph.add("Zeros", x)
    if name == "avg_pool_3x3":
        return graph.add("AveragePool", x)
    return graph.add("BatchNormalization", graph.add(edge, graph.add("Relu", x)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NasBench201:
    """The search space."""

    name: ClassVar[str] = "nasbench201"
    space: Space = field(init=False)
    _tables: dict[frozenset[Chain], CountTables] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        slots = tuple(Slot(f"edge {source}->{target}", OPERATIONS) for source, target in EDGES)
        object.__setattr__(self, "space", Space(slots))

    def net(self, assignment: Assignment) -> Net:
        """The net of the operations on the six edges."""
        operations = [int(choice) for choice in assignment]
        self.space.encode(operations)
        return whole_net(operations)

    def tables(self, rules: FusionRules = UNFUSED) -> CountTables:
        """All units and how to count them. The tables for each set of rules are built only once."""
        if rules.chains not in self._tables:
            self._tables[rules.chains] = tables_of(self.space, rules)
        return self._tables[rules.chains]

    def assignment_of(self, text: str) -> tuple[int, ...]:
        """The assignment for an architecture string. ProblemError for a malformed string."""
        parts = text.strip().split("+")
        chosen: list[int] = []
        for target, part in enumerate(parts, start=1):
            inner = part[1:-1].split("|") if len(part) > 2 and part[0] == part[-1] == "|" else []
            for source, word in enumerate(inner):
                match = _NODE.fullmatch(word)
                if match is None or match["operation"] not in OPERATIONS or int(match["source"]) != source:
                    raise ProblemError(
                        f"{word[:80]!r} is not an operation on the edge from node {source} to node {target}",
                        hint=f"Write OPERATION~{source}, with one of the operations {', '.join(OPERATIONS)}.",
                    )
                chosen.append(OPERATIONS.index(match["operation"]))
            if len(inner) != target:
                break
        if len(parts) != 3 or len(chosen) != len(EDGES):
            raise ProblemError(
                f"{text[:80]!r} is not an architecture of NAS-Bench-201",
                hint="Write it like |nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|none~1|avg_pool_3x3~2|",
            )
        return tuple(chosen)
