"""One assignment that is good on several devices at once: of least total relative time, or of least worst regret.

A device's relative time of an assignment is its cost there over the least cost there; its regret is that minus 1.
The least total is one more model to `solve`. The least worst regret is bounded from below by its Lagrangian dual (the
best convex weighting of the devices, found by cutting planes: Kelley, "The cutting-plane method for solving convex
programs", 1960), each weighting being a model to `solve`; what gap is left is closed by HiGHS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gnomon.core.charges import weigh_charges
from gnomon.core.cost import Charge, CostModel, Floats, Objective, PairCost
from gnomon.core.dual import Dual, improve
from gnomon.core.energy import weigh
from gnomon.core.epigraph import Worst, least_total_within, minimise_worst
from gnomon.core.solve import Solution, solve
from gnomon.core.space import Slot, Space
from gnomon.errors import ProblemError, UsageError

Criterion = Literal["total", "worst"]

TOLERANCE = 1e-5
"""Worst regrets that differ by less count as equal: a thousandth of a per cent of a device's least time."""

_FLIPS = (30, 300)  # choices beyond those seen that HiGHS gets to close the gap, before it gets all
_NODES = 500
_ROUNDING = 1e-12  # worst regrets that differ by less are the same
_TOTAL_TOLERANCE = 1e-4  # what a further search for a lower total, at the same worst regret, must promise


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
    costs, `worst` the largest regret. `bound` is a proven lower bound on the criterion (`total` or `worst`) of every
    assignment; `optimal` says that none is better, for the worst regret by more than `TOLERANCE`. `method` is
    "elimination" or "milp", whichever gave the proof.
    """

    criterion: Criterion
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


def least_total(
    problem: CommonProblem, weights: Mapping[str, float] | None = None, *, time_limit_s: float | None = None
) -> CommonPlan:
    """The assignment of least sum of weight times relative cost; weights by device, 1 each unless given.

    Raises UsageError for weights that cannot be meant (a device that is left out weighs nothing), InfeasibleError
    where no assignment is allowed on all devices.
    """
    found = solve(problem.relative, weights or dict.fromkeys(problem.devices, 1.0), time_limit_s=time_limit_s)
    return _plan(problem, found.assignment, "total", weights, (found.optimal, found.bound, found.method))


def least_worst(problem: CommonProblem, *, time_limit_s: float | None = None) -> CommonPlan:
    """The assignment of least worst-device regret and, of several such, the one of least total that was found.

    `time_limit_s` holds for each run of HiGHS. Raises InfeasibleError where no assignment is allowed on all devices.
    """
    model = problem.relative
    dual = Dual(model, time_limit_s, TOLERANCE)
    dual.climb()
    worst = worst_of(problem)
    best = improve(model, min(dual.seen.items(), key=lambda item: float(item[1].max()))[0])
    proof = (True, dual.low, "elimination" if dual.exact else "milp")
    for flips in _FLIPS:
        if worst.largest(best) - dual.low <= TOLERANCE:
            break
        part = worst.part(best, dual.core(best, flips))
        found = minimise_worst(part.worst, part.start, dual.low, tolerance=TOLERANCE, nodes=_NODES)
        best = part.back(found.assignment or part.start)
    if worst.largest(best) - dual.low > TOLERANCE:
        found = minimise_worst(worst, best, dual.low, tolerance=TOLERANCE, time_limit_s=time_limit_s)
        best, proof = found.assignment or best, (found.optimal, found.bound, "milp")
    cap = worst.largest(best) * (1 + _ROUNDING)
    least = np.array([solution.value for solution in problem.own]) / problem.best
    if float(worst.values(best).sum()) - dual.least_total(cap, least) > _TOTAL_TOLERANCE:
        whole = sum(worst.energies[0].sizes) <= _FLIPS[-1]
        part = worst.part(best, None if whole else dual.core(best, _FLIPS[0]))
        best = part.back(
            least_total_within(part.worst, part.start, cap, tolerance=TOLERANCE, nodes=None if whole else _NODES)
        )
    optimal, bound, method = proof
    return _plan(problem, best, "worst", None, (optimal, min(bound, worst.largest(best)) - 1.0, method))


def _plan(
    problem: CommonProblem,
    assignment: tuple[int, ...],
    criterion: Criterion,
    weights: Mapping[str, float] | None,
    proof: tuple[bool, float, str],
) -> CommonPlan:
    relative = problem.relative.evaluate([assignment])[0]
    vector = problem.relative.weight_vector(weights or dict.fromkeys(problem.devices, 1.0))
    optimal, bound, method = proof
    return CommonPlan(
        criterion=criterion,
        assignment=assignment,
        choices=problem.relative.space.names(assignment),
        code=problem.relative.space.encode(assignment),
        costs=dict(zip(problem.devices, (relative * problem.best).tolist(), strict=True)),
        regrets=dict(zip(problem.devices, (relative - 1.0).tolist(), strict=True)),
        total=float(relative @ vector),
        worst=float(relative.max()) - 1.0,
        optimal=optimal,
        bound=bound,
        method=method,
    )


def worst_of(problem: CommonProblem) -> Worst:
    """The devices' relative costs as energies of which the largest counts."""
    parts = []
    for row in np.eye(len(problem.devices)):
        parts.append(weigh_charges(problem.relative, row, weigh(problem.relative, row)))
    return Worst(energies=tuple(e for e, _ in parts), charges=tuple(c for _, c in parts))
