"""One assignment that is good on several devices at once: that of least total relative time.

A device's relative time of an assignment is its cost there over the least cost there; its regret is that minus 1.
The least total is one more model to `solve`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gnomon.core.cost import Charge, CostModel, Floats, Objective, PairCost
from gnomon.core.solver.solve import Solution, solve
from gnomon.core.space import Slot, Space
from gnomon.errors import ProblemError, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonProblem:
    """The devices' costs over one space: `relative` has an objective a device, in units of that device's `best` cost.

    `best` (devices,) is the least cost on each, or what was given in its place. `own` are the devices' own optima,
    which need not be allowed on the others.
    """

    devices: tuple[str, ...]
    relative: CostModel
    own: tuple[Solution, ...]
    best: Floats

    def regrets(self, assignment: Sequence[int]) -> tuple[float, ...]:
        """How much more an assignment costs on each device than the best there: 0.1 is 10 %; inf: cannot."""
        return tuple((self.relative.evaluate([tuple(assignment)])[0] - 1.0).tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonPlan:
    """One assignment for all devices, and what is proved about it.

    `costs` (units of the models' objective) and `regrets` are by device; `total` is the weighted sum of relative
    costs, `worst` the largest regret. `bound` is a proven lower bound on the total of every assignment; `optimal` says
    that none is better. `method` is "elimination" or "milp", whichever gave the proof.
    """

    assignment: tuple[int, ...]
    choices: tuple[str, ...]
    code: int
    costs: Mapping[str, float]
    regrets: Mapping[str, float]
    total: float
    worst: float
    optimal: bool
    bound: float
    method: str


def common_problem(
    models: Mapping[str, CostModel],
    best: Mapping[str, float] | None = None,
    *,
    time_limit_s: float | None = None,
) -> CommonProblem:
    """The problem of several devices from the model of each, which have one objective and equal spaces.

    `best` are the costs that regret is counted from where it is not the model's own optimum, such as that of another
    way to run the model there, which no assignment is. Raises ProblemError where spaces differ, or a device's least
    cost is not above 0, which nothing can be relative to, or HiGHS could not prove it in time; InfeasibleError where
    a device allows no assignment.
    """
    if not models:
        raise UsageError("there is no device to decide for", hint="Give the model of at least one device.")
    first = next(iter(models.values()))
    own: list[Solution] = []
    for name, model in models.items():
        if len(model.objectives) != 1:
            raise ProblemError(
                f"the model of {name!r} has {len(model.objectives)} objectives", hint="Weigh them into one first."
            )
        if model.space != first.space:
            raise ProblemError(
                f"the space of {name!r} is another than that of {next(iter(models))!r}",
                hint="Give all devices the same slots and choices; infinite costs where one is not supported.",
            )
        solution = solve(model, time_limit_s=time_limit_s)
        if not solution.optimal:
            raise ProblemError(f"the least cost on {name!r} could not be proved in time", hint="Raise the time limit.")
        if not solution.value > 0:
            raise ProblemError(
                f"the least cost on {name!r} is {solution.value:g}, and nothing can be relative to that",
                hint="Costs of whole assignments must be above 0.",
            )
        own.append(solution)
    units = np.array([s.value if best is None else best[name] for name, s in zip(models, own, strict=True)])
    if not ((units > 0) & np.isfinite(units)).all():
        raise ProblemError("a device's best cost is not above 0", hint="Give finite costs above 0.")
    relative = _stacked(tuple(models), tuple(models.values()), units.tolist())
    return CommonProblem(devices=tuple(models), relative=relative, own=tuple(own), best=units)


def over_choices(model: CostModel, choices: tuple[str, ...]) -> CostModel:
    """The same model with these choices in every slot: those that a slot has not are impossible, others are left out.

    So devices that have other choices get equal spaces.
    """
    places = [
        [(k, choices.index(name)) for k, name in enumerate(slot.choices) if name in choices]
        for slot in model.space.slots
    ]
    count, width = len(model.objectives), len(choices)
    costs = [np.full((width, count), np.inf) for _ in places]
    for place, full, cost in zip(places, costs, model.slot_costs, strict=True):
        for old, new in place:
            full[new] = cost[old]
    pairs = []
    for pair in model.pairs:
        table = np.zeros((width, width, count))
        for a, left in places[pair.first]:
            for b, right in places[pair.second]:
                table[left, right] = np.asarray(pair.cost)[a, b]
        pairs.append(PairCost(pair.first, pair.second, table))
    return CostModel(
        Space(tuple(Slot(slot.name, choices) for slot in model.space.slots)),
        model.objectives,
        tuple(costs),
        tuple(pairs),
        model.charges,
    )


def _stacked(devices: tuple[str, ...], models: tuple[CostModel, ...], best: Sequence[float]) -> CostModel:
    """One model with an objective a device. Pairs and charges of one device cost nothing on the others."""
    count = len(models)

    def placed(cost: Floats, number: int) -> Floats:
        made = np.zeros((*np.shape(cost)[:-1], count))
        made[..., number] = np.asarray(cost, dtype=np.float64)[..., 0] / best[number]
        return made

    slots = tuple(
        np.concatenate([m.slot_costs[i] / b for m, b in zip(models, best, strict=True)], axis=1)
        for i in range(len(models[0].space.slots))
    )
    pairs = tuple(PairCost(p.first, p.second, placed(p.cost, k)) for k, m in enumerate(models) for p in m.pairs)
    charges: dict[str, Floats] = {}
    for k, model in enumerate(models):
        for charge in model.charges:
            charges[charge.choice] = charges.get(charge.choice, np.zeros(count)) + placed(charge.cost, k)
    return CostModel(
        models[0].space,
        tuple(Objective(name) for name in devices),
        slots,
        pairs,
        tuple(Charge(choice, cost) for choice, cost in charges.items()),
    )


def least_total(problem: CommonProblem, *, time_limit_s: float | None = None) -> CommonPlan:
    """The assignment of least sum of relative costs. InfeasibleError where none is allowed on all devices."""
    found = solve(problem.relative, dict.fromkeys(problem.devices, 1.0), time_limit_s=time_limit_s)
    relative = problem.relative.evaluate([found.assignment])[0]
    return CommonPlan(
        assignment=found.assignment,
        choices=problem.relative.space.names(found.assignment),
        code=problem.relative.space.encode(found.assignment),
        costs=dict(zip(problem.devices, (relative * problem.best).tolist(), strict=True)),
        regrets=dict(zip(problem.devices, (relative - 1.0).tolist(), strict=True)),
        total=float(relative.sum()),
        worst=float(relative.max()) - 1.0,
        optimal=found.optimal,
        bound=found.bound,
        method=found.method,
    )
