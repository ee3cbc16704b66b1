"""Assignments that any search should know early: those that a user would try by hand."""

from __future__ import annotations

from collections import Counter

from gnomon.core.space import Space
from gnomon.search.base import Assignment


def common_starts(space: Space) -> tuple[Assignment, ...]:
    """The first choice everywhere, then each common choice wherever a slot has it, and the first one elsewhere.

    A choice is common if at least half of the slots that have several choices have one of its name: with backends as
    choices these are the whole model on each single backend, which are the ends of many fronts and what a mix must
    beat. In order of first appearance, each assignment once.
    """
    several = [slot for slot in space.slots if len(slot.choices) > 1]
    counts = Counter(name for slot in several for name in slot.choices)
    common = [name for name, count in counts.items() if 2 * count >= len(several)] if len(several) > 1 else []
    found = [tuple(0 for _ in space.slots)]
    for name in common:
        found.append(tuple(slot.choices.index(name) if name in slot.choices else 0 for slot in space.slots))
    return tuple(dict.fromkeys(found))
