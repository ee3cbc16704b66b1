"""Label sets that bound from below what may lie under some corners of a front, merged so that they stay small.

A pass over the plan for R regions at once. Each region has K weightings and thresholds: sought are vectors whose
weighted costs are below all thresholds. The labels of a bucket's state are vectors of K bounds (see `front_merge`). A
label is dropped where its bound and the least completion reach a threshold. Each label also has the cost of one partial
assignment that it stands for, and those of the last bucket are whole assignments: points near the front.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gnomon.core.cost import Floats, Ints
from gnomon.core.front_bounds import Minima, beyond, minimise_weighted, weighed
from gnomon.core.front_labels import Stopped
from gnomon.core.front_merge import thin
from gnomon.core.front_plan import Bucket, Plan

_LABELS = 40_000  # of a bucket
_SUMS = 800_000  # that are formed at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Regions:
    """Weightings (R, K, objectives), the first one being the main one and the next two on its sides; thresholds
    (R, K); and the difference `width` (R,), in weighted cost, below which labels are merged.
    """

    weights: Floats
    thresholds: Floats
    width: Floats


@dataclass(frozen=True, slots=True)
class _Labels:
    """Labels by region and state; `costs` (objectives, N) are those of one that each stands for, `links` lead to it."""

    bounds: Floats
    costs: Floats
    starts: Ints
    choice: Ints
    links: tuple[Ints, ...]


@dataclass(frozen=True, slots=True)
class _Part:
    """Labels on their way: region, row of the bucket's terms, bounds and later costs (K, N), costs, links."""

    region: Ints
    row: Ints
    bounds: Floats
    later: Floats
    costs: Floats
    links: tuple[Ints, ...]

    def thinned(self, groups: Ints, width: Floats, most: int) -> _Part:
        if not len(groups):
            return self
        place, bounds = thin(self.bounds, groups, width[self.region], most)
        links = tuple(link[place] for link in self.links)
        return _Part(self.region[place], self.row[place], bounds, self.later[:, place], self.costs[:, place], links)


class RelaxedPass:
    """One pass for some regions; `run` first, which raises Stopped where the time is over."""

    def __init__(self, plan: Plan, regions: Regions, slack: float, out_of_time: Callable[[], bool]) -> None:
        self.plan, self.regions, self.out_of_time = plan, regions, out_of_time
        self.limits: Floats = regions.thresholds.T + slack
        self.flat: Floats = regions.weights.reshape(-1, regions.weights.shape[2])
        self.held: list[_Labels] = []

    def run(self) -> None:
        """Fill the buckets."""
        minima = minimise_weighted(self.plan, self.flat)[0]
        above = beyond(self.plan, minima)
        for bucket, rest in zip(self.plan.buckets, above, strict=True):
            if self.out_of_time():
                raise Stopped
            self.held.append(self._labels(bucket, minima, rest))

    def left(self) -> list[Floats]:
        """For each region the bounds (labels, K) of what is left: any vector sought is nowhere below some row."""
        last = self.held[-1]
        return [last.bounds[:, a:b].T for a, b in zip(last.starts[:-1], last.starts[1:], strict=True)]

    def costs(self) -> Floats:
        """The costs (labels, objectives) of one assignment of each label that is left."""
        return self.held[-1].costs.T

    def assignments(self, chosen: Ints) -> Ints:
        """The assignments (N, slots) of some of the labels that are left, by number."""
        found = np.zeros((len(chosen), len(self.plan.buckets)), dtype=np.intp)
        at = {len(self.held) - 1: chosen}
        for number in range(len(self.held) - 1, -1, -1):
            bucket, labels, index = self.plan.buckets[number], self.held[number], at.pop(number)
            found[:, bucket.slot] = labels.choice[index]
            for child, link in zip(bucket.children, labels.links, strict=True):
                at[child] = link[index]
        return found

    def _labels(self, bucket: Bucket, minima: Minima, rest: Floats) -> _Labels:
        rows = bucket.states * bucket.size
        shape = (rows, *self.regions.thresholds.shape)
        own = weighed(bucket, self.flat).reshape(shape)
        ups = [minima.up[c][s].reshape(shape) for c, s in zip(bucket.children, bucket.states_of, strict=True)]
        least = own + np.repeat(rest, bucket.size, axis=0).reshape(shape)
        for up in ups:
            least += up
        region, row = np.nonzero((least < self.limits.T).all(axis=2).T)
        bounds = np.ascontiguousarray(own[row, region].T)
        later = least[row, region].T - bounds
        part = _Part(region, row, bounds, later, np.ascontiguousarray(bucket.terms[row].T), ())
        by_size = sorted(range(len(ups)), key=lambda i: (len(self.held[bucket.children[i]].choice), i))
        for place, i in enumerate(by_size):
            if place:
                part = part.thinned(part.region * rows + part.row, self.regions.width, _LABELS)
            part = self._joined(bucket, part, i, part.later - ups[i][part.row, part.region].T)
        part = part.thinned(part.region * bucket.states + part.row // bucket.size, self.regions.width, _LABELS)
        state = part.row // bucket.size
        starts = np.searchsorted(part.region * bucket.states + state, np.arange(shape[1] * bucket.states + 1))
        order = np.argsort(by_size, kind="stable").tolist()
        choice: Ints = (part.row - state * bucket.size).astype(np.int32)
        return _Labels(part.bounds, part.costs, starts, choice, tuple(part.links[i].astype(np.int32) for i in order))

    def _joined(self, bucket: Bucket, part: _Part, child: int, later: Floats) -> _Part:
        """Sums with the labels of a child that fit, without those that reach a threshold."""
        number = bucket.children[child]
        other, states = self.held[number], self.plan.buckets[number].states
        part = _Part(part.region, part.row, part.bounds, later, part.costs, part.links)
        bounds, starts, numbers = other.bounds, other.starts, None
        total = float(np.diff(starts)[part.region * states + bucket.states_of[child][part.row]].sum())
        if total > _SUMS:
            fewer = np.sqrt(_SUMS / total)
            groups = part.region * (bucket.states * bucket.size) + part.row
            part = part.thinned(groups, self.regions.width, int(fewer * len(groups)))
            groups = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
            width = self.regions.width[groups // states]
            numbers, bounds = thin(bounds, groups, width, int(fewer * len(groups)))
            starts = np.searchsorted(groups[numbers], np.arange(len(starts)))
        key = part.region * states + bucket.states_of[child][part.row]
        counts = starts[key + 1] - starts[key]
        own = np.repeat(np.arange(len(key)), counts)
        theirs = np.arange(len(own)) - np.repeat(np.cumsum(counts) - counts - starts[key], counts)
        sums = part.bounds[:, own] + bounds[:, theirs]
        region = part.region[own]
        kept = np.flatnonzero((sums + part.later[:, own] < self.limits[:, region]).all(axis=0))
        own, theirs = own[kept], theirs[kept]
        theirs = theirs if numbers is None else numbers[theirs]
        costs = part.costs[:, own] + other.costs[:, theirs]
        links = (*(link[own] for link in part.links), theirs)
        return _Part(region[kept], part.row[own], sums[:, kept], part.later[:, own], costs, links)
