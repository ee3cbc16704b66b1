"""The job `pareto`: the front of latency, peak memory and other objectives. docs/jobs/pareto.md is its design."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gnomon.core.front.front import Certificate
from gnomon.errors import GnomonError, MeasurementError, UsageError
from gnomon.jobs.pareto.document import (
    FailedPart,
    ParetoDocument,
    PointPart,
    objective_parts,
    point_part,
    sample_parts,
    search_part,
    search_parts,
    space_part,
)
from gnomon.jobs.pareto.dump import PartialDump, check_dumpable, check_room, dump_of, save_dump, search_dump
from gnomon.jobs.pareto.exact import check_priced, exact_search
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
from gnomon.jobs.pareto.records import ParetoRequest
from gnomon.jobs.pareto.search import EXACT, Searched, check_plans, in_one_box, joined, search
from gnomon.jobs.pareto.space import DecisionSpace, Evaluator, decision_space, wished_precisions
from gnomon.measure.campaign import Measured
from gnomon.measure.environment import Doubt
from gnomon.measure.progress import Steps, Tell, Watch
from gnomon.search.base import Assignment, Told
from gnomon.session.contender import AGAIN, Contender, not_compared
from gnomon.session.document import environment_parts, graph_part, labels_of, model_part, operator_parts, runs_part
from gnomon.session.model_session import Lab, conditions_part, measured_facts, open_lab, stopped_doubts
from gnomon.session.objectives import Goal, goals_of
from gnomon.session.package import check_destination, write_package
from gnomon.session.prove import Verified, verify
from gnomon.session.reference import checked_by, doubts, reference
from gnomon.session.request import ModelRequest, patiently, timed
from gnomon.session.targets import asking_energy, check_counters, describe
from gnomon.system.files import check_file


def pareto(asked: ParetoRequest, *, watch: Watch | None = None, tell: Tell | None = None) -> ParetoDocument:
    """Search the front, measure it again side by side, and deploy the point that is asked for.

    `watch` is told of progress, `tell` gets sentences for people. A search that was ended goes on from the record, with
    at most one evaluation repeated; the same one with more evaluations goes on from there. Raises GnomonError.
    """
    if asked.request is None and asked.source is None:
        raise UsageError("neither a model nor a dump is given", hint="Give a model, or --from DUMP.")
    if asked.request is not None and asked.source is not None:
        raise UsageError("a model and a dump are given", hint="Give a model, or --from DUMP.")
    if asked.backends and asked.source is None:
        raise UsageError("--codes names the digits of a dump", hint="Leave it out, or give --from DUMP.")
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
            raise UsageError("there is no place for the package", hint="Give --out DIR.")
        check_destination(asked.out, overwrite=asked.overwrite)
    precisions = tuple(dict.fromkeys((*asked.request.wish.precisions, *wished_precisions(asked.options))))
    request = replace(asked.request, wish=replace(asked.request.wish, precisions=precisions))
    request = timed(asking_energy(request, asked.objectives, asked.counters))

    def once(again: ModelRequest) -> ParetoDocument:
        # What lies there then was written before the device vanished.
        more = replace(asked, request=again, overwrite=asked.overwrite or began_without)
        return _measured(more, again, goals, watch, tell)

    return patiently(once, request, tell, recalls=True)


def _measured(
    asked: ParetoRequest,
    request: ModelRequest,
    goals: Sequence[Goal],
    watch: Watch | None,
    tell: Tell | None,
) -> ParetoDocument:
    steps = Steps("search", watch)
    # One campaign for all searches of a model with these settings: what one has run, another need not run again.
    with open_lab(request, kind="pareto", question={}, watch=steps, tell=tell, goes_on=True) as lab:
        space = decision_space(lab, asked.by, asked.options, all_cores=asked.all_cores and asked.plan.strategy != EXACT)
        if asked.dumpfile is not None:
            check_dumpable(space)
        sensitivity = reference(lab)
        evaluator = Evaluator(lab=lab, space=space, goals=goals)
        searches, certificate, prices = _search(asked, space, evaluator, steps)
        searched = joined(searches)
        points, worth, tried = _prove(evaluator, searched, predicted=asked.plan.strategy == EXACT)
        if asked.dumpfile is not None:
            save_dump(dump_of(space, evaluator.dump_rows(), asked.plan, searched), asked.dumpfile)
        extra = stopped_doubts(request, lab.runner.stopped) or _proof_doubts(request, proved=worth.sessions > 0)
        failed = _failed_doubts(evaluator, tried)
        chosen = _chosen(lab, points, asked)
        verified = None if chosen is None else _deploy(lab, space, chosen, asked)
        lab.runner.finish(_decision(points, chosen))
        warnings = (*doubts(lab, sensitivity), *failed, *extra)
        plain = enough(points) if worth.sessions and request.effort.processes_most > 1 else None
        graph = space.targets[0].placed.graph if space.operator_slots else lab.graph
        return ParetoDocument(
            model=model_part(request.model, graph),
            graph=graph_part(graph),
            operators=operator_parts(graph),
            clock=_clock(points),
            sample_clock=evaluator.clock or "wall",
            objectives=objective_parts(asked.objectives, prices),
            space=space_part(space.space, space.published, space.operator_slots, asked.by),
            search=search_part(" and ".join(plan.name for plan in asked.plans), asked.plan, searched),
            searches=search_parts(asked.plans, searches),
            certificate=certificate.document(),
            samples=sample_parts(space, searched.told),
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
            sensitivity=sensitivity.relative,
            reference=sensitivity.reference or None,
            reference_checked_by=checked_by(sensitivity, tried.values(), warnings),
            doubts=warnings,
            environments=environment_parts(
                lab.runner.environments, labels_of({space.label(a): measured for a, (_, measured) in tried.items()})
            ),
            conditions=conditions_part(lab, space.options.get("threads", ())),
            **measured_facts(lab),
        )


def _search(
    asked: ParetoRequest, space: DecisionSpace, evaluator: Evaluator, steps: Steps
) -> tuple[tuple[Searched, ...], Certificate, dict[str, str]]:
    """The results of each search, what is proved of them all, and what the objectives' numbers are made of."""
    if asked.plan.strategy == EXACT:
        exact, certificate, prices = exact_search(evaluator, asked.objectives, time.monotonic)
        return (exact,), certificate, prices
    done = 0
    searches: list[Searched] = []
    partial = PartialDump(asked, evaluator)

    def told(new: Told) -> None:
        nonlocal done
        done += 1
        steps.step()
        partial.save(done)

    def stop() -> bool:
        return evaluator.lab.link is not None and evaluator.lab.runner.over("search")

    steps.expect(sum(plan.budget(space.space) for plan in asked.plans))
    for plan in asked.plans:
        known = evaluator.replayed
        made = search(
            space.space, plan, evaluator, coarse=space.coarse(), on_told=told, clock=time.monotonic, stop=stop
        )
        searches.append(replace(made, replayed=evaluator.replayed - known))
    steps.end()
    found = joined(searches)
    if not found.results:
        reasons = "; ".join(dict.fromkeys(evaluator.failures.values())) or "nothing was asked for"
        raise MeasurementError(
            f"no assignment ran and reported every objective ({reasons[:600]})",
            hint="Drop objectives that are not reported, try another --runtime, or give more --iterations.",
        )
    kind = Certificate(kind="complete" if found.complete and not evaluator.unmeasured else "heuristic")
    prices = {goal.name: goal.told_by(evaluator.lab.counters) for goal in goals_of(asked.objectives)}
    return in_one_box(searches), kind, prices


Tried = Mapping[Assignment, tuple[Contender, Measured]]
"""What was measured again, and its runs in the proof as they were taken."""


def _prove(evaluator: Evaluator, found: Searched, *, predicted: bool) -> tuple[list[PointPart], Worth, Tried]:
    """What the samples do not rule out, measured again; the sampled front as it is where nothing may be."""
    lab, space = evaluator.lab, evaluator.space
    costs = {told.assignment: told for told in (*found.beside, *found.results)}
    samples = evaluator.samples(tuple(costs.values()))
    worth = worth_proving(samples, max(2, lab.request.effort.together), None if predicted else evaluator.again)
    contenders = {sample.assignment: space.contender(lab, sample.assignment) for sample in worth.chosen}
    again, at_one_speed, sessions = measure_points(lab, list(contenders.values()))
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
    if lab.link is not None and not lab.runner.stopped:
        reasons = "; ".join(f"{c.label}: {describe(measured.failure)}" for c, measured in tried.values())
        raise MeasurementError(f"no point of the front ran again ({reasons[:600]})", hint=AGAIN)
    return sampled_points(found.front, space, evaluator.clock or "wall"), Worth(chosen=(), noise=worth.noise), {}


def _clock(points: Sequence[PointPart]) -> str:
    """The clock of all points, or "mixed" where CPU time is the time of some of them alone."""
    clocks = {point.clock for point in points if point.clock is not None}
    return clocks.pop() if len(clocks) == 1 else "mixed"


def _proof_doubts(request: ModelRequest, *, proved: bool) -> list[Doubt]:
    if not proved:
        hint = "Leave out --no-profile to measure it again side by side."
        return [Doubt(kind="unproved", message="the front is as it was sampled, one process a point", hint=hint)]
    if request.effort.processes_most < 2:
        message = "one process cannot tell a difference from noise, so no point was found dominated"
        return [Doubt(kind="one-process", message=message, hint="Leave --processes out, or give 3 or more.")]
    return []


def _failed_doubts(evaluator: Evaluator, tried: Tried) -> list[Doubt]:
    """What was sampled and failed in the proof, and what may have failed by no fault of its own while searching."""
    sampled, label = evaluator.measured, evaluator.space.label
    each = {label(a): [found] for a, found in sampled.items() if found.may_work}
    each |= {label(a): [sampled[a], measured] for a, (_, measured) in tried.items()}
    found = [doubt for doubt in (not_compared(label, *known) for label, known in each.items()) if doubt is not None]
    rest = found[_MOST_FAILED:]
    more = [Doubt(kind="not-compared", message=f"{len(rest)} more were not compared", hint=AGAIN)] if rest else []
    return [*found[:_MOST_FAILED], *more]


_MOST_FAILED = 3
"""Warnings of what failed at most; the rest is counted."""


def _chosen(lab: Lab, points: Sequence[PointPart], asked: ParetoRequest) -> PointPart | None:
    """The point that is asked for; the campaign is finished also where there is none, as all is measured."""
    try:
        return choose(points, asked.objectives, asked.pick, asked.under)
    except GnomonError:
        lab.runner.finish(_decision(points, None))
        raise


def _decision(points: Sequence[PointPart], chosen: PointPart | None) -> dict[str, object]:
    count = sum(p.number is not None for p in points)
    told = "1 point is on the front" if count == 1 else f"{count} points are on the front"
    reason = f"{told}; number {chosen.number} was chosen: {chosen.label}." if chosen else f"{told}."
    return {"front": count, "chosen": chosen.label if chosen else "", "reason": reason}


def _deploy(lab: Lab, space: DecisionSpace, chosen: PointPart, asked: ParetoRequest) -> Verified:
    """Write the package of a point and run it from its own files."""
    out = asked.out or Path()
    contender = space.contender(lab, space.space.indices(chosen.choices))
    write_package(lab, contender, out, overwrite=asked.overwrite)
    return verify(lab, out, contender)[0]
