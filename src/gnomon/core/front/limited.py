"""The exact minimum under limits: bounds by prices, branching on split slots, and label sets above the bounds.

With a price on each unit used, the least priced cost is a bound on all assignments that keep the limits (Everett,
"Generalized Lagrange multiplier method", 1963). The best prices come from cutting planes, each of which is a minimum.
The bound belongs to a mix of assignments. The search branches on the slot that the mix splits most, in priced uses;
such slots are the few huge layers that cause the gap. Good assignments near the mix are found by moves whose effects
add up. The range between a node's bound and the best assignment is searched by labels (cost and uses), which are kept
as long as no prices near the best prices prove them too expensive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import CostModel, Floats, Ints, OutOfTime, Stop, never
from gnomon.core.front.dominance import uncovered
from gnomon.core.front.labels import Budget, LabelPass, Labels, falling, starts_of
from gnomon.core.front.plan import Minima, Plan, beyond, is_narrow, minimise_weighted, plan_of
from gnomon.core.solver.elimination import Energy, Minimum, weigh
from gnomon.core.solver.limits import Cap, caps_of
from gnomon.core.solver.milp import mixtures
from gnomon.core.solver.ordering import Limits, degeneracy
from gnomon.core.solver.prune import weigh_charges
from gnomon.core.solver.solve import Solution, Time, solution, solve, solve_peaks, why_not

_SHARE = 0.9  # the share of the time; the rest is for HiGHS
_LEAST_S = 1e-3
_MOST_LIMITS = 8  # with more, HiGHS is faster
_ROUNDING = 1e-12  # relative to the bound's magnitude
_DEAREST = 1e3  # times the least cost: the highest price of all that a limit allows; above it, nothing keeps the limit
_CUTS = 40  # the maximum number of minima for the first prices
_TOLERANCE = 1e-9
_CONTENT = 0.05  # prices are good enough if their bound is within this share of the gap
_BATCH = 16  # the maximum number of nodes processed at once
_FAR = 1e-3
_SMALL = 100  # with at most this many choices beyond one per slot, a node is searched by labels at once
_WIDER = 4.0  # the factor on the number of choices when a node is searched again
_HELD, _FIRST = 1 << 24, 1 << 21  # numbers in memory for a batch of minima: near the best, and far from it
_ROUNDS = 9
_MINIMA = 20_000  # the number of minima after which another method takes over
_MOST = 4_000  # the maximum number of a region's labels in a bucket
_ROOM = 20_000_000
_BESIDE = 8
_SHRINK, _GROW, _MANY_FAIL = 0.7, 1.5, 0.3
_EXTRA = 1000.0  # the first number of choices, beyond one per slot, for a search by labels
_REPAIRED = 2  # nodes of a batch from which better assignments are sought
_TURNS, _TOGETHER, _TRIED = 2, 200, 1500  # rounds of moves, and the most moves combined and considered in a round
_SUMS = 400
_FEW = 20  # the labels kept per state if not all are kept
_POOL = 40  # the maximum number of assignments from which prices are computed
_LIMITS = Limits(table_entries=float(1 << 22), total_entries=float(1 << 22))

Kept = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """The best assignment found (None if there is none) and its cost, a lower bound under the limits, and their prices.

    `bound` holds for every assignment that keeps the limits. `prices` has the price of a unit of each limit, and `free`
    is the least cost without limits.
    """

    assignment: tuple[int, ...] | None
    value: float
    bound: float
    prices: Floats
    free: float


@dataclass(frozen=True, slots=True, eq=False)
class _Core:
    """The undecided part of a problem, with its costs and uses.

    `unary` is (slots, choices, 1 + limits), `joint` is (pairs, choices, choices, 1 + limits). A slot has its first
    `sizes` choices; the others are +inf. `ends` (pairs, 2) are the slots of the pairs. `const` (1 + limits,) are the
    cost and the uses of the decided slots.
    """

    unary: Floats
    sizes: Ints
    ends: Ints
    joint: Floats
    const: Floats

    def plan(self) -> Plan | None:
        """The plan for eliminating the core, or None if it is beyond the limits."""
        sizes = self.sizes.tolist()
        if is_narrow(len(sizes), self.ends):  # slots of equal size share buckets
            sizes = [self.unary.shape[1]] * len(sizes)
        unary = [costs[:size] for costs, size in zip(self.unary, sizes, strict=True)]
        pairs = {(i, j): t[: sizes[i], : sizes[j]] for (i, j), t in zip(self.ends.tolist(), self.joint, strict=True)}
        return plan_of(unary, pairs, _LIMITS, wide=True)

    def contracted(self, kept: Kept) -> _Part:
        """The core over some choices (slots, choices), at least one for each slot; slots with one are decided."""
        sizes = kept.sum(axis=1)
        order = np.argsort(~kept, axis=1, kind="stable")[:, : sizes.max(initial=1)]
        unary = np.take_along_axis(self.unary, order[:, :, None], axis=1)
        unary[np.arange(order.shape[1]) >= sizes[:, None]] = np.inf
        first, second = self.ends.T
        numbers = np.arange(len(self.ends))[:, None, None]
        joint = self.joint[numbers, order[first][:, :, None], order[second][:, None, :]]
        left = sizes > 1
        head, other = left[first], left[second]
        np.add.at(unary, second[~head], joint[~head, 0])
        np.add.at(unary, first[head & ~other], joint[head & ~other, :, 0])
        place, both = np.cumsum(left) - 1, head & other
        const = self.const + unary[~left, 0].sum(axis=0)
        core = _Core(unary[left], sizes[left], place[self.ends[both]], joint[both], const)
        return _Part(core, np.flatnonzero(left), order)


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Some slots, `left`, of a core as a separate core; `order` (slots, choices) has the kept choices' indices."""

    core: _Core
    left: Ints
    order: Ints

    def narrowed(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values of the core's choices (.., slots, choices) for the part's choices; 0 beyond a slot's size."""
        order = self.order[self.left]
        order = np.broadcast_to(order, (*values.shape[:-2], *order.shape))
        taken = np.take_along_axis(values[..., self.left, :], order, axis=-1)
        return np.where(np.arange(taken.shape[-1]) < self.core.sizes[:, None], taken, 0)

    def widened(self, assignments: Ints) -> Ints:
        """Assignments (N, slots) of the part as assignments of the core."""
        every = np.repeat(self.order[None, :, 0], len(assignments), axis=0)
        every[:, self.left] = self.order[self.left, assignments]
        return every


@dataclass(frozen=True, slots=True, eq=False)
class _Node:
    """Some choices of a core's slots (slots, choices), a lower bound on them, and the prices that gave the bound.

    `split` (slots, choices) are the shares of the bound's mix that take each choice, `bounds` are the lower bounds with
    each choice, and `rows` are the indices of the assignments from which the prices were computed. The search by labels
    extends so far above the bound that it includes `wide` times the usual number of choices.
    """

    kept: Kept
    bound: float
    prices: Floats
    split: Floats
    bounds: Floats
    rows: Ints
    wide: float = 1.0


class _LimitPass(LabelPass):
    """A label pass for assignments that keep all limits and cost less than their region's bound.

    `failed` (regions,) marks the regions that have too many labels at a bucket. In such a region, a state keeps only a
    few labels, the cheapest at the first prices. The assignments found there are allowed, but prove nothing.
    """

    def __init__(self, plan: Plan, weights: Floats, limits: Floats, budget: Budget) -> None:
        super().__init__(plan, weights, limits, budget)
        self.failed = np.zeros(len(weights), dtype=bool)

    def reduced(self, labels: Labels, groups: Ints) -> Labels:
        """The labels without those that another label of their group covers.

        With one or two limits, all covered labels are dropped; with more, only labels covered by a neighbour in order
        of cost.
        """
        if len(groups) < 2:
            return labels
        order = np.lexsort((*labels.costs[::-1], groups))
        costs, sorted_groups = labels.costs[:, order], groups[order]
        if len(costs) == 2:
            order = order[falling(costs[1], sorted_groups)]
        elif len(costs) == 3:
            order = order[uncovered(costs, sorted_groups)]
        else:
            dropped = np.zeros(len(order), dtype=bool)
            for step in range(1, min(_BESIDE, len(order) - 1) + 1):
                above = (costs[:, :-step] <= costs[:, step:]).all(axis=0)
                dropped[step:] |= above & (sorted_groups[:-step] == sorted_groups[step:])
            order = order[~dropped]
        self.failed |= np.bincount(labels.region[order], minlength=len(self.failed)) > _MOST
        return self._trimmed(labels.take(order), groups[order]) if self.failed.any() else labels.take(order)

    def fewer(self, labels: Labels, groups: Ints, most: int) -> Labels:
        """The labels, with only a few kept in the regions that have the most."""
        counts = np.bincount(labels.region, minlength=len(self.failed))
        largest = np.argsort(-counts, kind="stable")
        rest = len(groups) - np.cumsum(counts[largest])
        self.failed[largest[: int((rest > most).sum()) + 1]] = True
        return self._trimmed(labels, groups)

    def _trimmed(self, labels: Labels, groups: Ints) -> Labels:
        order = np.lexsort((labels.bounds[0], groups))
        starts = starts_of(groups[order])
        rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
        return labels.take(np.sort(order[(rank < _FEW) | ~self.failed[labels.region[order]]]))


def solve_within(
    model: CostModel,
    weights: Mapping[str, float] | None = None,
    *,
    method: str = "auto",
    time_limit_s: float | None = None,
    clock_s: Callable[[], float] | None = None,
) -> Solution:
    """Solve as `solve` does, but under limits "auto" tries prices and labels for most of the time before HiGHS."""
    if any(limit.order for limit in model.limits):
        return solve_peaks(model, partial(solve_within, weights=weights, method=method), time_limit_s, clock_s)
    if method != "auto" or not 0 < len(model.limits) <= _MOST_LIMITS or not model.space.slots:
        return solve(model, weights, method=method, time_limit_s=time_limit_s, clock_s=clock_s)
    vector = model.weight_vector(weights)
    energy, charges = weigh_charges(model, vector, weigh(model, vector))
    if charges:
        return solve(model, weights, time_limit_s=time_limit_s, clock_s=clock_s)
    time, caps = Time(time_limit_s, clock_s), caps_of(model)
    bounded = minimise_within(energy, caps, lambda _: time.used() >= _SHARE)
    if bounded is None:
        return solve(model, weights, method="milp", time_limit_s=time_limit_s, clock_s=clock_s)
    if bounded.bound == np.inf:
        raise why_not(model, energy, charges, caps, time)
    start = None
    if bounded.assignment is not None:
        proved = bounded.bound >= bounded.value
        start = Minimum(assignment=bounded.assignment, width=0, bound=None if proved else bounded.bound)
    if start is not None and start.bound is None:
        by = "elimination" if bounded.value == bounded.free else "branching"
        narrow = degeneracy({slot: {other for other, _ in pairs} for slot, pairs in enumerate(energy.around())})
        answer = replace(solution(model, vector, energy, replace(start, width=narrow), time), method=by)
    else:
        left_s = time.left_s()
        left_s = None if left_s is None else max(left_s, _LEAST_S)
        answer = solve(model, weights, method="milp", time_limit_s=left_s, clock_s=clock_s, start=start)
        answer = replace(answer, bound=max(answer.bound, min(bounded.bound, answer.value)))
    if not np.isfinite(bounded.free):  # there was no time for any prices
        return answer
    return replace(answer, prices=tuple(bounded.prices.tolist()), free=bounded.free)


def minimise_within(energy: Energy, caps: Sequence[Cap], stop: Stop = never) -> Bounded | None:
    """The least cost of an assignment that keeps all caps.

    `value` is +inf if no such assignment was found, and equals `bound` if it is proved. None if elimination is beyond
    its limits. If `stop` returns True, the search ends with the results so far.
    """
    core = _core_of(energy, caps)
    plan = core.plan()
    if plan is None:
        return None
    search = _Search(energy, caps, stop, core, plan)
    with suppress(OutOfTime):
        search.run()
    bound = min(search.bound, search.value)
    return Bounded(assignment=search.best, value=search.value, bound=bound, prices=search.prices, free=search.free)


def _mixed(problems: Sequence[Floats], most: Floats) -> list[tuple[Floats, Floats, float]]:
    """The cheapest mixture, its prices and its cost for each problem of points (N, 1 + limits) of cost and uses."""
    scale = np.maximum(np.abs(most), 1.0)
    bases = [float(points[:, 0].min()) for points in problems]
    units = [abs(base) or 1.0 for base in bases]
    scaled = [
        ((points[:, 0] - base) / unit, (points[:, 1:] - most) / scale)
        for points, base, unit in zip(problems, bases, units, strict=True)
    ]
    return [
        (mix, prices * unit / scale, base + reached * unit)
        for (mix, prices, reached), base, unit in zip(mixtures(scaled, _DEAREST), bases, units, strict=True)
    ]


class _Search:
    """Branch and bound over a whole problem, many nodes at once: the best assignment within the limits, and a bound."""

    def __init__(self, energy: Energy, caps: Sequence[Cap], stop: Stop, core: _Core, plan: Plan) -> None:
        self.energy, self.caps, self.stop = energy, caps, stop
        self.most = np.array([cap.at_most for cap in caps])
        self.best: tuple[int, ...] | None = None
        self.value, self.bound, self.free = np.inf, -np.inf, -np.inf
        self.prices = np.zeros(len(caps))
        self.core, self.plan = core, plan
        self.slots = np.arange(len(self.core.sizes))
        self.choices = np.tile(np.arange(self.core.unary.shape[1]), (len(self.slots), 1))
        self.whole = np.zeros(len(self.slots), dtype=np.intp)
        self.pool = np.zeros((0, len(self.slots)), dtype=np.int32)
        self.points = np.zeros((0, 1 + len(caps)))
        self.extra = _EXTRA
        tables = (*energy.unary, *energy.pairwise.values())
        self.highest = sum(float(np.where(np.isinf(t), -np.inf, t).max()) for t in tables)
        self.count = 0

    @property
    def upto(self) -> float:
        """The cost that sought assignments must undercut."""
        if self.best is None:
            return self.highest + abs(self.highest) + 1.0
        return self.value - _ROUNDING * abs(self.value)

    def run(self) -> None:
        """Find the least cost; `bound` equals it in the end. Raises OutOfTime if time or minima run out."""
        kept = np.isfinite(self.core.unary[:, :, 0])
        zeros = np.zeros(kept.shape)
        root = _Node(kept, -np.inf, self.prices, zeros, zeros, np.zeros(0, dtype=np.intp))
        waiting = self._bounded([root], _CUTS)
        if waiting:
            self.bound, self.prices = waiting[0].bound, waiting[0].prices
        while True:
            waiting = [replace(n, kept=n.kept & (n.bounds < self.upto)) for n in waiting if n.bound < self.upto]
            waiting.sort(key=lambda n: n.bound)
            if not waiting:
                break
            self.bound = max(self.bound, min(waiting[0].bound, self.value))
            if self.stop(0.0) or self.count > _MINIMA:
                raise OutOfTime
            waiting = self._shrunk(waiting)
            near = self.value - self.bound <= _FAR * abs(self.bound)
            many = min(_BATCH, 2 + (_HELD if near else _FIRST) // (4 * self.plan.entries))
            batch, waiting = waiting[:many], waiting[many:]
            heights = [self._height(node) for node in batch]
            ready = [
                int(n.kept.sum()) - len(n.kept) <= _SMALL
                or ((near or self.best is None) and (h >= self.upto or self._weights(n).max() <= h - n.bound))
                for n, h in zip(batch, heights, strict=True)
            ]
            failed, done = self._looked([(n, h) for n, h, r in zip(batch, heights, ready, strict=True) if r])
            branched = [n for n, r in zip(batch, ready, strict=True) if not r] + failed
            waiting += done + self._bounded([child for node in branched for child in self._branches(node)], _ROUNDS)
        self.bound = self.value

    def _shrunk(self, nodes: list[_Node]) -> list[_Node]:
        """The nodes, moved to a core of the choices that any node still has if this core is much smaller."""
        kept: Kept = np.asarray(np.stack([node.kept for node in nodes]).any(axis=0))
        extra = int((self.core.sizes - 1).sum())
        if 2 * (int(kept.sum()) - len(kept)) > extra:
            return nodes
        part = self.core.contracted(kept)
        if not len(part.left):
            self._learnt(part.order[None, :, 0])
            return []
        plan = part.core.plan()
        if plan is None:
            return nodes
        place = np.full(kept.shape, -1)
        np.put_along_axis(place, part.order, np.arange(part.order.shape[1]), axis=1)
        place[~kept] = -1
        pool = np.take_along_axis(place, self.pool.T, axis=1).T
        fits: Kept = np.asarray((pool >= 0).all(axis=1))
        number = np.cumsum(fits) - 1
        self.pool, self.points = pool[fits][:, part.left].astype(np.int32), self.points[fits]
        self.whole[self.slots] = self.choices[np.arange(len(self.slots)), part.order[:, 0]]
        self.slots = self.slots[part.left]
        self.choices = np.take_along_axis(self.choices[part.left], part.order[part.left], axis=1)
        self.core, self.plan = part.core, plan
        return [
            replace(
                node,
                kept=part.narrowed(node.kept).astype(bool),
                split=part.narrowed(node.split),
                bounds=part.narrowed(node.bounds),
                rows=number[node.rows[fits[node.rows]]],
            )
            for node in nodes
        ]

    def _bounded(self, nodes: list[_Node], rounds: int) -> list[_Node]:
        """The nodes with better prices and fewer choices, without nodes that cannot undercut `upto`."""
        nodes = [node for node in nodes if node.bound < self.upto]
        if not nodes:
            return []
        kept = np.stack([node.kept for node in nodes])
        best = np.array([node.bound for node in nodes])
        prices = np.stack([node.prices for node in nodes])
        slots = np.arange(kept.shape[1])
        rows = [node.rows[node.kept[slots, self.pool[node.rows]].all(axis=1)] for node in nodes]
        splits = np.zeros(kept.shape)
        open_ = np.arange(len(nodes))
        plan = self.plan.barring(kept)
        for turn in range(rounds):
            if self.stop(0.0):
                break
            tried, reached = prices[open_], np.full(len(open_), np.inf)
            mixed = [place for place, number in enumerate(open_) if len(rows[number])]
            answers = _mixed([self.points[rows[open_[place]]] for place in mixed], self.most)
            for place, (mix, tried[place], reached[place]) in zip(mixed, answers, strict=True):
                number = open_[place]
                splits[number] = 0.0
                for share, row in zip(mix, rows[number], strict=True):
                    if share > _TOLERANCE:
                        splits[number, slots, self.pool[row]] += share
            low = best[open_]
            content = np.minimum(_CONTENT * (self.upto - low), 1e-6 * np.abs(low)) + _TOLERANCE * np.abs(low)
            wanting = np.isinf(reached) | (reached - low > content)
            open_, tried = open_[wanting], tried[wanting]
            plan = plan if wanting.all() else self.plan.barring(kept[open_])
            if not len(open_):
                break
            if rounds == _CUTS and 2 < turn < 12:
                tried = 0.7 * tried + 0.3 * prices[open_]
            weights = np.concatenate([np.ones((len(open_), 1)), tried], axis=1)
            minima, assignments = minimise_weighted(plan, weights)
            self.count += len(open_)
            values = minima.value + self.core.const[0] - tried @ (self.most - self.core.const[1:])
            if turn == 0 and not len(self.pool):
                self.free = float(values[0])
            first = len(self.pool)
            self.points = np.concatenate([self.points, self._learnt(assignments)])
            self.pool = np.concatenate([self.pool, assignments.astype(np.int32)])
            for place, number in enumerate(open_):
                if np.isfinite(values[place]):
                    rows[number] = np.append(rows[number], first + place)[-_POOL:]
                else:
                    best[number] = np.inf
                if values[place] > best[number]:
                    best[number], prices[number] = values[place], tried[place]
            rest = best[open_] < self.upto
            if not rest.all():
                open_ = open_[rest]
                plan = self.plan.barring(kept[open_])
        if rounds < _CUTS:
            for number in np.argsort(best)[:_REPAIRED]:
                if len(rows[number]):
                    self._repair(rows[number], prices[number])
        alive = np.flatnonzero(best < self.upto)
        if not len(alive):
            return []
        weights = np.concatenate([np.ones((len(alive), 1)), prices[alive]], axis=1)
        plan = self.plan.barring(kept[alive])
        least = _marginals(plan, minimise_weighted(plan, weights)[0], kept.shape[1:])
        bounds = least + (self.core.const[0] - prices[alive] @ (self.most - self.core.const[1:]))[:, None, None]
        left = kept[alive] & (bounds < self.upto)
        return [
            _Node(left[i], float(best[n]), prices[n], splits[n], bounds[i], rows[n])
            for i, n in enumerate(alive.tolist())
            if left[i].any(axis=1).all()
        ]

    def _learnt(self, assignments: Ints) -> Floats:
        """The cost and uses of assignments (N, slots); the best assignment that keeps the limits is remembered."""
        core = self.core
        points = core.const + core.unary[np.arange(len(core.sizes)), assignments].sum(axis=1)
        first, second = core.ends.T
        points += core.joint[np.arange(len(core.ends)), assignments[:, first], assignments[:, second]].sum(axis=1)
        good = np.flatnonzero((points[:, 1:] <= self.most).all(axis=1) & (points[:, 0] < self.value))
        if len(good):
            self._remember(assignments[good[points[good, 0].argmin()]])
        return np.asarray(points)

    def _remember(self, assignment: Ints) -> None:
        whole = self.whole.copy()
        whole[self.slots] = self.choices[np.arange(len(self.slots)), assignment]
        chosen = whole.tolist()
        value = self.energy.value(chosen)
        if value < self.value and all(cap.use.value(chosen) <= cap.at_most for cap in self.caps):
            self.best, self.value = tuple(chosen), value

    def _repair(self, rows: Ints, prices: Floats) -> None:
        """Improve an assignment by moves towards others and single-slot moves; effects of unlinked moves add up."""
        least = _TOLERANCE * np.abs(self.points[rows[0], 0]) / np.maximum(np.abs(self.most), 1.0)
        prices = np.maximum(prices, least)
        priced = self.points[rows, 0] + (self.points[rows, 1:] - self.most) @ prices
        rows = rows[np.argsort(priced, kind="stable")]
        chosen, point = self.pool[rows[0]].astype(np.intp), self.points[rows[0]]
        for _ in range(_TURNS):
            moves = self._moves(chosen, rows)
            near = np.zeros(len(chosen), dtype=bool)
            free: list[int] = []
            for move in moves.cheap(prices):
                slots = moves.slots(move)
                if not near[slots].any():
                    free.append(move)
                    near[slots] = near[self._beside(slots)] = True
                    if len(free) == _TOGETHER:
                        break
            subset = _best_subset(point, moves.delta[free], self.most, prices)
            if not subset:
                break
            for move in np.array(free)[subset].tolist():
                chosen[moves.slots(move)] = moves.choices(move)
                point = point + moves.delta[move]
            self._learnt(chosen[None])

    def _beside(self, slots: Ints) -> Ints:
        mask = np.zeros(len(self.core.sizes), dtype=bool)
        mask[slots] = True
        return self.core.ends[mask[self.core.ends].any(axis=1)].ravel()

    def _moves(self, chosen: Ints, rows: Ints) -> _Moves:
        """The parts in which other assignments differ from the chosen one, and other choices of single slots."""
        core, count = self.core, len(chosen)
        others = self.pool[rows]
        differ = others != chosen
        steps = count * np.arange(len(rows))[:, None, None]
        label = _parts(differ.ravel(), (core.ends + steps).reshape(-1, 2))
        cells = np.flatnonzero(differ.ravel())
        names, owner = np.unique(label[cells], return_inverse=True)
        slots, choices = cells % count, others.ravel()[cells]
        delta = np.zeros((len(names), len(core.const)))
        np.add.at(delta, owner, core.unary[slots, choices] - core.unary[slots, chosen[slots]])
        first, second = core.ends.T
        row, pair = np.nonzero(differ[:, first] | differ[:, second])
        i, j = first[pair], second[pair]
        change = core.joint[pair, others[row, i], others[row, j]] - core.joint[pair, chosen[i], chosen[j]]
        at = np.searchsorted(names, label[row * count + np.where(differ[row, i], i, j)])
        np.add.at(delta, at, change)
        order = np.argsort(owner, kind="stable")
        starts = np.searchsorted(owner[order], np.arange(len(names) + 1))
        flips = core.unary - core.unary[np.arange(count), chosen][:, None]
        pairs = np.arange(len(core.ends))
        now = core.joint[pairs, chosen[first], chosen[second]][:, None]
        np.add.at(flips, first, core.joint[pairs, :, chosen[second]] - now)
        np.add.at(flips, second, core.joint[pairs, chosen[first]] - now)
        alone: Kept = np.asarray(np.isfinite(flips).all(axis=2))
        alone[np.arange(count), chosen] = False
        slot, choice = np.nonzero(alone)
        return _Moves(
            delta=np.concatenate([delta, flips[slot, choice]]),
            starts=np.concatenate([starts, starts[-1] + 1 + np.arange(len(slot))]),
            cells=np.concatenate([slots[order], slot]),
            values=np.concatenate([choices[order], choice]),
        )

    def _height(self, node: _Node) -> float:
        """The cost up to which a node is searched by labels."""
        bounds = node.bounds[node.kept]
        count = len(node.kept) + int(self.extra * node.wide)
        return self.upto if count >= len(bounds) else min(self.upto, float(np.partition(bounds, count)[count]))

    def _looked(self, nodes: list[tuple[_Node, float]]) -> tuple[list[_Node], list[_Node]]:
        """The nodes with too many labels, and those that allow nothing below their height, now their bound."""
        if not nodes:
            return [], []
        upto = np.array([height for _, height in nodes])
        kept = np.stack([node.kept & (node.bounds < height) for node, height in nodes])
        least = np.array([node.bound for node, _ in nodes])
        part = self.core.contracted(np.asarray(kept.any(axis=0)))
        if not len(part.left):
            self._learnt(part.order[None, :, 0])
            return [], [replace(n, bound=h, wide=_WIDER * n.wide) for n, h in nodes if h < self.upto]
        plan = part.core.plan()
        if plan is None:
            return [node for node, _ in nodes], []
        plan = plan.barring(part.narrowed(kept).astype(bool))
        shares = (upto - least) / (np.abs(least) + 1e-300)
        prices = np.stack([_near(node.prices, share) for (node, _), share in zip(nodes, shares, strict=True)])
        count, limits = prices.shape[1], len(self.most)
        most = self.most - part.core.const[1:]
        weights = np.zeros((len(nodes), count + limits, 1 + limits))
        weights[:, :count, 0], weights[:, :count, 1:] = 1.0, prices
        weights[:, count:, 1:] = np.eye(limits)
        within = np.empty((count + limits, len(nodes)))
        within[:count] = (upto[:, None] - part.core.const[0] + prices @ most).T
        within[count:] = np.nextafter(most, np.inf)[:, None]
        budget = Budget(most=_MOST * len(nodes), room=_ROOM, out_of_time=lambda: self.stop(0.0))
        labels = _LimitPass(plan, weights, within, budget)
        labels.run()
        costs = labels.left.costs[0]
        if len(costs):
            self._learnt(part.widened(labels.assignments(costs.argmin(keepdims=True))))
        self.extra *= _SHRINK if labels.failed.mean() > _MANY_FAIL else _GROW
        solved = np.isin(np.arange(len(nodes)), labels.left.region)
        failed, done = [], []
        for number, (node, height) in enumerate(nodes):
            if labels.failed[number]:
                failed.append(node)
            elif not solved[number] and height < self.upto:
                done.append(replace(node, bound=height, wide=_WIDER * node.wide))
        return failed, done

    def _weights(self, node: _Node) -> Floats:
        """The extent to which the bound's mix splits each slot, in priced uses."""
        use = np.where(np.isfinite(self.core.unary[:, :, 1:]), self.core.unary[:, :, 1:], 0.0) @ node.prices
        reach = np.where(node.kept, use, -np.inf).max(axis=1) - np.where(node.kept, use, np.inf).min(axis=1)
        return np.asarray(reach * (1 - node.split.max(axis=1)) + 1e-12 * reach)

    def _branches(self, node: _Node) -> list[_Node]:
        """One node for each choice of the slot that is split most."""
        slot = int(np.where(node.kept.sum(axis=1) > 1, self._weights(node), -1.0).argmax())
        children = []
        for choice in np.flatnonzero(node.kept[slot]).tolist():
            kept = node.kept.copy()
            kept[slot] = False
            kept[slot, choice] = True
            children.append(replace(node, kept=kept, bound=max(node.bound, float(node.bounds[slot, choice])), wide=1.0))
        return children


def _core_of(energy: Energy, caps: Sequence[Cap]) -> _Core:
    count, width = len(energy.unary), max(map(len, energy.unary))
    sizes = np.array([len(costs) for costs in energy.unary])
    unary = np.full((count, width, 1 + len(caps)), np.inf)
    for slot, size in enumerate(sizes.tolist()):
        unary[slot, :size] = np.stack([energy.unary[slot], *(cap.use.unary[slot] for cap in caps)], axis=-1)
    keys = list(energy.pairwise)
    joint = np.full((len(keys), width, width, 1 + len(caps)), np.inf)
    for number, (i, j) in enumerate(keys):
        tables = [
            energy.pairwise[i, j],
            *(cap.use.pairwise.get((i, j), np.zeros_like(energy.pairwise[i, j])) for cap in caps),
        ]
        joint[number, : sizes[i], : sizes[j]] = np.stack(tables, axis=-1)
    for table in (unary, joint):
        table[np.isinf(table[..., 0])] = np.inf
    return _Core(unary, sizes, np.array(keys, dtype=np.intp).reshape(-1, 2), joint, np.zeros(1 + len(caps)))


def _marginals(plan: Plan, minima: Minima, shape: tuple[int, int]) -> Floats:
    """The least weighted cost of any assignment with each choice: (W, slots, choices)."""
    least = np.full((*shape, len(minima.weights)), np.inf)
    for bucket, rest in zip(plan.buckets, beyond(plan, minima), strict=True):
        total = plan.weighed(bucket, minima.weights) + np.repeat(rest, bucket.size, axis=0)
        for child, states in zip(bucket.children, bucket.states_of, strict=True):
            total += minima.up[child].take(states, axis=0)
        least[bucket.slots, : bucket.size] = total.reshape(len(bucket.slots), bucket.each, bucket.size, -1).min(axis=1)
    return least.transpose(2, 0, 1)


@dataclass(frozen=True, slots=True, eq=False)
class _Moves:
    """Changes of cost and uses (moves, 1 + limits); from starts[i] on, move i sets the slots `cells` to `values`."""

    delta: Floats
    starts: Ints
    cells: Ints
    values: Ints

    def slots(self, move: int) -> Ints:
        return self.cells[self.starts[move] : self.starts[move + 1]]

    def choices(self, move: int) -> Ints:
        return self.values[self.starts[move] : self.starts[move + 1]]

    def cheap(self, prices: Floats) -> list[int]:
        """The moves in order of their cost relative to the size of their change, the cheapest first."""
        size = np.abs(self.delta[:, 1:]) @ prices
        moves = np.flatnonzero(size > 0)
        cost = self.delta[moves, 0] + self.delta[moves, 1:] @ prices
        return [int(move) for move in moves[np.argsort(cost / size[moves], kind="stable")][:_TRIED]]


def _best_subset(point: Floats, delta: Floats, most: Floats, prices: Floats) -> list[int]:
    """The indices of changes (N, 1 + limits) that together bring a point within the limits at little cost.

    The changes are added from the largest to the smallest. After each, the sums that are cheapest by the prices are
    kept. The prices apply to the excess, and to slack that the remaining changes cannot use. Sums whose excess the
    remaining changes cannot undo are dropped.
    """
    order = np.argsort(-(np.abs(delta[:, 1:]) @ prices), kind="stable")
    gains = np.maximum(delta[order, 1:], 0.0)
    losses = np.maximum(-delta[order, 1:], 0.0)
    more, less = (np.cumsum(part[::-1], axis=0)[::-1] - part for part in (gains, losses))
    sums = point[None]
    parents: list[Ints] = []
    for number, change in enumerate(delta[order]):
        sums = np.concatenate([sums, sums + change])
        excess = sums[:, 1:] - most
        score = sums[:, 0] + excess @ prices + np.maximum(-excess - more[number], 0.0) @ prices
        score[(excess > less[number]).any(axis=1)] = np.inf
        alive = np.flatnonzero(np.isfinite(score))
        if len(alive) > _SUMS:
            alive = alive[np.argpartition(score[alive], _SUMS)[:_SUMS]]
        if not len(alive):
            return []
        sums = sums[alive]
        parents.append(alive)
    place = int(sums[:, 0].argmin())
    taken: list[int] = []
    for number in range(len(order) - 1, -1, -1):
        before = len(parents[number - 1]) if number else 1
        place = int(parents[number][place])
        if place >= before:
            taken.append(int(order[number]))
            place -= before
    return taken


def _parts(differ: Kept, ends: Ints) -> Ints:
    """For each slot that differs, the lowest index of a slot linked to it through differing slots: (slots,)."""
    lowest = np.arange(len(differ))
    first, second = ends[differ[ends].all(axis=1)].T
    while True:
        fresh = lowest.copy()
        least = np.minimum(lowest[first], lowest[second])
        np.minimum.at(fresh, first, least)
        np.minimum.at(fresh, second, least)
        fresh = fresh[fresh]
        if (fresh == lowest).all():
            return lowest
        lowest = fresh


def _near(prices: Floats, window: float) -> Floats:
    """The prices, zero prices, and prices nearby: each price alone, and all prices, raised and lowered.

    The distance grows with the `window`.
    """
    variants = [prices, 0 * prices]
    for step in (min(0.3, 0.5 * window**0.5), min(0.8, 3 * window**0.5)):
        for factor in (1 - step, 1 + step):
            variants += [np.where(mask, prices * factor, prices) for mask in np.eye(len(prices), dtype=bool)]
            variants += [prices * factor] if len(prices) > 1 else []
    return np.array(variants)
