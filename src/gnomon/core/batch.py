"""Costs of very many assignments of one model.

Slots are put into groups, neighbours together, and the costs inside a group become one table over all its joint
choices: a look-up in place of many. Only pairs across groups are looked up one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import CostModel, Floats
from gnomon.errors import ProblemError

_GROUP_ENTRIES = 4096  # joint choices of a group
_CHUNK = 1 << 14  # assignments at a time: their numbers stay in the processor's cache


class BatchEvaluator:
    """Evaluates assignments of one model, as `CostModel.evaluate` does up to the rounding of sums.

    The cost of an assignment does not depend on the others in the batch. Making one takes some milliseconds, so that it
    pays for many thousands of assignments.
    """

    def __init__(self, model: CostModel) -> None:
        self.model = model
        self._sizes = np.array([len(slot.choices) for slot in model.space.slots])
        self._groups = _groups(model)
        home = {slot: g for g, group in enumerate(self._groups) for slot in group}
        place = {slot: i for group in self._groups for i, slot in enumerate(group)}
        count = len(model.objectives)
        tables = []
        for group in self._groups:
            shape = tuple(int(self._sizes[s]) for s in group)
            table = np.zeros((*shape, count))
            for i, slot in enumerate(group):
                table += _spread(model.slot_costs[slot], (i,), len(shape))
            tables.append(table)
        across: dict[tuple[int, int], Floats] = {}
        for pair in model.pairs:
            (a, b), cost = (pair.first, pair.second), np.asarray(pair.cost, dtype=np.float64)
            if a > b:
                (a, b), cost = (b, a), cost.swapaxes(0, 1)
            if home[a] == home[b]:
                tables[home[a]] += _spread(cost, (place[a], place[b]), len(self._groups[home[a]]))
            elif cost.any():
                across[a, b] = across[a, b] + cost if (a, b) in across else cost
        self._tables = [_columns(table, count) for table in tables]
        self._across = [(a, b, _columns(cost, count)) for (a, b), cost in across.items()]

    def evaluate(self, assignments: NDArray[Any]) -> Floats:
        """Integers (N, slots) to costs (N, objectives), +inf where impossible. Small integer types are fastest.

        Raises ProblemError for another shape or type, and for choices out of range.
        """
        given = np.asarray(assignments)
        slots, count = len(self._sizes), len(self.model.objectives)
        if given.ndim != 2 or given.shape[1] != slots or (given.size and given.dtype.kind not in "iu"):
            raise ProblemError(f"assignments must be integers of shape (N, {slots})", hint="pass a 2-D array")
        found = np.empty((len(given), count))
        narrow = np.uint8 if self._sizes.max(initial=1) <= 255 else np.uint32
        for start in range(0, len(given), _CHUNK):
            part = given[start : start + _CHUNK]
            if (part.min(axis=0, initial=0) < 0).any() or (part.max(axis=0, initial=0) >= self._sizes).any():
                raise ProblemError("an assignment has a choice out of range", hint="count choices from 0")
            found[start : start + _CHUNK] = self._sums(np.ascontiguousarray(part.T, dtype=narrow)).T
        return found

    def _sums(self, choices: NDArray[Any]) -> Floats:
        """Costs (objectives, N) of choices (slots, N)."""
        total = np.zeros((len(self.model.objectives), choices.shape[1]))
        for group, table in zip(self._groups, self._tables, strict=True):
            index = choices[group[0]].astype(np.int32)
            for member in group[1:]:
                index *= int(self._sizes[member])
                index += choices[member]
            for row, column in zip(total, table, strict=True):
                if column is not None:
                    row += column.take(index)
        for a, b, table in self._across:
            index = choices[a].astype(np.int32)
            index *= int(self._sizes[b])
            index += choices[b]
            for row, column in zip(total, table, strict=True):
                if column is not None:
                    row += column.take(index)
        for charge in self.model.charges:
            used = np.zeros(choices.shape[1], dtype=bool)
            for i, slot in enumerate(self.model.space.slots):
                if charge.choice in slot.choices:
                    used |= choices[i] == slot.choices.index(charge.choice)
            total[:, used] += np.asarray(charge.cost, dtype=np.float64)[:, None]
        return total


def _groups(model: CostModel) -> list[list[int]]:
    """Groups of slots, each grown from the first free slot by the one with most pairs into it, then the first free."""
    sizes = [len(slot.choices) for slot in model.space.slots]
    around: list[set[int]] = [set() for _ in sizes]
    for pair in model.pairs:
        around[pair.first].add(pair.second)
        around[pair.second].add(pair.first)
    free = dict.fromkeys(range(len(sizes)))
    groups: list[list[int]] = []
    while free:
        group, entries = [next(iter(free))], sizes[next(iter(free))]
        del free[group[0]]
        links: dict[int, int] = {}
        while free:
            for u in around[group[-1]]:
                if u in free:
                    links[u] = links.get(u, 0) + 1
            slot = max(links, key=lambda u: (links[u], -u)) if links else next(iter(free))
            entries *= sizes[slot]
            if entries > _GROUP_ENTRIES:
                break
            links.pop(slot, None)
            del free[slot]
            group.append(slot)
        groups.append(group)
    return groups


def _spread(cost: Floats, axes: tuple[int, ...], count: int) -> Floats:
    """A table over some axes, in rising order or not, as one that broadcasts over `count` axes and the objectives."""
    order = sorted(range(len(axes)), key=lambda i: axes[i])
    shape = [1] * count
    for i in order:
        shape[axes[i]] = cost.shape[i]
    return np.transpose(cost, (*order, len(axes))).reshape(*shape, cost.shape[-1])


def _columns(table: Floats, count: int) -> list[Floats | None]:
    """One flat table an objective, None where it is zero throughout."""
    flat = table.reshape(-1, count).T
    return [np.ascontiguousarray(column) if column.any() else None for column in flat]
