"""Minimising out slots with at most two neighbours, many at once.

Such a slot leaves a cost on its one neighbour, or a table on the pair of its two: the rules RI and RII of
partitioned boolean quadratic programming (Scholz and Eckstein, "Register allocation for irregular architectures",
2002). Slots that are not neighbours are independent, so each round takes a maximal independent set and does all of
equal shape in one array operation: a chain of n slots vanishes in about log2(n) rounds instead of n steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnomon.core.cost import Floats, Ints
from gnomon.core.energy import Energy

_CHEAP_ENTRIES = 4096  # a slot inside a chain is taken before the ends only if its three-slot table is this small
_CACHE_ENTRIES = 1 << 15


@dataclass(frozen=True, slots=True)
class _Batch:
    """Slots eliminated together: (B,) slots, d arrays (B,) of neighbours, costs (B, k), d tables (B, k, k_j)."""

    slots: Ints
    neighbours: tuple[Ints, ...]
    unary: Floats
    tables: tuple[Floats, ...]


class Reduction:
    """An energy under reduction: `unary` and `around` hold what is left; `recover` undoes it.

    `around[v][u]` is the table of the pair with the axis of v first, held under both slots.
    """

    def __init__(self, energy: Energy) -> None:
        self.unary: list[Floats] = list(energy.unary)
        self.around: list[dict[int, Floats]] = [{} for _ in energy.unary]
        for (i, j), table in energy.pairwise.items():
            self.around[i][j] = table
            self.around[j][i] = table.T
        self.alive = [True] * len(self.unary)
        self._batches: list[_Batch] = []
        self._table_entries = 0.0

    def run(self, table_entries: float) -> list[int]:
        """Eliminate until each slot has three neighbours or more; returns the slots that are left.

        Slots whose elimination would leave a table of more than `table_entries` entries are left, too.
        """
        self._table_entries = table_entries
        pending = [v for v, around in enumerate(self.around) if len(around) <= 2]
        waiting: list[int] = []
        while pending or waiting:
            groups, later, dear = self._select(pending, cheap_only=True)
            waiting += dear
            if not groups:
                groups, later, _ = self._select([*later, *waiting], cheap_only=False)
                waiting = []
            touched = dict.fromkeys(later)
            for group in groups.values():
                touched.update(dict.fromkeys(self._eliminate(group)))
            pending = [v for v in touched if self.alive[v] and len(self.around[v]) <= 2]
        return [v for v, alive in enumerate(self.alive) if alive]

    def recover(self, assignment: Ints) -> None:
        """Fill in the eliminated slots, given the choices of those that were left."""
        for batch in reversed(self._batches):
            costs = batch.unary
            row = np.arange(len(batch.slots))
            for neighbours, tables in zip(batch.neighbours, batch.tables, strict=True):
                costs = costs + tables[row, :, assignment[neighbours]]
            assignment[batch.slots] = costs.argmin(axis=1)

    def _select(
        self, candidates: Sequence[int], *, cheap_only: bool
    ) -> tuple[dict[tuple[int, ...], list[int]], list[int], list[int]]:
        """An independent set by shape, then candidates next to it, then those too dear to take yet."""
        groups: dict[tuple[int, ...], list[int]] = {}
        later: list[int] = []
        dear: list[int] = []
        blocked: set[int] = set()
        taken: set[int] = set()
        for v in candidates:
            if not self.alive[v] or v in taken:
                continue
            if v in blocked:
                later.append(v)
                continue
            around = self.around[v]
            shape = (len(self.unary[v]), *[len(self.unary[u]) for u in around])
            if len(shape) == 3:
                if shape[1] * shape[2] > self._table_entries:
                    continue
                if cheap_only and shape[0] * shape[1] * shape[2] > _CHEAP_ENTRIES:
                    dear.append(v)
                    continue
            blocked.update(around)
            taken.add(v)
            groups.setdefault(shape, []).append(v)
        return groups, later, dear

    def _eliminate(self, slots: list[int]) -> list[int]:
        """Minimise out independent slots of one shape; returns their neighbours."""
        around, count = self.around, len(slots)
        rings = [tuple(around[v]) for v in slots]
        unary = np.concatenate([self.unary[v] for v in slots]).reshape(count, -1)
        size, degree = unary.shape[1], len(rings[0])
        tables = tuple(
            np.concatenate([around[v][ring[j]] for v, ring in zip(slots, rings, strict=True)]).reshape(count, size, -1)
            for j in range(degree)
        )
        members = tuple(np.array([ring[j] for ring in rings], dtype=np.intp) for j in range(degree))
        self._batches.append(_Batch(np.array(slots, dtype=np.intp), members, unary, tables))
        for v, ring in zip(slots, rings, strict=True):
            self.alive[v] = False
            for u in ring:
                del around[u][v]
        if degree == 1:
            for (u,), row in zip(rings, (tables[0] + unary[:, :, None]).min(axis=1), strict=True):
                self.unary[u] = self.unary[u] + row
        elif degree == 2:
            for (a, b), table in zip(rings, _contract(unary, *tables), strict=True):
                known = around[a].get(b)
                total = table if known is None else known + table
                around[a][b] = total
                around[b][a] = total.T
        return [u for ring in rings for u in ring]


def _contract(unary: Floats, left: Floats, right: Floats) -> Floats:
    """min over x of unary[i, x] + left[i, x, a] + right[i, x, b]: (B, k), (B, k, A), (B, k, B') to (B, A, B')."""
    count, size, width = left.shape
    height = right.shape[2]
    step = max(1, _CACHE_ENTRIES // (width * height))
    out = np.empty((count, width, height))
    for start in range(0, count, step):
        part = slice(start, start + step)
        first = left[part] + unary[part, :, None]
        second = right[part]
        # With the batch as the last axis the innermost loops are long however few choices there are.
        if first.shape[0] > 4:
            first = np.ascontiguousarray(first.transpose(1, 2, 0))
            second = np.ascontiguousarray(second.transpose(1, 2, 0))
            best = first[0][:, None] + second[0][None]
            for x in range(1, size):
                np.minimum(best, first[x][:, None] + second[x][None], out=best)
            out[part] = best.transpose(2, 0, 1)
        else:
            best = first[:, 0, :, None] + second[:, 0, None, :]
            for x in range(1, size):
                np.minimum(best, first[:, x, :, None] + second[:, x, None, :], out=best)
            out[part] = best
    return out
