"""Hints about the gain from lower precisions that the processor supports but that were not requested.

The module also warns if the clock that did not decide, or the median of all calls, names another winner.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gnomon.core.stats import compare
from gnomon.measure.campaign import Candidate, Measured
from gnomon.measure.effort import Clock, cpu_tells
from gnomon.measure.environment import Caveat
from gnomon.report.units import CLOCKS, ratio_interval, time
from gnomon.runtimes.base import Configuration, RunSettings
from gnomon.runtimes.tunings import configurations
from gnomon.runtimes.whole import TOLERANCE
from gnomon.session.contender import Contender, Proved, blocks, level, versus
from gnomon.session.model_session import ModelSession
from gnomon.session.targets import Target

_CHEAP_S = 0.2
"""The longest call, in seconds, that is still measured just to give a hint."""


def precision_hints(session: ModelSession, alive: Sequence[Contender], clock: Clock) -> list[Caveat]:
    """A hint for each precision below float32 that a runtime offers on this processor but that was not requested.

    If a call is short, the ratio to float32 is measured with one process for each precision. This is enough to tell
    whether the lower precision is worth requesting, but never a reason to choose it. If it is not faster, the kind of
    the hint is "precision-no-gain".
    """
    if session.link is None:
        return []
    hints = []
    for contender, target, configuration in _offers(session, alive, clock):
        hint = f"To measure and prove it with the others: --precision {configuration.precision}"
        result, pays = ", which may be faster", True
        if level(session.runner.known(contender.key), clock) <= _CHEAP_S:
            result, pays = _measured(session, contender, target, configuration, clock)
        message = f"{configuration.name} computes in {configuration.precision}{result}"
        hints.append(Caveat(kind="precision" if pays else "precision-no-gain", message=message, hint=hint))
    return hints


def _offers(
    session: ModelSession, alive: Sequence[Contender], clock: Clock
) -> Iterator[tuple[Contender, Target, Configuration]]:
    """Float32 contenders that run the whole model, each with a configuration of its runtime in a lower precision.

    For a float64 model, the fastest contender is paired with the float32 configurations.
    """
    fastest = min(alive, key=lambda c: level(session.runner.known(c.key), clock))
    yield from ((fastest, t, t.configuration) for t in session.lowered if t.configuration.clean)
    asked = session.request.settings
    lower = tuple(name for name in TOLERANCE if name not in {"float64", "float32", *asked.precisions})
    for contender in alive:
        (part, *more), own = contender.parts, contender.parts[0].configuration
        if more or not own.clean or own.precision != "float32" or len(own.backends) > 1:
            continue
        if "precisions" not in session.probes[own.runtime].details:
            continue
        settings = RunSettings(
            threads=contender.threads, backends=asked.backends, precisions=lower, libraries=asked.libraries
        )
        for configuration in configurations(part.target.runtime, session.probes[own.runtime], settings):
            if configuration.precision in lower:
                yield contender, part.target, configuration


def _measured(
    session: ModelSession, contender: Contender, target: Target, configuration: Configuration, clock: Clock
) -> tuple[str, bool]:
    """The gain in words, or why the configuration cannot be used; and whether it is worth requesting."""
    usual = contender.parts[0].configuration.precision
    segment = target.runtime.segment(target.placed, configuration, {})
    key, tolerance = f"precision/{configuration.name}", session.tolerance(configuration)
    wanted = Candidate(key=key, job=session.job([segment]), tolerance=tolerance)
    beside = replace(contender.candidate, key=f"precision/{contender.key}")
    effort = replace(session.request.effort, processes_least=1, processes_most=1)
    measured = session.runner.measure("precision", [beside, wanted], effort)
    if session.runner.stopped:
        return ", which may be faster", True
    if not (measured[wanted.key].ok and measured[beside.key].ok):
        return f", but its outputs are not within {configuration.tolerance:g} of those in {usual}", False
    compared = versus(measured[beside.key], measured[wanted.key], clock)
    bounds = "" if compared.low is None else f" {ratio_interval(compared.low, compared.high)}"
    difference = measured[wanted.key].fact("difference") or {}
    off = difference.get("relative")
    within = "" if off is None or session.unrepeatable else f", with outputs within {off:.1g} of the largest"
    gain = f": {compared.ratio:.2f} times as fast as {usual}{bounds} in one process{within}"
    return gain, compared.verdict == "slower"


_NEARLY = 10.0
"""The largest difference, as a multiple of the tolerance, with which a refused contender is still timed."""


def nearly_right(
    session: ModelSession, contenders: Sequence[Contender], alive: Sequence[Contender], clock: Clock
) -> list[Proved]:
    """Contenders that were refused although their outputs are nearly right; a warning reports each one's time.

    Each is measured next to the fastest contender in one process, and is never chosen.
    """
    refused = []
    best = min(alive, key=lambda c: level(session.runner.known(c.key), clock))
    for contender in contenders:
        failure, own = session.runner.known(contender.key).failure, contender.candidate
        if failure is None or failure.kind != "wrong-output":
            continue
        again = replace(own, key=f"nearly/{own.key}", tolerance=_NEARLY * own.tolerance)
        beside = replace(best.candidate, key=f"nearly/{own.key}/beside")
        effort = replace(session.request.effort, processes_least=1, processes_most=1)
        measured = session.runner.measure("what was refused", [beside, again], effort)
        nearly, other = measured[again.key], measured[beside.key]
        if session.runner.stopped or not (nearly.ok and other.ok):
            continue
        off = f"outputs differ by {nearly.fact('difference')['relative']:.1e}, tolerance {own.tolerance:.0e}"
        took_s, ratio = level(nearly, clock), level(nearly, clock) / level(other, clock)
        took = f"it took {time(took_s)}, {ratio:.2f} times as long as {best.label}"
        message = f"{contender.label} is refused: {off}; {took}"
        hint = "Give real inputs with --input NAME=FILE.npy: its outputs may be right for these."
        session.doubts.append(Caveat(kind="nearly-right", message=message, hint=hint))
        failed = replace(nearly, failure=replace(failure, message=f"{off}; it took {time(took_s)}"))
        refused.append(Proved(contender=contender, measured=failed, against_best=None))
    return refused


APART = 1.1
"""The ratio at which a disagreement is reported even if it may be noise."""

EQUAL = 1.02
"""The ratio up to which two times count as equal."""


def clock_warnings(field: Mapping[str, Measured], chosen: str, clock: Clock) -> tuple[Caveat, ...]:
    """Warnings that question `chosen`, the label of the winner by `clock`, based on the interleaved measurements in
    `field`.
    """
    warnings = (_other_clock(field, chosen, clock), _median(field, chosen) if clock == "wall" else None)
    return tuple(doubt for doubt in warnings if doubt is not None)


def _other_clock(field: Mapping[str, Measured], chosen: str, clock: Clock) -> Caveat | None:
    """A warning if the clock that did not decide names another winner; CPU time must cover all work to count."""
    other: Clock = "wall" if clock == "cpu" else "cpu"
    timed = {label: own for label, own in field.items() if other == "wall" or cpu_tells(own.runs)}
    if chosen not in timed:
        return None
    winner = min(timed, key=lambda label: level(timed[label], other))
    if winner == chosen:
        return None
    compared = versus(timed[winner], timed[chosen], other)
    if compared.verdict != "faster" and compared.ratio > 1 / APART:
        return None
    return Caveat(
        kind="clocks-disagree",
        message=f"{CLOCKS[other]} names another winner, {winner}, which takes {compared.ratio:.2f} times as long as "
        f"{chosen} {ratio_interval(compared.low, compared.high)}; {CLOCKS[clock]} decided",
        hint="Measure again on a quieter machine, or on cores that nothing else uses (--pin).",
    )


def _median(field: Mapping[str, Measured], chosen: str) -> Caveat | None:
    """A warning if the median of all calls contradicts the fastest 20 %; it reports the largest contradiction."""
    worst, text = math.log(APART), ""
    for label, other in field.items():
        if label == chosen:
            continue
        fastest = versus(other, field[chosen], "wall")
        median = compare(blocks(other, "wall"), blocks(field[chosen], "wall"))
        apart = abs(math.log(median.ratio / fastest.ratio))
        # Ratios on the same side of 1 agree, unless the fastest calls tie and the medians would have chosen the other.
        lost = fastest.verdict == "tie" and median.ratio < min(fastest.ratio, 1 / EQUAL)
        sides = {0 if 1 / EQUAL < ratio < EQUAL else 1 if ratio > 1 else -1 for ratio in (fastest.ratio, median.ratio)}
        if apart >= worst and (lost or len(sides) > 1):
            worst = apart
            text = f"{label} takes {fastest.ratio:.2f} times as long as {chosen} by the fastest 20 % of calls, which "
            text += f"decided, but {median.ratio:.2f} times by the median of all"
    if not text:
        return None
    hint = "Calls were disturbed: measure again with --processes 10, or on a quieter machine."
    return Caveat(kind="medians-disagree", message=text, hint=hint)
