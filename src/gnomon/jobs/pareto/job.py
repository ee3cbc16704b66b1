"""The job `pareto`: the front of latency, peak memory and other objectives. docs/jobs/pareto.md describes its
design.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from gnomon.core.cost import Charge, CostModel, Floats, Objective, PairCost, add_pair
from gnomon.core.front.front import Certificate, exact_front
from gnomon.core.pricing.transfers import transfer_model
from gnomon.core.space import Slot, Space
from gnomon.errors import GnomonError, MeasurementError, UsageError
from gnomon.jobs.pareto.document import (
    FailedPart,
    ParetoDocument,
    PointPart,
    objective_parts,
    point_part,
    sample_parts,
    space_part,
)
from gnomon.jobs.pareto.dump import PartialDump, check_dumpable, check_room, dump_of, save_dump, search_dump
from gnomon.jobs.pareto.prove import (
    Worth,
    check_bounds,
    choose,
    decide,
    enough,
    measure_points,
    sampled_points,
    worth_proving,
)
from gnomon.jobs.pareto.search import EXACT, ParetoRequest, Searched, check_plans, joined, search, search_parts
from gnomon.jobs.pareto.space import DecisionSpace, Evaluator, decision_space, wished_precisions
from gnomon.jobs.place.inside import InsideResult, TransferResult, inside_placer
from gnomon.measure.campaign import Measured
from gnomon.measure.environment import Caveat
from gnomon.measure.progress import Steps, Tell, Watch
from gnomon.search.base import Assignment, Evaluation
from gnomon.session.contender import AGAIN, Contender, choose_clock, not_compared, profile_singles
from gnomon.session.document import environment_parts, graph_part, labels_of, model_part, operator_parts, runs_part
from gnomon.session.model_session import ModelSession, conditions_part, measured_facts, open_session, stopped_doubts
from gnomon.session.objectives import GOALS, LATENCY, MEMORY, Goal, goal_of, goals_of
from gnomon.session.package import check_destination, write_package
from gnomon.session.prove import Verified, verify
from gnomon.session.reference import checked_by, doubts, reference
from gnomon.session.request import ModelRequest, patiently, timed
from gnomon.session.targets import asking_energy, check_counters, describe
from gnomon.system.files import check_file


def pareto(asked: ParetoRequest, *, watch: Watch | None = None, tell: Tell | None = None) -> ParetoDocument:
    """Search for the front, measure its points again side by side, and deploy the requested point.

    `watch` receives the progress, and `tell` receives messages for people. An interrupted search continues from the
    results database and repeats at most one evaluation; the same search with more evaluations continues as well. Raises
    GnomonError.
    """
    if asked.request is None and asked.source is None:
        raise UsageError("neither a model nor a dump is given", hint="Give a model, or --from DUMP.")
    if asked.request is not None and asked.source is not None:
        raise UsageError("a model cannot be combined with a dump", hint="Give a model, or --from DUMP.")
    if asked.backends and asked.source is None:
        raise UsageError("--codes needs a dump", hint="Leave out --codes, or give --from DUMP.")
    goals = goals_of(asked.objectives)
    asked = replace(asked, objectives=tuple(goal.name for goal in goals))
    check_plans(asked.plans)
    check_bounds(asked.objectives, asked.pick, asked.under)
    check_counters(asked.objectives, asked.counters)
    if asked.dumpfile is not None:
        check_file(asked.dumpfile)
        check_room([name for name, values in asked.options.items() if len(values) != 1])
    if asked.source is not None:
        return search_dump(asked, asked.source)
    assert asked.request is not None  # noqa: S101 - a model is given
    if asked.plan.strategy == EXACT:
        check_priced(asked.objectives)
    deploys = asked.pick is not None or bool(asked.under)
    began_without = asked.out is None or not asked.out.exists()
    if deploys:
        if asked.out is None:
            raise UsageError("the package needs a folder", hint="Give --out DIR.")
        check_destination(asked.out, overwrite=asked.overwrite)
    precisions = tuple(dict.fromkeys((*asked.request.settings.precisions, *wished_precisions(asked.options))))
    request = replace(asked.request, settings=replace(asked.request.settings, precisions=precisions))
    request = timed(asking_energy(request, asked.objectives, asked.counters))

    def once(again: ModelRequest) -> ParetoDocument:
        # A folder that exists now was written before the device disconnected.
        more = replace(asked, request=again, overwrite=asked.overwrite or began_without)
        return _measured(more, again, goals, watch, tell)

    return patiently(once, request, tell, recalls=True)


def _measured(
    asked: ParetoRequest, request: ModelRequest, goals: Sequence[Goal], watch: Watch | None, tell: Tell | None
) -> ParetoDocument:
    steps = Steps("search", watch)
    # One campaign for all searches of a model with these settings: no search repeats the runs of another.
    with open_session(request, kind="pareto", question={}, watch=steps, tell=tell, goes_on=True) as session:
        space = decision_space(
            session, asked.by, asked.options, all_cores=asked.all_cores and asked.plan.strategy != EXACT
        )
        if asked.dumpfile is not None:
            check_dumpable(space)
        judged = reference(session)
        evaluator = Evaluator(session=session, space=space, goals=goals)
        searches, certificate, prices = _search(asked, space, evaluator, steps)
        searched = joined(searches)
        points, worth, tried = _prove(evaluator, searched, predicted=asked.plan.strategy == EXACT)
        if asked.dumpfile is not None:
            save_dump(dump_of(space, evaluator.dump_rows(), asked.plan, searched), asked.dumpfile)
        extra = stopped_doubts(request, session.runner.stopped) or _proof_doubts(request, proved=worth.sessions > 0)
        failed = _failed_doubts(evaluator, tried)
        chosen = _chosen(session, points, asked)
        verified = None if chosen is None else _deploy(session, space, chosen, asked)
        session.runner.finish(_decision(points, chosen))
        warnings = (*doubts(session, judged), *failed, *extra)
        plain = enough(points) if worth.sessions and request.effort.processes_most > 1 else None
        graph = space.targets[0].placed.graph if space.operator_slots else session.graph
        whole, each = search_parts(asked.plans, searches)
        again = {space.label(a): measured for a, (_, measured) in tried.items()}
        return ParetoDocument(
            model=model_part(request.model, graph),
            graph=graph_part(graph),
            operators=operator_parts(graph),
            clock=_clock(points),
            sample_clock=evaluator.clock or "wall",
            objectives=objective_parts(asked.objectives, prices),
            space=space_part(space.space, space.published, space.operator_slots, asked.by),
            search=whole,
            searches=each,
            certificate=certificate.document(),
            samples=sample_parts(space, searched.trials),
            proved=worth.sessions > 0,
            sessions=worth.sessions,
            points=tuple(points),
            left_out=worth.left_out,
            behind=worth.behind,
            noise=None if worth.noise is None else {str(clock): of for clock, of in worth.noise.items()},
            enough=None if plain is None else plain.number,
            failures=tuple(FailedPart(label=space.label(a), reason=why) for a, why in evaluator.failures.items()),
            chosen=None if chosen is None else chosen.number,
            verified=verified,
            package=None if chosen is None else str(asked.out),
            dumpfile=None if asked.dumpfile is None else str(asked.dumpfile),
            sensitivity=judged["relative"],
            reference=judged["by"] or None,
            reference_checked_by=checked_by(judged, tried.values(), warnings),
            doubts=warnings,
            environments=environment_parts(session.runner.environments, labels_of(again)),
            conditions=conditions_part(session, space.options.get("threads", ())),
            **measured_facts(session),
        )


def _search(
    asked: ParetoRequest, space: DecisionSpace, evaluator: Evaluator, steps: Steps
) -> tuple[tuple[Searched, ...], Certificate, dict[str, str]]:
    """The results of each search, their common certificate, and descriptions of the objectives' numbers."""
    if asked.plan.strategy == EXACT:
        exact, certificate, prices = exact_search(evaluator, asked.objectives)
        return (exact,), certificate, prices
    done = 0
    searches: list[Searched] = []
    partial = PartialDump(asked, evaluator)

    def advance(new: Evaluation) -> None:
        nonlocal done
        done += 1
        steps.step()
        partial.save(done)

    def stop() -> bool:
        return evaluator.session.link is not None and evaluator.session.runner.over("search")

    steps.expect(sum(plan.budget(space.space) for plan in asked.plans))
    for plan in asked.plans:
        before = evaluator.replayed
        outcome = search(space.space, plan, evaluator, coarse=space.coarse(), on_told=advance, stop=stop)
        searches.append(replace(outcome, replayed=evaluator.replayed - before))
    steps.end()
    whole = joined(searches)
    if not whole.results:
        reasons = "; ".join(dict.fromkeys(evaluator.failures.values())) or "nothing was evaluated"
        raise MeasurementError(
            f"no assignment ran and reported every objective ({reasons[:600]})",
            hint="Drop objectives that are not reported, try another --runtime, or give more --iterations.",
        )
    kind = Certificate(kind="complete" if whole.complete and not evaluator.unmeasured else "heuristic")
    prices = {goal.name: goal.told_by(evaluator.session.counters) for goal in goals_of(asked.objectives)}
    return tuple(searches), kind, prices


Tried = Mapping[Assignment, tuple[Contender, Measured]]
"""The assignments that were measured again, with their runs in the proof."""


def _prove(evaluator: Evaluator, whole: Searched, *, predicted: bool) -> tuple[list[PointPart], Worth, Tried]:
    """The points that the samples do not rule out, measured again; the sampled front if none can be measured."""
    session, space = evaluator.session, evaluator.space
    costs = {trial.assignment: trial for trial in (*whole.beside, *whole.results)}
    samples = evaluator.samples(tuple(costs.values()))
    worth = worth_proving(samples, max(2, session.request.effort.together), None if predicted else evaluator.again)
    contenders = {sample.assignment: space.contender(session, sample.assignment) for sample in worth.chosen}
    again, at_one_speed, sessions = measure_points(session, list(contenders.values()))
    tried = {assignment: (c, again[c.key]) for assignment, c in contenders.items()}
    for assignment, (_, measured) in tried.items():
        evaluator.measured.setdefault(assignment, measured)
    if any(measured.ok for _, measured in tried.values()):
        points = [
            replace(
                point_part(space, sample.assignment, costs[sample.assignment].cost),
                single=sample.single is not None,
                runs=runs_part(tried[sample.assignment][1]),
            )
            for sample in worth.chosen
        ]
        clocks = [evaluator.clock_of(assignment, measured) for assignment, (_, measured) in tried.items()]
        decided = decide(evaluator.goals, points, [at_one_speed[c.key] for c, _ in tried.values()], clocks)
        return decided, replace(worth, sessions=sessions), tried
    if session.link is not None and not session.runner.stopped:
        reasons = "; ".join(f"{c.label}: {describe(measured.failure)}" for c, measured in tried.values())
        raise MeasurementError(f"no point of the front could be measured again ({reasons[:600]})", hint=AGAIN)
    return sampled_points(whole.front, space, evaluator.clock or "wall"), Worth(chosen=(), noise=worth.noise), {}


def _clock(points: Sequence[PointPart]) -> str:
    """The clock of all points, or "mixed" if only some of them have CPU time."""
    clocks = {point.clock for point in points if point.clock is not None}
    return clocks.pop() if len(clocks) == 1 else "mixed"


def _proof_doubts(request: ModelRequest, *, proved: bool) -> list[Caveat]:
    if not proved:
        hint = "Leave out --no-profile to measure it again side by side."
        return [Caveat(kind="unproved", message="the front is based on samples, one process per point", hint=hint)]
    if request.effort.processes_most < 2:
        message = "one process cannot distinguish a difference from noise, so no point counts as dominated"
        return [Caveat(kind="one-process", message=message, hint="Leave --processes out, or give 3 or more.")]
    return []


def _failed_doubts(evaluator: Evaluator, tried: Tried) -> list[Caveat]:
    """Warnings about assignments that failed in the proof, or that may have failed in the search by accident."""
    sampled, label = evaluator.measured, evaluator.space.label
    each = {label(a): [outcome] for a, outcome in sampled.items() if outcome.may_work}
    each |= {label(a): [sampled[a], measured] for a, (_, measured) in tried.items()}
    warnings = [doubt for doubt in (not_compared(label, *runs) for label, runs in each.items()) if doubt is not None]
    rest = warnings[_MOST_FAILED:]
    more = [Caveat(kind="not-compared", message=f"not compared either: {len(rest)} more", hint=AGAIN)] if rest else []
    return [*warnings[:_MOST_FAILED], *more]


_MOST_FAILED = 3
"""The most warnings about failures; further ones are only counted."""


def _chosen(session: ModelSession, points: Sequence[PointPart], asked: ParetoRequest) -> PointPart | None:
    """The requested point; if it does not exist, the campaign is finished all the same, because everything is
    measured.
    """
    try:
        return choose(points, asked.objectives, asked.pick, asked.under)
    except GnomonError:
        session.runner.finish(_decision(points, None))
        raise


def _decision(points: Sequence[PointPart], chosen: PointPart | None) -> dict[str, object]:
    count = sum(p.number is not None for p in points)
    size = "1 point is on the front" if count == 1 else f"{count} points are on the front"
    reason = f"{size}; point {chosen.number} was chosen: {chosen.label}." if chosen else f"{size}."
    return {"front": count, "chosen": chosen.label if chosen else "", "reason": reason}


def _deploy(session: ModelSession, space: DecisionSpace, chosen: PointPart, asked: ParetoRequest) -> Verified:
    """Write the package of a point and run the package from its own files."""
    out = asked.out or Path()
    contender = space.contender(session, space.space.indices(chosen.choices))
    write_package(session, contender, out, overwrite=asked.overwrite)
    return verify(session, out, contender)[0]


_LIMIT_S = 60.0
_MOST_POINTS = 4096


def exact_search(evaluator: Evaluator, objectives: Sequence[str]) -> tuple[Searched, Certificate, dict[str, str]]:
    """The exact front of latency and peak memory by additive prices; the proof then measures it like any other front.

    UsageError for other objectives, for a runtime with one backend, and for options with several values, because no
    profile has their prices. MeasurementError if too few runs succeed to derive prices.
    """
    session, space = evaluator.session, evaluator.space
    _check(space, objectives)
    start = time.monotonic()
    placer = inside_placer(session, space.chosen_target((0,) * len(space.space.slots)))
    alive = profile_singles(session, placer.singles())
    deciding = "wall" if space.parallel else choose_clock(session, (session.runner.known(c.key) for c in alive))
    evaluator.clock = deciding
    priced = placer.run(alive, deciding)
    base, charges = 0.0, dict[str, float]()
    if MEMORY in objectives:
        memory = [(c, GOALS[MEMORY].value(session.runner.known(c.key), deciding)) for c in alive]
        base, charges = memory_charges(memory, space.backends[0])
    model = priced_model(space, latency_model(priced), base, charges, objectives)
    front = exact_front(model, epsilon=0.0, left_s=lambda: start + _LIMIT_S - time.monotonic())
    trials = tuple(
        Evaluation(assignment=point.assignment, cost=tuple(float(c) for c in point.cost))
        for point in front.points[:_MOST_POINTS]
    )
    outcome = Searched(
        space=space.space,
        trials=trials,
        exhausted=True,
        seconds=time.monotonic() - start,
        beside=_singles(model, space),
    )
    extra = ", ".join(f"{backend} {charge / 2**20:.1f} MiB" for backend, charge in charges.items()) or "none"
    prices = {
        LATENCY: "the sum of the operators' times in profiled runs of the single backends"
        + (", and of the times for tensors that cross between them" if isinstance(priced, TransferResult) else ""),
        MEMORY: f"{base / 2**20:.1f} MiB with {space.backends[0]}, plus once for each other backend in use: {extra}",
    }
    return outcome, front.certificate, {name: prices[name] for name in objectives}


def _singles(model: CostModel, space: DecisionSpace) -> tuple[Evaluation, ...]:
    """The single backends with their prices, because a mix that noise cannot distinguish from one of them is not
    worthwhile.
    """
    singles = space.singles()
    costs = model.evaluate(singles).tolist()
    return tuple(
        Evaluation(assignment=a, cost=tuple(c))
        for a, c in zip(singles, costs, strict=True)
        if all(map(math.isfinite, c))
    )


def check_priced(objectives: Sequence[str]) -> None:
    """Raise UsageError for objectives without additive prices."""
    for name in objectives:
        if name not in (LATENCY, MEMORY):
            raise UsageError(f"--search exact needs additive prices, and {name} has none", hint="Use --search hlps.")


def _check(space: DecisionSpace, objectives: Sequence[str]) -> None:
    check_priced(objectives)
    if space.grouping is None or len(space.space.slots) > space.operator_slots:
        raise UsageError(
            "--search exact chooses only the backends of operators",
            hint="Name a runtime with several backends and give each --tuning one value, or use --search hlps.",
        )


def memory_charges(singles: Sequence[tuple[Contender, float | None]], default: str) -> tuple[float, dict[str, float]]:
    """The memory of a process with the default backend, and the memory that each other backend adds if it is used, in
    bytes.

    Both come from the single backends' whole runs: a backend's charge is the memory that a run with it and the default
    takes beyond a run with the default alone. This is only a model, because memory is not quite additive.
    MeasurementError if a run does not report its memory.
    """
    sizes = {frozenset(c.backends.values()): bytes_ for c, bytes_ in singles if bytes_ is not None}
    if len(sizes) < len({frozenset(c.backends.values()) for c, _ in singles}) or not sizes:
        raise MeasurementError("the runs do not report their peak memory", hint="Give only --objective latency.")
    base = sizes.get(frozenset({default}), min(sizes.values()))
    charges: dict[str, float] = {}
    for used, size in sorted(sizes.items(), key=lambda item: (len(item[0]), sorted(item[0]))):
        new = [b for b in sorted(used) if b != default and b not in charges]
        explained = base + sum(charges.get(b, 0.0) for b in used)
        for backend in new:
            charges[backend] = max(0.0, size - explained) / len(new)
    return base, charges


def latency_model(priced: InsideResult) -> CostModel:
    """The additive latency of each operator of the graph on each backend, with the costs of crossing backends."""
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
    """The cost model over the slots of a space, from the cost model of single operators.

    The operators of a slot take the same choice, so their costs add up, and so do the costs of pairs between two slots.
    Pairs within a slot always have equal choices. All slots of `latency` must have the same backends, in the same
    order, and all backends of the space.
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
            table = np.zeros((len(columns[a]), len(columns[b]), count))
            table[:, :, axis] = pair.cost[np.ix_(columns[a], columns[b])][:, :, 0]
            add_pair(tables, a, b, table)
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
