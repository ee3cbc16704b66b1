"""Choices that some optimal assignment can do without.

A choice goes if it is impossible, if some neighbour has no choice left that fits it (arc consistency; Mackworth,
"Consistency in networks of relations", 1977), or if another choice of its slot is never dearer whatever the
neighbours take (dead-end elimination; Goldstein, "Efficient rotamer elimination", 1994).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats, Ints
from gnomon.core.energy import Energy

_ROUNDS = 20
_COMPARED_ENTRIES = 1 << 20  # larger tables are not searched for dominated choices

Allowed = list[NDArray[np.bool_]]


def propagate(energy: Energy) -> tuple[Allowed, int | None]:
    """Which choices of each slot survive arc consistency, and the first slot that has none left, if any."""
    allowed = [np.isfinite(costs) for costs in energy.unary]
    for slot, mask in enumerate(allowed):
        if not mask.any():
            return allowed, slot
    supports: list[list[tuple[int, NDArray[np.bool_]]]] = [[] for _ in allowed]
    for (i, j), table in energy.pairwise.items():
        fits = np.isfinite(table)
        if not fits.all():
            supports[i].append((j, fits))
            supports[j].append((i, fits.T))
    queue = [i for i, around in enumerate(supports) if around]
    waiting = set(queue)
    for slot in queue:  # the list grows while it is walked
        waiting.discard(slot)
        mask = allowed[slot]
        for other, fits in supports[slot]:
            mask = mask & fits[:, allowed[other]].any(axis=1)
        if (mask == allowed[slot]).all():
            continue
        allowed[slot] = mask
        if not mask.any():
            return allowed, slot
        fresh = [other for other, _ in supports[slot] if other not in waiting]
        queue += fresh
        waiting.update(fresh)
    return allowed, None


def surviving(energy: Energy, charged: Sequence[Ints]) -> list[Ints] | None:
    """The choices of each slot worth keeping, or None where propagation shows that nothing is allowed.

    `charged[i][a]` numbers the charge that choice a of slot i falls under, -1 for none: a choice is given up
    only for one that brings no further charge. The least cost over what is kept equals that over everything.
    """
    allowed, empty = propagate(energy)
    if empty is not None:
        return None
    around: list[list[tuple[int, Floats]]] = [[] for _ in allowed]
    for (i, j), table in energy.pairwise.items():
        around[i].append((j, table))
        around[j].append((i, table.T))
    changed = set(range(len(allowed)))
    for _ in range(_ROUNDS):
        slots, changed = sorted(changed), set()
        for slot in slots:
            if _drop_dominated(slot, energy.unary[slot], around[slot], allowed, charged[slot]):
                changed.add(slot)
                changed.update(other for other, _ in around[slot])
        if not changed:
            break
    return [np.flatnonzero(mask) for mask in allowed]


def _drop_dominated(
    slot: int, costs: Floats, around: Sequence[tuple[int, Floats]], allowed: Allowed, charged: Ints
) -> bool:
    kept = np.flatnonzero(allowed[slot])
    if len(kept) < 2:
        return False
    # worst[b, a]: the most that taking b instead of a can add, over all that the neighbours may take.
    worst = costs[kept][:, None] - costs[kept][None]
    for other, table in around:
        part = table[np.ix_(kept, np.flatnonzero(allowed[other]))]
        if len(kept) * part.size > _COMPARED_ENTRIES:
            return False
        forbidden = np.isinf(part)
        finite = np.where(forbidden, 0.0, part)
        change = finite[:, None] - finite[None]
        change[np.broadcast_to(forbidden[:, None], change.shape)] = np.inf
        change[np.broadcast_to(forbidden[None], change.shape)] = -np.inf
        most = change.max(axis=2)
        never = np.isposinf(worst) | np.isposinf(most)
        worst = np.where(never, np.inf, np.where(never, 0.0, worst) + np.where(never, 0.0, most))
    dominates = (worst <= 0) & ((charged[kept] == -1)[:, None] | (charged[kept][:, None] == charged[kept][None]))
    alive = np.ones(len(kept), dtype=bool)
    for a in range(len(kept) - 1, -1, -1):
        alive[a] = False
        alive[a] = not (dominates[:, a] & alive).any()
    allowed[slot][kept[~alive]] = False
    return not alive.all()
