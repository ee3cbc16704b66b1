"""Choices that some optimal assignment can do without.

A choice is removed if it is impossible, if some neighbour has no choice left that fits it (arc consistency; Mackworth,
"Consistency in networks of relations", 1977), or if another choice of its slot is never worse, whatever the
neighbours choose (dead-end elimination; Goldstein, "Efficient rotamer elimination", 1994).

This module also finds the reason why a problem has no allowed assignment, and the exact minimum with charges, which are
paid once if a choice is used anywhere. The latter is found by branch and bound over the set of charged choices that are
used. The minimum without charges is a bound. A charge is added once a branch has decided to pay it, and forbidding a
choice takes one further minimum. In the worst case every subset of the charged choices needs its own minimum; usually a
handful of minima suffices.
"""

from __future__ import annotations

import contextlib
import math
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
    """The choices of each slot that survive arc consistency, and the first slot that has none left, if any."""
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
    for slot in queue:  # the list grows during the loop
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
    """The choices of each slot worth keeping, or None if propagation shows that nothing is allowed.

    If `stop` returns True, fewer choices are removed.

    `charged[i][a]` is the number of the charge that choice a of slot i incurs, -1 for none. A possible choice is
    removed only in favour of one that incurs no further charge. The least cost over the kept choices equals the least
    cost over all choices.
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
    # worst[b, a]: the most that taking b instead of a can add, over all choices of the neighbours.
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
_HINT = "Allow another choice, or another pair of choices of neighbouring slots."


def infeasible(space: Space, energy: Energy, stop: Stop = never) -> InfeasibleError:
    """The error for an energy that forbids everything; it names the slot, or the few slots, that prove this.

    If `stop` returns True before they are found, it names none.
    """
    _, slot = propagate(energy)
    if slot is not None:
        name = space.slots[slot].name
        if not (energy.unary[slot] < float("inf")).any():
            return InfeasibleError(
                f"slot '{name}' has no allowed choice", hint="Make one of its choices possible, or leave the slot out."
            )
        return InfeasibleError(f"slot '{name}' has no choice left that fits what its neighbours allow", hint=_HINT)
    members: list[int] = []
    with contextlib.suppress(OutOfTime):
        members = _smallest(energy, stop)
    if not members:
        return InfeasibleError(
            f"no combination of the {len(space.slots)} slots' choices is allowed, though each slot has some", hint=_HINT
        )
    names = [f"'{space.slots[i].name}'" for i in sorted(members)]
    listed = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    return InfeasibleError(f"no combination of choices of the slots {listed} is allowed", hint=_HINT)


def _smallest(energy: Energy, stop: Stop) -> list[int]:
    """A set of slots in conflict, minimal by inclusion (Junker, "QuickXplain", 2004)."""
    left = _SOLVES

    def conflicts(members: Sequence[int]) -> bool:
        nonlocal left
        left -= 1
        part = energy.induced(sorted(members))
        minimum = minimise(part, stop=stop) if left >= 0 else None
        if minimum is None:
            raise OutOfTime
        return part.value(minimum.assignment) == float("inf")

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
    """A charge in weighted units, and the places of its choice: `slots[p]` has the choice at index `choices[p]`.

    `uses` has the amount of each limited quantity that the charge uses.
    """

    name: str
    cost: float
    slots: Ints
    choices: Ints
    uses: tuple[float, ...] = ()

    def used_by(self, assignment: Sequence[int]) -> bool:
        """Return True if the assignment takes the choice anywhere."""
        return any(assignment[s] == c for s, c in zip(self.slots.tolist(), self.choices.tolist(), strict=True))

    def restricted(self, kept: Sequence[Ints]) -> ScalarCharge | None:
        """The charge for only the kept choices of each slot, or None if its choice no longer occurs."""
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
    scalars: list[ScalarCharge] = []
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
            scalars.append(scalar)
    return energy, tuple(scalars)


def charged_value(energy: Energy, charges: Sequence[ScalarCharge], assignment: Sequence[int]) -> float:
    """The cost of an assignment with the charges of the choices it uses, +inf if it is forbidden."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """A part of the assignments, given by charges that are not used (`out`) and charges that are always paid (`paid`).

    `bound` is a lower bound on the cost of each of these assignments. Each other charge is divided into shares among
    the places that may incur it. The shares together are no more than the charge, so that the minimum with the shares
    is a bound.
    """

    out: frozenset[int] = frozenset()
    paid: frozenset[int]
    shares: tuple[Floats, ...]
    bound: float


@dataclass(slots=True, kw_only=True)
class _ChargeSearch:
    """Branch and bound over the set of charges that are used; `best` is the best assignment found so far."""

    energy: Energy
    charges: Sequence[ScalarCharge]
    solves: float
    stop: Stop
    best: tuple[int, ...]
    value: float

    def closed(self, bound: float) -> bool:
        """Return True if no assignment with this bound can be better than the best."""
        return bound >= self.value - _EXACT * abs(self.value)

    def free(self, node: _Node) -> list[int]:
        """The charges that are still undecided."""
        return [c for c in range(len(self.charges)) if c not in node.out and c not in node.paid]

    def relax(self, node: _Node) -> tuple[_Node, tuple[int, ...]]:
        """The node with the bound from its shares, and the assignment that reaches it. Raises OutOfTime."""
        if not self.solves:
            raise OutOfTime
        self.solves -= 1
        unary, kept = list(self.energy.unary), [np.ones(size, bool) for size in self.energy.sizes]
        for c, charge in enumerate(self.charges):
            for slot, choice, share in zip(charge.slots, charge.choices, node.shares[c], strict=True):
                if c in node.out:
                    kept[slot][choice] = False
                elif c not in node.paid and share:
                    unary[slot] = unary[slot].copy()
                    unary[slot][choice] += share
        if not all(some.any() for some in kept):
            return replace(node, bound=np.inf), self.best
        choices = [np.flatnonzero(some) for some in kept]
        small = Energy(tuple(unary), self.energy.pairwise).restrict(choices)
        minimum = minimise(small, stop=self.stop)
        if minimum is None:
            raise OutOfTime
        paid = sum(self.charges[c].cost for c in sorted(node.paid))
        bound = max(node.bound, small.value(minimum.assignment) + paid)
        assignment = tuple(int(own[a]) for own, a in zip(choices, minimum.assignment, strict=True))
        value = charged_value(self.energy, self.charges, assignment)
        if value < self.value:
            self.best, self.value = assignment, value
        return replace(node, bound=bound), assignment

    def probe(self, node: _Node) -> _Node:
        """The node that also pays each charge whose avoidance would cost too much. Raises OutOfTime."""
        for c in self.free(node):
            if self.closed(self.relax(replace(node, out=node.out | {c}))[0].bound):
                node = replace(node, paid=node.paid | {c})
        return node

    def ascend(self, node: _Node) -> tuple[_Node, tuple[int, ...]]:
        """The node with better shares, by projected subgradients, and the assignment there. Raises OutOfTime.

        The ascent ends when the last few steps together close only a small share of the gap to the best.
        """
        top, assignment = self.relax(node)
        at, step, seen = assignment, _FIRST_STEP, [top.bound]
        while not self.closed(top.bound):
            gap = self.value - top.bound
            if len(seen) > _PATIENCE and top.bound - seen[-_PATIENCE] < _WORTH * gap:
                break
            used = {c: self.uses(c, at) for c in self.free(top)}
            steepness = sum(float(uses.sum()) for uses in used.values())
            if not steepness:
                break
            shares = list(top.shares)
            for c, uses in used.items():
                shares[c] = _within(shares[c] + step * gap / steepness * uses, self.charges[c].cost)
            tried, at = self.relax(replace(top, shares=tuple(shares)))
            if tried.bound > top.bound:
                top, assignment = tried, at
            else:
                step *= _SHORTER
            seen.append(top.bound)
        return top, assignment

    def uses(self, charge: int, assignment: tuple[int, ...]) -> Floats:
        """An array with 1 for each place of a charge that the assignment takes, and 0 for the others."""
        own = self.charges[charge]
        return np.asarray(np.array(assignment)[own.slots] == own.choices, float)


_EXACT = 1e-12  # relative rounding error of sums of shares
_FIRST_STEP, _SHORTER = 2.0, 0.7  # the first step in units of Polyak's step, and the factor after a useless step
_PATIENCE, _WORTH = 4, 0.3  # this many steps together must raise the bound by this share of the gap


def _within(shares: Floats, most: float) -> Floats:
    """The nearest shares that are not negative and sum to at most `most`."""
    shares = np.maximum(shares, 0.0)
    if shares.sum() <= most:
        return shares
    ordered = np.sort(shares)[::-1]
    over = (np.cumsum(ordered) - most) / np.arange(1, len(shares) + 1)
    return np.asarray(np.maximum(shares - over[ordered > over][-1], 0.0))


def minimise_charged(
    energy: Energy, charges: Sequence[ScalarCharge], solves: float = math.inf, stop: Stop = never
) -> Minimum | None:
    """The exact minimum of energy plus charges, or None if it is beyond the limits.

    After `solves` minima, or when `stop` returns True, the result is the best assignment found, with its bound. Raises
    OutOfTime if nothing has been found yet.
    """
    root = minimise(energy, stop=stop)
    if root is None or not charges or (least := energy.value(root.assignment)) == np.inf:
        return root
    value = charged_value(energy, charges, root.assignment)
    search = _ChargeSearch(energy=energy, charges=charges, solves=solves, stop=stop, best=root.assignment, value=value)
    free_of_cost = frozenset(c for c, charge in enumerate(charges) if not charge.cost)
    shares = tuple(np.zeros(len(charge.slots)) for charge in charges)
    open_ = [_Node(paid=free_of_cost, shares=shares, bound=least)]
    try:
        open_ = [search.probe(open_[0])]
        while open_:
            node = open_.pop()
            least = node.bound
            if search.closed(least):
                break
            node, at = search.ascend(node)
            free = search.free(node)
            if search.closed(node.bound) or not free:
                continue
            free = search.free(node := search.probe(node))
            branch = max(free, key=lambda c: float(search.uses(c, at).sum()), default=None)
            if branch is None:
                open_.append(node)
                continue
            open_ += [replace(node, out=node.out | {branch}), replace(node, paid=node.paid | {branch})]
            open_.sort(key=lambda node: -node.bound)
    except OutOfTime:
        bound = min([search.value, least, *(other.bound for other in open_)])
        return Minimum(assignment=search.best, width=root.width, order=root.order, bound=bound)
    return Minimum(assignment=search.best, width=root.width, order=root.order)
