"""The proof: contenders are measured against each other as wholes, and the package is run on its target device."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from gnomon import wire
from gnomon.core.brief import brief
from gnomon.core.sample import Failure, Run
from gnomon.core.stats import Comparison, Speedup, is_narrow, may_be_as_fast
from gnomon.errors import InfeasibleError, MeasurementError
from gnomon.measure.campaign import UNMEASURED, Measured
from gnomon.measure.effort import Clock
from gnomon.measure.environment import Caveat, worst
from gnomon.report.plain import listed
from gnomon.report.units import ratio_interval
from gnomon.session.contender import (
    AGAIN,
    Clocks,
    Contender,
    Proved,
    choose_clocks,
    fastest_of,
    level,
    not_compared,
    traced_candidate,
    versus,
)
from gnomon.session.document import DifferencePart, difference_part
from gnomon.session.model_session import ModelSession
from gnomon.session.package import read_plan
from gnomon.session.precision import EQUAL, clock_warnings
from gnomon.session.targets import describe

_WORTH = 1.02
"""The smallest predicted gain for which an unmeasured plan is chosen."""

_BEHIND = 1.3
"""An unpriced contender is not measured again if it takes more than this many times as long as the fastest one with the
same threading.
"""

_LESS = 1.02
"""The factor by which all others must exceed a contender's memory use for it to be chosen for its memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Default:
    """The fastest of the runtimes' defaults, at equal precision.

    `gain` is its wall time divided by that of the choice; None if the default is the choice.
    """

    label: str
    gain: Comparison | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of the proof: all contenders, the best single backend, and the choice.

    `reason` is one sentence for people. `clock` orders all contenders; it is wall time if some contenders use several
    threads. `clocks` gives the clock that compared each pair. `tied` are the labels of the other single contenders that
    may be as fast as the best one, and `chosen_for` lists the advantages for which the best one was chosen among the
    equally fast. `warnings` say that the choice is undecided, or that the other clock or the median of all calls names
    another winner. `default` is the fastest of the runtimes' defaults. `undecided` says what the proof leaves undecided
    and why, or is "".
    """

    proved: tuple[Proved, ...]
    best_single: Proved
    chosen: Proved
    reason: str
    clock: Clock
    clocks: Clocks = field(default_factory=lambda: Clocks(serial="wall"))
    default: Default | None = None
    undecided: str = ""
    tied: tuple[str, ...] = ()
    chosen_for: tuple[str, ...] = ()
    warnings: tuple[Caveat, ...] = ()

    __repr__ = brief

    @property
    def speedup(self) -> Speedup | None:
        """The speedup of the choice over the best single backend; None if the choice is that backend or was not run."""
        compared = self.chosen.against_best
        mixed = self.chosen.contender.key != self.best_single.contender.key
        return compared.speedup if mixed and compared is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The result of running a package on the device from its own files.

    `ok` means that the outputs were right and all operators ran where planned. `moved` are the operators that ran
    elsewhere. `failure` is set if the package did not run or computed wrong outputs. `skipped` means that the package
    was not run because nothing may be measured any more.
    """

    ok: bool
    skipped: bool
    moved: tuple[int, ...]
    difference: DifferencePart | None
    failure: Failure | None


def prove(
    session: ModelSession,
    contenders: Sequence[Contender],
    clocks: Clocks,
    *,
    priced: bool = False,
    barred: Mapping[str, str] = MappingProxyType({}),
) -> Verdict:
    """Measure the contenders interleaved in fresh processes until the choice is clear; see `judge_contenders`.

    Without a mix, the interleaved profile continues as long as the choice is open. With a mix, all contenders are
    measured again, except those that are `barred` (key -> reason) and single contenders that were hopeless in the
    profile, where they ran next to the best. If all single contenders are barred, the fastest of them is measured again
    for comparison with the mixes. InfeasibleError if only barred contenders are left.
    """
    mixed = any(c.kind != "single" for c in contenders)
    kept = [c for c in contenders if c.key not in barred]
    far = _hopeless(session, kept, clocks) if mixed else {}
    lost = sorted((c for c in contenders if c.key in barred), key=lambda c: level(session.runner.known(c.key), "wall"))
    lost = lost if any(c.kind == "single" for c in kept) else lost[1:]
    far |= {c.key: session.runner.known(c.key) for c in lost if mixed}
    left = [c for c in contenders if c.key not in far]
    under = "proof/" if mixed else ""
    renamed = {c.key: replace(c.candidate, key=f"{under}{c.key}", label=c.label, serial=c.serial) for c in left}
    effort = replace(session.request.effort, decides=True)
    if len(left) == 1:  # there is nothing left to compare it with, so the minimum is enough
        effort = replace(effort, processes_most=effort.processes_least)
    measured = session.runner.measure("proof" if mixed else "profile", list(renamed.values()), effort)
    results = {c.key: session.runner.known(c.key) for c in contenders if c.key in far}
    results |= {c.key: measured[renamed[c.key].key] for c in left}
    warnings = (not_compared(c.label, session.runner.known(c.key), results[c.key]) for c in left)
    session.doubts += [doubt for doubt in warnings if doubt is not None]
    if clocks.serial == "cpu":
        # A chain of runtimes may wait or start threads even if none of them does so alone.
        clocks = choose_clocks(session, results, contenders)
    verdict = judge_contenders(
        contenders,
        results,
        clocks,
        far,
        converted={c.key for c in contenders if any(part.target.placed.graph is not session.graph for part in c.parts)},
        precisions=("float32", "float64", *session.request.settings.precisions),
        profiled={c.key: session.runner.known(c.key) for c in contenders if c.kind == "single"},
        busy=next((d.message for d in worst(session.runner.environments) if d.kind in ("busy", "steal")), ""),
        priced=priced,
        barred=barred,
    )
    verdict = verdict if session.link else predicted_verdict(verdict, barred)
    if verdict.chosen.contender.key in barred:
        rows = [(p.contender, p.measured.failure) for p in verdict.proved]
        text = "; ".join(f"{c.label}: {barred.get(c.key) or describe(failure)}" for c, failure in rows)
        hint = "Raise the limits to what one of these uses."
        raise InfeasibleError(f"no configuration that ran keeps the limits ({text})", hint=hint)
    return verdict


def predicted_verdict(verdict: Verdict, barred: Collection[str] = ()) -> Verdict:
    """The verdict if nothing may be measured: a plan without runs in the record is chosen by its prediction.

    The plan must be predicted to be at least 2 % faster than the best single backend, because smaller differences count
    as equal. This does not apply if the best single backend is `barred`.
    """
    plan = next((p for p in verdict.proved if p.contender.kind == "plan"), None)
    if plan is None or plan.measured.failure is not UNMEASURED or plan.contender.predicted_s is None:
        return verdict
    best = verdict.best_single
    gain = level(best.measured, verdict.clocks.of(best.contender)) / plan.contender.predicted_s
    if gain < _WORTH and best.contender.key not in barred:
        return verdict
    alone = best.contender.label
    text = f"Mix: {plan.contender.label} should be {gain:.2f} times as fast as {alone} alone; this is predicted, not"
    return replace(verdict, chosen=plan, reason=f"{text} proven: the plan was never measured.")


def _hopeless(session: ModelSession, contenders: Sequence[Contender], clocks: Clocks) -> dict[str, Measured]:
    """The keys of single contenders that are slower by more than any noise, mapped to the best one's measurements.

    Contenders with one thread and with several are compared separately: a clock that counts the waiting of threads is
    meaningful only within each group.
    """
    singles = {c.key: session.runner.known(c.key) for c in contenders if c.kind == "single"}
    usual = [c.key for c in contenders if c.usual and c.key in singles and singles[c.key].ok]
    # The choice is compared with the fastest default, which is therefore measured again in any case.
    kept = min(usual, key=lambda key: level(singles[key], "wall"), default="")
    far: dict[str, Measured] = {}
    for serial in (True, False):
        group = [c for c in contenders if c.key in singles and singles[c.key].ok and c.serial is serial]
        if not group:
            continue
        clock = clocks.of(*group)
        best = min((singles[c.key] for c in group), key=lambda measured: level(measured, clock))
        for contender in group:
            measured = singles[contender.key]
            compared = None if measured is best else versus(measured, best, clock)
            if contender.key == kept or compared is None or compared.verdict != "slower" or compared.low is None:
                continue
            # An unpriced contender is excluded sooner: nothing but its own time speaks for it.
            limit = session.request.effort.hopeless if contender.predicted_s else _BEHIND
            if compared.ratio > limit and compared.low > limit / 2:
                far[contender.key] = best
    return far


def judge_contenders(
    contenders: Sequence[Contender],
    results: Mapping[str, Measured],
    clocks: Clocks,
    beside: Mapping[str, Measured] | None = None,
    *,
    converted: Collection[str] = (),
    precisions: Collection[str] = ("float32",),
    profiled: Mapping[str, Measured] | None = None,
    busy: str = "",
    priced: bool = False,
    barred: Collection[str] = (),
) -> Verdict:
    """Choose among contenders by their measurements, which `results` holds by key.

    `beside` holds the measurements that a contender is compared with if it was not measured next to the best single
    backend and this backend is not in `profiled`. `converted` are the keys of contenders that run a converted model.
    Only contenders that compute in one of `precisions` are chosen and, if possible, only those whose outputs are
    checked. `busy` describes other work on the machine during the measurements, if there was any. `priced` means that
    mixes were considered: if there is no plan, none promised a gain. A `barred` contender is not chosen. If all single
    contenders are barred, the fastest of them is compared with the fastest mix.

    A mix is chosen only if it is faster than the fastest single contender by more than the noise, in several processes,
    because a gain in a single process may be due to chance. Among single contenders that are equally fast within the
    noise, one without additional threads or a conversion is chosen, then the one that uses the least memory. If the
    machine was busy, several threads may have been slow for that reason alone. In that case, it is left undecided
    whether one thread is as fast, unless several threads are surely faster anyway. MeasurementError if no single
    contender is left.
    """
    other = beside or {}
    eligible = {c.key for c in contenders if _asked(c, precisions) and c.key not in barred}
    if not any(results[key].ok for key in eligible):  # the outputs of commands may be unchecked
        eligible = {c.key for c in contenders if not c.checked and c.key not in barred}
    alive = [c for c in contenders if c.kind == "single" and results[c.key].ok]
    singles = [c for c in alive if c.key in eligible] or [c for c in alive if c.key in barred]
    if not singles:
        reasons = "; ".join(f"{c.label}: {describe(results[c.key].failure)}" for c in contenders)
        raise MeasurementError(f"no single backend survived the proof ({reasons})", hint=AGAIN)

    def against(best: Contender) -> dict[str, Proved]:
        # Contenders that were not measured again ran next to the best in the profile.
        early = (profiled or {}).get(best.key)
        rivals = {c.key: early or other[c.key] if c.key in other else results[best.key] for c in contenders}
        return {c.key: _proved(c, results[c.key], rivals[c.key], clocks.of(c, best)) for c in contenders}

    def pick(group: Sequence[Contender]) -> tuple[Contender, list[Proved]]:
        """The contender to use from a group with the same threading, and all that are equally fast."""
        clock = clocks.of(*group)
        near = {c.key: results[c.key] for c in group if c.key not in other} or {c.key: results[c.key] for c in group}
        by_key = {c.key: c for c in group}
        fastest = by_key[fastest_of(near, clock)]
        proved = against(fastest)
        equal = _equal([proved[key] for key in near], proved[fastest.key], clock)
        return _preferred(equal, converted, clock).contender, equal

    serial, parallel = ([c for c in singles if c.serial is wanted] for wanted in (True, False))
    best, equal = pick(serial or parallel)
    undecided = ""
    if serial and parallel:
        rival, near = pick(parallel)
        surely = [c for c in parallel if versus(results[c.key], results[best.key], "wall").verdict == "faster"]
        if surely:
            # On a busy machine, the fastest may be too noisy to compare while another is surely faster than one thread.
            best, equal = (rival, near) if rival in surely else pick(surely)
        elif busy:
            undecided = f"whether {rival.label} is faster"
    proved = against(best)
    faster = [p for p in proved.values() if p.ok and p.against_best and p.against_best.verdict == "faster"]
    mixes = [p for p in faster if p.contender.kind != "single" and p.against_best and p.against_best.unit == "process"]
    chosen = proved[best.key]
    if best.key in barred:
        mixes = [p for p in proved.values() if p.ok and p.contender.kind != "single"]
    if mixes:
        chosen = min(mixes, key=lambda p: level(p.measured, clocks.of(p.contender)))
        # Any other mix must be surely faster than the plan, which is the solver's result.
        plan = next((p for p in mixes if p.contender.kind == "plan"), chosen)
        clock = clocks.of(chosen.contender, plan.contender)
        if plan is not chosen and versus(chosen.measured, plan.measured, clock).verdict != "faster":
            chosen = plan
        equal = []
    ties = [p for p in proved.values() if p.contender in singles and _is_near(p)]
    for_what = _chosen_for(chosen, [p for p in equal if p.contender.key != best.key], converted)
    if best.serial and not undecided and any(not p.contender.serial for p in ties):
        for_what = (*for_what, "one thread")
    proved = {key: p if _may_be_told(p, best) else replace(p, against_best=None) for key, p in proved.items()}
    chosen = proved[chosen.contender.key]
    ties = [p for p in ties if _may_be_told(p, best)]
    able = [p for p in proved.values() if p.ok and p.contender.key in eligible]
    alike = [p for p in able if p.contender.serial is best.serial]
    field = {p.contender.label: p.measured for p in alike if p.contender.key not in other}
    field[chosen.contender.label] = chosen.measured
    default = _best_default(able, chosen)
    hint = "Measure on an idle machine, or request only one thread: -n 1."
    doubt = Caveat(kind="threads-undecided", message=f"it is undecided {undecided}, as {busy}", hint=hint)
    wanted, breaks = [p for p in proved.values() if p.contender.key in eligible], best.key in barred
    reason = _reason(
        wanted, proved[best.key], chosen, for_what, default, undecided=undecided, priced=priced, barred=breaks
    )
    return Verdict(
        proved=tuple(proved.values()),
        best_single=proved[best.key],
        chosen=chosen,
        reason=reason,
        clocks=clocks,
        clock=clocks.of(*contenders),
        default=default,
        undecided=f"{undecided}, as {busy}" if undecided else "",
        tied=tuple(p.contender.label for p in ties),
        chosen_for=for_what,
        warnings=(
            *([doubt] if undecided else ()),
            *clock_warnings(field, chosen.contender.label, clocks.of(best, chosen.contender)),
        ),
    )


def _asked(contender: Contender, precisions: Collection[str]) -> bool:
    """Whether the contender computes in a requested precision and its outputs were checked."""
    return contender.checked and (not contender.precision or contender.precision in precisions)


def _best_default(proved: Sequence[Proved], chosen: Proved) -> Default | None:
    """The fastest of the runtimes' defaults, compared with the choice; None if no default was measured."""
    usual = [p for p in proved if p.contender.usual]
    if not usual:
        return None
    best = min(usual, key=lambda p: level(p.measured, "wall"))
    gain = None if best is chosen else versus(best.measured, chosen.measured, "wall")
    return Default(label=best.contender.label, gain=gain)


def _equal(proved: Sequence[Proved], fastest: Proved, clock: Clock) -> list[Proved]:
    """The single contenders that are equally fast within the noise: the fastest, and those that are less than 2 %
    behind and not surely slower than any other.
    """

    def beaten(own: Proved) -> bool:
        rivals = [p for p in proved if p.ok and p.contender.key != own.contender.key]
        return any(versus(p.measured, own.measured, clock).verdict == "faster" for p in rivals)

    near = [
        p
        for p in proved
        if p.contender.kind == "single"
        and p.against_best is not None
        and p.against_best.unit == "process"
        and p.against_best.verdict == "tie"
        and p.against_best.ratio < EQUAL
    ]
    return [fastest, *(p for p in near if not beaten(p))]


def _preferred(equal: Sequence[Proved], converted: Collection[str], clock: Clock) -> Proved:
    """The choice among equally fast contenders: preferably one without a conversion, then one without environment
    variables or options of its own, then the one that uses the least memory, then the fastest.
    """
    pool = [p for p in equal if p.contender.key not in converted] or list(equal)
    pool = [p for p in pool if all(part.configuration.clean for part in p.contender.parts)] or pool
    sized = [p for p in pool if _memory(p)]
    if sized:
        least = min(map(_memory, sized))
        pool = [p for p in sized if _memory(p) <= _LESS * least]
    return min(pool, key=lambda p: level(p.measured, clock))


def _memory(proved: Proved) -> int:
    """The peak memory in bytes; 0 if it is not known."""
    return int(proved.measured.fact("peak_rss_bytes") or 0)


def _chosen_for(chosen: Proved, others: Sequence[Proved], converted: Collection[str]) -> tuple[str, ...]:
    """The advantages of the choice over others that are equally fast."""
    reasons = []
    if chosen.contender.key not in converted and any(p.contender.key in converted for p in others):
        reasons.append("no conversion")
    sizes = [_memory(p) for p in others if _memory(p)]
    if sizes and 0 < _memory(chosen) * _LESS < min(sizes):
        reasons.append("less memory")
    return tuple(reasons)


def _may_be_told(proved: Proved, best: Contender) -> bool:
    """Whether the ratio to the best single backend is about real devices, not about a program that emulates one."""
    return not (proved.contender.on_software or best.on_software)


def _is_near(proved: Proved) -> bool:
    """Whether a contender may be as fast as the best single backend."""
    compared = proved.against_best
    return compared is not None and may_be_as_fast(compared.verdict, compared.ratio)


def _proved(contender: Contender, measured: Measured, best: Measured, clock: Clock) -> Proved:
    compared = None if not measured.ok or measured.key == best.key else versus(measured, best, clock)
    return Proved(contender=contender, measured=measured, against_best=compared)


def _reason(
    proved: Sequence[Proved],
    best: Proved,
    chosen: Proved,
    for_what: Sequence[str],
    default: Default | None,
    *,
    undecided: str,
    priced: bool,
    barred: bool,
) -> str:
    """The answer in one sentence; `barred` means that the best single backend breaks a limit."""
    alone = best.contender.label
    if chosen.contender.on_software or best.contender.on_software:
        how = "Mix: " if chosen is not best else "Use "
        why = "because an accelerator here is a program on the processor"
        return f"{how}{chosen.contender.label}; no ratio is reported, {why}."
    if chosen is not best and chosen.against_best is not None:
        gain = chosen.against_best.speedup
        faster = f"{gain.ratio:.2f} times as fast as {alone} alone {ratio_interval(gain.low, gain.high)}"
        parts = [f"Mix: {chosen.contender.label} is {faster}", f"{alone} breaks a limit" * barred, _beside(default)]
        return f"{'; '.join(filter(None, parts))}."
    alike = [p for p in proved if p.contender.serial is best.contender.serial or not undecided]
    beside = None if undecided else default
    parts = [_beside(beside), _standing(alike, for_what, beside=beside), _mixing(proved, best, priced=priced)]
    text = "; ".join(filter(None, parts))
    use = f"With one thread, use {alone}" if undecided else f"Use {alone}"
    if best.contender.usual:
        use += ", the runtime's default"
    rest = f"; it is undecided {undecided}" if undecided else ""
    return f"{use}{': ' if text else ''}{text}{rest}."


def _beside(default: Default | None) -> str:
    """The comparison of the choice with the fastest of the runtimes' defaults, in words."""
    if default is None or default.gain is None:
        return ""
    gain = default.gain
    times = "" if gain.verdict == "tie" and is_narrow(gain.low, gain.high) else f"{gain.ratio:.2f} times "
    return f"{times}as fast as the best default, {default.label} {ratio_interval(gain.low, gain.high)}"


def _standing(proved: Sequence[Proved], for_what: Sequence[str], *, beside: Default | None) -> str:
    """The comparison of the best single backend with the others in words, without the default that the sentence already
    mentions.
    """
    compared = [(p.contender.label, p.against_best) for p in proved if p.contender.kind == "single" and p.against_best]
    if not compared:
        return ""
    named = beside.label if beside is not None else ""
    ties = [p for p in proved if p.contender.kind == "single" and _is_near(p) and p.contender.label != named]
    if ties:
        labels = listed([p.contender.label for p in ties], 3)
        only = ties[0].against_best if len(ties) == 1 else None
        ratio = f" (ratio {only.ratio:.2f} {ratio_interval(only.low, only.high)})" if only else ""
        return f"{labels} may be as fast{ratio}" + (f"; chosen for {' and '.join(for_what)}" if for_what else "")
    if named:
        return ""
    label, versus = min(compared, key=lambda item: item[1].ratio)
    times = f"{versus.ratio:.2f} times as fast as {label}"
    if versus.verdict == "tie":
        return f"{times}, as far as so few processes show"
    return f"{times} {ratio_interval(versus.low, versus.high)}"


def _mixing(proved: Sequence[Proved], best: Proved, *, priced: bool) -> str:
    """The reason why no mix is chosen."""
    plan = next((p for p in proved if p.contender.kind == "plan"), None)
    if plan is None:
        other = "another" if len(set(best.contender.backends.values())) > 1 else "a"
        return f"the profile predicts no gain from {other} mix" if priced else ""
    if plan.measured.failure is not None and plan.measured.failure.kind == "unmeasured":
        return f"the plan, a mix, was not measured ({describe(plan.measured.failure)})"
    if plan.against_best is None:
        return "the plan, a mix, was refused"
    if plan.against_best.verdict == "faster":
        return "one process cannot show whether a mix is faster"
    if plan.against_best.verdict == "slower":
        return "a mix is slower"
    return "the gain of a mix is within the noise"


def verify(session: ModelSession, folder: Path, contender: Contender) -> tuple[Verified, dict[int, str]]:
    """Run a written package on the device from its own files; return the result and where each operator ran.

    The package is also traced if a runtime does not report by itself where operators run.
    """
    if session.link is None or session.runner.over("run the package"):
        return Verified(ok=False, skipped=True, moved=(), difference=None, failure=None), {}
    pushed = session.push(folder, folder.name)
    written = read_plan(folder, at=pushed)["job"]
    for segment, measured in zip(written["segments"], contender.candidate.job["segments"], strict=True):
        segment["options"] = {**segment["options"], "libraries": measured["options"].get("libraries", {})}
    job: wire.Job = {**session.job(written["segments"]), "tensors": written["tensors"]}
    # Each run has a key of its own: the package must be run as it is now, not looked up in the record by its name.
    plain = replace(contender.candidate, key=f"package/{contender.key}/{uuid.uuid4().hex[:8]}", job=job)
    reported = all(part.configuration.reported for part in contender.parts)
    traced = [] if reported else [traced_candidate(plain, len(contender.backends))]
    effort = replace(session.request.effort, processes_least=1, processes_most=1, rounds=2)
    results = session.runner.measure("run the package", [plain, *traced], effort)
    failure = next((row.failure for row in results.values() if row.failure is not None), None)
    if failure is not None:
        return Verified(ok=False, skipped=False, moved=(), difference=None, failure=failure), {}
    places = _places(contender, results[plain.key], [run for row in results.values() for run in row.runs])
    planned = contender.backends
    moved = tuple(i for i, backend in sorted(planned.items()) if places.get(i) != backend)
    difference = difference_part(results[plain.key].fact("difference"))
    return Verified(ok=not moved, skipped=False, moved=moved, difference=difference, failure=None), places


def _places(contender: Contender, plain: Measured, runs: Sequence[Run]) -> dict[int, str]:
    """The backend of each operator, from the loaded runtime's own report or, without one, from the trace in `runs`."""
    places: dict[int, str] = {}
    reports = plain.fact("where") or []
    for part, report in zip(contender.parts, reports, strict=True):
        names = part.configuration.reported
        if "command" in part.configuration.options:  # a program either runs the whole model or reports that it did not
            places.update(part.backends)
            continue
        if not names:
            # Only operators in the trace count: the place of an operator that the trace omits is not proven.
            said = {i: row.backend for run in runs for row in run.operators for i in row.sources}
            # If the configuration runs the whole model under its own name, the trace names its only backend.
            whole = {} if part.assignment else dict.fromkeys(part.configuration.backends, part.configuration.name)
            places.update({i: whole.get(backend, backend) for i, backend in said.items()})
            continue
        if len(part.configuration.backends) > 1:
            # The runtime's report for each operator; the place of an operator that it omits is not proven.
            said = {i: str(row["backend"]) for row in report for i in row["operators"] if isinstance(i, int)}
            places.update({i: names.get(backend, backend) for i, backend in said.items()})
            continue
        own = sorted({str(row["backend"]) for row in report})
        kept = bool(own) and set(own) <= set(names)
        places.update(part.backends if kept else dict.fromkeys(part.operators, ",".join(own) or "unknown"))
    return places
