"""Costs of assignments: slot costs, pair costs, and charges paid once, for one or more objectives.

Functions that may run for a long time have no clock: they repeatedly ask the caller whether to stop (`Stop`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.core.space import Space
from gnomon.errors import ProblemError, UsageError

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

_BATCH_ENTRIES = 1 << 21  # numbers held in memory at once while many assignments are evaluated


@dataclass(frozen=True, slots=True)
class Objective:
    """A quantity to be minimised, such as latency, and its unit."""

    name: str
    unit: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class PairCost:
    """The cost of each pair of choices in two slots, of shape (choices of first, choices of second, objectives)."""

    first: int
    second: int
    cost: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Charge:
    """A cost paid once if any slot takes a choice of this name; `cost` (objectives,) has values from 0 to +inf."""

    choice: str
    cost: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Limit:
    """The most that all slots, pairs and charges together may use of something, such as bytes of one backend.

    The amounts used are an array (choices,) for each slot in `slots`, an array (choices of first, choices of second)
    for each of the model's pair costs in `pairs`, and a number for each charge in `charges`. If `pairs` is empty, pairs
    use nothing; likewise for `charges`. With an `order` of all slots, which then run one after the other, the peak is
    limited instead of the sum: a slot uses its amount from its own step to the last step of any slot with which it has
    a pair cost. In this case only slots may use anything.
    """

    name: str
    unit: str = ""
    at_most: float
    slots: tuple[Floats, ...]
    pairs: tuple[Floats, ...] = ()
    charges: tuple[float, ...] = ()
    order: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TableGroup:
    """Tables of the same shape: `tables` (G, k.., objectives), and the slots of each table, `members` (G, 1 or 2)."""

    members: Ints
    tables: Floats


@dataclass(frozen=True, slots=True, eq=False)
class CostModel:
    """The cost of each assignment of a space: slot costs + pair costs + the charges of all choices that are used.

    `slot_costs` has an array (choices, objectives) for each slot. Costs may be negative; +inf in any objective makes
    the choice or the pair impossible. Several pair costs on the same two slots add up. An assignment is allowed if it
    is possible and keeps all `limits`. Raises ProblemError for wrong shapes, NaN, -inf, negative charges, a pair of a
    slot with itself, finite costs whose sum would overflow, and limits on quantities that are not finite.
    """

    space: Space
    objectives: tuple[Objective, ...]
    slot_costs: tuple[Floats, ...]
    pairs: tuple[PairCost, ...] = ()
    charges: tuple[Charge, ...] = ()
    limits: tuple[Limit, ...] = ()
    slot_groups: tuple[TableGroup, ...] = field(init=False, repr=False)
    pair_groups: tuple[TableGroup, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "objectives", tuple(self.objectives))
        put(self, "slot_costs", tuple(np.asarray(c, dtype=np.float64) for c in self.slot_costs))
        put(self, "pairs", tuple(self.pairs))
        put(self, "charges", tuple(self.charges))
        self._check_shapes()
        self._check_charges()
        slots = [((i,), cost) for i, cost in enumerate(self.slot_costs)]
        pairs = [((p.first, p.second), np.asarray(p.cost, dtype=np.float64)) for p in self.pairs]
        put(self, "slot_groups", _grouped(slots))
        put(self, "pair_groups", _grouped(pairs))
        self._check_values()
        for limit in self.limits:
            self.check_limit(limit)

    def _check_shapes(self) -> None:
        names = [objective.name for objective in self.objectives]
        if not names or len(set(names)) != len(names):
            raise ProblemError("at least one objective is needed, and their names must differ", hint="Name each once.")
        slots, count = self.space.slots, len(names)
        if len(self.slot_costs) != len(slots):
            raise ProblemError(f"{len(self.slot_costs)} slot costs for {len(slots)} slots", hint="Give one per slot.")
        sizes = [len(slot.choices) for slot in slots]
        for slot, size, cost in zip(slots, sizes, self.slot_costs, strict=True):
            if cost.shape != (size, count):
                raise ProblemError(
                    f"the cost of slot '{slot.name}' has shape {cost.shape}, not {(size, count)}",
                    hint="Give one row for each choice, with one number for each objective.",
                )
        for index, pair in enumerate(self.pairs):
            a, b = pair.first, pair.second
            if not (0 <= a < len(slots) and 0 <= b < len(slots)) or a == b:
                raise ProblemError(
                    f"pair {index} joins slots {a} and {b}",
                    hint=f"Join two different slots from 0 to {len(slots) - 1}.",
                )
            if np.shape(pair.cost) != (sizes[a], sizes[b], count):
                raise ProblemError(
                    f"the cost of pair {index} ('{slots[a].name}', '{slots[b].name}') has shape "
                    f"{np.shape(pair.cost)}, not {(sizes[a], sizes[b], count)}",
                    hint="Give one row for each pair of choices, with one number for each objective.",
                )

    def _check_charges(self) -> None:
        charged = [charge.choice for charge in self.charges]
        if len(set(charged)) != len(charged):
            raise ProblemError(f"'{max(charged, key=charged.count)}' is charged twice", hint="Add its charges up.")
        for charge in self.charges:
            cost = np.asarray(charge.cost, dtype=np.float64)
            if cost.shape != (len(self.objectives),) or not bool((cost >= 0).all()):
                raise ProblemError(
                    f"the charge of '{charge.choice}' must be one number of 0 or more for each objective",
                    hint="Put savings into the slot costs instead.",
                )

    def _check_values(self) -> None:
        total = 0.0
        for group in (*self.slot_groups, *self.pair_groups):
            bad = ~(group.tables > -np.inf)
            if bad.any():
                where = group.members[int(np.argwhere(bad)[0][0])]
                names = ", ".join(f"'{self.space.slots[i].name}'" for i in where)
                raise ProblemError(f"a cost of {names} is NaN or -inf", hint="Use finite costs, or +inf to forbid.")
            total += magnitude(group.tables)
        total += sum(magnitude(np.asarray(charge.cost, dtype=np.float64)[None]) for charge in self.charges)
        if not math.isfinite(total):
            raise ProblemError("the costs are too large to be added up in double precision", hint="Use a larger unit.")

    def check_limit(self, limit: Limit) -> None:
        """Raise ProblemError for a limit that does not fit the model."""
        slots = [slot.shape[:1] for slot in self.slot_costs]
        pairs = [np.shape(pair.cost)[:2] for pair in self.pairs]
        fits = [np.shape(use) for use in limit.slots] == slots
        fits = fits and (not limit.pairs or [np.shape(use) for use in limit.pairs] == pairs)
        if not fits or len(limit.charges) not in (0, len(self.charges)):
            raise ProblemError(
                f"the uses of the limit '{limit.name}' do not fit the problem's slots, pairs and charges",
                hint="Give a number for each choice of a slot, pair of choices, and charge.",
            )
        used = sum(float(np.abs(use).max(initial=0.0)) for use in (*limit.slots, *limit.pairs, np.array(limit.charges)))
        if not math.isfinite(used) or not math.isfinite(limit.at_most) or min(limit.charges, default=0.0) < 0:
            raise ProblemError(
                f"the limit '{limit.name}' has numbers that are not finite, or charges below 0",
                hint="Use finite numbers, and for charges numbers of 0 or more.",
            )
        if not limit.order:
            return
        least = min([limit.at_most, *(float(use.min()) for use in limit.slots)])
        if sorted(limit.order) != list(range(len(slots))) or limit.pairs or limit.charges or least < 0:
            raise ProblemError(
                f"the peak limit '{limit.name}' must order each slot once, and have uses of slots only, from 0",
                hint="Give every slot once in the order, and no uses of pairs or charges.",
            )

    def alive(self, order: Sequence[int]) -> list[list[int]]:
        """The slots alive at each step: each from its own step to the last step of any slot it shares a pair with."""
        step = {slot: number for number, slot in enumerate(order)}
        last = dict(step)
        for pair in self.pairs:
            for slot in (pair.first, pair.second):
                last[slot] = max(last[slot], step[pair.first], step[pair.second])
        steps: list[list[int]] = [[]]
        for number, slot in enumerate(order):
            steps.append([*(other for other in steps[-1] if last[other] >= number), slot])
        return steps[1:]

    def peak(self, limit: Limit, assignment: Sequence[int]) -> tuple[float, str]:
        """The most that an assignment uses at any step of a limit's order, and the name of that step's slot."""
        uses = [sum(float(limit.slots[i][assignment[i]]) for i in alive) for alive in self.alive(limit.order)]
        return max(uses), self.space.slots[limit.order[uses.index(max(uses))]].name

    def used(self, limit: Limit, assignment: Sequence[int]) -> float:
        """The amount of the limited quantity that an assignment uses, in the limit's unit."""
        if limit.order:
            return self.peak(limit, assignment)[0]
        total = sum(float(use[a]) for use, a in zip(limit.slots, assignment, strict=True))
        for pair, use in zip(self.pairs, limit.pairs, strict=False):
            total += float(use[assignment[pair.first], assignment[pair.second]])
        for charge, paid in zip(self.charges, limit.charges, strict=False):
            total += paid if any(assignment[i] == c for i, c in self.places(charge)) else 0.0
        return total

    def places(self, charge: Charge) -> list[tuple[int, int]]:
        """The slots that have the choice of a charge, and the choice's index in each."""
        name = charge.choice
        return [(i, slot.choices.index(name)) for i, slot in enumerate(self.space.slots) if name in slot.choices]

    def weight_vector(self, weights: Mapping[str, float] | None) -> Floats:
        """Weights in the order of the objectives, shape (objectives,).

        A single objective needs no weights. Objectives that `weights` leaves out have weight 0. Raises UsageError if
        there are several objectives but no weights, if a name is unknown, or if weights are negative, not finite or all
        zero.
        """
        names = [objective.name for objective in self.objectives]
        hint = f"The objectives are: {', '.join(names)}."
        if weights is None or not weights:
            if len(names) > 1:
                raise UsageError(f"{len(names)} objectives need weights: {', '.join(names)}", hint="Give at least one.")
            return np.ones(1)
        unknown = [str(name) for name in weights if name not in names]
        if unknown:
            raise UsageError(f"no objective is named {', '.join(repr(n) for n in unknown)}", hint=hint)
        for name, weight in weights.items():
            number = isinstance(weight, int | float | np.integer | np.floating) and not isinstance(weight, bool)
            if not number or not math.isfinite(weight) or weight < 0:
                raise UsageError(f"the weight of '{name}' is {weight!r}", hint="Use a finite number of 0 or more.")
        vector = np.array([float(weights.get(name, 0.0)) for name in names])
        if not vector.any():
            raise UsageError("all weights are zero", hint=f"Give at least one objective a weight above 0. {hint}")
        return vector

    def evaluate(self, assignments: NDArray[Any] | Sequence[Sequence[int]]) -> Floats:
        """Costs (N, objectives) of many assignments (N, slots); +inf for impossible ones."""
        given = np.asarray(assignments)
        slots, count = len(self.space.slots), len(self.objectives)
        if given.ndim != 2 or given.shape[1] != slots or (given.size and given.dtype.kind not in "iu"):
            raise ProblemError(f"assignments must be integers of shape (N, {slots})", hint="Pass a 2-D array.")
        rows = given.astype(np.intp)
        sizes = np.array([len(slot.choices) for slot in self.space.slots], dtype=np.intp)
        if (rows < 0).any() or (rows >= sizes).any():
            raise ProblemError("an assignment has a choice out of range", hint="Count choices from 0.")
        largest = max([1, *(len(g.members) for g in (*self.slot_groups, *self.pair_groups))])
        step = max(1, _BATCH_ENTRIES // (largest * count))
        parts = [self._evaluate(rows[i : i + step]) for i in range(0, len(rows), step)]
        return np.concatenate(parts) if parts else np.zeros((0, count))

    def _evaluate(self, rows: Ints) -> Floats:
        total = np.zeros((len(rows), len(self.objectives)))
        for group in (*self.slot_groups, *self.pair_groups):
            index = (np.arange(len(group.members))[:, None], *(rows.T[m] for m in group.members.T))
            total += group.tables[index].sum(axis=0)
        for charge in self.charges:
            used = np.zeros(len(rows), dtype=bool)
            for slot, choice in self.places(charge):
                used |= rows[:, slot] == choice
            total[used] += np.asarray(charge.cost, dtype=np.float64)
        return total


SWITCHES, OPERATORS = "switches", "operators"


def limit_on(model: CostModel, name: str, choices: Sequence[str], at_most: float) -> Limit:
    """The limit on an objective: on its whole sum, or only on the slot costs and charges of the named `choices`.

    If no objective has the name, "switches" counts the pairs whose slots take choices of different names, and
    "operators" counts the slots. An impossible choice uses nothing. Raises UsageError for other names.
    """
    names = [objective.name for objective in model.objectives]
    slots = model.space.slots
    title = f"{name}:{','.join(choices)}" if choices else name
    valid = {choice for slot in slots for choice in slot.choices}
    if strange := [choice for choice in choices if choice not in valid]:
        raise UsageError(f"no slot has a choice named '{strange[0]}'", hint=f"Choices: {', '.join(sorted(valid))}.")
    counted = [np.array([not choices or choice in choices for choice in slot.choices], dtype=float) for slot in slots]
    if name in names:
        place = names.index(name)

        def finite(costs: Floats) -> Floats:
            return np.where(np.isinf(costs).any(axis=-1), 0.0, costs[..., place])

        return Limit(
            name=title,
            unit=model.objectives[place].unit,
            at_most=at_most,
            slots=tuple(finite(cost) * mask for cost, mask in zip(model.slot_costs, counted, strict=True)),
            pairs=() if choices else tuple(finite(pair.cost) for pair in model.pairs),
            charges=tuple(
                float(finite(charge.cost)) if not choices or charge.choice in choices else 0.0
                for charge in model.charges
            ),
        )
    if name == OPERATORS:
        return Limit(name=title, at_most=at_most, slots=tuple(counted))
    if name == SWITCHES and not choices:
        labels = [np.array(slot.choices) for slot in slots]
        unlike = [(labels[pair.first][:, None] != labels[pair.second]).astype(float) for pair in model.pairs]
        return Limit(name=title, at_most=at_most, slots=tuple(0.0 * mask for mask in counted), pairs=tuple(unlike))
    raise UsageError(f"no objective is named '{name}'", hint=f"Use one of: {', '.join([*names, SWITCHES, OPERATORS])}.")


def weighted_sum(costs: Floats, vector: Floats) -> Floats:
    """The weighted sum over the last axis; +inf in any objective, even one of weight zero, gives +inf.

    Raises ProblemError if a finite sum overflows.
    """
    forbidden = np.isinf(costs).any(axis=-1)
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.asarray(np.where(np.isinf(costs), 0.0, costs) @ vector, dtype=np.float64)
    if not np.isfinite(total).all():
        raise ProblemError("a weighted cost overflows double precision", hint="Use smaller weights.")
    return np.where(forbidden, np.inf, total)


def _grouped(tables: Sequence[tuple[tuple[int, ...], Floats]]) -> tuple[TableGroup, ...]:
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, (_, table) in enumerate(tables):
        groups.setdefault(table.shape, []).append(index)
    return tuple(
        TableGroup(
            np.array([tables[i][0] for i in chosen], dtype=np.intp),
            np.concatenate([tables[i][1] for i in chosen]).reshape(len(chosen), *shape),
        )
        for shape, chosen in groups.items()
    )


def add_pair(tables: dict[tuple[int, int], Floats], first: int, second: int, table: Floats) -> None:
    """Add the table (choices of first, choices of second, ..) of two slots to `tables`, with the lower slot first."""
    key, oriented = ((first, second), table) if first < second else ((second, first), table.swapaxes(0, 1))
    before = tables.get(key)
    tables[key] = oriented if before is None else before + oriented


def magnitude(tables: Floats) -> float:
    """The sum of each table's largest finite magnitude: a bound on every partial sum."""
    finite = np.where(np.isinf(tables), 0.0, np.abs(tables)).reshape(len(tables), -1)
    with np.errstate(over="ignore"):
        return float(finite.max(axis=1).sum())


class OutOfTime(Exception):
    """The time or the memory for a computation is used up."""


Stop = Callable[[float], bool]
"""A function that is given the share of the work done so far and returns True to stop."""


def never(_: float) -> bool:
    """Do not stop."""
    return False
