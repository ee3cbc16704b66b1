"""Dominance between cost vectors whose entries are all to be minimised.

A vector dominates another if it is nowhere larger and somewhere smaller. With two objectives, vectors are filtered by
one sort and a running minimum; with three, so are the halves of ever smaller blocks (Kung, Luccio and Preparata, "On
finding the maxima of a set of vectors", 1975). With more objectives, they are compared in blocks with the vectors kept
so far.

The hypervolume of a set of cost vectors is the volume that they dominate, up to a reference point. With one or two
objectives it is summed along the front. With three it is swept along the last objective over a staircase of the first
two (Beume, Fonseca, Lopez-Ibanez, Paquete and Vahrenhold, "On the complexity of computing the hypervolume indicator",
2009). With four, the volume that each vector adds to the vectors before it, in the first three objectives, is summed
along the last objective. This added volume is the vector's own volume less the volume of the others pushed into its box
(While, Bradstreet and Barone, "A fast way of calculating exact hypervolumes", 2012).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats, Ints, OutOfTime, Stop, never
from gnomon.errors import ProblemError, UsageError

_BLOCK = 256  # rows that are compared with all kept rows at once
_COMPARED = 1 << 22  # truth values in memory at once


def dominates(first: Sequence[float], second: Sequence[float]) -> bool:
    """Return True if the first vector is nowhere larger than the second and somewhere smaller."""
    pairs = list(zip(first, second, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def nondominated(costs: NDArray[Any] | Sequence[Sequence[float]], stop: Stop = never) -> Ints:
    """The indices of the rows of `costs` (N, objectives) that no other row dominates, in lexicographic order of costs.

    Of equal rows only the first is kept; rows with +inf, which are impossible, are never kept. So the rows at these
    indices are distinct, and in order of the first objective, then the second, and so on. Raises ProblemError for a
    wrong shape and for NaN. More than three objectives take quadratic time; OutOfTime is raised if `stop` returns True.
    """
    table = _table(costs)
    allowed = np.flatnonzero(np.isfinite(table).all(axis=1))
    rows = table[allowed]
    order = np.lexsort(rows.T[::-1])  # stable: equal rows stay in their order
    rows = rows[order]
    if rows.shape[1] == 1:
        kept = np.arange(min(len(rows), 1))
    elif rows.shape[1] == 2:
        kept = _falling(rows[:, 1])
    elif rows.shape[1] == 3:
        kept = uncovered(rows.T, np.zeros(len(rows), dtype=np.intp))
    else:
        kept = _by_blocks(rows, stop)
    return np.asarray(allowed[order[kept]], dtype=np.intp)


def covered(costs: NDArray[Any] | Sequence[Sequence[float]], front: NDArray[Any]) -> NDArray[np.bool_]:
    """A mask (N,) of the rows of `costs` (N, objectives) that are nowhere below some row of `front` (M, objectives)."""
    rows, points = _table(costs), _table(front)
    if rows.shape[1] != points.shape[1]:
        raise ProblemError(
            f"rows with {rows.shape[1]} and with {points.shape[1]} objectives cannot be compared",
            hint="Give rows with the same objectives.",
        )
    mask = np.zeros(len(rows), dtype=bool)
    if not len(points) or not len(rows):
        return mask
    if rows.shape[1] == 2:
        points = points[nondominated(points)] if np.isfinite(points).all() else points[np.lexsort(points.T[::-1])]
        least = np.minimum.accumulate(points[:, 1])
        place = np.searchsorted(points[:, 0], rows[:, 0], side="right")
        return np.asarray((place > 0) & (least[place - 1] <= rows[:, 1]))
    step = max(1, _COMPARED // len(points))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        below: NDArray[np.bool_] = np.asarray(part[:, None, 0] >= points[None, :, 0])
        for axis in range(1, rows.shape[1]):
            below &= part[:, None, axis] >= points[None, :, axis]
        mask[start : start + step] = below.any(axis=1)
    return mask


def _table(costs: NDArray[Any] | Sequence[Sequence[float]]) -> Floats:
    table = np.asarray(costs, dtype=np.float64)
    if table.ndim != 2 or not table.shape[1]:
        raise ProblemError(f"costs must have shape (N, objectives), not {table.shape}", hint="Pass a 2-D array.")
    if np.isnan(table).any():
        raise ProblemError("a cost is NaN", hint="Use finite costs, or +inf for impossible rows.")
    return table


def _falling(values: Floats) -> Ints:
    """The indices at which a sequence falls below all earlier values."""
    keep = np.ones(len(values), dtype=bool)
    keep[1:] = values[1:] < np.minimum.accumulate(values)[:-1]
    return np.flatnonzero(keep)


def uncovered(costs: Floats, groups: Ints) -> Ints:
    """The indices of the columns of `costs` (3, N) that no earlier column of their group (N,) covers.

    The columns are sorted by group, then by their costs. A column covers another if it is nowhere larger. In blocks of
    2, 4, 8 .. columns, each column in the second half is compared with the least third cost among those columns in the
    first half whose second cost is not larger.
    """
    count = len(groups)
    kept = np.ones(count, dtype=bool)
    place = np.arange(count)
    order = np.lexsort((costs[1], groups))
    number = np.cumsum(np.diff(groups, prepend=groups[:1]) != 0)
    rank = np.unique(costs[2], return_inverse=True)[1]
    for level in range(max(count - 1, 0).bit_length() - 1, -1, -1):
        # `order` has the columns block by block, each block sorted by group and second cost.
        second, block = (order >> level) & 1 == 1, order >> (level + 1)
        part = number[order] + block
        above = (part[-1] - part) * (count + 1)  # so that a running minimum starts again with each part
        value = rank[order] + above
        least = np.minimum.accumulate(np.where(second, above + count, value))
        kept[order[second & (least <= value)]] = False
        firsts = np.cumsum(~second)
        target = np.where(second, place - firsts + ((block + 1) << level), firsts - 1 + (block << level))
        order[target] = order.copy()
    return np.flatnonzero(kept)


def _by_blocks(rows: Floats, stop: Stop) -> Ints:
    """The indices of the rows that no earlier row covers; the rows are sorted, so earlier rows are enough."""
    kept: list[int] = []
    archive = np.empty_like(rows)
    for start in range(0, len(rows), _BLOCK):
        if start and stop(start / len(rows)):
            raise OutOfTime
        block = rows[start : start + _BLOCK]
        fresh = np.flatnonzero(~covered(block, archive[: len(kept)])) if kept else np.arange(len(block))
        inner = block[fresh]
        below = np.asarray((inner[:, None, :] <= inner[None, :, :]).all(axis=2), dtype=np.bool_)
        below[np.tril_indices(len(inner))] = False
        chosen = fresh[~below.any(axis=0)]
        archive[len(kept) : len(kept) + len(chosen)] = block[chosen]
        kept.extend((chosen + start).tolist())
    return np.array(kept, dtype=np.intp)


MOST_OBJECTIVES = 4


def hypervolume(costs: NDArray[Any] | Sequence[Sequence[float]], reference: Sequence[float]) -> float:
    """The volume between the rows of `costs` (N, objectives) and a finite reference point (objectives,).

    It is exact up to rounding, for one to four objectives. Dominated rows add nothing, nor do rows that are not below
    the reference in every objective; without rows the volume is 0. Raises UsageError for more objectives, and
    ProblemError for shapes that do not fit, NaN, and a reference that is not finite.
    """
    table = np.asarray(costs, dtype=np.float64)
    corner = np.asarray(reference, dtype=np.float64)
    if table.size == 0 and table.ndim <= 2:
        table = table.reshape(0, len(corner))
    if corner.ndim != 1 or table.ndim != 2 or table.shape[1] != len(corner):
        raise ProblemError(
            f"costs of shape {table.shape} do not fit a reference of shape {corner.shape}",
            hint="Give rows with as many numbers as the reference has.",
        )
    if not np.isfinite(corner).all() or np.isnan(table).any() or np.isneginf(table).any():
        raise ProblemError("the hypervolume needs finite numbers", hint="Use finite costs and a finite reference.")
    count = len(corner)
    if not 1 <= count <= MOST_OBJECTIVES:
        raise UsageError(
            f"the hypervolume of {count} objectives is not computed",
            hint=f"Choose 1 to {MOST_OBJECTIVES} of the objectives.",
        )
    inside = table[(table < corner).all(axis=1)]
    # From here on only the gaps to the reference count: a volume from the origin, where larger is better.
    return _volume(corner - inside[nondominated(inside)])


def _volume(gaps: Floats) -> float:
    """The volume of the union of the boxes from the origin to each row; all numbers are positive."""
    if not len(gaps):
        return 0.0
    if gaps.shape[1] == 1:
        return float(gaps.max())
    if gaps.shape[1] == 2:
        return _area(gaps)
    if gaps.shape[1] == 3:
        return _sweep(gaps)
    order = np.argsort(-gaps[:, -1], kind="stable")
    heights, bases = gaps[order, -1], gaps[order, :-1]
    total = 0.0
    for i, base in enumerate(bases):
        pushed = np.minimum(bases[:i], base)
        total += float(heights[i]) * (float(base.prod()) - _volume(pushed[nondominated(-pushed)]))
    return total


def _area(gaps: Floats) -> float:
    order = np.argsort(-gaps[:, 0], kind="stable")
    widths, heights = gaps[order, 0], np.maximum.accumulate(gaps[order, 1])
    return float((widths * np.diff(heights, prepend=0.0)).sum())


def _sweep(gaps: Floats) -> float:
    """The volume in three dimensions, from the highest box down: each adds the new area of its base times its height.

    `rights` (increasing) and `tops` (decreasing) are the corners of the union of the bases so far.
    """
    rights: list[float] = []
    tops: list[float] = []
    total = 0.0
    for right, top, height in gaps[np.argsort(-gaps[:, 2], kind="stable")].tolist():
        end = bisect_left(rights, right)
        if end < len(tops) and tops[end] >= top:
            continue
        start = end
        while start > 0 and tops[start - 1] <= top:
            start -= 1
        # Corners start .. end - 1 lie below the new corner and vanish, as does a corner exactly above its edge.
        stop = end + 1 if end < len(rights) and rights[end] == right else end
        left = rights[start - 1] if start else 0.0
        added = 0.0
        below = tops[start : end + 1] if end < len(tops) else [*tops[start:], 0.0]
        for old_right, old_top in zip([*rights[start:end], right], below, strict=True):
            added += (old_right - left) * (top - old_top)
            left = old_right
        rights[start:stop], tops[start:stop] = [right], [top]
        total += added * height
    return total
