"""Label sets along a plan: for each state of a bucket, the cost vectors of partial assignments that may still matter.

A label is dropped if another label of its state is nowhere worse, or if a pass's own test proves that all completions
of the label are already known. (Label setting: Martins, "On a multicriteria shortest path problem", 1984; with bounds
from completions: Mandow and Perez de la Cruz, "Multiobjective A* search with consistent heuristics", 2010.)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats, Ints, OutOfTime
from gnomon.core.front.dominance import covered, nondominated
from gnomon.core.front.plan import Bucket, Minima, Plan, beyond, minimise_weighted

_CHUNK = 1 << 19  # the maximum number of sums formed at once
_SUMS = 20  # with more sums than this multiple of a bucket's label limit, the sets are made smaller first


class TooMany(Exception):
    """A pass has more labels than allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """The labels of one bucket, each with a region (N,) and a row (N,) of the bucket's terms.

    A label stands for partial assignments. `bounds` (K, N) are lower bounds, under K weightings, on the costs of all
    assignments of a label. `costs` (objectives, N) are the costs of one of these assignments, which can be recovered
    through `links`, the indices of the children's labels.
    """

    region: Ints
    row: Ints
    bounds: Floats
    costs: Floats
    links: tuple[Ints, ...]

    def take(self, chosen: Ints, bounds: Floats | None = None) -> Labels:
        """The chosen labels, optionally with other bounds."""
        return Labels(
            region=self.region[chosen],
            row=self.row[chosen],
            bounds=self.bounds[:, chosen] if bounds is None else bounds,
            costs=self.costs[:, chosen],
            links=tuple(link[chosen] for link in self.links),
        )

    def groups(self, bucket: Bucket, size: int) -> Ints:
        """A number for each label, from its region and run of `size` rows: all rows of one state, or a single row."""
        return self.region * (bucket.states * bucket.size // size) + self.row // size


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The limits of a pass: at most `most` labels are wanted, per bucket or in all, and at most `room` are kept."""

    most: int
    room: int
    out_of_time: Callable[[], bool]


class LabelPass(ABC):
    """One pass over a plan for R regions at once, each with K weightings: `weights` is (R, K, objectives).

    The pass seeks assignments that cost less than all `limits` (K, R) of their region. After `run`, `left` holds the
    labels of the last bucket.
    """

    def __init__(self, plan: Plan, weights: Floats, limits: Floats, budget: Budget) -> None:
        self.plan, self.weights, self.limits, self.budget = plan, weights, limits, budget
        self.rows: list[Ints] = []
        self.links: list[tuple[Ints, ...]] = []
        self.held: dict[int, Labels] = {}
        self.count = 0

    @abstractmethod
    def reduced(self, labels: Labels, groups: Ints) -> Labels:
        """The labels that may matter, by group (N,); whatever completes one label of a group completes them all."""

    def hopeful(self, bounds: Floats, regions: Ints) -> NDArray[np.bool_]:
        """A mask (N,): True if the bounds (K, N) on a complete assignment are below all limits of its region."""
        return np.asarray((bounds < self.limits[:, regions]).all(axis=0))

    def fewer(self, labels: Labels, groups: Ints, most: int) -> Labels:
        """A smaller set of labels, by group (N,), used if there would be too many sums; by default the set itself."""
        del groups, most
        return labels

    @property
    def left(self) -> Labels:
        """The labels of complete assignments, by region."""
        return self.held[len(self.plan.buckets) - 1]

    def run(self) -> None:
        """Fill the buckets. Raises OutOfTime if time or room runs out."""
        minima = minimise_weighted(self.plan, self.weights.reshape(-1, self.weights.shape[2]))[0]
        last = {child: number for number, bucket in enumerate(self.plan.buckets) for child in bucket.children}
        for number, (bucket, rest) in enumerate(zip(self.plan.buckets, beyond(self.plan, minima), strict=True)):
            labels = self._labels(bucket, minima, rest)
            for child in {child for child in bucket.children if last[child] == number}:
                del self.held[child]
            self.held[number] = labels
            self.rows.append(labels.row.astype(np.int32))
            self.links.append(tuple(link.astype(np.int32) for link in labels.links))
            self.count += len(labels.row)
            if self.count > self.budget.room:
                raise OutOfTime

    def assignments(self, chosen: Ints) -> Ints:
        """The assignments (N, slots) of the labels in `left` with these indices."""
        return self.plan.assignments(self.rows, self.links, chosen)

    def _labels(self, bucket: Bucket, minima: Minima, rest: Floats) -> Labels:
        rows = bucket.states * bucket.size
        shape = (rows, *self.weights.shape[:2])
        own = self.plan.weighed(bucket, minima.weights).reshape(shape)
        ups = [
            minima.up[c].take(s, axis=0).reshape(shape) for c, s in zip(bucket.children, bucket.states_of, strict=True)
        ]
        by_size = sorted(range(len(ups)), key=lambda i: (len(self.held[bucket.children[i]].row), i))
        later = [np.repeat(rest, bucket.size, axis=0).reshape(shape)]
        for i in reversed(by_size):  # large sets are joined last
            later.append(later[-1] + ups[i])
        least = (own + later.pop()).transpose(2, 1, 0).reshape(shape[2], -1)
        hopeful = np.flatnonzero(self.hopeful(least, np.arange(least.shape[1]) // rows))
        region, row = np.divmod(hopeful, rows)
        bounds, costs = np.ascontiguousarray(own[row, region].T), np.ascontiguousarray(bucket.terms[row].T)
        labels = Labels(region=region, row=row, bounds=bounds, costs=costs, links=())
        for place, i in enumerate(by_size, 1):
            size = bucket.size if place == len(by_size) else 1
            labels = self._joined(bucket, labels, i, later.pop(), size)
        if not by_size:
            return self.reduced(labels, labels.groups(bucket, bucket.size))
        if len(by_size) == 1:
            return labels
        order = np.argsort(by_size, kind="stable").tolist()
        return replace(labels, links=tuple(labels.links[i] for i in order))

    def _joined(self, bucket: Bucket, labels: Labels, child: int, later: Floats, size: int) -> Labels:
        """The sums of each label with each of the child's labels that fit its row, reduced by groups of `size` rows."""
        number = bucket.children[child]
        below, held = self.plan.buckets[number], self.held[number]
        other = replace(held, links=(np.arange(len(held.row)),))
        rest = later[labels.row, labels.region].T
        starts, stops, other = self._fitting(labels, rest, bucket.states_of[child], other, below)
        sums = int((stops - starts).sum())
        if sums > _SUMS * self.budget.most:
            share = math.sqrt(_SUMS * self.budget.most / sums)
            labels = self.fewer(labels, labels.groups(bucket, 1), int(share * len(labels.row)))
            other = self.fewer(other, other.groups(below, below.size), int(share * len(other.row)))
            rest = later[labels.row, labels.region].T
            starts, stops, other = self._fitting(labels, rest, bucket.states_of[child], other, below)
        pieces: list[Labels] = []
        for own, theirs in self._pairs(starts, stops):
            bounds = labels.bounds[:, own] + other.bounds[:, theirs]
            kept = np.flatnonzero(self.hopeful(bounds + rest[:, own], labels.region[own]))
            own, theirs = own[kept], theirs[kept]
            fresh = Labels(
                region=labels.region[own],
                row=labels.row[own],
                bounds=bounds[:, kept],
                costs=labels.costs[:, own] + other.costs[:, theirs],
                links=(*(link[own] for link in labels.links), other.links[0][theirs]),
            )
            pieces.append(self.reduced(fresh, fresh.groups(bucket, size)))
        if len(pieces) == 1:
            return pieces[0]
        every = _joined_up(pieces)
        return self.reduced(every, every.groups(bucket, size))

    def _fitting(
        self, labels: Labels, rest: Floats, states_of: Ints, other: Labels, below: Bucket
    ) -> tuple[Ints, Ints, Labels]:
        """For each label, the start and stop of the child's labels that fit it; and the child's labels, sorted by state
        and cost.

        A child's label fits if it belongs to the state of the label's row and if, under the main weighting, the sum
        leaves room for an assignment that is sought.
        """
        groups = other.groups(below, below.size)
        order = np.lexsort((other.bounds[0], groups))
        other, groups = other.take(order), groups[order]
        values = np.sort(other.bounds[0])
        step = len(values) + 1
        ranks = groups * step + np.searchsorted(values, other.bounds[0])
        state = (labels.region * below.states + states_of[labels.row]) * step
        room = self.limits[0, labels.region] - rest[0] - labels.bounds[0]
        starts = np.searchsorted(ranks, state)
        return starts, np.searchsorted(ranks, state + np.searchsorted(values, room)), other

    def _pairs(self, starts: Ints, stops: Ints) -> Iterator[tuple[Ints, Ints]]:
        """The pairs of each i with starts[i] .. stops[i] - 1, in chunks.

        There is at least one chunk, which may be empty.
        """
        lengths = stops - starts
        ends = np.cumsum(lengths)
        total = int(ends[-1]) if len(ends) else 0
        cuts = np.searchsorted(ends, range(_CHUNK, total, _CHUNK)).tolist() if total > _CHUNK else []
        for first, last in pairwise([0, *dict.fromkeys(cuts), len(ends)]):
            if self.budget.out_of_time():
                raise OutOfTime
            counts = lengths[first:last]
            own = np.repeat(np.arange(first, last), counts)
            begins = starts[first:last] - (np.cumsum(counts) - counts)
            yield own, np.arange(len(own)) + np.repeat(begins, counts)


def _joined_up(pieces: list[Labels]) -> Labels:
    return Labels(
        region=np.concatenate([p.region for p in pieces]),
        row=np.concatenate([p.row for p in pieces]),
        bounds=np.concatenate([p.bounds for p in pieces], axis=1),
        costs=np.concatenate([p.costs for p in pieces], axis=1),
        links=tuple(np.concatenate(link) for link in zip(*(p.links for p in pieces), strict=True)),
    )


class IdealPass(LabelPass):
    """A pass for any number of objectives; it drops labels whose ideal completion is covered by known points.

    `points` (N, objectives) must already include an allowance for rounding. The plan's last objectives, which `points`
    does not have, may be at most `most`.
    """

    def __init__(self, plan: Plan, points: Floats, budget: Budget, most: Floats) -> None:
        count = points.shape[1]
        limits = np.concatenate([np.full(count, np.inf), np.nextafter(most, np.inf)])
        super().__init__(plan, np.eye(len(limits))[None], limits[:, None], budget)
        self.points = points

    def hopeful(self, bounds: Floats, regions: Ints) -> NDArray[np.bool_]:
        """A mask of the bounds that no known point covers."""
        mask = super().hopeful(bounds, regions)
        mask[mask] = ~covered(bounds[: self.points.shape[1], mask].T, self.points)
        return mask

    def reduced(self, labels: Labels, groups: Ints) -> Labels:
        """The nondominated labels of each group."""
        order = np.argsort(groups, kind="stable")
        parts = np.split(order, starts_of(groups[order])[1:])
        kept = [part[nondominated(labels.costs[:, part].T, lambda _: self.budget.out_of_time())] for part in parts]
        return labels.take(np.concatenate(kept))


def starts_of(groups: Ints) -> Ints:
    """The indices at which runs of equal numbers begin."""
    begin = np.ones(len(groups), dtype=bool)
    begin[1:] = groups[1:] != groups[:-1]
    return np.flatnonzero(begin)


def falling(values: Floats, groups: Ints) -> Ints:
    """The indices at which values fall below all earlier values of their group; `groups` must be sorted."""
    rank = np.unique(values, return_inverse=True)[1]
    rank = rank - len(values) * np.cumsum(np.diff(groups, prepend=groups[0]) != 0)
    least = np.minimum.accumulate(rank)
    return np.flatnonzero(np.diff(least, prepend=len(values)) < 0)
