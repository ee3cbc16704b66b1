"""The hypervolume of a set of cost vectors: the volume that they dominate, up to a reference point.

One and two objectives are summed along the front. Three are swept along the last one over a staircase of the first
two (Beume, Fonseca, Lopez-Ibanez, Paquete and Vahrenhold, "On the complexity of computing the hypervolume
indicator", 2009). Four are a sum, along the last one, of what each vector adds to the volume of the first three of
those before it; that is its own volume less that of the others pushed into its box (While, Bradstreet and Barone, "A
fast way of calculating exact hypervolumes", 2012).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats
from gnomon.core.dominance import nondominated
from gnomon.errors import ProblemError, UsageError

MOST_OBJECTIVES = 4


def hypervolume(costs: NDArray[Any] | Sequence[Sequence[float]], reference: Sequence[float]) -> float:
    """The volume between the rows of `costs` (N, objectives) and a reference point (objectives,) that is finite.

    Exact up to rounding, for one to four objectives. Rows that are not below the reference in every objective add
    nothing, nor do dominated ones; without any the volume is 0. Raises UsageError for more objectives, ProblemError for
    shapes that do not fit, NaN, and a reference that is not finite.
    """
    table = np.asarray(costs, dtype=np.float64)
    corner = np.asarray(reference, dtype=np.float64)
    if table.size == 0 and table.ndim <= 2:
        table = table.reshape(0, len(corner))
    if corner.ndim != 1 or table.ndim != 2 or table.shape[1] != len(corner):
        raise ProblemError(
            f"costs of shape {table.shape} do not fit a reference of shape {corner.shape}",
            hint="give rows with as many numbers as the reference has",
        )
    if not np.isfinite(corner).all() or np.isnan(table).any() or np.isneginf(table).any():
        raise ProblemError("the hypervolume needs finite numbers", hint="use finite costs and a finite reference")
    count = len(corner)
    if not 1 <= count <= MOST_OBJECTIVES:
        raise UsageError(
            f"the hypervolume of {count} objectives is not computed",
            hint=f"choose 1 to {MOST_OBJECTIVES} of the objectives",
        )
    inside = table[(table < corner).all(axis=1)]
    # From here on the gaps to the reference are what counts: a volume from the origin, larger is better.
    return _volume(corner - inside[nondominated(inside)])


def _volume(gaps: Floats) -> float:
    """Volume of the union of the boxes from the origin to each row; all numbers are positive."""
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
    """Three dimensions, from the highest box down: each adds the area that its base adds, times its height.

    `rights` rises and `tops` falls: the corners of the union of the bases so far.
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
        # Corners start .. end - 1 are lower than the new one and vanish below it, as does one exactly above its edge.
        stop = end + 1 if end < len(rights) and rights[end] == right else end
        left = rights[start - 1] if start else 0.0
        added = 0.0
        for old_right, old_top in zip([*rights[start:end], right], [*tops[start:end], _top(tops, end)], strict=True):
            added += (old_right - left) * (top - old_top)
            left = old_right
        rights[start:stop], tops[start:stop] = [right], [top]
        total += added * height
    return total


def _top(tops: list[float], place: int) -> float:
    return tops[place] if place < len(tops) else 0.0
