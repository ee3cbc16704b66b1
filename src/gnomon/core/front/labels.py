"""Label sets along a plan: for each state of a bucket, the cost vectors of what is decided that may still matter.

A label is dropped where another of its state is nowhere worse, and where a screen proves that whatever completes it
was found before. (Label setting: Martins, "On a multicriteria shortest path problem", 1984; with bounds from
completions: Mandow and Perez de la Cruz, "Multiobjective A* search with consistent heuristics", 2010.)

Thinning of large label sets, with an account of the error.

A label stands for others of its state where it is nowhere worse but in one objective, and there by at most a factor f
of the others' least total: their own cost and the least completion of the state. Whatever completes them, the total
is then at most f times as dear, as completions cost at least the least one (docs/jobs/front.md has the proof). Factors
multiply over all thinnings of a pass, so that their logarithms add up to what is spent.

Which labels may still lead to a cost vector that is not covered by those known.

With two objectives: a vector v that no known one covers lies strictly below a corner of the staircase of the known
ones. For each weighting w there is a threshold such that, for each corner, some weighting's threshold is at least
the corner's weighted sum; so v stays below one threshold, and a label whose completions are at or above all of them
cannot become v. With more objectives: a label is dropped where the vector of the least completions, each objective
on its own, is covered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats, Ints, OutOfTime, Stop
from gnomon.core.front.dominance import covered, nondominated
from gnomon.core.front.plan import Bucket, Minima, Plan, beyond, later, minimise_weighted

_TINY = 1e-300
_LARGE = 8  # times the set that is not thinned: thinned at once
_INTERVAL = 16  # thinnings are at least this many buckets apart, unless a set is very large


class Trimmer:
    """Thins sets of more than `most` labels of two objectives that are not negative, within a factor in all.

    `charge` (2,) is paid in any case. `spent` is the logarithm of the factor used so far; it never exceeds that of
    `factor`.
    """

    def __init__(self, plan: Plan, factor: float, most: int, charge: Floats) -> None:
        self.plan, self.minima = plan, minimise_weighted(plan, np.eye(2))[0]
        self.least = [part + charge for part in beyond(plan, self.minima)]
        self.budget = float(np.log(factor)) * (1 - 1e-6)
        self.most, self.spent = most, 0.0
        self.last, self.count = -_INTERVAL, len(plan.buckets)

    def kept(self, number: int, costs: Floats, states: Ints, left: Sequence[int] = ()) -> Ints | None:
        """Which labels (objectives, N) of bucket `number` to keep, None for all.

        They are sorted by state and then by the first objective, and none of a state dominates another. With `left`,
        the places of children that are not added yet, the states are rows of the bucket's terms.
        """
        size = len(states)
        large = bool(left) or size > _LARGE * self.most
        due = large or number - self.last >= _INTERVAL
        if size <= self.most or not due or number == self.count - 1:
            return None
        # Each bucket gets its share of what is left; what small sets did not need goes to all later ones.
        since = _INTERVAL if large else min(number - self.last, 2 * _INTERVAL)
        share = (self.budget - self.spent) * since / (self.count - number + since)
        least = self.least[number]
        if left:
            least = later(self.plan.buckets[number], self.minima, least, left)
        totals = np.log(np.maximum(costs + least[states].T, _TINY))
        chosen = _thinned(totals, states, share)
        self.last = self.last if left else number
        self.spent += share
        return np.flatnonzero(chosen)


def _thinned(totals: Floats, states: Ints, width: float) -> NDArray[np.bool_]:
    """One label of each cell of a width: cells of the first objective on the steep side of each state's staircase,
    where the last label stands for its cell, and of the second on the flat side, where the first one does.
    """
    starts = starts_of(states)
    lengths = np.diff(np.append(starts, len(states)))
    ends = starts + lengths - 1
    group = np.repeat(np.arange(len(starts)), lengths)
    x = totals[0] - totals[0][starts][group]
    y = totals[1] - totals[1][ends][group]
    # The turn is where cells of the first objective up to it and of the second from it are fewest.
    span = x + y
    least = np.minimum.reduceat(span, starts)
    turns = np.flatnonzero(span == least[group])
    turn = turns[np.searchsorted(group[turns], np.arange(len(starts)))][group]
    place = np.arange(len(states))
    steep, flat = np.floor(x / width), np.floor(y / width)
    keep: NDArray[np.bool_] = place == turn
    keep[starts] = keep[ends] = True
    same = group[1:] == group[:-1]
    keep[:-1] |= (place[:-1] < turn[:-1]) & same & (steep[1:] != steep[:-1])
    keep[1:] |= (place[1:] > turn[1:]) & same & (flat[1:] != flat[:-1])
    return keep


def starts_of(groups: Ints) -> Ints:
    """Where runs of equal numbers begin."""
    begin = np.ones(len(groups), dtype=bool)
    begin[1:] = groups[1:] != groups[:-1]
    return np.flatnonzero(begin)


_CHUNK = 1 << 20  # sums that are formed at once
_BLOCK = 16  # labels whose sums with others are judged together first
_FEW_STATES = 1 << 15  # states whose numbers fit into sixteen bits, which are sorted in linear time


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels by state: state s has numbers starts[s] .. starts[s + 1] - 1; `costs` is (objectives, N).

    `choice` (N,) is the slot's own; `links[i]` (N,) the number of the label of child i.
    """

    costs: Floats
    starts: Ints
    choice: Ints
    links: tuple[Ints, ...]


class Stopped(Exception):
    """The time, or else the room for labels, is over."""

    def __init__(self, *, room: bool = False) -> None:
        super().__init__()
        self.room = room


@dataclass(frozen=True, slots=True)
class _Part:
    """Labels on their way: their rows of the bucket's terms, costs (objectives, N), and links to the children's."""

    rows: Ints
    costs: Floats
    links: tuple[Ints, ...]

    def take(self, chosen: NDArray[np.bool_] | Ints) -> _Part:
        return _Part(self.rows[chosen], self.costs[:, chosen], tuple(link[chosen] for link in self.links))


class LabelPass:
    """One pass over a plan; `run` returns the complete labels' assignments, at most `room` labels being held."""

    def __init__(
        self,
        plan: Plan,
        screen: PlaneScreen | IdealScreen,
        *,
        room: int,
        out_of_time: Callable[[], bool],
        trimmer: Trimmer | None = None,
        sums: float = math.inf,
    ) -> None:
        self.sums = sums
        self.plan, self.screen, self.room, self.out_of_time, self.trimmer = plan, screen, room, out_of_time, trimmer
        self.held: list[Labels] = []
        self.count = 0

    def run(self) -> Ints:
        """The assignments (N, slots) of all complete labels. Raises Stopped where time or room are over."""
        for number, bucket in enumerate(self.plan.buckets):
            if self.out_of_time():
                raise Stopped
            try:
                found = self._labels(number, bucket)
            except OutOfTime:
                raise Stopped from None
            self.count += len(found.choice)
            if self.count > self.room:
                raise Stopped(room=True)
            self.held.append(found)
        choices, links = [held.choice for held in self.held], [held.links for held in self.held]
        return self.plan.assignments(choices, links, np.arange(len(choices[-1])))

    def _labels(self, number: int, bucket: Bucket) -> Labels:
        sizes = [len(self.held[c].choice) for c in bucket.children]
        by_size = sorted(range(len(sizes)), key=lambda i: (sizes[i], i))  # large sets meet at last
        rows = np.flatnonzero(np.isfinite(bucket.terms[:, 0]))
        part = _Part(rows, np.ascontiguousarray(bucket.terms[rows].T), ())
        for place, child in enumerate(by_size):
            left = by_size[place + 1 :]
            if self.trimmer is not None and place:
                kept = self.trimmer.kept(number, part.costs, part.rows, by_size[place:])
                part = part if kept is None else part.take(kept)
            self.screen.enter(number, left)
            part = self._joined(bucket, part, child, last=not left)
        if not by_size:
            self.screen.enter(number, ())
            part = self._sifted(part, bucket.size)
        if self.trimmer is not None:
            kept = self.trimmer.kept(number, part.costs, part.rows // bucket.size)
            part = part if kept is None else part.take(kept)
        order = np.argsort(by_size, kind="stable").tolist()
        states = part.rows // bucket.size
        starts = np.searchsorted(states, np.arange(bucket.states + 1))
        choice: Ints = (part.rows - states * bucket.size).astype(np.uint8 if bucket.size <= 256 else np.int32)
        return Labels(part.costs, starts, choice, tuple(part.links[i].astype(np.int32) for i in order))

    def _joined(self, bucket: Bucket, part: _Part, child: int, *, last: bool) -> _Part:
        """Sums of each label with each of the child's that fit its row, sifted chunk by chunk."""
        other, states_of = self.held[bucket.children[child]], bucket.states_of[child]
        group = bucket.size if last else 1
        pieces: list[_Part] = []
        for own, theirs in self._pairs(part, other, states_of, group):
            costs = part.costs[:, own] + other.costs[:, theirs]
            rows = part.rows[own]
            kept = np.flatnonzero(self.screen.hopeful(costs, rows // group))
            own, theirs = own[kept], theirs[kept]
            fresh = _Part(rows[kept], costs[:, kept], (*(link[own] for link in part.links), theirs))
            pieces.append(_undominated(fresh, group, self._stop))
        return _undominated(_joined_up(pieces), group, self._stop) if len(pieces) > 1 else pieces[0]

    def _pairs(self, part: _Part, other: Labels, states_of: Ints, group: int) -> Iterator[tuple[Ints, Ints]]:
        """Numbers of the pairs to be summed in chunks; many are left out by blocks of labels that are hopeless."""
        lengths = np.diff(other.starts)[states_of[part.rows]]
        if int(lengths.sum()) <= _CHUNK // 4 or not bool((part.rows[1:] == part.rows[:-1]).any()):
            firsts = other.starts[states_of[part.rows]]
            yield from self._ragged(np.ones(len(lengths), dtype=np.intp), np.arange(len(lengths)), lengths, firsts)
            return
        ours = _blocks(part.rows, part.costs)
        labels = np.repeat(np.arange(len(other.starts) - 1), np.diff(other.starts))
        theirs = _blocks(labels, other.costs)
        states = states_of[ours.groups]
        bounds = np.searchsorted(theirs.groups, np.arange(len(other.starts)))
        counts, firsts = np.diff(bounds)[states], bounds[:-1][states]
        chosen: list[tuple[Ints, Ints]] = []
        once = np.ones(len(counts), dtype=np.intp)
        for a, b in self._ragged(once, np.arange(len(counts)), counts, firsts):
            good = self.screen.hopeful(ours.corners[:, a] + theirs.corners[:, b], ours.groups[a] // group)
            chosen.append((a[good], b[good]))
        a, b = (np.concatenate(side) for side in zip(*chosen, strict=True))
        yield from self._ragged(ours.lengths[a], ours.starts[a], theirs.lengths[b], theirs.starts[b])

    def _ragged(self, heights: Ints, tops: Ints, widths: Ints, lefts: Ints) -> Iterator[tuple[Ints, Ints]]:
        """All pairs of rectangles: rectangle i pairs tops[i] .. + heights[i] with lefts[i] .. + widths[i]."""
        sizes = heights * widths
        ends = np.cumsum(sizes)
        begins = ends - sizes
        total = int(ends[-1]) if len(ends) else 0
        for low in range(0, max(total, 1), _CHUNK):
            high = min(low + _CHUNK, total)
            if low and self.out_of_time():
                raise Stopped
            self.sums -= high - low
            if self.sums < 0:
                raise Stopped(room=True)
            # The rectangles that have pairs in low .. high - 1, and how many each has there.
            a, b = np.searchsorted(ends, [low, high - 1], side="right") if total else (0, -1)
            span = slice(a, b + 1)
            counts = np.minimum(ends[span], high) - np.maximum(begins[span], low)
            place = np.arange(low, high) - np.repeat(begins[span], counts)
            if bool((heights[span] == 1).all()):
                yield np.repeat(tops[span], counts), place + np.repeat(lefts[span], counts)
            else:
                row, column = np.divmod(place, np.repeat(widths[span], counts))
                yield row + np.repeat(tops[span], counts), column + np.repeat(lefts[span], counts)

    def _sifted(self, part: _Part, group: int) -> _Part:
        return _undominated(part.take(self.screen.hopeful(part.costs, part.rows // group)), group, self._stop)

    def _stop(self, _: float) -> bool:
        return self.out_of_time()


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Runs of labels of one group each: `corners` (objectives, B) are nowhere worse than any label of theirs."""

    groups: Ints
    starts: Ints
    lengths: Ints
    corners: Floats


def _blocks(groups: Ints, costs: Floats) -> _Blocks:
    firsts = starts_of(groups)
    place = np.arange(len(groups)) - np.repeat(firsts, np.diff(np.append(firsts, len(groups))))
    starts = np.flatnonzero(place % _BLOCK == 0)
    lengths = np.diff(np.append(starts, len(groups)))
    return _Blocks(groups[starts], starts, lengths, np.minimum.reduceat(costs, starts, axis=1))


def _joined_up(pieces: Sequence[_Part]) -> _Part:
    rows = np.concatenate([p.rows for p in pieces])
    links = tuple(np.concatenate(link) for link in zip(*(p.links for p in pieces), strict=True))
    return _Part(rows, np.concatenate([p.costs for p in pieces], axis=1), links)


def _undominated(part: _Part, group: int, stop: Stop) -> _Part:
    """The labels that no other of their group of rows is nowhere worse than, by group and then by first cost."""
    if not len(part.rows):
        return part
    groups = part.rows // group
    order = _order_two(groups, part.costs) if len(part.costs) == 2 else _order_more(groups, part.costs, stop)
    return part.take(order)


def _order_two(groups: Ints, costs: Floats) -> Ints:
    order = np.argsort(costs[0], kind="stable")  # merges the runs that the sums come in
    keys = groups[order]
    several = bool(groups[0] != groups[-1]) or bool((groups != groups[0]).any())
    if several:
        if int(groups.max()) < _FEW_STATES:
            keys = keys.astype(np.int16)
        inner = np.argsort(keys, kind="stable")
        order, keys = order[inner], keys[inner]
    x, y = costs[0][order], costs[1][order]
    begin = np.ones(len(order), dtype=bool)
    begin[1:] = keys[1:] != keys[:-1]
    shifted = y
    if several:  # a running minimum that starts again in each group, as each lies far below the one before
        rank = np.cumsum(begin)
        shifted = y - rank * (2.0 * float(y.max() - y.min()) + 1.0)
    low = np.minimum.accumulate(shifted)
    fresh = begin.copy()
    fresh[1:] |= low[1:] < low[:-1]
    # What the shift rounded away may leave a dominated label in; none is dropped but by its own cost.
    latest = np.maximum.accumulate(np.where(fresh, np.arange(len(order)), 0))
    keep = begin
    keep[1:] |= y[1:] < y[latest[:-1]]
    kept = np.flatnonzero(keep)
    # Of labels equal in the first cost the sort may have put a worse one first: the next one kept shows that.
    tied = np.zeros(len(kept), dtype=bool)
    tied[:-1] = (x[kept[1:]] == x[kept[:-1]]) & (keys[kept[1:]] == keys[kept[:-1]])
    return np.asarray(order[kept[~tied]])


def _order_more(groups: Ints, costs: Floats, stop: Stop) -> Ints:
    order = np.argsort(groups, kind="stable")
    cuts = np.flatnonzero(np.diff(groups[order])) + 1
    return np.concatenate([part[nondominated(costs[:, part].T, stop)] for part in np.split(order, cuts)])


_ENTRIES = 1 << 18  # numbers held at once while the envelope is computed
_FEWEST_KNOTS, _MOST_KNOTS = 8, 512


class _Screen:
    """What drops labels by their completion: `offsets` are what that costs for each state of the bucket at hand."""

    def __init__(self, plan: Plan, minima: Minima) -> None:
        self.plan, self.minima = plan, minima
        self.beyond = beyond(plan, minima)
        self.offsets: Floats = np.zeros((0, 0))

    def enter(self, number: int, left: Sequence[int]) -> None:
        """What completes a label of a bucket at the least, for each state and weighting: labels of it follow.

        `left` are the places of its children that are not added yet. With `left` or before the last child the states
        are rows of the bucket's terms, afterwards its states.
        """
        above = self.beyond[number]
        self.offsets = later(self.plan.buckets[number], self.minima, above, left) if left else above


class PlaneScreen(_Screen):
    """For two objectives: drops labels at or above all thresholds (W,) of the minima's weightings.

    Weightings must have been scaled so that each row is (a, 1 - a) times a scale of each objective, `scale` (2,).
    `slack` is added to thresholds for the rounding of sums; a threshold of -inf leaves its weighting out.
    """

    def __init__(self, plan: Plan, minima: Minima, thresholds: Floats, scale: Floats, slack: float) -> None:
        used = np.flatnonzero(thresholds > -np.inf)
        up = tuple(part[:, used] for part in minima.up)
        super().__init__(plan, Minima(weights=minima.weights[used], value=minima.value[used], up=up))
        self.scale, self.slack = scale, slack
        self.slopes: Floats = self.minima.weights[:, 0] / scale[0]
        self.thresholds = thresholds[used]

    def enter(self, number: int, left: Sequence[int]) -> None:
        """What a label's completion costs, less the threshold; see `_Screen.enter`."""
        super().enter(number, left)
        self.offsets = self.offsets - self.thresholds

    def hopeful(self, costs: Floats, rows: Ints) -> NDArray[np.bool_]:
        """Whether y + min over weightings of (slope * (x - y) + offset) is below the slack, x and y being scaled.

        That minimum is a concave function of x - y, a lower envelope of lines. Many labels take it from
        interpolation between knots, which is nowhere above it, so that no label is dropped for it.
        """
        if not costs.shape[1] or not len(self.slopes):
            return np.zeros(costs.shape[1], dtype=bool)
        x, y = costs[0] * self.scale[0], costs[1] * self.scale[1]
        gap = x - y
        states = len(self.offsets)
        knots = min(_MOST_KNOTS, len(gap) // (2 * states))
        low, high = float(gap.min()), float(gap.max())
        if knots < _FEWEST_KNOTS or not high > low:
            return self._directly(gap, y, rows)
        grid = np.linspace(low, high, knots)
        envelope = self._envelope(grid)
        at = (gap - low) * ((knots - 1) / (high - low))
        cell = np.minimum(at.astype(np.intp), knots - 2)
        at -= cell
        cell += rows * knots
        flat = envelope.ravel()
        first = flat[cell]
        cell += 1
        reach = y + first
        with np.errstate(invalid="ignore"):  # the envelope of a state that nothing completes is +inf
            rise = flat[cell] - first
            rise *= at
            reach += rise
        return np.asarray(reach < self.slack)

    def _directly(self, gap: Floats, y: Floats, rows: Ints) -> NDArray[np.bool_]:
        found = np.zeros(len(gap), dtype=bool)
        step = max(1, _ENTRIES // len(self.slopes))
        for start in range(0, len(gap), step):
            part = slice(start, start + step)
            lines = gap[part, None] * self.slopes
            lines += self.offsets[rows[part]]
            found[part] = y[part] + lines.min(axis=1) < self.slack
        return found

    def _envelope(self, grid: Floats) -> Floats:
        """Values of the envelope of each state at the knots, (states, knots)."""
        lines = np.multiply.outer(grid, self.slopes)
        step = max(1, _ENTRIES // lines.size)
        found = np.empty((len(self.offsets), len(grid)))
        for start in range(0, len(found), step):
            part = self.offsets[start : start + step]
            found[start : start + step] = (lines + part[:, None, :]).min(axis=2)
        return found


class IdealScreen(_Screen):
    """For any number of objectives: drops labels whose ideal completion is covered by `known` (N, objectives).

    The minima must be those of the objectives one by one. `known` vectors must already include what rounding asks for.
    """

    def __init__(self, plan: Plan, minima: Minima, known: Floats) -> None:
        super().__init__(plan, minima)
        self.known = known

    def hopeful(self, costs: Floats, rows: Ints) -> NDArray[np.bool_]:
        """Whether no known vector is nowhere larger than the label with its ideal completion."""
        ideal = costs.T + self.offsets[rows]
        possible = np.isfinite(ideal).all(axis=1)
        if not len(self.known):
            return np.asarray(possible)
        found = np.zeros(len(ideal), dtype=bool)
        found[possible] = ~covered(ideal[possible], self.known)
        return found
