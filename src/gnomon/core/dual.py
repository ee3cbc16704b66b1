"""Bounds and good assignments for the least worst of several objectives, without integer programming.

The least weighted sum is a lower bound on the least worst objective for every convex weighting; the best weighting is
found by cutting planes (Kelley, "The cutting-plane method for solving convex programs", 1960), each being a model to
`solve`. With many slots its bound is nearly reached by an assignment that differs in few slots from those seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gnomon.core.cost import CostModel, Floats, Ints
from gnomon.core.programme import Programme, run_highs
from gnomon.core.solve import solve

_ROUNDS = 60
_CLOSE = 6  # minima seen whose choices make a core


class Dual:
    """Climbs to the weighting of a model's objectives under which the least weighted cost is largest.

    `low` is the best bound so far, on the largest objective of every assignment, and `weights` (objectives,) its
    weighting; `seen` holds the minima met. `exact` is False where HiGHS found them, or not all was proved.
    """

    def __init__(self, model: CostModel, time_limit_s: float | None, tolerance: float) -> None:
        self.model, self.time_limit_s, self.tolerance = model, time_limit_s, tolerance
        count = len(model.objectives)
        self.low = -math.inf
        self.weights: Floats = np.full(count, 1.0 / count)
        self.exact = True
        self.seen: dict[tuple[int, ...], Floats] = {}

    def ask(self, weights: Floats) -> bool:
        """Solve under these weights; False where the assignment was seen before."""
        names = (objective.name for objective in self.model.objectives)
        found = solve(self.model, dict(zip(names, weights.tolist(), strict=True)), time_limit_s=self.time_limit_s)
        self.exact = self.exact and found.method == "elimination"
        if found.bound > self.low:
            self.low, self.weights = found.bound, weights
        new = found.assignment not in self.seen
        self.seen[found.assignment] = np.array(found.cost)
        return new

    def climb(self) -> None:
        """Add assignments until the weights stay. Wide problems, where each costs a run of HiGHS, get only one."""
        self.ask(self.weights)
        for _ in range(_ROUNDS):
            if not self.exact or len(self.weights) == 1:
                return
            weights, high = _heaviest(np.array(list(self.seen.values())))
            if high - self.low <= 0.1 * self.tolerance or not self.ask(weights):
                return

    def least_total(self, cap: float, least: Floats) -> float:
        """A lower bound on the sum of the objectives where none is above `cap`; none is ever below its `least`."""
        gap = np.divide(cap - self.low, self.weights, out=np.full(len(self.weights), np.inf), where=self.weights > 0)
        return float(np.maximum(cap - gap, least).sum())

    def core(self, around: Sequence[int], flips: int) -> list[Ints]:
        """The choices to keep of each slot: those of the best minima seen, and of the cheapest single changes.

        The changes are `flips` of those to an allowed assignment `around`.
        """
        current = np.array(around, dtype=np.intp)
        slots, choices, starts = _flat(self.model)
        # What is impossible stays so under a weight of 0.
        costs = _around(self.model, current, starts) @ np.maximum(self.weights, 1e-9)
        above = costs - costs[starts + current][slots]
        kept = [{int(choice)} for choice in current]
        close = sorted(self.seen, key=lambda a: float(self.seen[a] @ self.weights))[:_CLOSE]
        for assignment in close:
            for slot, choice in enumerate(assignment):
                kept[slot].add(choice)
        for place in np.argsort(above, kind="stable")[: flips + len(current)].tolist():
            if math.isfinite(above[place]):
                kept[slots[place]].add(int(choices[place]))
        return [np.array(sorted(part), dtype=np.intp) for part in kept]


def _heaviest(values: Floats) -> tuple[Floats, float]:
    """The weights that make the least weighted row of `values` (assignments, objectives) largest, and that number."""
    low, reach = float(values.min()), float(values.max() - values.min())
    count = values.shape[1]
    if reach <= 0:
        return np.full(count, 1.0 / count), low
    # Maximise theta <= sum of weights * row, all from 0 to 1, the weights adding up to 1.
    programme = Programme()
    theta = programme.columns(np.array([-1.0]), np.zeros(1))
    first = programme.columns(np.zeros(count), np.zeros(count))
    weights = list(range(first, first + count))
    programme.row(weights, [1.0] * count, 1.0, 1.0)
    for row in (values - low) / reach:
        programme.row([theta, *weights], [1.0, *(-row).tolist()], -np.inf, 0.0)
    outcome = run_highs(programme, 0, None, started=False)
    if outcome.values is None:
        return np.full(count, 1.0 / count), math.inf
    found = np.maximum(outcome.values[first : first + count], 0.0)
    return found / found.sum(), low + reach * float(outcome.values[theta])


def improve(model: CostModel, assignment: Sequence[int], rounds: int = 1000) -> tuple[int, ...]:
    """Change one slot of an allowed assignment at a time while that makes the largest objective less."""
    current = np.array(assignment, dtype=np.intp)
    if not len(current):
        return ()
    value = float(model.evaluate(current[None])[0].max())
    slots, choices, starts = _flat(model)
    for _ in range(rounds):
        around = _around(model, current, starts)
        moved = around - around[starts + current][slots] + model.evaluate(current[None])[0]
        place = int(moved.max(axis=1).argmin())
        trial = current.copy()
        trial[slots[place]] = choices[place]
        # Charges are left out of the estimate, so what counts is the whole evaluation.
        reached = float(model.evaluate(trial[None])[0].max())
        if not reached < value:
            break
        current, value = trial, reached
    return tuple(int(c) for c in current)


def _flat(model: CostModel) -> tuple[Ints, Ints, Ints]:
    """Slot and choice of every choice in a row, and where each slot begins there."""
    sizes = [len(slot.choices) for slot in model.space.slots]
    slots = np.repeat(np.arange(len(sizes)), sizes)
    starts = np.cumsum([0, *sizes])[:-1]
    return slots, np.arange(len(slots)) - starts[slots], starts


def _around(model: CostModel, current: Ints, starts: Ints) -> Floats:
    """What each choice of each slot costs beside the others' current ones, shape (choices of all slots, objectives)."""
    total = np.concatenate(model.slot_costs, axis=0)
    for group in model.pair_groups:
        count, left, right = group.tables.shape[:3]
        rows = np.arange(count)
        first, second = group.members.T
        np.add.at(total, starts[first][:, None] + np.arange(left), group.tables[rows, :, current[second]])
        np.add.at(total, starts[second][:, None] + np.arange(right), group.tables[rows, current[first]])
    return total
