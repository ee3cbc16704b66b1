"""The main job: the proven-fastest assignment of a model's operators to backends. docs/place.md is its design."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gnomon.core.brief import brief
from gnomon.core.graph import Graph
from gnomon.core.solve import Solution
from gnomon.devices.guard import guarded_folder
from gnomon.errors import MeasurementError
from gnomon.jobs.across import AcrossPlacer, AcrossResult
from gnomon.jobs.contender import choose_clock
from gnomon.jobs.inside import InsideResult
from gnomon.jobs.kernels import Breakdown
from gnomon.jobs.lab import Lab, open_lab, stopped_doubts
from gnomon.jobs.packages import check_destination, write_package
from gnomon.jobs.patience import patiently
from gnomon.jobs.precision import precision_hints
from gnomon.jobs.prove import Verdict, Verified, prove, verify
from gnomon.jobs.request import Request, timed
from gnomon.jobs.rows import OperatorRow, breakdowns, operator_rows
from gnomon.jobs.singles import profile_singles
from gnomon.jobs.targets import Missing, describe
from gnomon.jobs.transferring import inside_placer
from gnomon.jobs.trust import Sensitivity, doubts, drift, reference
from gnomon.measure.clock import Clock
from gnomon.measure.environment import Doubt
from gnomon.measure.progress import Watch


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What `place` found: the verdict over all contenders, the plan operator by operator, and every doubt.

    `breakdowns` tell, by label, where the time of each contender goes that ran. `solutions` are the solver's
    certificates, by configuration or "across". `inside` and `across` are the prices behind them. `fingerprint` is the
    device's. `resumed` says that an interrupted campaign was taken up. `seconds` is what the job took, without
    `waited_s` for its device.
    """

    model: Path
    graph: Graph
    device: str
    fingerprint: Mapping[str, Any]
    versions: dict[str, str]
    clock: Clock
    verdict: Verdict
    verified: Verified
    rows: tuple[OperatorRow, ...]
    breakdowns: Mapping[str, Breakdown]
    solutions: dict[str, Solution]
    why_not_mixed: str
    ideal_s: float | None
    inside: tuple[InsideResult, ...]
    across: AcrossResult | None
    missing: tuple[Missing, ...]
    doubts: tuple[Doubt, ...]
    sensitivity: Sensitivity
    package: Path
    campaign: str
    resumed: bool
    seconds: float
    waited_s: float = 0.0

    __repr__ = brief


def place(
    request: Request,
    out: Path,
    *,
    overwrite: bool = False,
    watch: Watch | None = None,
    tell: Callable[[str], None] | None = None,
) -> Placement:
    """Profile, price, solve, prove, write the package of the winner to `out`, and run it.

    `watch` is told of progress, `tell` gets sentences for people. A device that vanishes is waited for. Raises
    GnomonError; what was measured until then is in the record, and the next call with the same request goes on from
    there.
    """
    check_destination(out, overwrite=overwrite)

    began_without = not out.exists()

    request = timed(request)

    def once(again: Request) -> Placement:
        # What lies there then was written before the device vanished.
        return _place(again, out, overwrite=overwrite or began_without, watch=watch, tell=tell)

    return patiently(once, request, tell)


def _place(
    request: Request, out: Path, *, overwrite: bool, watch: Watch | None, tell: Callable[[str], None] | None
) -> Placement:
    with ExitStack() as stack:
        lab = stack.enter_context(open_lab(request, kind="place", question={}, watch=watch, tell=tell))
        folder = stack.enter_context(guarded_folder("gnomon-segments-"))
        sensitivity = reference(lab)
        inside, across = _price(lab, folder)
        clock = across.clock if across else inside[0].clock
        contenders = [c for r in inside for c in r.contenders] + list(across.contenders if across else ())
        lab.runner.note("labels", {f"proof/{c.key}": c.label for c in contenders})
        priced = bool(inside) or bool(across and (across.solution or across.ideal_s is not None))
        verdict = prove(lab, contenders, clock, priced=priced)
        clock = verdict.clock
        verdict, verified = _deploy(lab, verdict, out, overwrite=overwrite)
        chosen = verdict.chosen.contender
        lab.runner.finish({"chosen": chosen.label, "reason": verdict.reason})
        parts = breakdowns(lab, verdict, inside, across)
        solutions = {r.target.configuration.name: r.solution for r in inside}
        if across and across.solution:
            solutions["across"] = across.solution
        return Placement(
            model=request.model,
            graph=verdict.chosen.contender.graph,
            device=lab.device.name,
            fingerprint=lab.device.fingerprint,
            versions={name: probe.version for name, probe in lab.probes.items()},
            clock=clock,
            verdict=verdict,
            verified=verified,
            rows=operator_rows(verdict, verified, parts, inside, across),
            breakdowns=parts,
            solutions=solutions,
            why_not_mixed=across.why if across else next((r.why for r in inside if r.why), ""),
            ideal_s=across.ideal_s if across else None,
            inside=tuple(inside),
            across=across,
            missing=tuple(lab.missing),
            doubts=_all_doubts(lab, request, verdict, sensitivity),
            sensitivity=sensitivity,
            package=out,
            campaign=lab.runner.campaign.id,
            resumed=lab.runner.resumed,
            seconds=request.used_s,
            waited_s=request.waited_s,
        )


def _price(lab: Lab, folder: Path) -> tuple[list[InsideResult], AcrossResult | None]:
    """Profile all single contenders together; then place inside each configuration that has several backends, and
    across those that take the model whole. One clock for all.
    """
    whole = [t for t in lab.targets if len(t.configuration.backends) == 1]
    within = [inside_placer(lab, t) for t in lab.targets if t not in whole]
    across = AcrossPlacer(lab, whole, folder)
    singles = {placer: placer.singles() for placer in within}
    wholes = [across.whole(target) for target in whole]
    alive = profile_singles(lab, [c for group in (*singles.values(), wholes) for c in group])
    clock = choose_clock(lab, (lab.runner.known(c.key) for c in alive))
    lab.doubts += precision_hints(lab, alive, clock)
    results: list[InsideResult] = []
    problems: list[MeasurementError] = []
    for placer in within:
        mine = [c for c in singles[placer] if c in alive]
        try:
            results += [placer.run(mine, clock)] if mine else []
        except MeasurementError as error:  # one configuration that cannot be priced does not end the others
            problems.append(error)
            lab.missing.append(Missing(name=placer.target.configuration.name, reason=error.message, hint=error.hint))
    wholes = [c for c in wholes if c in alive]
    if problems and not results and not wholes:
        raise problems[0]
    return results, across.run(wholes, clock) if wholes else None


def _deploy(lab: Lab, verdict: Verdict, out: Path, *, overwrite: bool) -> tuple[Verdict, Verified]:
    """Write the winner's package and run it; a package that does not do what it should gives way to the next."""
    order = [verdict.chosen, verdict.best_single]
    for number, proved in enumerate(order):
        write_package(lab, proved.contender, out, overwrite=overwrite or number > 0)
        verified = verify(lab, out, proved.contender)
        if verified.ok or verified.skipped or proved is verdict.best_single:
            return replace(verdict, chosen=proved), verified
        told = describe(verified.failure) if verified.failure else f"{len(verified.moved)} operators ran elsewhere"
        lab.missing.append(Missing(name=proved.contender.label, reason=f"its package was refused: {told}"))
        single = verdict.best_single.contender.label
        verdict = replace(verdict, reason=f"Use {single}: the package of the plan, a mix, was refused ({told}).")
    raise AssertionError("unreachable")


def _all_doubts(lab: Lab, request: Request, verdict: Verdict, sensitivity: Sensitivity) -> tuple[Doubt, ...]:
    missed = [p for p in verdict.proved if p.measured.failure and p.measured.failure.kind == "unmeasured"]
    stopped = stopped_doubts(request, lab.runner.stopped, [p.contender.label for p in missed])
    best = verdict.best_single
    drifted = drift(lab.runner.known(best.contender.key), best.measured, verdict.clock)
    return (*stopped, *verdict.warnings, *doubts(lab, sensitivity), *([drifted] if drifted else []))
