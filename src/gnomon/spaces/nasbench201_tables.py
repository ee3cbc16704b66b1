"""The counts of all 15,625 nets of NAS-Bench-201 at once.

The fifteen cells of a net are alike but for their shapes, and its two convolutions but for their kernels, so that one
grouping of numbered nodes, without any shape, serves all nets of a structure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gnomon.core.space import Space
from gnomon.spaces.features import CountTables, Step
from gnomon.spaces.fuse import FusionRules, groups
from gnomon.spaces.layers import layer
from gnomon.spaces.nasbench201_net import CELLS, CHANNELS, EDGES, OPERATIONS, SIZE, head, operation, residual, stem
from gnomon.spaces.symbol import Trace
from gnomon.spaces.unit import Unit

_NARROW, _WIDE = OPERATIONS.index("nor_conv_1x1"), OPERATIONS.index("nor_conv_3x3")
_OUTSIDE = -1

Token = str | int
"""What a node of a cell is: a kind of layer, or, for a convolution, the number of its edge."""

Label = tuple[int, Token]
"""A node of a net: its stage and token, or `_OUTSIDE` and its number among the nodes outside of cells."""


@dataclass(slots=True)
class _Graph:
    """Nodes by number: a token each, and what it reads."""

    tokens: list[Token] = field(default_factory=list)
    inputs: list[tuple[int, ...]] = field(default_factory=list)
    output: int = -1

    def add(self, token: Token, *inputs: int) -> int:
        self.tokens.append(token)
        self.inputs.append(inputs)
        return len(self.tokens) - 1


def tables_of(space: Space, rules: FusionRules, *, live: bool) -> CountTables:
    """The counts of all nets as one look-up by the six operations together; `live` leaves dead parts out."""
    nets = _Nets()
    rows: dict[frozenset[tuple[int, int]], int] = {}
    index = np.zeros((1, space.size), np.int64)
    structures: dict[tuple[int, ...], tuple[dict[int, int], list[_Varying]]] = {}
    for code in range(space.size):
        operations = space.decode(code)
        structure = tuple(_NARROW if choice == _WIDE else choice for choice in operations)
        if structure not in structures:
            structures[structure] = nets.split(nets.groups(_cell_graph(structure, live), rules))
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
    step = Step(slots=tuple(range(len(EDGES))), row=index, next_state=np.zeros_like(index))
    return CountTables(space=space, units=tuple(nets.units), steps=(step,), rows=table)


@dataclass(frozen=True, slots=True)
class _Varying:
    """A group of nodes with convolutions of a cell, whose edges decide which unit it is."""

    labels: tuple[Label, ...]
    edges: tuple[int, ...]
    count: int


class _Nets:
    """Puts cells together to nets, and knows the unit of each node."""

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
                one = node.unit.layers[0]
                token = one.kind if one.kind != "Conv" else f"Conv{one.pair('kernel')[0]}"
                cells[stage, token] = node.unit
        self._outside = trace.net(head(x))
        self._ends = {ref: stage for stage, ref in enumerate(ends)}
        self._cells = cells
        self._known: dict[tuple[tuple[Label, ...], tuple[int, ...]], int] = {}
        self.units: dict[Unit, int] = {}

    def groups(self, cell: _Graph | None, rules: FusionRules) -> Counter[tuple[Label, ...]]:
        """How often each group of nodes occurs in the net of a cell; without a cell the net is dead: none."""
        if cell is None:
            return Counter()
        if not rules.chains:
            alone: Counter[tuple[Label, ...]] = Counter()
            for label in ((stage, token) for stage in range(len(CHANNELS)) for token in cell.tokens):
                alone[(label,)] += CELLS
            alone.update(((_OUTSIDE, number),) for number in range(len(self._outside.nodes)))
            return alone
        labels: list[Label] = []
        inputs: list[tuple[int, ...]] = []
        stands: dict[int, int] = {-1: -1}  # where each outer node, or what the cells make of it, stands
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
        readers = [0] * len(labels)
        for ref in (*(ref for refs in inputs for ref in refs), stands[len(self._outside.nodes) - 1]):
            if ref >= 0:
                readers[ref] += 1
        kinds = [(self._kind(label),) for label in labels]
        return Counter(tuple(labels[n] for n in group) for group in groups(kinds, inputs, readers, rules))

    def split(self, counts: Counter[tuple[Label, ...]]) -> tuple[dict[int, int], list[_Varying]]:
        """Groups that are the same unit in every net of the structure, by its number, and those that vary."""
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
        """The number of the unit of a group of nodes whose convolutions of cells do these operations."""
        key = (labels, operations)
        if key not in self._known:
            unit = self._unit(labels, operations)
            self._known[key] = self.units.setdefault(unit, len(self.units))
        return self._known[key]

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


def _cell_graph(operations: Sequence[int], live: bool) -> _Graph | None:
    """The nodes of a cell, whose input is -1; None where its output does not depend on its input."""
    graph = _Graph()
    nodes: list[int | None] = [-1]
    for target in (1, 2, 3):
        total: int | None = None
        for edge, (source, end) in enumerate(EDGES):
            x = nodes[source] if end == target else None
            if x is None:
                continue
            term = _edge(graph, edge, OPERATIONS[operations[edge]], x, live)
            total = term if total is None else total if term is None else graph.add("Add", total, term)
        nodes.append(total)
    if nodes[-1] is None:
        return None
    graph.output = nodes[-1]
    return _needed(graph) if live else graph


def _edge(graph: _Graph, edge: int, name: str, x: int, live: bool) -> int | None:
    """The operation on an edge; None for zeros that are left out."""
    if name == "skip_connect":
        return x
    if name == "none":
        return None if live else graph.add("Zeros", x)
    if name == "avg_pool_3x3":
        return graph.add("AveragePool", x)
    return graph.add("BatchNormalization", graph.add(edge, graph.add("Relu", x)))


def _needed(graph: _Graph) -> _Graph:
    """Without the nodes that the output does not need."""
    wanted = {graph.output}
    for index in reversed(range(len(graph.tokens))):
        if index in wanted:
            wanted.update(graph.inputs[index])
    kept = sorted(index for index in wanted if index >= 0)
    number = {old: new for new, old in enumerate(kept)} | {-1: -1}
    inputs = [tuple(number[ref] for ref in graph.inputs[index]) for index in kept]
    return _Graph([graph.tokens[index] for index in kept], inputs, number[graph.output])
