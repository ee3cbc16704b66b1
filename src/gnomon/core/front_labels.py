"""Label sets along a plan: for each state of a bucket, the cost vectors of what is decided that may still matter.

A label is dropped where another of its state is nowhere dearer, and where a screen proves that whatever completes it
was found before. (Label setting: Martins, "On a multicriteria shortest path problem", 1984; with bounds from
completions: Mandow and Perez de la Cruz, "Multiobjective A* search with consistent heuristics", 2010.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats, Ints
from gnomon.core.dominance import nondominated
from gnomon.core.front_plan import Bucket, Plan
from gnomon.core.front_trim import Trimmer

_CHUNK = 1 << 20  # sums that are formed at once
_BLOCK = 16  # labels whose sums with others are judged together first
_FEW_STATES = 1 << 15  # states whose numbers fit into sixteen bits, which are sorted in linear time


class Screen(Protocol):
    """Knows which labels cannot lead to anything new."""

    def enter(self, number: int, left: Sequence[int]) -> None:
        """Labels of this bucket follow; `left` are the places of its children that are not added yet.

        With `left` or before the last child the states are rows of the bucket's terms, afterwards its states.
        """

    def hopeful(self, costs: Floats, rows: Ints) -> NDArray[np.bool_]:
        """Whether labels (objectives, N) of the bucket's rows (N,) may lead to something new."""


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
        screen: Screen,
        *,
        room: int,
        out_of_time: Callable[[], bool],
        trimmer: Trimmer | None = None,
    ) -> None:
        self.plan, self.screen, self.room, self.out_of_time, self.trimmer = plan, screen, room, out_of_time, trimmer
        self.held: list[Labels] = []
        self.count = 0

    def run(self) -> Ints:
        """The assignments (N, slots) of all complete labels. Raises Stopped where time or room are over."""
        for number, bucket in enumerate(self.plan.buckets):
            if self.out_of_time():
                raise Stopped
            found = self._labels(number, bucket)
            self.count += len(found.choice)
            if self.count > self.room:
                raise Stopped(room=True)
            self.held.append(found)
        return self._assignments()

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
            pieces.append(_undominated(fresh, group))
        return _undominated(_joined_up(pieces), group) if len(pieces) > 1 else pieces[0]

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
        return _undominated(part.take(self.screen.hopeful(part.costs, part.rows // group)), group)

    def _assignments(self) -> Ints:
        last = self.held[-1]
        assignment = np.zeros((len(last.choice), len(self.plan.buckets)), dtype=np.int32)
        at: dict[int, Ints] = {len(self.held) - 1: np.arange(len(last.choice))}
        for number in range(len(self.held) - 1, -1, -1):
            bucket, labels, index = self.plan.buckets[number], self.held[number], at.pop(number)
            assignment[:, bucket.slot] = labels.choice[index]
            for child, link in zip(bucket.children, labels.links, strict=True):
                at[child] = link[index]
        return assignment.astype(np.intp)


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Runs of labels of one group each: `corners` (objectives, B) are nowhere dearer than any label of theirs."""

    groups: Ints
    starts: Ints
    lengths: Ints
    corners: Floats


def _blocks(groups: Ints, costs: Floats) -> _Blocks:
    begin = np.ones(len(groups), dtype=bool)
    begin[1:] = groups[1:] != groups[:-1]
    firsts = np.flatnonzero(begin)
    place = np.arange(len(groups)) - np.repeat(firsts, np.diff(np.append(firsts, len(groups))))
    starts = np.flatnonzero(place % _BLOCK == 0)
    lengths = np.diff(np.append(starts, len(groups)))
    return _Blocks(groups[starts], starts, lengths, np.minimum.reduceat(costs, starts, axis=1))


def _joined_up(pieces: Sequence[_Part]) -> _Part:
    rows = np.concatenate([p.rows for p in pieces])
    links = tuple(np.concatenate(link) for link in zip(*(p.links for p in pieces), strict=True))
    return _Part(rows, np.concatenate([p.costs for p in pieces], axis=1), links)


def _undominated(part: _Part, group: int) -> _Part:
    """The labels that no other of their group of rows is nowhere dearer than, by group and then by first cost."""
    if not len(part.rows):
        return part
    groups = part.rows // group
    order = _order_two(groups, part.costs) if len(part.costs) == 2 else _order_more(groups, part.costs)
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
    if several:  # a running minimum that starts anew in each group, as each lies far below the one before
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
    # Of labels equal in the first cost the sort may have put a dearer one first: the next one kept shows that.
    tied = np.zeros(len(kept), dtype=bool)
    tied[:-1] = (x[kept[1:]] == x[kept[:-1]]) & (keys[kept[1:]] == keys[kept[:-1]])
    return np.asarray(order[kept[~tied]])


def _order_more(groups: Ints, costs: Floats) -> Ints:
    order = np.argsort(groups, kind="stable")
    cuts = np.flatnonzero(np.diff(groups[order])) + 1
    return np.concatenate([part[nondominated(costs[:, part].T)] for part in np.split(order, cuts)])
