"""What a search space is to the rest of gnomon, and drawing nets from one."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from gnomon.core.space import Space
from gnomon.errors import ProblemError
from gnomon.spaces.features import Assignment, CountTables, Ints
from gnomon.spaces.fuse import FusionRules
from gnomon.spaces.net import Net

_TRIES = 50
_MOST_LISTED = 1 << 20


@runtime_checkable
class SearchSpace(Protocol):
    """A set of nets: slots with choices, and the net of each assignment.

    - `name` is what tables and estimators say they belong to. `space` has the slots; `space.size` assignments.
    - Everything is a function of the arguments alone: no clock, no file, no random number.
    - The tables under any rules count what `fuse(net(a), rules).counts()` has, for every assignment a, and hold no unit
      that no net has.
    """

    @property
    def name(self) -> str:
        """A short name."""
        ...

    @property
    def space(self) -> Space:
        """The slots and their choices."""
        ...

    def net(self, assignment: Assignment) -> Net:
        """The net of an assignment, an operator a node. ProblemError for an assignment outside the space."""
        ...

    def tables(self, rules: FusionRules) -> CountTables:
        """All units of the space and how to count them, operators fused by the rules; nets are not walked for them."""
        ...


def draw(tables: CountTables, count: int, *, seed: int, distinct: bool = True) -> Ints:
    """Assignments drawn uniformly, of shape (count, slots); distinct ones are different nets.

    Slots that make no difference hold their first choice. The draw depends on the seed, the space and the count alone.
    ProblemError where there are not so many nets.
    """
    if distinct and count > tables.nets():
        raise ProblemError(f"the space has only {tables.nets()} nets", hint="Draw fewer, or draw with repetition.")
    rng = np.random.default_rng(seed)
    radices = np.array([len(slot.choices) for slot in tables.space.slots], np.int64)
    found = np.empty((0, len(radices)), np.int64)
    for _ in range(_TRIES):
        missing = count - len(found)
        if not missing:
            return found
        more = tables.canonical(rng.integers(0, radices, size=(missing + distinct * missing // 4, len(radices))))
        found = np.concatenate([found, more])
        if distinct:
            found = found[np.sort(np.unique(found, axis=0, return_index=True)[1])]
        found = found[:count]
    # Nearly the whole of a space is asked for: list it.
    if tables.space.size > _MOST_LISTED:
        raise ProblemError(f"{count} nets could not be drawn from this space", hint="Draw fewer.")
    everything = tables.canonical(np.array([tables.space.decode(code) for code in range(tables.space.size)]))
    return rng.permutation(np.unique(everything, axis=0))[:count]
