"""Why a problem has no allowed assignment."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from gnomon.core.elimination import minimise
from gnomon.core.energy import Energy
from gnomon.core.prune import propagate
from gnomon.core.space import Space
from gnomon.errors import InfeasibleError

_SOLVES = 400
_HINT = "allow another choice there, or another pair of choices between neighbours"


class _TooDearError(Exception):
    pass


def infeasible(space: Space, energy: Energy) -> InfeasibleError:
    """The error for an energy that forbids everything; it names the slot, or the few slots, that show it."""
    _, slot = propagate(energy)
    if slot is not None:
        name = space.slots[slot].name
        if not (energy.unary[slot] < float("inf")).any():
            return InfeasibleError(
                f"slot '{name}' has no allowed choice",
                hint="make one of its choices possible, or leave the slot out",
            )
        return InfeasibleError(f"slot '{name}' has no choice left that fits what its neighbours allow", hint=_HINT)
    members: list[int] = []
    with contextlib.suppress(_TooDearError):
        members = _smallest(energy)
    if not members:
        return InfeasibleError(
            f"no combination of the {len(space.slots)} slots' choices is allowed, though each slot has some",
            hint=_HINT,
        )
    names = [f"'{space.slots[i].name}'" for i in sorted(members)]
    listed = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    return InfeasibleError(f"no combination of choices of the slots {listed} is allowed", hint=_HINT)


def _smallest(energy: Energy) -> list[int]:
    """A smallest set, by inclusion, of slots that conflict (Junker, "QuickXplain", 2004)."""
    left = _SOLVES

    def conflicts(members: Sequence[int]) -> bool:
        nonlocal left
        left -= 1
        part = energy.induced(sorted(members))
        found = minimise(part) if left >= 0 else None
        if found is None:
            raise _TooDearError
        return part.value(found.assignment) == float("inf")

    everything = list(range(len(energy.unary)))
    return _explain([], False, everything, conflicts) if conflicts(everything) else []


def _explain(base: list[int], grown: bool, members: list[int], conflicts: Callable[[Sequence[int]], bool]) -> list[int]:
    if grown and conflicts(base):
        return []
    if len(members) == 1:
        return members
    half = len(members) // 2
    low, high = members[:half], members[half:]
    needed_high = _explain(base + low, True, high, conflicts)
    needed_low = _explain(base + needed_high, bool(needed_high), low, conflicts)
    return needed_low + needed_high
