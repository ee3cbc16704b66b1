"""Prices of operators on two sides of a device that do not share memory, and of bringing tensors across.

The two sides are `HOME`, where a model's inputs and outputs lie, and `AWAY`, such as a GPU. A run costs what each
operator takes on its side, plus for each tensor whose writer and reader lie on different sides a fixed time and a
time a byte, plus a base. All of these are found together from a few placements that were run whole and step by step:
the steps say which operator is dear, the whole runs what it all adds up to.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import CostModel, Objective, PairCost
from gnomon.core.graph import Graph
from gnomon.core.space import Slot, Space

HOME, AWAY = 0, 1
Array = NDArray[np.float64]
Sides = tuple[int, ...]

_BRING, _FETCH, _TURN = 0, 2, 4  # columns of a crossing: home to away, away to home in the step, and in the reader
_BASE, _STEP_HOME, _STEP_AWAY = 6, 7, 8
_COMMON = 9
_RIDGE = 1e-4
_WHOLE_ERROR, _STEP_ERROR, _STEP_FLOOR = 0.03, 0.08, 0.002
_REWEIGHTINGS, _HUBER, _SPEED_ERROR = 8, 1.0, 0.3
_PATIENCE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """What of a graph counts for crossings, by operator.

    `edges` are (writer, reader, bytes), a tensor each; `written` the bytes of every tensor that an operator writes;
    `returned` of those that the caller reads. `free` operators compute nothing: they only hand on.
    """

    edges: tuple[tuple[int, int, float], ...]
    written: tuple[tuple[float, ...], ...]
    returned: tuple[tuple[float, ...], ...]
    free: frozenset[int]

    @property
    def count(self) -> int:
        """The number of operators."""
        return len(self.written)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedRun:
    """A placement that was run: the side of each operator, and seconds of the whole or of each step (or both).

    A step computes one operator whose inputs lie at home, too, and waits until its outputs do: away, it fetches
    them all; it brings only what was written at home. `weight` says how much the run counts against others.
    """

    sides: Sides
    total_s: float | None = None
    steps_s: tuple[float, ...] | None = None
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferPrices:
    """Seconds: of each operator on each side, shape (operators, 2), infinite where none was observed; of crossings.

    `bring_s` and `fetch_s` are (fixed, a byte) of a tensor that goes away and comes home; `base_s` is what any run
    costs beside its operators. `error` is the median relative difference from the whole runs that were fitted.
    """

    wiring: Wiring
    own_s: Array
    bring_s: tuple[float, float]
    fetch_s: tuple[float, float]
    base_s: float
    error: float

    def crossing_s(self, size: float, *, away: bool) -> float:
        """Seconds for a tensor of some bytes that goes away, or comes home."""
        fixed, each = self.bring_s if away else self.fetch_s
        return fixed + each * size

    def total_s(self, sides: Sequence[int]) -> float:
        """The predicted seconds of a whole run."""
        total = self.base_s + sum(float(self.own_s[k, side]) for k, side in enumerate(sides))
        for k, side in enumerate(sides):
            if side == AWAY:
                total += sum(self.crossing_s(size, away=False) for size in self.wiring.returned[k])
        for writer, reader, size in self.wiring.edges:
            if sides[writer] != sides[reader]:
                total += self.crossing_s(size, away=sides[reader] == AWAY)
        return total


def wiring_of(graph: Graph, free_types: Collection[str] = ()) -> Wiring:
    """The wiring of a graph; a tensor of unknown size counts as one of the median size."""
    known = [t.size_bytes for t in graph.tensors if t.size_bytes is not None and not t.constant]
    usual = float(np.median(known)) if known else 0.0

    def size(tensor: int) -> float:
        found = graph.tensors[tensor].size_bytes
        return usual if found is None else float(found)

    returned = set(graph.outputs)
    return Wiring(
        edges=tuple((e.producer, e.consumer, size(e.tensor)) for e in graph.edges()),
        written=tuple(tuple(size(t) for t in op.outputs) for op in graph.operators),
        returned=tuple(tuple(size(t) for t in op.outputs if t in returned) for op in graph.operators),
        free=frozenset(op.index for op in graph.operators if op.type in free_types),
    )


def alternating(graph: Graph, movable: Collection[int]) -> tuple[Sides, Sides]:
    """Two placements that are each other's opposite, in which as many tensors cross as a layering allows."""
    depth: list[int] = []
    before: dict[int, list[int]] = {}
    for edge in graph.edges():
        before.setdefault(edge.consumer, []).append(edge.producer)
    for op in graph.operators:
        depth.append(1 + max((depth[k] for k in before.get(op.index, ())), default=-1))
    even = tuple(AWAY if k in movable and d % 2 == 0 else HOME for k, d in enumerate(depth))
    odd = tuple(AWAY if k in movable and d % 2 else HOME for k, d in enumerate(depth))
    return even, odd


def random_sides(count: int, movable: Collection[int], number: int, seed: int) -> list[Sides]:
    """Placements drawn from a seed: half of the operators away on average, in stretches short and long.

    Every other one decides for each operator alone; in the rest an operator stays where the one before it lies, in
    three of four cases. So some have many crossings and others few, which is what tells crossings from operators.
    """
    rng = np.random.default_rng(seed)
    made = []
    for draw in range(number):
        keep = 0.5 if draw % 2 == 0 else 0.25
        flips = rng.random(count) < keep
        flips[:1] = rng.random(1) < 0.5
        path = np.cumsum(flips) % 2
        made.append(tuple(int(side) if k in movable else HOME for k, side in enumerate(path)))
    return made


def fit_transfers(wiring: Wiring, runs: Sequence[PlacedRun]) -> TransferPrices:
    """Prices that explain the runs best: robust weighted least squares, no price below zero.

    Errors are taken as relative to what was measured. Unknown are each operator's time on each side on which it was
    seen, the fixed time and the time a byte of each direction (coming home in two parts, since a step away fetches
    while the reader at home turns what was fetched into its own layout), the base, and what taking a step costs.
    ValueError if no run is whole.
    """
    whole = [run for run in runs if run.total_s is not None]
    if not whole:
        raise ValueError("no whole run to price from")
    sizes = [size for group in wiring.written for size in group]
    unit = max(float(np.mean(sizes)) if sizes else 1.0, 1.0)
    found, seen = _fitted(*_equations(wiring, runs, unit))
    count = wiring.count
    own = np.where(seen[: 2 * count], found[: 2 * count], np.inf).reshape(2, count).T.copy()
    for k in wiring.free:  # what takes no time is known where some run had it
        own[k] = [0.0 if any(run.sides[k] == side for run in runs) else np.inf for side in (HOME, AWAY)]
    common = found[2 * count :]
    fetch = common[_FETCH : _FETCH + 2] + common[_TURN : _TURN + 2]
    prices = TransferPrices(
        wiring=wiring,
        own_s=own,
        bring_s=(float(common[_BRING]), float(common[_BRING + 1]) / unit),
        fetch_s=(float(fetch[0]), float(fetch[1]) / unit),
        base_s=float(common[_BASE]),
        error=0.0,
    )
    gaps = [abs(prices.total_s(run.sides) / run.total_s - 1) for run in whole if run.total_s]
    return replace(prices, error=float(np.median(gaps)))


def _equations(wiring: Wiring, runs: Sequence[PlacedRun], unit: float) -> tuple[Array, Array, NDArray[np.intp]]:
    """Rows of unknowns, what was measured of each, in units of the error that it may have, and what shares a speed.

    The latter is a number for the steps of each run on each side, and -1 for whole runs.
    """
    rows, right, of = [], [], []
    for number, run in enumerate(runs):
        if run.total_s is not None:
            sigma = _WHOLE_ERROR * run.total_s / run.weight
            rows.append(_whole_row(wiring, run.sides, unit) / sigma)
            right.append(run.total_s / sigma)
            of.append(-1)
        if run.steps_s is not None:
            floor = _STEP_FLOOR * sum(run.steps_s)
            for k, time_s in enumerate(run.steps_s):
                if time_s > 0:
                    sigma = (_STEP_ERROR * time_s + floor) / run.weight
                    rows.append(_step_row(wiring, run.sides, k, unit) / sigma)
                    right.append(time_s / sigma)
                    of.append(2 * number + run.sides[k])
    return np.asarray(rows), np.asarray(right), np.asarray(of, dtype=np.intp)


def _fitted(left: Array, right: Array, of: NDArray[np.intp]) -> tuple[Array, NDArray[np.bool_]]:
    """The unknowns, and which of them some row has.

    Rows that lie far off count less than squared (Huber). The machine may have had another speed while the steps of
    a run were taken, and neighbours slow one side more than the other: so the steps of a run have a factor on each
    side, near 1 unless other runs say otherwise. Whole runs are taken as they are.
    """
    seen = np.abs(left).max(axis=0) > 0
    scale = np.where(seen, np.sqrt((left**2).sum(axis=0)), 1.0)
    ridge = _RIDGE * np.eye(left.shape[1])
    weight, target = np.ones(len(right)), right.copy()
    x = np.zeros(left.shape[1])
    for _ in range(_REWEIGHTINGS):
        padded = np.concatenate([target * weight, np.zeros(len(ridge))])
        x = nonnegative_least_squares(np.vstack([left / scale * weight[:, None], ridge]), padded) / scale
        made = left @ x
        for number in range(of.max() + 1):
            rows = of == number
            seen_s, counted = right[rows], weight[rows] ** 2
            steady = 1 / _SPEED_ERROR**2
            factor = (counted @ (made[rows] * seen_s) + steady) / (counted @ seen_s**2 + steady)
            target[rows] = factor * seen_s
        weight = np.sqrt(np.minimum(1.0, _HUBER / np.maximum(np.abs(made - target), 1e-300)))
    return x, seen


def transfer_model(names: Sequence[str], backends: tuple[str, str], prices: TransferPrices) -> CostModel:
    """The exact placement problem of the prices: a slot an operator, pair costs where tensors may cross."""
    slots = []
    for k, row in enumerate(prices.own_s):
        cost = row.copy()
        cost[AWAY] += sum(prices.crossing_s(size, away=False) for size in prices.wiring.returned[k])
        if k == 0:  # every run pays the base, wherever its operators lie
            cost += prices.base_s
        slots.append(cost[:, None])
    pairs = []
    for writer, reader, size in prices.wiring.edges:
        table = np.zeros((2, 2, 1))
        table[HOME, AWAY, 0] = prices.crossing_s(size, away=True)
        table[AWAY, HOME, 0] = prices.crossing_s(size, away=False)
        pairs.append(PairCost(writer, reader, table))
    return CostModel(
        space=Space(slots=tuple(Slot(name=name, choices=backends) for name in names)),
        objectives=(Objective(name="latency", unit="s"),),
        slot_costs=tuple(slots),
        pairs=tuple(pairs),
    )


def _whole_row(wiring: Wiring, sides: Sides, unit: float) -> Array:
    """Which unknowns a whole run adds up."""
    row = np.zeros(2 * wiring.count + _COMMON)
    common = row[2 * wiring.count :]
    for k, side in enumerate(sides):
        _own(row, wiring, k, side)
        if side == AWAY:
            for size in wiring.returned[k]:
                _cross(common, (_FETCH, _TURN), size / unit)
    for writer, reader, size in wiring.edges:
        if sides[writer] != sides[reader]:
            _cross(common, (_BRING,) if sides[reader] == AWAY else (_FETCH, _TURN), size / unit)
    common[_BASE] = 1.0
    return row


def _step_row(wiring: Wiring, sides: Sides, k: int, unit: float) -> Array:
    """Which unknowns one step adds up."""
    row = np.zeros(2 * wiring.count + _COMMON)
    common = row[2 * wiring.count :]
    side = sides[k]
    _own(row, wiring, k, side)
    common[_STEP_AWAY if side == AWAY else _STEP_HOME] = 1.0
    if side == AWAY:
        for size in wiring.written[k]:
            _cross(common, (_FETCH,), size / unit)
    for writer, reader, size in wiring.edges:
        if reader == k and sides[writer] != side:
            _cross(common, (_BRING,) if side == AWAY else (_TURN,), size / unit)
    return row


def _own(row: Array, wiring: Wiring, k: int, side: int) -> None:
    if k not in wiring.free:
        row[side * wiring.count + k] = 1.0


def _cross(common: Array, columns: tuple[int, ...], size: float) -> None:
    for column in columns:
        common[column] += 1.0
        common[column + 1] += size


def nonnegative_least_squares(left: Array, right: Array) -> Array:
    """The x >= 0 of least squared difference of left @ x from right; `left` has full column rank.

    Block principal pivoting: Portugal, Judice and Vicente, A comparison of block pivoting and interior-point
    algorithms for linear least squares problems with nonnegative variables (1994); it falls back to Murty's single
    pivots, which are finite, where exchanging blocks does not help.
    """
    gram, moment = left.T @ left, left.T @ right
    tiny = 1e-12 * float(np.abs(moment).max(initial=1e-300))
    free = np.ones(len(moment), dtype=bool)
    best, patience = len(moment) + 1, _PATIENCE
    for _ in range(100 + 10 * len(moment)):
        x = np.zeros(len(moment))
        x[free] = np.linalg.solve(gram[np.ix_(free, free)], moment[free])
        gradient = moment - gram @ x
        wrong = np.flatnonzero((free & (x < 0)) | (~free & (gradient > tiny)))
        if not len(wrong):
            return x
        if len(wrong) < best:
            best, patience = len(wrong), _PATIENCE
        elif patience:
            patience -= 1
        else:
            wrong = wrong[-1:]
        free[wrong] = ~free[wrong]
    return np.maximum(x, 0.0)
