"""Prices of operators on sides of a device that do not share memory, and of moving tensors between the sides.

The sides are `HOME`, where a model's inputs and outputs lie, and remote sides (`AWAY` and higher numbers), such as a
GPU. A run costs the time of each operator on its side, plus a fixed time and a time per byte for each tensor and each
side that reads but does not write it, plus a base. From one remote side to another, a tensor goes via home. All these
prices are found together from a few placements that were run both as a whole and step by step: the steps show which
operators are expensive, and the whole runs show the total.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import CostModel, Objective, PairCost, add_pair
from gnomon.core.graph import Graph
from gnomon.core.pricing.price import Array, bounded_least_squares
from gnomon.core.space import Slot, Space

HOME, AWAY = 0, 1
Sides = tuple[int, ...]

_BASE, _STEP_HOME, _COMMON = 0, 1, 2
_BRING, _FETCH, _TURN, _STEP, _UNSEEN, _OF_SIDE = 0, 2, 4, 6, 7, 8
"""Columns of a side's crossings: from home to the side, from the side to home in the step and in the reader, the cost
of a step, and the part of a crossing that no step shows, such as the start of the computation after the crossing.
"""
_RIDGE = 1e-4
_WHOLE_ERROR, _STEP_ERROR, _STEP_FLOOR = 0.03, 0.08, 0.002
_REWEIGHTINGS, _HUBER, _SPEED_ERROR = 8, 1.0, 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """A tensor of `size` bytes, its writer (None: the caller) and its readers; `returned`: the caller reads it."""

    writer: int | None
    readers: tuple[int, ...]
    size: float
    returned: bool

    def source(self, sides: Sequence[int]) -> int:
        """The side where the tensor is written."""
        return HOME if self.writer is None else sides[self.writer]

    def targets(self, sides: Sequence[int]) -> frozenset[int]:
        """The other sides where the tensor is read."""
        read = {sides[k] for k in self.readers} | ({HOME} if self.returned else set())
        return frozenset(read - {self.source(sides)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """The parts of a graph that matter for crossings.

    `tensors` are the model's inputs and all tensors that operators write; `written` has the bytes of every tensor that
    each operator writes. `free` operators compute nothing and only pass tensors on.
    """

    tensors: tuple[Carried, ...]
    written: tuple[tuple[float, ...], ...]
    free: frozenset[int]

    @property
    def count(self) -> int:
        """The number of operators."""
        return len(self.written)

    @property
    def edges(self) -> tuple[tuple[int, int, float], ...]:
        """The edges as (writer, reader, bytes), in order of the reader."""
        links = [(t.writer, k, t.size) for t in self.tensors if t.writer is not None for k in t.readers]
        return tuple(sorted(links, key=lambda edge: edge[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Operators of one side that a run timed together, and their seconds."""

    operators: tuple[int, ...]
    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedRun:
    """A placement that was run: the side of each operator, the seconds of the whole run, and any traced steps.

    If the steps are `apart`, each computes one operator, whose inputs also lie at home, and waits until its outputs are
    at home as well. On a remote side, such a step brings only tensors that were written on other sides, and fetches all
    its outputs. Steps that are not `apart` were timed within the whole run: a step brings the tensors that its
    operators are the first to read on their side, and fetches those that are read on other sides.
    """

    sides: Sides
    total_s: float
    steps: tuple[Step, ...] = ()
    apart: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferPrices:
    """The seconds of operators and of crossings.

    `own_s` has the seconds of each operator on each side, shape (operators, sides), infinite where none were observed.
    `bring_s` and `fetch_s` have, for each remote side, the fixed seconds and the seconds per byte of a tensor that goes
    there or comes home; `base_s` is the cost of any run besides its operators. `error` is the median relative
    difference between the predictions and the whole runs that were fitted.
    """

    wiring: Wiring
    own_s: Array
    bring_s: tuple[tuple[float, float], ...]
    fetch_s: tuple[tuple[float, float], ...]
    base_s: float
    error: float

    def crossing_s(self, size: float, source: int, target: int) -> float:
        """The seconds for moving a tensor of `size` bytes from one side to another."""
        if source == target:
            return 0.0
        ways = [self.fetch_s[source - 1]] if source != HOME else []
        ways += [self.bring_s[target - 1]] if target != HOME else []
        return sum(fixed + each * size for fixed, each in ways)

    def carried_s(self, tensor: Carried, sides: Sequence[int]) -> float:
        """The seconds for all crossings of a tensor in a placement."""
        source = tensor.source(sides)
        return sum(self.crossing_s(tensor.size, source, target) for target in tensor.targets(sides))

    def total_s(self, sides: Sequence[int]) -> float:
        """The predicted seconds of a whole run."""
        total = self.base_s + sum(float(self.own_s[k, side]) for k, side in enumerate(sides))
        return total + sum(self.carried_s(tensor, sides) for tensor in self.wiring.tensors)


def wiring_of(graph: Graph, free_types: Collection[str] = (), folded: Mapping[int, int] | None = None) -> Wiring:
    """The wiring of a graph; a tensor of unknown size counts as one of the median size.

    `folded` operators do not exist when the model runs: their reads and writes belong to the operator that absorbed
    them.
    """
    sizes = [t.size_bytes for t in graph.tensors if t.size_bytes is not None and not t.constant]
    usual = float(np.median(sizes)) if sizes else 0.0
    into = folded or {}

    def size(tensor: int) -> float:
        bytes_ = graph.tensors[tensor].size_bytes
        return usual if bytes_ is None else float(bytes_)

    writer = {t: into.get(op.index, op.index) for op in graph.operators for t in op.outputs}
    readers: dict[int, list[int]] = {}
    for edge_reader, tensor in ((op.index, t) for op in graph.operators for t in dict.fromkeys(op.inputs)):
        reader = into.get(edge_reader, edge_reader)
        if writer.get(tensor) != reader:
            readers.setdefault(tensor, []).append(reader)
    given = [t for t in graph.inputs if t not in writer and not graph.tensors[t].constant]
    tensors = tuple(
        Carried(
            writer=writer.get(t),
            readers=tuple(sorted(set(readers.get(t, ())))),
            size=size(t),
            returned=t in graph.outputs,
        )
        for t in (*given, *writer)
    )
    return Wiring(
        tensors=tensors,
        written=tuple(tuple(size(t) for t in op.outputs) for op in graph.operators),
        free=frozenset(op.index for op in graph.operators if op.type in free_types or op.index in into),
    )


def alternating(graph: Graph, movable: Collection[int]) -> tuple[Sides, Sides]:
    """Two opposite placements in which as many tensors cross as a layering allows."""
    depth: list[int] = []
    before: dict[int, list[int]] = {}
    for edge in graph.edges():
        before.setdefault(edge.consumer, []).append(edge.producer)
    for op in graph.operators:
        depth.append(1 + max((depth[k] for k in before.get(op.index, ())), default=-1))
    even = tuple(AWAY if k in movable and d % 2 == 0 else HOME for k, d in enumerate(depth))
    odd = tuple(AWAY if k in movable and d % 2 else HOME for k, d in enumerate(depth))
    return even, odd


def random_sides(count: int, movable: Sequence[Collection[int]], number: int, seed: int) -> list[Sides]:
    """Random placements from a seed; with two sides, half of the operators are away on average.

    Every other placement decides for each operator separately. In the others, an operator stays on its predecessor's
    side in three out of four cases. So some placements have many crossings and others few, which separates the prices
    of crossings from the prices of operators. `movable` has the operators that may lie on each remote side.
    """
    sides = len(movable) + 1
    rng = np.random.default_rng(seed)
    placements = []
    for draw in range(number):
        keep = 0.5 if draw % 2 == 0 else 0.25
        flips = rng.random(count) < keep
        flips[:1] = rng.random(1) < 0.5
        turns = flips * rng.integers(1, sides, count) if sides > 2 else flips
        path = np.cumsum(turns) % sides
        placements.append(tuple(int(s) if s != HOME and k in movable[s - 1] else HOME for k, s in enumerate(path)))
    return placements


def fit_transfers(wiring: Wiring, runs: Sequence[PlacedRun], *, sides: int = 2) -> TransferPrices:
    """The prices that explain the runs best, by robust weighted least squares; no price is below zero.

    Errors are assumed to be relative to the measured times. The unknowns are each operator's time on each side where it
    was seen; the fixed time and the time per byte of each direction (the way home has two parts, because a step away
    fetches a tensor and the reader at home turns it into its own layout); the part of a crossing that no step shows;
    the base; and the cost of a step. ValueError without a run.
    """
    if not runs:
        raise ValueError("no run to price from")
    sizes = [size for group in wiring.written for size in group]
    unit = max(float(np.mean(sizes)) if sizes else 1.0, 1.0)
    rows = _Rows(wiring, sides, unit)
    unknowns, seen = _fitted(*_equations(rows, runs, sides))
    count = wiring.count
    own = np.where(seen[: sides * count], unknowns[: sides * count], np.inf).reshape(sides, count).T.copy()
    for k in wiring.free:  # operators that take no time are known on each side where some run had them
        own[k] = [0.0 if any(run.sides[k] == side for run in runs) else np.inf for side in range(sides)]
    bring, fetch = [], []
    for side in range(AWAY, sides):
        common = unknowns[rows.crossings(side) : rows.crossings(side) + _OF_SIDE]
        home = common[_FETCH : _FETCH + 2] + common[_TURN : _TURN + 2]
        unseen = float(common[_UNSEEN])
        bring.append((unseen + float(common[_BRING]), float(common[_BRING + 1]) / unit))
        fetch.append((unseen + float(home[0]), float(home[1]) / unit))
    prices = TransferPrices(
        wiring=wiring,
        own_s=own,
        bring_s=tuple(bring),
        fetch_s=tuple(fetch),
        base_s=float(unknowns[sides * count + _BASE]),
        error=0.0,
    )
    gaps = [abs(prices.total_s(run.sides) / run.total_s - 1) for run in runs if run.total_s]
    return replace(prices, error=float(np.median(gaps)))


def _equations(rows: _Rows, runs: Sequence[PlacedRun], sides: int) -> tuple[Array, Array, NDArray[np.intp]]:
    """The rows of the unknowns and the measured times, both in units of the expected error; and the groups of equal
    speed.

    A group is a number for the steps of each run on each side, and -1 for whole runs.
    """
    left, right, of = [], [], []
    for number, run in enumerate(runs):
        sigma = _WHOLE_ERROR * run.total_s
        left.append(rows.whole(run.sides) / sigma)
        right.append(run.total_s / sigma)
        of.append(-1)
        floor = _STEP_FLOOR * sum(step.time_s for step in run.steps)
        for step in run.steps:
            if step.time_s > 0:
                sigma = _STEP_ERROR * step.time_s + floor
                left.append((rows.apart if run.apart else rows.within)(run.sides, step.operators) / sigma)
                right.append(step.time_s / sigma)
                of.append(sides * number + run.sides[step.operators[0]])
    return np.asarray(left), np.asarray(right), np.asarray(of, dtype=np.intp)


def _fitted(left: Array, right: Array, of: NDArray[np.intp]) -> tuple[Array, NDArray[np.bool_]]:
    """The unknowns, and a mask of the unknowns that occur in some row.

    Rows that lie far off count less than by their square (Huber). The machine may have had a different speed while the
    steps of a run were measured, and other load slows one side more than the other. So the steps of a run have a factor
    on each side, which is near 1 unless other runs contradict it. Whole runs are used unchanged.
    """
    seen = np.abs(left).max(axis=0) > 0
    scale = np.where(seen, np.sqrt((left**2).sum(axis=0)), 1.0)
    ridge = _RIDGE * np.eye(left.shape[1])
    weight, target = np.ones(len(right)), right.copy()
    x = np.zeros(left.shape[1])
    for _ in range(_REWEIGHTINGS):
        padded = np.concatenate([target * weight, np.zeros(len(ridge))])
        scaled = np.vstack([left / scale * weight[:, None], ridge])
        x = bounded_least_squares(scaled, padded, np.zeros(len(scale))) / scale
        predicted = left @ x
        for number in range(of.max() + 1):
            rows = of == number
            seen_s, counted = right[rows], weight[rows] ** 2
            steady = 1 / _SPEED_ERROR**2
            factor = (counted @ (predicted[rows] * seen_s) + steady) / (counted @ seen_s**2 + steady)
            target[rows] = factor * seen_s
        weight = np.sqrt(np.minimum(1.0, _HUBER / np.maximum(np.abs(predicted - target), 1e-300)))
    return x, seen


def transfer_model(
    names: Sequence[str], backends: Sequence[str], prices: TransferPrices, *, shared: bool = True
) -> CostModel:
    """The exact placement problem for these prices: a slot for each operator, and pair costs where tensors may cross.

    A tensor with several readers crosses once to each side. It has its own slot, after the slots of the operators; the
    choices of this slot are the sets of sides where the tensor is then present. Without `shared` there are no such
    slots, and each reader pays. If there is only one backend, a second one is added that no operator can take.
    """
    backends = backends if len(backends) > 1 else (*backends, "none")
    sides = len(backends)
    costs = [row.copy() for row in prices.own_s]
    slots = [Slot(name=name, choices=tuple(backends)) for name in names]
    if costs:  # every run pays the base, whatever the placement
        costs[0] += prices.base_s
    tables: dict[tuple[int, int], Array] = {}

    for number, tensor in enumerate(prices.wiring.tensors):
        ends = len(tensor.readers) + tensor.returned
        if not ends:
            continue
        ways = np.asarray([[prices.crossing_s(tensor.size, a, b) for b in range(sides)] for a in range(sides)])
        if ends > 1 and shared:
            hub, there = len(slots), _subsets(sides)
            choices = tuple(" ".join(backends[s] for s in sorted(own)) for own in there)
            slots.append(Slot(name=f"tensor {number}", choices=choices))
            every = range(sides)
            spread = np.array([[sum(ways[a, b] for b in own) if a in own else np.inf for own in there] for a in every])
            alone = np.zeros(len(there))
            if tensor.returned:
                alone += [0.0 if HOME in own else np.inf for own in there]
            if tensor.writer is None:
                alone += spread[HOME]
            else:
                add_pair(tables, tensor.writer, hub, spread)
            costs.append(alone)
            reads = np.array([[0.0 if s in own else np.inf for own in there] for s in range(sides)])
            for reader in tensor.readers:
                add_pair(tables, reader, hub, reads)
            continue
        for reader in tensor.readers:
            if tensor.writer is None:
                costs[reader] += ways[HOME]
            else:
                add_pair(tables, tensor.writer, reader, ways)
        if tensor.returned and tensor.writer is not None:
            costs[tensor.writer] += ways[:, HOME]
    return CostModel(
        space=Space(slots=tuple(slots)),
        objectives=(Objective(name="latency", unit="s"),),
        slot_costs=tuple(cost[:, None] for cost in costs),
        pairs=tuple(PairCost(a, b, table[:, :, None]) for (a, b), table in tables.items()),
    )


def _subsets(sides: int) -> list[frozenset[int]]:
    every = range(sides)
    return [frozenset(own) for size in range(1, sides + 1) for own in itertools.combinations(every, size)]


class _Rows:
    """The unknowns that add up to each measured time: each operator's time on each side, the base and the crossings."""

    def __init__(self, wiring: Wiring, sides: int, unit: float) -> None:
        self._wiring, self._sides, self._unit = wiring, sides, unit
        self._common = sides * wiring.count
        self._width = self._common + _COMMON + _OF_SIDE * (sides - 1)

    def crossings(self, side: int) -> int:
        """The index of the first column of a remote side."""
        return self._common + _COMMON + _OF_SIDE * (side - 1)

    def whole(self, sides: Sides) -> Array:
        """The row of a whole run."""
        row = np.zeros(self._width)
        for k, side in enumerate(sides):
            self._own(row, k, side)
        for tensor in self._wiring.tensors:
            source = tensor.source(sides)
            for target in tensor.targets(sides):
                for side, ways in ((source, (_FETCH, _TURN)), (target, (_BRING,))):
                    if side != HOME:
                        self._cross(row, side, ways, tensor.size)
                        row[self.crossings(side) + _UNSEEN] += 1.0
        row[self._common + _BASE] = 1.0
        return row

    def apart(self, sides: Sides, operators: Sequence[int]) -> Array:
        """The row of a step that computes one operator apart from the others."""
        row = np.zeros(self._width)
        for k in operators:
            side = sides[k]
            self._own(row, k, side)
            self._step(row, side)
            if side != HOME:
                for size in self._wiring.written[k]:
                    self._cross(row, side, (_FETCH,), size)
            for writer, reader, size in self._wiring.edges:
                if reader == k and sides[writer] != side:
                    if side != HOME:
                        self._cross(row, side, (_BRING,), size)
                    else:
                        self._cross(row, sides[writer], (_TURN,), size)
        return row

    def within(self, sides: Sides, operators: Sequence[int]) -> Array:
        """The row of a step within a whole run: operators of one side, with the copies that the operators cause."""
        row = np.zeros(self._width)
        own, side = frozenset(operators), sides[operators[0]]
        for k in operators:
            self._own(row, k, side)
        self._step(row, side)
        if side == HOME:
            return row
        for tensor in self._wiring.tensors:
            here = [k for k in tensor.readers if sides[k] == side]
            if tensor.writer in own:
                for _ in tensor.targets(sides):
                    self._cross(row, side, (_FETCH, _TURN), tensor.size)
            elif tensor.source(sides) != side and here and here[0] in own:
                self._cross(row, side, (_BRING,), tensor.size)
        return row

    def _step(self, row: Array, side: int) -> None:
        row[self._common + _STEP_HOME if side == HOME else self.crossings(side) + _STEP] = 1.0

    def _own(self, row: Array, k: int, side: int) -> None:
        if k not in self._wiring.free:
            row[side * self._wiring.count + k] = 1.0

    def _cross(self, row: Array, side: int, columns: tuple[int, ...], size: float) -> None:
        for column in columns:
            row[self.crossings(side) + column] += 1.0
            row[self.crossings(side) + column + 1] += size / self._unit
