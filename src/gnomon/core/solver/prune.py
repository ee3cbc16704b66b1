"""Choices that some optimal assignment can do without.

A choice goes if it is impossible, if some neighbour has no choice left that fits it (arc consistency; Mackworth,
"Consistency in networks of relations", 1977), or if another choice of its slot is never worse whatever the
neighbours take (dead-end elimination; Goldstein, "Efficient rotamer elimination", 1994).

Why a problem has no allowed assignment.

The exact minimum with charges: costs paid once if a choice is used anywhere.

Branch and bound over which charged choices are used. Without any charge the minimum is a bound; the charges of
what is used are added where a branch has decided on them, and forbidding a choice asks for one further
minimum. In the worst case that is one a subset of the charged choices; mostly it is a handful.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import CostModel, Floats, Ints, OutOfTime, Stop, never, weighted_sum
from gnomon.core.solver.elimination import Energy, Minimum, minimise
from gnomon.core.space import Space
from gnomon.errors import InfeasibleError

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


def surviving(energy: Energy, charged: Sequence[Ints], stop: Stop = never) -> list[Ints] | None:
    """The choices of each slot worth keeping, or None where propagation shows that nothing is allowed.

    Where `stop` says so, fewer are given up.

    `charged[i][a]` numbers the charge that choice a of slot i falls under, -1 for none: a choice is given up
    only for one that brings no further charge. The least cost over what is kept equals that over everything.
    """
    allowed, empty = propagate(energy)
    if empty is not None:
        return None
    around = energy.around()
    changed = set(range(len(allowed)))
    for _ in range(_ROUNDS):
        slots, changed = sorted(changed), set()
        for slot in slots:
            if stop(0.0):
                break
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


_SOLVES = 400
_HINT = "allow another choice there, or another pair of choices between neighbours"


class _TooDearError(Exception):
    pass


def infeasible(space: Space, energy: Energy, stop: Stop = never) -> InfeasibleError:
    """The error for an energy that forbids everything; it names the slot, or the few slots, that show it.

    Where `stop` says so, it names none.
    """
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
    with contextlib.suppress(_TooDearError, OutOfTime):
        members = _smallest(energy, stop)
    if not members:
        return InfeasibleError(
            f"no combination of the {len(space.slots)} slots' choices is allowed, though each slot has some",
            hint=_HINT,
        )
    names = [f"'{space.slots[i].name}'" for i in sorted(members)]
    listed = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    return InfeasibleError(f"no combination of choices of the slots {listed} is allowed", hint=_HINT)


def _smallest(energy: Energy, stop: Stop) -> list[int]:
    """A smallest set, by inclusion, of slots that conflict (Junker, "QuickXplain", 2004)."""
    left = _SOLVES

    def conflicts(members: Sequence[int]) -> bool:
        nonlocal left
        left -= 1
        part = energy.induced(sorted(members))
        found = minimise(part, stop=stop) if left >= 0 else None
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarCharge:
    """A charge in weighted units, and where its choice occurs: `slots[p]` has it at index `choices[p]`.

    `uses` is what it uses of each limit.
    """

    name: str
    cost: float
    slots: Ints
    choices: Ints
    uses: tuple[float, ...] = ()

    def used_by(self, assignment: Sequence[int]) -> bool:
        """Whether the assignment takes the choice anywhere."""
        return any(assignment[s] == c for s, c in zip(self.slots.tolist(), self.choices.tolist(), strict=True))

    def restricted(self, kept: Sequence[Ints]) -> ScalarCharge | None:
        """The charge where only the kept choices of each slot are left, or None if it occurs no more."""
        places = [
            (slot, int(np.flatnonzero(kept[slot] == choice)[0]))
            for slot, choice in zip(self.slots.tolist(), self.choices.tolist(), strict=True)
            if choice in kept[slot]
        ]
        if not places:
            return None
        slots, choices = (np.array(part, dtype=np.intp) for part in zip(*places, strict=True))
        return replace(self, slots=slots, choices=choices)


def weigh_charges(model: CostModel, weights: Floats, energy: Energy) -> tuple[Energy, tuple[ScalarCharge, ...]]:
    """The charges that matter, in weighted units; choices with an infinite charge are forbidden in the energy."""
    found: list[ScalarCharge] = []
    for number, charge in enumerate(model.charges):
        cost = float(weighted_sum(np.asarray(charge.cost, dtype=np.float64)[None], weights)[0])
        uses = tuple(limit.charges[number] if limit.charges else 0.0 for limit in model.limits)
        allowed = [(i, c) for i, c in model.places(charge) if energy.unary[i][c] < np.inf]
        if not allowed or (cost == 0 and not any(uses)):
            continue
        slots, choices = (np.array(part, dtype=np.intp) for part in zip(*allowed, strict=True))
        scalar = ScalarCharge(name=charge.choice, cost=cost, slots=slots, choices=choices, uses=uses)
        if cost == np.inf:
            energy = without(energy, [scalar])
        else:
            found.append(scalar)
    return energy, tuple(found)


def charged_value(energy: Energy, charges: Sequence[ScalarCharge], assignment: Sequence[int]) -> float:
    """The cost of an assignment with the charges of what it uses, +inf where it is forbidden."""
    return energy.value(assignment) + sum(c.cost for c in charges if c.used_by(assignment))


def without(energy: Energy, charges: Sequence[ScalarCharge]) -> Energy:
    """The energy with these charges' choices forbidden."""
    unary = list(energy.unary)
    for charge in charges:
        for slot, choice in zip(charge.slots.tolist(), charge.choices.tolist(), strict=True):
            costs = unary[slot].copy()
            costs[choice] = np.inf
            unary[slot] = costs
    return Energy(tuple(unary), energy.pairwise)


@dataclass(frozen=True, slots=True)
class _Node:
    out: frozenset[int]
    paid: frozenset[int]
    value: float
    assignment: tuple[int, ...]


def _bound(node: _Node, charges: Sequence[ScalarCharge]) -> float:
    """What each assignment costs at least that is as the node has it."""
    return node.value + sum(charges[c].cost for c in sorted(node.paid))


def minimise_charged(
    energy: Energy,
    charges: Sequence[ScalarCharge],
    price: Callable[[tuple[int, ...]], float],
    max_solves: int,
    stop: Stop = never,
) -> Minimum | None:
    """The exact minimum of energy plus charges, or None beyond the limits.

    `price` gives the value of an assignment without its charges. After `max_solves` minima, or where `stop` says so,
    it is the best one found, with its bound; raises OutOfTime where there is none yet.
    """
    root = minimise(energy, stop=stop)
    if root is None or not charges:
        return root
    solves = 1
    best, best_value = root.assignment, np.inf
    stack = [_Node(frozenset(), frozenset(), price(root.assignment), root.assignment)]
    while stack:
        node = stack.pop()
        bound = _bound(node, charges)
        if bound >= best_value:
            continue
        used = [c for c, charge in enumerate(charges) if charge.used_by(node.assignment)]
        value = node.value + sum(charges[c].cost for c in used)
        if value < best_value:
            best, best_value = node.assignment, value
        open_ = [c for c in used if c not in node.paid]
        if not open_ or bound >= best_value:
            continue
        branch = max(open_, key=lambda c: (charges[c].cost, -c))
        solves += 1
        out = node.out | {branch}
        shut = [charges[c] for c in sorted(out)]
        try:
            if solves > max_solves:
                raise OutOfTime
            found = minimise(without(energy, shut), order=root.order, stop=stop)
        except OutOfTime:
            least = min(_bound(one, charges) for one in (node, *stack))
            return Minimum(assignment=best, width=root.width, order=root.order, bound=min(least, best_value))
        stack.append(_Node(node.out, node.paid | {branch}, node.value, node.assignment))
        # A minimum that takes what is forbidden says that the branch allows nothing.
        if found is not None and not any(charge.used_by(found.assignment) for charge in shut):
            stack.append(_Node(out, node.paid, price(found.assignment), found.assignment))
    return Minimum(assignment=best, width=root.width, order=root.order)
