"""`pareto --search exact`: prices that add up, from the profiles of the single backends, and their exact front."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from gnomon.core.cost import Charge, CostModel, Floats, Objective, PairCost
from gnomon.core.front.front import Certificate, exact_front
from gnomon.core.pricing.transfers import transfer_model
from gnomon.core.space import Slot, Space
from gnomon.errors import MeasurementError, UsageError
from gnomon.jobs.pareto.search import Searched, searched
from gnomon.jobs.pareto.space import DecisionSpace, Evaluator
from gnomon.jobs.place.inside import InsideResult, TransferResult, inside_placer
from gnomon.search.base import Told
from gnomon.search.driver import Trail
from gnomon.session.contender import Contender, choose_clock, profile_singles
from gnomon.session.objectives import GOALS, LATENCY, MEMORY, goal_of

_LIMIT_S = 60.0
_MOST_POINTS = 4096


def exact_search(
    evaluator: Evaluator, objectives: Sequence[str], clock: Callable[[], float]
) -> tuple[Searched, Certificate, dict[str, str]]:
    """The exact front of latency and peak memory by prices that add up; the proof then measures it as any other.

    UsageError for other objectives, for a runtime with one backend, and for options with several values: no profile
    tells prices of these. MeasurementError where too little ran to price from.
    """
    lab, space = evaluator.lab, evaluator.space
    _check(space, objectives)
    start = clock()
    placer = inside_placer(lab, space.chosen_target((0,) * len(space.space.slots)))
    alive = profile_singles(lab, placer.singles())
    deciding = "wall" if space.parallel else choose_clock(lab, (lab.runner.known(c.key) for c in alive))
    evaluator.clock = deciding
    priced = placer.run(alive, deciding)
    base, charges = 0.0, dict[str, float]()
    if MEMORY in objectives:
        memory = [(c, GOALS[MEMORY].value(lab.runner.known(c.key), deciding)) for c in alive]
        base, charges = memory_charges(memory, space.backends[0])
    model = priced_model(space, latency_model(priced), base, charges, objectives)
    front = exact_front(model, epsilon=0.0, out_of_time=lambda: clock() - start > _LIMIT_S)
    told = tuple(
        Told(assignment=point.assignment, cost=tuple(float(c) for c in point.cost))
        for point in front.points[:_MOST_POINTS]
    )
    found = searched(space.space, Trail(told=told, exhausted=True), seconds=clock() - start)
    # None of these was run: what a search reached when has no meaning.
    found = replace(found, volume=(), beside=_singles(model, space))
    extra = ", ".join(f"{backend} {charge / 2**20:.1f} MiB" for backend, charge in charges.items()) or "none"
    prices = {
        LATENCY: "the sum of each operator's time in profiled whole runs of the single backends"
        + (", and of tensors that cross between them" if isinstance(priced, TransferResult) else ""),
        MEMORY: f"{base / 2**20:.1f} MiB with {space.backends[0]}, and once for each other backend in use: {extra}",
    }
    return found, front.certificate, {name: prices[name] for name in objectives}


def _singles(model: CostModel, space: DecisionSpace) -> tuple[Told, ...]:
    """The single backends by the prices: a mix that noise cannot tell from one of them is not worth its trouble."""
    found = space.singles()
    costs = model.evaluate(found).tolist()
    return tuple(
        Told(assignment=a, cost=tuple(c)) for a, c in zip(found, costs, strict=True) if all(map(math.isfinite, c))
    )


def check_priced(objectives: Sequence[str]) -> None:
    """UsageError for objectives without prices that add up."""
    for name in objectives:
        if name not in (LATENCY, MEMORY):
            raise UsageError(f"no profile has prices of {name} that add up", hint="Use --search hlps.")


def _check(space: DecisionSpace, objectives: Sequence[str]) -> None:
    check_priced(objectives)
    if space.grouping is None or len(space.space.slots) > space.operator_slots:
        raise UsageError(
            "prices that add up are those of operators on backends alone",
            hint="Name a runtime with several backends, one value a --tuning, or use --search hlps.",
        )


def memory_charges(singles: Sequence[tuple[Contender, float | None]], default: str) -> tuple[float, dict[str, float]]:
    """What a process needs with the default backend, and what each other one that is used adds, both in bytes.

    From the single backends' whole runs: where one stands beside the default, the difference is its charge. A model of
    a cost that is not quite additive; MeasurementError where a run does not tell its memory.
    """
    known = {frozenset(c.backends.values()): bytes_ for c, bytes_ in singles if bytes_ is not None}
    if len(known) < len({frozenset(c.backends.values()) for c, _ in singles}) or not known:
        raise MeasurementError("the runs do not report their peak memory", hint="Use --objective latency alone.")
    base = known.get(frozenset({default}), min(known.values()))
    charges: dict[str, float] = {}
    for used, size in sorted(known.items(), key=lambda item: (len(item[0]), sorted(item[0]))):
        new = [b for b in sorted(used) if b != default and b not in charges]
        explained = base + sum(charges.get(b, 0.0) for b in used)
        for backend in new:
            charges[backend] = max(0.0, size - explained) / len(new)
    return base, charges


def latency_model(priced: InsideResult) -> CostModel:
    """The additive latency of each operator of the graph on each backend, with crossings where they are paid."""
    names = [f"{k} {op.name}" for k, op in enumerate(priced.target.placed.graph.operators)]
    if isinstance(priced, TransferResult):
        return transfer_model(names, priced.backends, priced.transfers, shared=False)
    slots = tuple(Slot(name, priced.backends) for name in names)
    return CostModel(
        space=Space(slots),
        objectives=(Objective(LATENCY, "s"),),
        slot_costs=tuple(row[:, None] for row in priced.prices_s),
    )


def priced_model(
    space: DecisionSpace, latency: CostModel, base: float, charges: dict[str, float], objectives: Sequence[str]
) -> CostModel:
    """The cost model over the slots of a space, from that of single operators.

    Operators of a slot take one choice: their costs add up, and so do pairs between two slots; those of pairs within a
    slot are of equal choices. The backends of `latency` are those of the space, in one order.
    """
    grouping = space.grouping
    assert grouping is not None  # noqa: S101  # checked before anything was measured
    columns = [tuple(latency.space.slots[0].choices.index(b) for b in slot.choices) for slot in space.space.slots]
    count = len(objectives)
    at = {name: k for k, name in enumerate(objectives)}
    costs: list[Floats] = [np.zeros((len(c), count)) for c in columns]
    tables: dict[tuple[int, int], Floats] = {}
    if MEMORY in at and costs:
        costs[0][:, at[MEMORY]] += base
    if LATENCY in at:
        axis = at[LATENCY]
        for operator, slot in enumerate(grouping.slot_of):
            costs[slot][:, axis] += latency.slot_costs[operator][list(columns[slot]), 0]
        for pair in latency.pairs:
            a, b = grouping.slot_of[pair.first], grouping.slot_of[pair.second]
            if a == b:
                costs[a][:, axis] += np.array([pair.cost[c, c, 0] for c in columns[a]])
                continue
            table = np.asarray(pair.cost[np.ix_(columns[a], columns[b])][:, :, 0])
            first, second, table = (a, b, table) if a < b else (b, a, table.T)
            made = tables.setdefault((first, second), np.zeros((*table.shape, count)))
            made[:, :, axis] += table
    paid = []
    for backend, size in charges.items():
        if MEMORY in at and math.isfinite(size) and any(backend in slot.choices for slot in space.space.slots):
            vector = np.zeros(count)
            vector[at[MEMORY]] = size
            paid.append(Charge(backend, vector))
    return CostModel(
        space=space.space,
        objectives=tuple(Objective(name, goal_of(name).unit) for name in objectives),
        slot_costs=tuple(costs),
        pairs=tuple(PairCost(a, b, table) for (a, b), table in tables.items()),
        charges=tuple(paid),
    )
