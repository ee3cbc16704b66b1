"""The proof: contenders measured against each other as wholes, and the deployed package run where it will run."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gnomon.core.sample import Failure
from gnomon.core.stats import Summary, summarise
from gnomon.errors import MeasurementError
from gnomon.jobs.contender import Contender, Proved, blocks, choose_clock, level, traced_candidate, versus
from gnomon.jobs.lab import Lab
from gnomon.jobs.packages import read_plan
from gnomon.jobs.targets import describe
from gnomon.measure.campaign import Measured
from gnomon.measure.clock import Clock


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
    ran elsewhere than planned. `failure` is set where the package did not run or computed wrongly.
    """

    places: Mapping[int, str]
    moved: tuple[int, ...]
    difference: Mapping[str, float] | None
    failure: Failure | None

    @property
    def ok(self) -> bool:
        """Whether it ran with right outputs, everything where it was planned."""
        return self.failure is None and not self.moved


def prove(lab: Lab, contenders: Sequence[Contender], clock: Clock) -> Verdict:
    """Measure the contenders interleaved in fresh processes and choose; see `judge_contenders`."""
    fastest = min((c.predicted_s for c in contenders if c.predicted_s), default=0.0)
    slow = {c.key: (c.predicted_s or 0.0) > lab.request.effort.laggard * fastest for c in contenders}
    renamed = {c.key: replace(c.candidate, key=f"proof/{c.key}", laggard=slow[c.key]) for c in contenders}
    measured = lab.runner.measure("proof", list(renamed.values()), lab.request.effort)
    results = {c.key: measured[renamed[c.key].key] for c in contenders}
    if clock == "cpu":
        # A chain of runtimes may wait or start threads although each of them alone does not.
        clock = choose_clock(lab, results.values())
    return judge_contenders(contenders, results, clock)


def judge_contenders(contenders: Sequence[Contender], results: Mapping[str, Measured], clock: Clock) -> Verdict:
    """Choose from what was measured of each contender, by its key.

    A mix is chosen only if it is faster than the best single contender by more than the noise, and several processes
    were seen: one process cannot tell a gain from its luck. MeasurementError if no single contender is left.
    """
    singles = [c for c in contenders if c.kind == "single" and results[c.key].ok]
    if not singles:
        told = "; ".join(f"{c.label}: {describe(results[c.key].failure)}" for c in contenders)
        raise MeasurementError(f"no single backend is left after the proof ({told})", hint="Try another runtime.")
    best = min(singles, key=lambda c: level(results[c.key], clock))
    proved = {c.key: _proved(c, results[c.key], results[best.key], clock) for c in contenders}
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
        summary=_summary(measured, "wall"),
        cpu=_summary(measured, "cpu"),
        against_best=None if measured.key == best.key else versus(measured, best, clock),
    )


def _summary(measured: Measured, clock: Clock) -> Summary:
    return summarise(blocks(measured, clock))


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
    ties = [label for label, versus in compared if versus.verdict == "tie"]
    if ties:
        return f", though {' and '.join(ties)} may be as fast: the difference is inside the noise"
    label, versus = min(compared, key=lambda item: item[1].ratio)
    return f", {versus.ratio:.2f} times as fast as {label}"


def verify(lab: Lab, folder: Path, contender: Contender) -> Verified:
    """Run a written package on the device from its own files: outputs, and where each operator ran."""
    pushed = lab.link.device.push(folder, folder.name)
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
        own = sorted({str(row["backend"]) for row in report})
        here = part.configuration.name if own and set(own) <= set(names) else ",".join(own) or "unknown"
        places.update(dict.fromkeys(part.operators, here))
    return places
