"""The proof: contenders measured against each other as wholes, and the deployed package run where it will run."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gnomon.core.sample import Failure
from gnomon.core.stats import summarise
from gnomon.errors import MeasurementError
from gnomon.jobs.contender import Contender, Proved, blocks, choose_clock, cpu_summary, level, traced_candidate, versus
from gnomon.jobs.lab import Lab
from gnomon.jobs.packages import read_plan
from gnomon.jobs.targets import describe
from gnomon.measure.campaign import Measured
from gnomon.measure.clock import Clock
from gnomon.measure.recorded import UNMEASURED

_FAR = 1.5
"""The ratio from which on what is slower is not called a tie, however little is known of the spread."""

_WORTH = 1.02
"""The least predicted gain for which a plan that was not measured is chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the proof says: all contenders, the best single one, and the one to use.

    `reason` is one sentence for people. `clock` is what decided: the one that was asked for, or wall time where the
    CPU time of some contender does not tell its whole story.
    """

    proved: tuple[Proved, ...]
    best_single: Proved
    chosen: Proved
    reason: str
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A package that was run on the device from its own files.

    `places` maps each operator to where the runtime's own report says that it ran; `moved` lists the operators that
    ran elsewhere than planned. `failure` is set where the package did not run or computed wrongly. `skipped` says that
    it was not run, as nothing was to be measured.
    """

    places: Mapping[int, str]
    moved: tuple[int, ...]
    difference: Mapping[str, float] | None
    failure: Failure | None
    skipped: bool = False

    @property
    def ok(self) -> bool:
        """Whether it ran with right outputs, everything where it was planned."""
        return self.failure is None and not self.moved and not self.skipped


def prove(lab: Lab, contenders: Sequence[Contender], clock: Clock) -> Verdict:
    """Measure the contenders interleaved in fresh processes and choose; see `judge_contenders`.

    A single contender that the profile showed to be hopeless is not run again: it was interleaved there with the best.
    """
    far = _hopeless(lab, contenders, clock)
    fastest = min((c.predicted_s for c in contenders if c.predicted_s), default=0.0)
    slow = {c.key: (c.predicted_s or 0.0) > lab.request.effort.laggard * fastest for c in contenders}
    left = [c for c in contenders if c.key not in far]
    renamed = {c.key: replace(c.candidate, key=f"proof/{c.key}", laggard=slow[c.key]) for c in left}
    effort = lab.request.effort
    if len(left) == 1:  # nothing is left to tell it from, so the least will do
        effort = replace(effort, processes_most=effort.processes_least)
    measured = lab.runner.measure("proof", list(renamed.values()), effort)
    results = {c.key: lab.runner.known(c.key) for c in contenders if c.key in far}
    results |= {c.key: measured[renamed[c.key].key] for c in left}
    if clock == "cpu":
        # A chain of runtimes may wait or start threads although each of them alone does not.
        clock = choose_clock(lab, results.values())
    verdict = judge_contenders(contenders, results, clock, far)
    return verdict if lab.link else predicted_verdict(verdict)


def predicted_verdict(verdict: Verdict) -> Verdict:
    """The verdict where nothing may be measured: a plan that the record has no runs of is chosen by its prediction.

    It must promise 2 % more than the best single contender took, as differences below that are not told apart.
    """
    plan = next((p for p in verdict.proved if p.contender.kind == "plan"), None)
    if plan is None or plan.measured.failure is not UNMEASURED or plan.contender.predicted_s is None:
        return verdict
    gain = level(verdict.best_single.measured, verdict.clock) / plan.contender.predicted_s
    if gain < _WORTH:
        return verdict
    alone = verdict.best_single.contender.label
    told = f"Mix: {plan.contender.label} should be {gain:.2f} times as fast as {alone} alone; this is predicted, not"
    return replace(verdict, chosen=plan, reason=f"{told} proven: the plan was never measured.")


def _hopeless(lab: Lab, contenders: Sequence[Contender], clock: Clock) -> dict[str, Measured]:
    """By key, the single contenders that are slower by more than any noise, with what they were measured beside."""
    known = {c.key: lab.runner.known(c.key) for c in contenders if c.kind == "single"}
    known = {key: found for key, found in known.items() if found.ok}
    if not known:
        return {}
    best = min(known.values(), key=lambda found: level(found, clock))
    compared = {key: versus(found, best, clock) for key, found in known.items() if found is not best}
    limit = lab.request.effort.hopeless
    return {key: best for key, c in compared.items() if c.verdict == "slower" and c.ratio > limit and c.low > limit / 2}


def judge_contenders(
    contenders: Sequence[Contender],
    results: Mapping[str, Measured],
    clock: Clock,
    beside: Mapping[str, Measured] | None = None,
) -> Verdict:
    """Choose from what was measured of each contender, by its key.

    `beside` has what a contender is compared with, where it was not measured beside the best single one.

    A mix is chosen only if it is faster than the best single contender by more than the noise, and several processes
    were seen: one process cannot tell a gain from its luck. MeasurementError if no single contender is left.
    """
    singles = [c for c in contenders if c.kind == "single" and results[c.key].ok]
    if not singles:
        told = "; ".join(f"{c.label}: {describe(results[c.key].failure)}" for c in contenders)
        raise MeasurementError(f"no single backend is left after the proof ({told})", hint="Try another runtime.")
    best = min(singles, key=lambda c: level(results[c.key], clock))
    other = beside or {}
    proved = {c.key: _proved(c, results[c.key], other.get(c.key, results[best.key]), clock) for c in contenders}
    faster = [p for p in proved.values() if p.ok and p.against_best and p.against_best.verdict == "faster"]
    mixes = [p for p in faster if p.contender.kind != "single" and p.against_best and p.against_best.unit == "process"]
    chosen = proved[best.key]
    if mixes:
        chosen = min(mixes, key=lambda p: level(p.measured, clock))
        # What else is faster must be surely faster than the plan, which is the one that was solved for.
        plan = next((p for p in mixes if p.contender.kind == "plan"), chosen)
        if plan is not chosen and versus(chosen.measured, plan.measured, clock).verdict != "faster":
            chosen = plan
    return Verdict(
        proved=tuple(proved.values()),
        best_single=proved[best.key],
        chosen=chosen,
        reason=_reason(list(proved.values()), proved[best.key], chosen),
        clock=clock,
    )


def _proved(contender: Contender, measured: Measured, best: Measured, clock: Clock) -> Proved:
    if not measured.ok:
        return Proved(contender=contender, measured=measured, summary=None, cpu=None, against_best=None)
    return Proved(
        contender=contender,
        measured=measured,
        summary=summarise(blocks(measured, "wall")),
        cpu=cpu_summary(measured),
        against_best=None if measured.key == best.key else versus(measured, best, clock),
    )


def _reason(proved: Sequence[Proved], best: Proved, chosen: Proved) -> str:
    """The answer in one sentence."""
    alone = best.contender.label
    if chosen is not best and chosen.against_best is not None:
        gain = 1 / chosen.against_best.ratio
        return f"Mix: {chosen.contender.label} is {gain:.2f} times as fast as {alone} alone."
    others = _others(proved, best)
    plan = next((p for p in proved if p.contender.kind == "plan"), None)
    if plan is None:
        return f"Do not mix: use {alone}{others}."
    if plan.against_best is None:
        return f"Do not mix: the plan was refused ({describe(plan.measured.failure)}); use {alone}{others}."
    if plan.against_best.verdict == "faster":
        return f"Do not mix yet: one process cannot tell the plan's gain from its luck; use {alone}{others}."
    if plan.against_best.verdict == "slower":
        return f"Do not mix: the plan is slower; use {alone}{others}."
    return f"Do not mix: what the plan gains is inside the noise; use {alone}{others}."


def _others(proved: Sequence[Proved], best: Proved) -> str:
    """How the best single contender stands to the others, as the end of a sentence."""
    compared = [(p.contender.label, p.against_best) for p in proved if p.contender.kind == "single" and p.against_best]
    if not compared:
        return ""
    # One process bounds nothing, but what is far slower in it is no tie for that.
    ties = [label for label, versus in compared if versus.verdict == "tie" and versus.ratio < _FAR]
    if ties:
        return f", though {' and '.join(ties)} may be as fast: the difference is inside the noise"
    label, versus = min(compared, key=lambda item: item[1].ratio)
    unsure = " as far as the few processes tell" if versus.verdict == "tie" else ""
    return f", {versus.ratio:.2f} times as fast as {label}{unsure}"


def verify(lab: Lab, folder: Path, contender: Contender) -> Verified:
    """Run a written package on the device from its own files: outputs, and where each operator ran."""
    if lab.link is None:
        return Verified(places={}, moved=(), difference=None, failure=None, skipped=True)
    pushed = lab.push(folder, folder.name)
    written = read_plan(folder, at=pushed)
    job = {**lab.job(written["segments"]), "tensors": written["tensors"]}
    # A key of its own each time: a package must be run as it is now, not as the record knows one of this name.
    plain = replace(contender.candidate, key=f"package/{contender.key}/{uuid.uuid4().hex[:8]}", job=job)
    traced = traced_candidate(plain, len(contender.backends))
    effort = replace(lab.request.effort, processes_least=1, processes_most=1, rounds=2)
    known = lab.runner.measure("run the package", [plain, traced], effort)
    failure = known[plain.key].failure or known[traced.key].failure
    if failure is not None:
        return Verified(places={}, moved=(), difference=None, failure=failure)
    places = _places(lab, contender, known[plain.key], known[traced.key])
    planned = contender.backends
    moved = tuple(i for i, backend in sorted(planned.items()) if places.get(i) != backend)
    return Verified(places=places, moved=moved, difference=known[plain.key].fact("difference"), failure=None)


def _places(lab: Lab, contender: Contender, plain: Measured, traced: Measured) -> dict[int, str]:
    """Where each operator ran: by the loaded runtime's own report, or by its trace where it has no report."""
    places: dict[int, str] = {}
    reports = plain.fact("where") or []
    for part, report in zip(contender.parts, reports, strict=True):
        names = part.configuration.reported
        if not names:
            # Only what the trace itself names: an operator that it leaves out is not proven to be anywhere.
            places.update({i: row.backend for run in traced.runs for row in run.operators for i in row.sources})
            continue
        if len(part.configuration.backends) > 1:
            # The runtime's own account of each operator; one that it leaves out is not proven to be anywhere.
            said = {i: str(row["backend"]) for row in report for i in row["operators"] if isinstance(i, int)}
            places.update({i: names.get(backend, backend) for i, backend in said.items()})
            continue
        own = sorted({str(row["backend"]) for row in report})
        kept = bool(own) and set(own) <= set(names)
        places.update(part.backends if kept else dict.fromkeys(part.operators, ",".join(own) or "unknown"))
    return places
