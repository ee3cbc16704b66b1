"""Dominance between cost vectors that are all to be made small.

A vector dominates another if it is nowhere larger and somewhere smaller. Two objectives are filtered by one sort and a
running minimum (Kung, Luccio and Preparata, "On finding the maxima of a set of vectors", 1975), more of them in
blocks against what was kept so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats, Ints
from gnomon.errors import ProblemError

_BLOCK = 256  # rows that are compared with all kept ones at once
_COMPARED = 1 << 22  # truth values held at once


def dominates(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether the first vector is nowhere larger than the second and somewhere smaller."""
    pairs = list(zip(first, second, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def nondominated(costs: NDArray[Any] | Sequence[Sequence[float]]) -> Ints:
    """Indices of the rows of `costs` (N, objectives) that no other dominates, by increasing cost, row by row.

    Of equal rows only the first is taken; rows with +inf, which are impossible, never are. So the rows at the indices
    are distinct, and in order of the first objective, then the second, and so on. Raises ProblemError for another
    shape, and for NaN.
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
    else:
        kept = _by_blocks(rows)
    return np.asarray(allowed[order[kept]], dtype=np.intp)


def covered(costs: NDArray[Any] | Sequence[Sequence[float]], front: NDArray[Any]) -> NDArray[np.bool_]:
    """For each row of `costs` (N, objectives), whether a row of `front` (M, objectives) is nowhere larger: (N,)."""
    rows, known = _table(costs), _table(front)
    if rows.shape[1] != known.shape[1]:
        raise ProblemError(
            f"rows of {rows.shape[1]} and of {known.shape[1]} objectives cannot be compared",
            hint="give both the same objectives",
        )
    found = np.zeros(len(rows), dtype=bool)
    if not len(known) or not len(rows):
        return found
    if rows.shape[1] == 2:
        known = known[nondominated(known)] if np.isfinite(known).all() else known[np.lexsort(known.T[::-1])]
        least = np.minimum.accumulate(known[:, 1])
        place = np.searchsorted(known[:, 0], rows[:, 0], side="right")
        return np.asarray((place > 0) & (least[place - 1] <= rows[:, 1]))
    step = max(1, _COMPARED // len(known))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        below: NDArray[np.bool_] = np.asarray(part[:, None, 0] >= known[None, :, 0])
        for axis in range(1, rows.shape[1]):
            below &= part[:, None, axis] >= known[None, :, axis]
        found[start : start + step] = below.any(axis=1)
    return found


def _table(costs: NDArray[Any] | Sequence[Sequence[float]]) -> Floats:
    table = np.asarray(costs, dtype=np.float64)
    if table.ndim != 2 or not table.shape[1]:
        raise ProblemError(f"costs must have shape (N, objectives), not {table.shape}", hint="pass a 2-D array")
    if np.isnan(table).any():
        raise ProblemError("a cost is NaN", hint="use finite costs, or +inf for impossible")
    return table


def _falling(values: Floats) -> Ints:
    """Where a sequence falls below all before."""
    keep = np.ones(len(values), dtype=bool)
    keep[1:] = values[1:] < np.minimum.accumulate(values)[:-1]
    return np.flatnonzero(keep)


def _by_blocks(rows: Floats) -> Ints:
    """Positions of the rows that no earlier row is nowhere larger than; the rows are sorted, so that is enough."""
    kept: list[int] = []
    archive = np.empty_like(rows)
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        fresh = np.flatnonzero(~covered(block, archive[: len(kept)])) if kept else np.arange(len(block))
        inner = block[fresh]
        below = np.asarray((inner[:, None, :] <= inner[None, :, :]).all(axis=2), dtype=np.bool_)
        below[np.tril_indices(len(inner))] = False
        chosen = fresh[~below.any(axis=0)]
        archive[len(kept) : len(kept) + len(chosen)] = block[chosen]
        kept.extend((chosen + start).tolist())
    return np.array(kept, dtype=np.intp)
