"""What a point costs: objectives by name, their values with intervals, and the comparison of two points by noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from gnomon.core.stats import Block, compare, median, quantile, summarise
from gnomon.errors import UsageError
from gnomon.jobs.contender import blocks, level
from gnomon.measure.campaign import Measured
from gnomon.measure.clock import QUANTILE, Clock, cpu_tells
from gnomon.measure.energy import ENERGY, joules_of

RELEVANT = 0.01
"""Differences below it are none: a point is not worse by less, nor better."""

LATENCY, MEMORY = "latency", "peak-memory"

Verdict = Literal["better", "worse", "tie", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """An objective to be made small. `value` is its number by the deciding clock, None where it is not known.

    `numbers` are its independent numbers as blocks of the processes, which intervals and comparisons come from.
    """

    name: str
    unit: str
    value: Callable[[Measured, Clock], float | None]
    numbers: Callable[[Measured, Clock], Sequence[Block]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with its 95 % interval; None where too little was seen to bound it."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """One point against another in one objective: `ratio` of their values, its interval, and what that means.

    "better" is a sure gain of more than 1 %. `worse_by_most` bounds the ratio from above with 97.5 % confidence.
    """

    ratio: float
    low: float
    high: float
    verdict: Verdict

    @property
    def not_worse(self) -> bool:
        """Whether it surely is no worse by more than what is no difference."""
        return self.high <= 1 + RELEVANT


def _latency(measured: Measured, clock: Clock) -> float | None:
    # Where the CPU time of a point does not tell all, as its threads are several, its wall time stands for it.
    tells = clock == "wall" or cpu_tells(measured.runs)
    return level(measured, clock) if tells else level(measured, "wall")


def _latencies(measured: Measured, clock: Clock) -> Sequence[Block]:
    return _quantiles(measured, clock)


def _cpu(measured: Measured, clock: Clock) -> float | None:
    found = blocks(measured, "cpu")
    return level(measured, "cpu") if any(any(b.values_s) for b in found) else None


def _cpus(measured: Measured, clock: Clock) -> Sequence[Block]:
    return _quantiles(measured, "cpu")


def _quantiles(measured: Measured, clock: Clock) -> Sequence[Block]:
    return [
        Block(process=b.process, block=b.block, values_s=(quantile(b.values_s, QUANTILE[clock]),))
        for b in blocks(measured, clock)
    ]


def _joules(measured: Measured, clock: Clock) -> Sequence[Block]:
    """Joules of a call, a number a block; a block that does not tell is left out."""
    told = [(run, joules_of(run)) for run in measured.runs]
    return [Block(process=run.process, block=run.block, values_s=(j,)) for run, j in told if j is not None]


def _energy(measured: Measured, clock: Clock) -> float | None:
    by_process: dict[int, list[float]] = {}
    for block in _joules(measured, clock):
        by_process.setdefault(block.process, []).extend(block.values_s)
    return median([median(values) for values in by_process.values()]) if by_process else None


def _fact(name: str, part: str = "") -> Callable[[Measured], dict[int, float]]:
    """The largest value that each process told of a fact."""

    def read(measured: Measured) -> dict[int, float]:
        found: dict[int, float] = {}
        for run in measured.runs:
            value = run.facts.get(name)
            if part:
                value = (value or {}).get(part)
            if isinstance(value, int | float) and math.isfinite(value):
                found[run.process] = max(found.get(run.process, 0.0), float(value))
        return found

    return read


def _by_process(read: Callable[[Measured], dict[int, float]], name: str, unit: str) -> Goal:
    """A goal with one number a process."""

    def value(measured: Measured, clock: Clock) -> float | None:
        found = read(measured)
        return median(list(found.values())) if found else None

    def numbers(measured: Measured, clock: Clock) -> Sequence[Block]:
        return [Block(process=p, block=0, values_s=(v,)) for p, v in sorted(read(measured).items())]

    return Goal(name=name, unit=unit, value=value, numbers=numbers)


GOALS: dict[str, Goal] = {
    goal.name: goal
    for goal in (
        Goal(name=LATENCY, unit="s", value=_latency, numbers=_latencies),
        _by_process(_fact("peak_rss_bytes"), MEMORY, "B"),
        Goal(name="cpu-time", unit="s", value=_cpu, numbers=_cpus),
        Goal(name=ENERGY, unit="J", value=_energy, numbers=_joules),
        _by_process(_fact("difference", "relative"), "output-error", ""),
    )
}
"""Every objective by its name."""


def goals_of(names: Sequence[str]) -> tuple[Goal, ...]:
    """The objectives of these names, each once. UsageError for others, and for none."""
    for name in names:
        if name not in GOALS:
            near = [n for n in GOALS if name and name in n] or get_close_matches(name, GOALS, n=1)
            meant = f"Did you mean {near[0]}? " if near else ""
            raise UsageError(f"there is no objective {name!r}", hint=f"{meant}Objectives: {', '.join(GOALS)}.")
    if not names:
        raise UsageError("no objective is given", hint=f"Objectives: {', '.join(GOALS)}.")
    return tuple(GOALS[name] for name in dict.fromkeys(names))


def cost_of(goals: Sequence[Goal], measured: Measured, clock: Clock) -> tuple[float, ...] | None:
    """The cost of a point in each objective; None where it failed, or one of them is not known."""
    if not measured.ok:
        return None
    values = [goal.value(measured, clock) for goal in goals]
    found = tuple(v for v in values if v is not None)
    return found if len(found) == len(goals) else None


def estimate(goal: Goal, measured: Measured, clock: Clock) -> Estimate:
    """The value of an objective of a point that ran, with its interval over the processes."""
    value = goal.value(measured, clock)
    numbers = goal.numbers(measured, clock)
    if value is None:
        raise ValueError(f"{goal.name} is not known")
    if not any(min(b.values_s, default=0.0) > 0 for b in numbers) or value <= 0:
        return Estimate(value=value, low=None, high=None)
    found = summarise(numbers)
    known = found.low_s > 0 and math.isfinite(found.high_s)
    # The level is the median of processes, the interval one of their geometric mean: it is widened to hold both.
    return Estimate(
        value=value,
        low=min(found.low_s, value) if known else None,
        high=max(found.high_s, value) if known else None,
    )


def against(goal: Goal, a: Measured, b: Measured, clock: Clock) -> Against:
    """Compare two points that were measured interleaved, by the same number of each process."""
    first, second = goal.value(a, clock), goal.value(b, clock)
    if first is None or second is None:
        return Against(ratio=1.0, low=0.0, high=math.inf, verdict="unknown")
    if first == second == 0:
        return Against(ratio=1.0, low=1.0, high=1.0, verdict="tie")
    if not (first and second):  # an exact 0 is no matter of noise
        ratio = math.inf if second == 0 else 0.0
        return Against(ratio=ratio, low=ratio, high=ratio, verdict="worse" if ratio else "better")
    left, right = goal.numbers(a, clock), goal.numbers(b, clock)
    if not {(x.process, x.block) for x in left} & {(x.process, x.block) for x in right}:
        return Against(ratio=first / second, low=0.0, high=math.inf, verdict="unknown")
    found = compare(left, right, relevant=RELEVANT)
    if found.unit != "process":  # one process cannot tell a difference from its luck
        return Against(ratio=found.ratio, low=0.0, high=math.inf, verdict="unknown")
    verdicts: dict[str, Verdict] = {"faster": "better", "slower": "worse", "tie": "tie"}
    return Against(ratio=found.ratio, low=found.low, high=found.high, verdict=verdicts[found.verdict])
