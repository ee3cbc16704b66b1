"""Warnings about a decision by one clock: the other names another winner, or other calls of the same clock do."""

from __future__ import annotations

import math
from collections.abc import Mapping

from gnomon.core.stats import compare
from gnomon.jobs.contender import blocks, level, versus
from gnomon.measure.campaign import Measured
from gnomon.measure.clock import Clock, cpu_tells
from gnomon.measure.environment import Doubt

APART = 1.1
"""The ratio from which on a disagreement is told although each side may be noise."""

EQUAL = 1.02
"""The ratio up to which two times count as equal: differences below are not told apart."""

_NAMES = {"cpu": "CPU time", "wall": "wall time"}


def clock_warnings(field: Mapping[str, Measured], chosen: str, clock: Clock) -> tuple[Doubt, ...]:
    """What speaks against `chosen`, the label of what the clock named, among what ran interleaved with it, by label."""
    found = (_other_clock(field, chosen, clock), _median(field, chosen) if clock == "wall" else None)
    return tuple(doubt for doubt in found if doubt is not None)


def _other_clock(field: Mapping[str, Measured], chosen: str, clock: Clock) -> Doubt | None:
    """A warning if the clock that did not decide names another winner. CPU time counts only where it tells all."""
    other: Clock = "wall" if clock == "cpu" else "cpu"
    known = {label: found for label, found in field.items() if other == "wall" or cpu_tells(found.runs)}
    if chosen not in known:
        return None
    winner = min(known, key=lambda label: level(known[label], other))
    if winner == chosen:
        return None
    compared = versus(known[winner], known[chosen], other)
    if compared.verdict != "faster" and compared.ratio > 1 / APART:
        return None
    return Doubt(
        kind="clocks-disagree",
        message=f"{_NAMES[other]} names another winner: by it {winner} takes {compared.ratio:.2f} times as long as "
        f"{chosen} {interval(compared.low, compared.high)}; {_NAMES[clock]} decided",
        hint="Measure again on a quieter machine, or on cores that nothing else uses (--pin).",
    )


def _median(field: Mapping[str, Measured], chosen: str) -> Doubt | None:
    """A warning if the median of all calls says something else than the fastest 20 %, where that is furthest off."""
    worst, told = math.log(APART), ""
    for label, found in field.items():
        if label == chosen:
            continue
        fastest = versus(found, field[chosen], "wall")
        median = compare(blocks(found, "wall"), blocks(field[chosen], "wall"))
        apart = abs(math.log(median.ratio / fastest.ratio))
        # Both on one side say the same, unless it is a tie that the medians would have decided for the other.
        lost = fastest.verdict == "tie" and median.ratio < min(fastest.ratio, 1 / EQUAL)
        if apart >= worst and (lost or _side(fastest.ratio) != _side(median.ratio)):
            worst = apart
            told = f"{label} takes {fastest.ratio:.2f} times as long as {chosen} by the fastest 20 % of calls, which "
            told += f"decided, but {median.ratio:.2f} times by the median of all"
    if not told:
        return None
    hint = "Calls were disturbed: measure again with --processes 10, or on a quieter machine."
    return Doubt(kind="medians-disagree", message=told, hint=hint)


def _side(ratio: float) -> int:
    return 0 if 1 / EQUAL < ratio < EQUAL else 1 if ratio > 1 else -1


def interval(low: float, high: float) -> str:
    """An interval of a ratio in brackets."""
    return f"[{low:.2f}, {high:.2f}]" if low > 0 and math.isfinite(high) else "[unknown]"
