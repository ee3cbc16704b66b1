"""The exact minimum under limits: bounds by prices, label sets above them, and branching where these grow too large.

With a price on a unit of each use, the least priced cost is a bound on all that keeps the limits (Everett, "Generalized
Lagrange multiplier method", 1963); the best prices come from cutting planes, each a minimum. What is sought lies in a
narrow window above the bound, which is widened until something is found there: that is the least. In a window most
choices go by their min-marginals. On the rest, labels (cost and uses) are kept as long as no prices near the best ones
prove them too dear. Where there are too many, the slot that the mix of the bound's assignments splits most, in priced
uses, is branched on: the few huge layers that make the gap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import CostModel, Floats, Ints, OutOfTime, Stop, never
from gnomon.core.front.labels import Budget, LabelPass, Labels, Stopped, falling, starts_of
from gnomon.core.front.plan import Minima, Pairs, Plan, beyond, minimise_weighted, plan_of, weighed
from gnomon.core.solver.elimination import Energy, Minimum, weigh
from gnomon.core.solver.limits import Cap, caps_of
from gnomon.core.solver.milp import mixture
from gnomon.core.solver.ordering import Limits, degeneracy
from gnomon.core.solver.prune import weigh_charges
from gnomon.core.solver.solve import Solution, Time, solution, solve, why_not

_SHARE = 0.5  # of the time; the rest is for HiGHS
_LEAST_S = 1e-3
_ROUNDING = 1e-12  # of the bound's magnitude
_DEAREST = 1e3  # of the least cost, for as much as a limit allows: a higher price says that nothing keeps it
_CUTS = 40  # minima for the first prices
_TOLERANCE = 1e-9
_CONTENT = 0.02  # of what is left up to what is sought: better prices are not looked for
_WINDOW, _WIDER = 1e-5, 4.0  # of the bound
_BATCH = 16  # nodes whose prices are looked for at once
_ROUNDS = 6
_BETWEEN = 64  # places to go from one assignment to another
_MIXED = 4
_MINIMA = 20_000  # after which the rest is for another method
_MOST = 4_000  # labels of a bucket
_ROOM = 20_000_000
_BESIDE = 8
_FEW = 20  # labels of a state where they are not all kept
_POOL = 40  # assignments that prices are found by
_LIMITS = Limits(table_entries=float(1 << 22), total_entries=float(1 << 22))

Kept = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """The best assignment found (None for none), what all that keeps the limits costs at least, and a unit's prices.

    `free` is the least cost without limits.
    """

    assignment: tuple[int, ...] | None
    value: float
    bound: float
    prices: Floats
    free: float


@dataclass(frozen=True, slots=True, eq=False)
class _Core:
    """Costs and uses (choices, 1 + limits) a slot, (choices, choices, 1 + limits) a pair, and of what is decided."""

    unary: list[Floats]
    pairs: Pairs
    const: Floats

    def contracted(self, kept: Sequence[Ints]) -> tuple[_Core, list[int]]:
        """The core over some choices of each slot; slots with one are decided. And the slots that are left."""
        unary = [costs[k] for costs, k in zip(self.unary, kept, strict=True)]
        left = [slot for slot, costs in enumerate(unary) if len(costs) > 1]
        place = {slot: number for number, slot in enumerate(left)}
        const = self.const + sum(costs[0] for costs in unary if len(costs) == 1)
        pairs: Pairs = {}
        for (i, j), table in self.pairs.items():
            part = table[np.ix_(kept[i], kept[j])]
            if i in place and j in place:
                pairs[place[i], place[j]] = part
            elif i in place:
                unary[i] = unary[i] + part[:, 0]
            elif j in place:
                unary[j] = unary[j] + part[0]
            else:
                const = const + part[0, 0]
        return _Core([unary[slot] for slot in left], pairs, const), left


@dataclass(frozen=True, slots=True, eq=False)
class _Node:
    """Some choices of a core's slots (slots, choices), a bound on them, and the prices that gave it.

    `split` (slots, choices) are the shares of the bound's mix that take a choice, `bounds` those with a choice, `rows`
    the assignments, by number, that its prices were found by. It is looked at in a window so many times as `wide` as
    its split asks for, and has `failed` where that had too many labels.
    """

    kept: Kept
    bound: float
    prices: Floats
    split: Floats
    bounds: Floats
    rows: Ints
    wide: float = 1.0
    failed: bool = False


class _LimitPass(LabelPass):
    """Labels of what keeps all limits and costs less than its region's bound.

    Of `failed` regions (regions,), which have more than so many labels at a bucket, a state keeps few, the cheapest at
    the first prices: what they lead to is allowed, and proves nothing.
    """

    def __init__(self, plan: Plan, weights: Floats, limits: Floats, budget: Budget) -> None:
        super().__init__(plan, weights, limits, budget)
        self.failed = np.zeros(len(weights), dtype=bool)

    def reduced(self, labels: Labels, groups: Ints) -> Labels:
        """Without those that another of their group is nowhere above: all for one limit, else of neighbours by cost."""
        if len(groups) < 2:
            return labels
        order = np.lexsort((*labels.costs[::-1], groups))
        costs, sorted_groups = labels.costs[:, order], groups[order]
        if len(costs) == 2:
            order = order[falling(costs[1], sorted_groups)]
        else:
            dropped = np.zeros(len(order), dtype=bool)
            for step in range(1, min(_BESIDE, len(order) - 1) + 1):
                above = (costs[:, :-step] <= costs[:, step:]).all(axis=0)
                dropped[step:] |= above & (sorted_groups[:-step] == sorted_groups[step:])
            order = order[~dropped]
        self.failed |= np.bincount(labels.region[order], minlength=len(self.failed)) > _MOST
        return self._trimmed(labels.take(order), groups[order]) if self.failed.any() else labels.take(order)

    def fewer(self, labels: Labels, groups: Ints, most: int) -> Labels:
        """With few labels in the regions that have most."""
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
    """As `solve`, but with "auto" also limits by prices and labels, for a share of the time, before HiGHS begins."""
    if method != "auto" or not model.limits:
        return solve(model, weights, method=method, time_limit_s=time_limit_s, clock_s=clock_s)
    vector = model.weight_vector(weights)
    energy, charges = weigh_charges(model, vector, weigh(model, vector))
    if charges:
        return solve(model, weights, time_limit_s=time_limit_s, clock_s=clock_s)
    time, caps = Time(time_limit_s, clock_s), caps_of(model)
    found = minimise_within(energy, caps, lambda _: time.used() >= _SHARE)
    if found is None:
        return solve(model, weights, method="milp", time_limit_s=time_limit_s, clock_s=clock_s)
    if found.bound == np.inf:
        raise why_not(model, energy, charges, caps, time)
    known = None
    if found.assignment is not None:
        proved = found.bound >= found.value
        known = Minimum(assignment=found.assignment, width=0, bound=None if proved else found.bound)
    if known is not None and known.bound is None:
        by = "elimination" if found.value == found.free else "branching"
        narrow = degeneracy({slot: {other for other, _ in pairs} for slot, pairs in enumerate(energy.around())})
        answer = replace(solution(model, vector, energy, replace(known, width=narrow), time), method=by)
    else:
        left_s = time.left_s()
        left_s = None if left_s is None else max(left_s, _LEAST_S)
        answer = solve(model, weights, method="milp", time_limit_s=left_s, clock_s=clock_s, known=known)
        answer = replace(answer, bound=max(answer.bound, min(found.bound, answer.value)))
    return replace(answer, prices=tuple(found.prices.tolist()), free=found.free)


def minimise_within(energy: Energy, caps: Sequence[Cap], stop: Stop = never) -> Bounded | None:
    """The least cost of what keeps all caps: `value` is +inf where nothing does, and equals `bound` where it is proved.

    None where elimination is beyond its limits. Where `stop` says so, it ends with what is known by then.
    """
    energies = [energy, *(cap.use for cap in caps)]
    unary = [np.stack(costs, axis=-1) for costs in zip(*(e.unary for e in energies), strict=True)]
    pairs = {
        key: np.stack([table, *(cap.use.pairwise.get(key, np.zeros_like(table)) for cap in caps)], axis=-1)
        for key, table in energy.pairwise.items()
    }
    for table in (*unary, *pairs.values()):
        table[np.isinf(table[..., 0])] = np.inf
    plan = plan_of(unary, pairs, _LIMITS, wide=True)
    if plan is None:
        return None
    root = _Root(energy, caps, stop)
    with suppress(OutOfTime, Stopped):
        root.find_prices(plan)
        root.search(_Core(unary, pairs, np.zeros(len(energies))), plan)
    bound = min(root.bound, root.value)
    return Bounded(assignment=root.best, value=root.value, bound=bound, prices=root.prices, free=root.free)


class _Root:
    """What is known of a whole problem: the best that keeps the limits, a bound, and the prices that gave it."""

    def __init__(self, energy: Energy, caps: Sequence[Cap], stop: Stop) -> None:
        self.energy, self.caps, self.stop = energy, caps, stop
        self.most = np.array([cap.at_most for cap in caps])
        self.best: tuple[int, ...] | None = None
        self.value, self.bound, self.free = np.inf, -np.inf, -np.inf
        self.prices = np.zeros(len(caps))

    def learn(self, assignment: Sequence[int]) -> Floats:
        """Its cost and uses; it is kept where it is the best so far."""
        point = np.array([self.energy.value(assignment), *(cap.use.value(assignment) for cap in self.caps)])
        if point[0] < self.value and (point[1:] <= self.most).all():
            self.best, self.value = tuple(assignment), float(point[0])
        return point

    def find_prices(self, plan: Plan) -> None:
        """The prices of the best bound, by cutting planes."""
        prices = self.prices
        points: list[Floats] = []
        while len(points) < _CUTS and not self.stop(0.0):
            minima, found = minimise_weighted(plan, np.array([[1.0, *prices]]))
            bound = float(minima.value[0] - prices @ self.most)
            point = self.learn(found[0].tolist())
            if not points:
                self.free = bound
            if bound > self.bound:
                self.bound, self.prices = bound, prices
            if bound == np.inf or self.value <= self.free + _ROUNDING * abs(self.free):
                break
            points.append(point)
            _, prices, reached = _mixed(np.array(points), self.most)
            if not prices.any() or reached - self.bound <= _TOLERANCE * abs(self.bound):
                break
            prices = prices if len(points) < 3 or len(points) > 12 else 0.7 * prices + 0.3 * self.prices

    def search(self, core: _Core, plan: Plan) -> None:
        """Widen a window above the bound until something is found there, or nothing can be."""
        if self.bound == np.inf:
            return
        if self.value - self.bound <= _ROUNDING * abs(self.bound):
            self.bound = self.value
            return
        lowest, unit = self.bound, abs(self.bound) or 1.0
        weights = np.array([[1.0, *self.prices]])
        least = [row[:, 0] - self.prices @ self.most for row in _marginals(plan, minimise_weighted(plan, weights)[0])]
        highest = sum(float(np.where(np.isinf(t), -np.inf, t).max()) for t in _tables(self.energy)) + unit
        window = _WINDOW
        while self.bound < self.value:
            upto = min(self.value, lowest + window * unit, highest)
            kept = [np.flatnonzero(row < upto) for row in least]
            if all(map(len, kept)):
                self._look(core, kept, upto)
            self.bound = self.value if self.value <= upto else upto
            if upto == highest:
                self.bound = self.value
            window *= _WIDER

    def _look(self, core: _Core, kept: Sequence[Ints], upto: float) -> None:
        """Search some choices of each slot for what costs less."""
        small, left = core.contracted(kept)
        chosen = np.array([k[0] for k in kept])
        if not left:
            self.learn(chosen.tolist())
            return
        plan = plan_of(small.unary, small.pairs, _LIMITS, wide=True)
        if plan is None:
            raise Stopped

        def learn(assignment: Ints) -> None:
            chosen[left] = [kept[slot][choice] for slot, choice in zip(left, assignment.tolist(), strict=True)]
            self.learn(chosen.tolist())

        _Search(self, small, plan, learn).run(upto)


def _tables(energy: Energy) -> list[Floats]:
    return [*energy.unary, *energy.pairwise.values()]


def _mixed(points: Floats, most: Floats) -> tuple[Floats, Floats, float]:
    """The mixture of points (N, 1 + limits) of cost and uses, the prices, and what it costs."""
    base = float(points[:, 0].min())
    unit, scale = abs(base) or 1.0, np.maximum(np.abs(most), 1.0)
    mix, prices, reached = mixture((points[:, 0] - base) / unit, (points[:, 1:] - most) / scale, _DEAREST)
    return mix, prices * unit / scale, base + reached * unit


def _marginals(plan: Plan, minima: Minima) -> list[Floats]:
    """For each slot the least weighted costs of all that takes a choice there: (choices, W)."""
    found: list[Floats] = [np.zeros(0)] * sum(len(b.slots) for b in plan.buckets)
    for bucket, rest in zip(plan.buckets, beyond(plan, minima), strict=True):
        total = weighed(bucket, minima.weights) + np.repeat(rest, bucket.size, axis=0)
        for child, states in zip(bucket.children, bucket.states_of, strict=True):
            total += minima.up[child][states]
        rows = total.reshape(len(bucket.slots), bucket.each, bucket.size, -1).min(axis=1)
        for slot, row in zip(bucket.slots.tolist(), rows, strict=True):
            found[slot] = row
    return found


class _Search:
    """Branch and bound over a core, many nodes at once."""

    def __init__(self, root: _Root, core: _Core, plan: Plan, learn: Callable[[Ints], None]) -> None:
        self.root, self.core, self.plan, self.learn = root, core, plan, learn
        sizes = [len(costs) for costs in core.unary]
        self.slots = np.arange(len(sizes))
        self.every: Kept = np.arange(max(sizes)) < np.array(sizes)[:, None]
        width = len(core.const)
        self.unary = np.zeros((*self.every.shape, width))
        for slot, costs in enumerate(core.unary):
            self.unary[slot, : len(costs)] = costs
        self.ends = np.array([*core.pairs], dtype=np.intp).reshape(-1, 2)
        self.joint = np.zeros((len(core.pairs), max(sizes), max(sizes), width))
        for number, table in enumerate(core.pairs.values()):
            self.joint[number, : table.shape[0], : table.shape[1]] = table
        self.most = root.most - core.const[1:]
        self.orders = (self.slots, _breadth_first(len(sizes), core.pairs))
        self.pool = np.zeros((0, len(sizes)), dtype=np.int32)
        self.points = np.zeros((0, width))

    def run(self, upto: float) -> None:
        """Find the least cost below `upto`, where there is any."""
        self.upto = upto
        self.easy = np.inf
        whole = np.zeros(self.every.shape)
        none = np.zeros(0, dtype=np.intp)
        waiting = self._bounded([_Node(self.every, self.root.bound, self.root.prices, whole, whole, none)])
        while waiting:
            waiting = sorted((node for node in waiting if node.bound < self.upto), key=lambda node: node.bound)
            self.root.bound = max(self.root.bound, min([self.upto, *(node.bound for node in waiting[:1])]))
            if self.root.stop(0.0) or len(self.pool) > _MINIMA:
                raise OutOfTime
            batch, waiting = waiting[:_BATCH], waiting[_BATCH:]
            ready = [node for node in batch if self._hardness(node) <= self.easy]
            fresh = [child for node in batch if self._hardness(node) > self.easy for child in self._branches(node)]
            left = self._left(ready)
            fresh += [child for node in left if node.failed for child in self._branches(node)]
            waiting += [node for node in left if not node.failed] + self._bounded(fresh)

    def _hardness(self, node: _Node) -> float:
        return float(self._weights(node).max())

    def _bounded(self, nodes: list[_Node]) -> list[_Node]:
        """The nodes with better prices and fewer choices, without those that allow nothing below what is sought."""
        nodes = [node for node in nodes if node.bound < self.upto]
        if not nodes:
            return []
        kept = np.stack([node.kept for node in nodes])
        best = np.array([node.bound for node in nodes])
        prices = np.stack([node.prices for node in nodes])
        rows = [node.rows[node.kept[self.slots, self.pool[node.rows]].all(axis=1)] for node in nodes]
        splits = np.zeros(kept.shape)
        open_ = np.arange(len(nodes))
        for _ in range(_ROUNDS):
            tried, reached = prices[open_], np.full(len(open_), np.inf)
            for place, number in enumerate(open_):
                if len(rows[number]):
                    mix, tried[place], reached[place] = _mixed(self.points[rows[number]], self.root.most)
                    splits[number] = 0.0
                    for share, row in zip(mix, rows[number], strict=True):
                        if share > _TOLERANCE:
                            splits[number, self.slots, self.pool[row]] += share
            wanting = reached - best[open_] > _CONTENT * (self.upto - best[open_])
            open_, tried = open_[wanting], tried[wanting]
            if not len(open_):
                break
            weights = np.concatenate([np.ones((len(open_), 1)), tried], axis=1)
            minima, found = minimise_weighted(self.plan.barring(kept[open_]), weights)
            values = minima.value + self.core.const[0] - tried @ self.most
            first = len(self.pool)
            self.points = np.concatenate([self.points, self._learnt(found)])
            self.pool = np.concatenate([self.pool, found.astype(np.int32)])
            for place, number in enumerate(open_):
                if np.isfinite(values[place]):
                    rows[number] = np.append(rows[number], first + place)[-_POOL:]
                if values[place] > best[number]:
                    best[number], prices[number] = values[place], tried[place]
            open_ = open_[best[open_] < self.upto]
        lowest = int(best.argmin())
        shares = splits[lowest, self.slots, self.pool[rows[lowest]]]
        self._try_between(rows[lowest][np.argsort(-shares.mean(axis=1))[:_MIXED]])
        weights = np.concatenate([np.ones((len(nodes), 1)), prices], axis=1)
        plan = self.plan.barring(kept)
        least = _marginals(plan, minimise_weighted(plan, weights)[0])
        offset = self.core.const[0] - prices @ self.most
        bounds = np.full(kept.shape, np.inf)
        for slot, row in enumerate(least):
            bounds[:, slot, : len(row)] = row.T + offset[:, None]
        left = kept & (bounds < self.upto)
        return [
            _Node(left[i], float(best[i]), prices[i], splits[i], bounds[i], rows[i])
            for i in range(len(nodes))
            if best[i] < self.upto and left[i].any(axis=1).all()
        ]

    def _learnt(self, assignments: Ints) -> Floats:
        """The cost and uses of assignments (N, slots), of which the best that keeps the limits is remembered."""
        points = self.core.const + self.unary[self.slots, assignments].sum(axis=1)
        first, second = self.ends.T
        points += self.joint[np.arange(len(self.ends)), assignments[:, first], assignments[:, second]].sum(axis=1)
        good = np.flatnonzero((points[:, 1:] <= self.root.most).all(axis=1) & (points[:, 0] < self.root.value))
        if len(good):
            self._found(assignments[good[points[good, 0].argmin()]])
        return np.asarray(points)

    def _try_between(self, rows: Ints) -> None:
        """Look at assignments that begin as one of some rows and end as another."""
        cuts = np.linspace(1, len(self.slots), _BETWEEN).astype(np.intp)
        for one, other in permutations(self.pool[rows], 2):
            for order in self.orders:
                self._learnt(np.where(order < cuts[:, None], one, other))

    def _found(self, assignment: Ints) -> None:
        self.learn(assignment)
        self.upto = min(self.upto, self.root.value)

    def _left(self, nodes: list[_Node]) -> list[_Node]:
        """The nodes that are not through: their labels are too many, or they were looked at up to their new bound."""
        if not nodes:
            return []
        plan = self.plan.barring(np.stack([node.kept for node in nodes]))
        hard = np.array([self._hardness(node) for node in nodes])
        least = np.array([node.bound for node in nodes])
        unit = np.maximum(np.abs(least), abs(self.upto))  # the bound may be 0
        wide = np.maximum(2 * hard, 3e-6 * unit) * [node.wide for node in nodes]
        upto = np.minimum(self.upto, least + wide)
        shares = (upto - least) / (abs(self.upto) or 1.0)
        prices = np.stack([_near(node.prices, share) for node, share in zip(nodes, shares, strict=True)])
        count, limits = prices.shape[1], len(self.most)
        weights = np.zeros((len(nodes), count + limits, 1 + limits))
        weights[:, :count, 0], weights[:, :count, 1:] = 1.0, prices
        weights[:, count:, 1:] = np.eye(limits)
        within = np.empty((count + limits, len(nodes)))
        within[:count] = (upto[:, None] - self.core.const[0] + prices @ self.most).T
        within[count:] = np.nextafter(self.most, np.inf)[:, None]
        budget = Budget(most=_MOST * len(nodes), room=_ROOM, out_of_time=lambda: self.root.stop(0.0))
        labels = _LimitPass(plan, weights, within, budget)
        labels.run()
        costs = labels.left.costs[0]
        if len(costs):
            self._found(labels.assignments(costs.argmin(keepdims=True))[0])
        done = ~labels.failed
        if done.any():
            self.easy = max(self.easy, 1.5 * hard[done].max())
        if not done.all():
            self.easy = min(self.easy, hard[~done].min()) / 1.5
        found = np.isin(np.arange(len(nodes)), labels.left.region)
        return [
            replace(node, failed=not done[i], bound=upto[i] if done[i] else node.bound, wide=4 * node.wide)
            for i, node in enumerate(nodes)
            if not (done[i] and (found[i] or upto[i] >= self.upto))
        ]

    def _weights(self, node: _Node) -> Floats:
        """By how much, in priced uses, the bound's mix splits each slot."""
        use = self.unary[:, :, 1:] @ node.prices
        reach = np.where(node.kept, use, -np.inf).max(axis=1) - np.where(node.kept, use, np.inf).min(axis=1)
        return np.asarray(reach * (1 - node.split.max(axis=1)) + 1e-12 * reach)

    def _branches(self, node: _Node) -> list[_Node]:
        """A node for each choice of the slot that is split most."""
        slot = int(np.where(node.kept.sum(axis=1) > 1, self._weights(node), -1.0).argmax())
        found = []
        for choice in np.flatnonzero(node.kept[slot]).tolist():
            kept = node.kept.copy()
            kept[slot] = False
            kept[slot, choice] = True
            bound = max(node.bound, float(node.bounds[slot, choice]))
            found.append(replace(node, kept=kept, bound=bound, wide=1.0, failed=False))
        return found


def _breadth_first(count: int, pairs: Pairs) -> Ints:
    """The place of each slot where the graph is walked from the first on, neighbours before what is behind them."""
    around: list[list[int]] = [[] for _ in range(count)]
    for i, j in pairs:
        around[i].append(j)
        around[j].append(i)
    places: dict[int, int] = {}
    for start in range(count):
        queue = [start] if start not in places else []
        for slot in queue:  # the list grows while it is walked
            if slot not in places:
                places[slot] = len(places)
                queue += around[slot]
    return np.array([places[slot] for slot in range(count)], dtype=np.intp)


def _near(prices: Floats, window: float) -> Floats:
    """The prices, none, and some near them, as far as fits a window: each up and down, and all of them."""
    found = [prices, 0 * prices]
    for step in (min(0.3, 0.5 * window**0.5), min(0.8, 3 * window**0.5)):
        for factor in (1 - step, 1 + step):
            found += [np.where(one, prices * factor, prices) for one in np.eye(len(prices), dtype=bool)]
            found += [prices * factor] if len(prices) > 1 else []
    return np.array(found)
