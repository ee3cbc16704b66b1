"""The non-dominated results seen so far, kept up to date one result at a time."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from gnomon.core.dominance import dominates
from gnomon.search.base import Assignment, Cost


class Entry(Enum):
    """How a result entered the archive."""

    NO = "dominated, or equal in cost to one that is there"
    NEW = "beside the others"
    REPLACED = "in the place of others that it dominates"


class Archive:
    """Assignments whose costs no other one dominates; of equal costs the first one stays."""

    def __init__(self) -> None:
        self._costs: dict[Assignment, Cost] = {}

    def add(self, assignment: Assignment, cost: Cost) -> Entry:
        """Enter a result where it belongs there; what it dominates leaves."""
        if any(held == cost or dominates(held, cost) for held in self._costs.values()):
            return Entry.NO
        beaten = [key for key, held in self._costs.items() if dominates(cost, held)]
        for key in beaten:
            del self._costs[key]
        self._costs[assignment] = cost
        return Entry.REPLACED if beaten else Entry.NEW

    def __contains__(self, assignment: object) -> bool:
        return assignment in self._costs

    def __iter__(self) -> Iterator[Assignment]:
        """In the order in which they entered."""
        return iter(self._costs)

    def __len__(self) -> int:
        return len(self._costs)

    def cost(self, assignment: Assignment) -> Cost:
        """The cost of an assignment that is in the archive."""
        return self._costs[assignment]
