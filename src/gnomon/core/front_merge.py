"""Bounds of labels, and their merging: a merged label is nowhere above any of those that it stands for.

A label here is a vector of K lower bounds, on the weighted cost under each of K weightings of what it stands for; its
group says what it may be completed with. Two labels that differ little are replaced by the smaller bound of each
weighting, as in relaxed decision diagrams (Bergman, Cire, van Hoeve and Hooker, "Decision Diagrams for
Optimization", 2016). What is lost shows in the bounds themselves, so that no account of it is needed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats, Ints

_ROUNDS = 4
_BESIDE = 3  # neighbours that a label is compared with


def thin(bounds: Floats, groups: Ints, width: Floats, most: int) -> tuple[Ints, Floats]:
    """Merge labels (K, N) of the same group (N,) that are less than `width` (N,) apart, and closer ones than that
    until about `most` are left, though never fewer than two a group.

    The distance is that of the difference of the bounds under weightings 2 and 1; `width` is a group's own. Returns for
    each merged label, by group, the number of the one that has its bound under weighting 0; and the bounds (K, M).
    """
    place, found = _merged(bounds, groups, width)
    for _ in range(_ROUNDS):
        kept = _undominated(found, groups[place])
        place, found = place[kept], found[:, kept]
        if len(place) <= most:
            break
        inner = groups[place]
        starts = _starts(inner)
        counts = np.diff(np.append(starts, len(inner)))
        share = max(2.0, _level(counts, most))
        apart = found[2] - found[1]
        reach = np.maximum.reduceat(apart, starts) - np.minimum.reduceat(apart, starts)
        wide = np.where(counts > share, reach / (share - 1), 0.0)
        fewer, found = _merged(found, inner, np.maximum(width[place], np.repeat(wide, counts)))
        place = place[fewer]
    return place, found


def _merged(bounds: Floats, groups: Ints, width: Floats) -> tuple[Ints, Floats]:
    """Labels by cells of a width, counted from each group's least difference, so that a common drift merges nothing."""
    order = np.argsort(groups, kind="stable")
    inner = groups[order]
    starts = _starts(inner)
    counts = np.diff(np.append(starts, len(inner)))
    apart = (bounds[2] - bounds[1])[order]
    apart -= np.repeat(np.minimum.reduceat(apart, starts), counts)
    cells = (apart / width[order] + 1e-9).astype(np.int64)
    keys = np.repeat(np.arange(len(starts)), counts) * (int(cells.max(initial=0)) + 1) + cells
    first = np.argsort(bounds[0][order], kind="stable")
    first = first[np.argsort(keys[first], kind="stable")]
    order, starts = order[first], _starts(keys[first])
    if len(starts) == len(order):
        return order, bounds[:, order]
    return order[starts], np.minimum.reduceat(bounds[:, order], starts, axis=1)


def _undominated(bounds: Floats, groups: Ints) -> NDArray[np.bool_]:
    """Which labels, by group and difference, no label a few places beside them is nowhere above.

    Domination is transitive, so that a dropped label's dominators include one that is kept.
    """
    drop = np.zeros(len(groups), dtype=bool)
    for step in range(1, min(_BESIDE, len(groups) - 1) + 1):
        same = groups[step:] == groups[:-step]
        low, high = bounds[:, :-step], bounds[:, step:]
        after = (low <= high).all(axis=0) & same
        drop[step:] |= after
        drop[:-step] |= (high <= low).all(axis=0) & same & ~after
    return ~drop


def _starts(groups: Ints) -> Ints:
    begin = np.ones(len(groups), dtype=bool)
    begin[1:] = groups[1:] != groups[:-1]
    return np.flatnonzero(begin)


def _level(counts: Ints, most: int) -> float:
    """The cap under which counts add up to `most`."""
    ordered = np.sort(counts)
    below = np.cumsum(ordered)
    left = len(ordered) - 1 - np.arange(len(ordered))
    place = int(np.searchsorted(below + ordered * left, most, side="right"))
    if place == len(ordered):
        return float(ordered[-1])
    return (most - (float(below[place - 1]) if place else 0.0)) / (len(ordered) - place)
