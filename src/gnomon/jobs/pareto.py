"""The job `pareto`: the front of latency, peak memory and other objectives. docs/pareto.md is its design."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gnomon.core.front import Certificate
from gnomon.errors import MeasurementError, UsageError
from gnomon.jobs.lab import Lab, open_lab
from gnomon.jobs.objectives import Goal, goals_of
from gnomon.jobs.packages import check_destination, write_package
from gnomon.jobs.pareto_evaluate import Evaluator
from gnomon.jobs.pareto_exact import exact_search
from gnomon.jobs.pareto_files import (
    Recorded,
    check_dumpable,
    check_file,
    coarse_of,
    dump_again,
    dump_of,
    load_dump,
    save_dump,
)
from gnomon.jobs.pareto_points import check_bounds, choose, sampled_points
from gnomon.jobs.pareto_prove import Point, decide, measure_points, worth_proving
from gnomon.jobs.pareto_records import Lived, Pareto, ParetoRequest
from gnomon.jobs.pareto_search import EXACT, Searched, search
from gnomon.jobs.pareto_space import DecisionSpace, decision_space, wished_precisions
from gnomon.jobs.patience import patiently
from gnomon.jobs.prove import Verified, verify
from gnomon.jobs.request import Request
from gnomon.jobs.trust import doubts, reference
from gnomon.measure.clock import Clock
from gnomon.measure.environment import Doubt
from gnomon.measure.progress import Progress, Watch
from gnomon.search.base import Told

_SOURCES = {
    "latency": "the time of a call in whole runs, a fresh process each",
    "peak-memory": "the most resident memory of a fresh process, with the program around the runtime",
    "cpu-time": "the CPU time of a call in whole runs, a fresh process each",
    "output-error": "the largest difference of outputs from the reference, relative to its largest magnitude",
}
_RECORDED = "as the dump has it"


class _Steps:
    """Shows the search as one stage, in place of the stages of its evaluations."""

    def __init__(self, watch: Watch | None) -> None:
        self._watch, self.searching = watch, False
        self._start = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        if self._watch is not None and not self.searching:
            self._watch(progress)

    def search(self, done: int, total: int) -> None:
        """So many evaluations are done."""
        if not done:
            self._start = time.monotonic()
        left = (time.monotonic() - self._start) / done * (total - done) if done else None
        if self._watch is not None:
            self._watch(Progress(stage="search", done=done, total=total, left_s=left))


def pareto(asked: ParetoRequest, *, watch: Watch | None = None, tell: Callable[[str], None] | None = None) -> Pareto:
    """Search the front, measure it again side by side, and deploy the point that is asked for.

    `watch` is told of progress, `tell` gets sentences for people. A search that was ended goes on from the record, with
    at most one evaluation repeated; the same one with more evaluations goes on from there. Raises GnomonError.
    """
    goals = goals_of(asked.objectives)
    asked = replace(asked, objectives=tuple(goal.name for goal in goals))
    asked.plan.check()
    check_bounds(asked.objectives, asked.pick, asked.under)
    if asked.dumpfile is not None:
        check_file(asked.dumpfile)
    if asked.source is not None:
        return _from_dump(asked, asked.source)
    if asked.request is None:
        raise UsageError("neither a model nor a dump is given", hint="Give a model, or --from DUMP.")
    deploys = asked.pick is not None or bool(asked.under)
    began_without = asked.out is None or not asked.out.exists()
    if deploys:
        if asked.out is None:
            raise UsageError("there is no place for the package", hint="Give --out DIR.")
        check_destination(asked.out, overwrite=asked.overwrite)
    precisions = tuple(dict.fromkeys((*asked.request.wish.precisions, *wished_precisions(asked.options))))
    request = replace(asked.request, wish=replace(asked.request.wish, precisions=precisions))

    def once(again: Request) -> Pareto:
        # What lies there then was written before the device vanished.
        more = replace(asked, request=again, overwrite=asked.overwrite or began_without)
        return _measured(more, again, goals, watch, tell)

    return patiently(once, request, tell)


def _measured(
    asked: ParetoRequest,
    request: Request,
    goals: Sequence[Goal],
    watch: Watch | None,
    tell: Callable[[str], None] | None,
) -> Pareto:
    start = time.monotonic()
    steps = _Steps(watch)
    # One campaign for all searches of a model with these settings: what one has run, another need not run again.
    with open_lab(request, kind="pareto", question={}, watch=steps, tell=tell) as lab:
        space = decision_space(lab, asked.by, asked.options)
        if asked.dumpfile is not None:
            check_dumpable(space)
        sensitivity = reference(lab)
        evaluator = Evaluator(lab=lab, space=space, goals=goals)
        found, certificate, prices = _search(asked, space, evaluator, steps)
        points, proved, left_out, clock = _prove(evaluator, found)
        if asked.dumpfile is not None:
            save_dump(dump_of(space, evaluator.dump_rows(), asked.plan, found), asked.dumpfile)
        extra = _proof_doubts(request, points, proved)
        chosen = choose(points, asked.objectives, asked.pick, asked.under)
        verified = None if chosen is None else _deploy(lab, space, chosen, asked)
        lab.runner.note("decision", _decision(points, chosen))
        return Pareto(
            asked=asked,
            lived=Lived(
                model=request.model,
                graph=space.targets[0].placed.graph,
                device=lab.device.name,
                fingerprint=lab.device.fingerprint,
                versions={name: probe.version for name, probe in lab.probes.items()},
                clock=clock,
                sensitivity=sensitivity,
                campaign=lab.runner.campaign.id,
                resumed=lab.runner.resumed,
            ),
            space=space.space,
            published=space.published,
            operator_slots=space.operator_slots,
            searched=found,
            samples=tuple((space.code(t.assignment), space.label(t.assignment)) for t in found.told),
            points=tuple(points),
            proved=proved,
            left_out=left_out,
            certificate=certificate,
            prices=prices,
            failures=tuple((space.label(a), reason) for a, reason in evaluator.failures.items()),
            missing=tuple(lab.missing),
            doubts=(*doubts(lab, sensitivity), *extra),
            seconds=time.monotonic() - start,
            chosen=chosen,
            verified=verified,
            package=asked.out if chosen is not None else None,
            dumpfile=asked.dumpfile,
        )


def _search(
    asked: ParetoRequest, space: DecisionSpace, evaluator: Evaluator, steps: _Steps
) -> tuple[Searched, Certificate, dict[str, str]]:
    """The results of the search, what is proved of them, and what the objectives' numbers are made of."""
    if asked.plan.strategy == EXACT:
        return exact_search(evaluator, asked.objectives, time.monotonic)
    total = asked.plan.budget(space.space)

    def told(count: int, new: Told) -> None:
        steps.search(count, total)

    steps.searching = True
    steps.search(0, total)
    found = search(space.space, asked.plan, evaluator, coarse=space.coarse(), on_told=told, clock=time.monotonic)
    steps.searching = False
    found = replace(found, replayed=evaluator.replayed)
    if not found.results:
        reasons = "; ".join(dict.fromkeys(evaluator.failures.values())) or "nothing was asked for"
        raise MeasurementError(
            f"no assignment ran and told every objective ({reasons[:600]})",
            hint="Leave out what is not told, try another runtime with --runtime, or give more --iterations.",
        )
    kind = Certificate(kind="exact" if found.complete else "heuristic")
    return found, kind, {name: _SOURCES[name] for name in asked.objectives}


def _prove(evaluator: Evaluator, found: Searched) -> tuple[list[Point], bool, int, Clock]:
    """The points of the sampled front and those near it, measured again; as they were sampled where nothing may be."""
    lab, space = evaluator.lab, evaluator.space
    near, left_out = worth_proving(found.told, max(2, lab.request.effort.together))
    contenders = {told.assignment: space.contender(lab, told.assignment) for told in near}
    points = [
        Point(
            assignment=told.assignment,
            code=space.code(told.assignment),
            label=space.label(told.assignment),
            contender=contenders[told.assignment],
            sampled=told.cost,
            estimates=None,
        )
        for told in near
    ]
    measured, clock = measure_points(lab, list(contenders.values()))
    for assignment, contender in contenders.items():
        evaluator.measured.setdefault(assignment, measured[contender.key])
    if space.parallel:
        clock = "wall"
    if any(m.ok for m in measured.values()):
        return decide(evaluator.goals, points, measured, clock), True, left_out, clock
    if lab.link is not None:
        raise MeasurementError("no point of the front ran again", hint="Start the command again at a quieter time.")
    return sampled_points(found.front, space.code, space.label), False, left_out, evaluator.clock or "wall"


def _proof_doubts(request: Request, points: Sequence[Point], proved: bool) -> list[Doubt]:
    if not proved:
        hint = "Leave out --no-profile to measure it again side by side."
        return [Doubt(kind="unproved", message="the front is as it was sampled, one process a point", hint=hint)]
    if request.effort.processes_most < 2:
        message = "one process cannot tell a difference from its luck, so no point was found dominated"
        return [Doubt(kind="one-process", message=message, hint="Leave --processes out, or give 3 or more.")]
    return []


def _decision(points: Sequence[Point], chosen: Point | None) -> dict[str, str]:
    count = sum(p.number is not None for p in points)
    told = f"{count} points are on the front"
    return {"chosen": chosen.label if chosen else "", "reason": f"{told}; {chosen.label}" if chosen else f"{told}."}


def _deploy(lab: Lab, space: DecisionSpace, chosen: Point, asked: ParetoRequest) -> Verified:
    """Write the package of a point and run it from its own files."""
    out = asked.out or Path()
    contender = chosen.contender or space.contender(lab, chosen.assignment)
    write_package(lab, contender, out, overwrite=asked.overwrite)
    return verify(lab, out, contender)


def _from_dump(asked: ParetoRequest, source: Path) -> Pareto:
    """A search over what a dump holds: nothing is measured, so nothing is proved but what its figures say."""
    if asked.pick is not None or asked.under:
        raise UsageError("a dump has no model to deploy", hint="Give the model itself, with the same search.")
    if asked.plan.strategy == EXACT:
        raise UsageError("a dump has no prices of operators to solve for", hint="Use --search brute.")
    start = time.monotonic()
    dump = load_dump(source, asked.backends)
    evaluate = Recorded(dump, asked.objectives)
    space, code = evaluate.space, evaluate.code
    found = search(space, asked.plan, evaluate, coarse=coarse_of(dump, space), clock=time.monotonic)
    if not found.results:
        raise MeasurementError(
            f"the search met nothing that {source} holds, in {len(found.told)} evaluations",
            hint="Use --search brute, or more --iterations.",
        )
    told = [Doubt(kind="dump", message=message, hint="See docs/pareto-formats.md.") for message in dump.doubts]
    if evaluate.lacking:
        message = f"{evaluate.lacking} of the {len(found.told)} assignments that were asked for are not in the dump"
        told.append(Doubt(kind="lacking", message=message, hint="They count as failed."))
    if asked.dumpfile is not None:
        save_dump(dump_again(dump, {code(t.assignment) for t in found.told}, asked.plan, found), asked.dumpfile)

    def label(assignment: Sequence[int]) -> str:
        return _dump_label(space.names(assignment), dump.slots)

    return Pareto(
        asked=asked,
        lived=None,
        space=space,
        published=dump.space,
        operator_slots=len(space.slots),
        searched=found,
        samples=tuple((code(t.assignment), label(t.assignment)) for t in found.told),
        points=tuple(sampled_points(found.front, code, label)),
        proved=False,
        left_out=0,
        certificate=Certificate(kind="exact" if found.complete and not evaluate.lacking else "heuristic"),
        prices=dict.fromkeys(asked.objectives, _RECORDED),
        failures=(),
        missing=(),
        doubts=tuple(told),
        seconds=time.monotonic() - start,
        dumpfile=asked.dumpfile,
    )


def _dump_label(names: Sequence[str], slots: Sequence[str]) -> str:
    most = max(dict.fromkeys(names), key=names.count)
    others: dict[str, list[str]] = {}
    for slot, name in zip(slots, names, strict=True):
        if name != most:
            others.setdefault(name, []).append(slot)
    told = [
        f"{name}: {', '.join(members[:3])}" + (" and more" if len(members) > 3 else "")
        for name, members in others.items()
    ]
    return "; ".join([most, *told])
