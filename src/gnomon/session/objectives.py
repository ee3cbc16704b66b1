"""The costs of a point: objectives by name, values with intervals, and noise-aware comparisons of two points."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from gnomon.core.stats import Block, compare, median, median_interval, quantile, values_by_process
from gnomon.errors import UsageError, did_you_mean
from gnomon.measure.campaign import Measured
from gnomon.measure.effort import QUANTILE, Clock
from gnomon.measure.energy import ENERGY, joules_of
from gnomon.plugins import loaded, named
from gnomon.session.contender import blocks

RELEVANT = 0.01
"""The smallest relevant relative difference; a smaller one makes a point neither better nor worse."""

LATENCY, MEMORY = "latency", "peak-memory"

Verdict = Literal["better", "worse", "tie", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """An objective to be minimised. `numbers` returns its numbers on a clock, one per block or one per process.

    Values, intervals and comparisons are all computed from these numbers. `source` describes them for people: it is a
    sentence, or a function that makes one from the device's energy counters, which are None if the record names none.
    """

    name: str
    unit: str
    source: str | Callable[[Mapping[str, Any] | None], str]
    numbers: Callable[[Measured, Clock], Sequence[Block]]

    def told_by(self, counters: Mapping[str, Any] | None) -> str:
        """A description of the numbers, for people."""
        return self.source if isinstance(self.source, str) else self.source(counters)

    def processes(self, measured: Measured, clock: Clock) -> tuple[Block, ...]:
        """One number per process: the median of its numbers."""
        by_process = values_by_process(self.numbers(measured, clock))
        return tuple(Block(process=p, block=0, values_s=(median(v),)) for p, v in sorted(by_process.items()))

    def value(self, measured: Measured, clock: Clock) -> float | None:
        """The geometric mean over the processes, to which the interval also refers; None if nothing is known.

        If a process has an exact 0, this mean does not exist, and the median over the processes is returned instead.
        """
        values = [v for block in self.processes(measured, clock) for v in block.values_s]
        if not values or min(values) <= 0:
            return median(values) if values else None
        return math.exp(math.fsum(map(math.log, values)) / len(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with its 95 % interval; a bound is None if there is too little data."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """One point compared with another in one objective: the `ratio` of their values, its interval, and the verdict.

    "better" is a sure gain of more than 1 %, "worse" a sure loss of more than that.
    """

    ratio: float
    low: float
    high: float
    verdict: Verdict

    @property
    def surely_worse(self) -> bool:
        """Whether the point is certainly worse despite the noise, however small the difference."""
        return self.low > 1

    @property
    def not_worse(self) -> bool:
        """Whether the point is less than 1 % worse at the upper bound of the interval, and not certainly worse."""
        return self.high <= 1 + RELEVANT and not self.surely_worse


def _cpus(measured: Measured, clock: Clock) -> Sequence[Block]:
    times = _latencies(measured, "cpu")
    return times if any(any(b.values_s) for b in times) else ()


def _latencies(measured: Measured, clock: Clock) -> Sequence[Block]:
    return [replace(b, values_s=(quantile(b.values_s, QUANTILE[clock]),)) for b in blocks(measured, clock)]


def _joules(measured: Measured, clock: Clock) -> Sequence[Block]:
    """Joules per call, one number per block; blocks without energy are left out."""
    energies = [(run, joules_of(run)) for run in measured.runs]
    return [Block(process=run.process, block=run.block, values_s=(j,)) for run, j in energies if j is not None]


def energy_source(counters: Mapping[str, Any] | None) -> str:
    """How the energy of a call was measured, in words for people."""
    if not counters:
        return "the energy of a call, measured by counters that the results database does not name"
    parts = [f"{d} ({n})" if d not in n else n for d, n in zip(counters["domains"], counters["names"], strict=True)]
    shown = ", ".join(parts[:8]) + (f" and {len(parts) - 8} more" if len(parts) > 8 else "")
    return (
        f"a call's share of the increase of the counters {shown} over a block of calls, including other processes and "
        f"idle power; the counters are updated every {counters['period_s'] * 1e3:.3g} ms"
    )


def _fact(name: str, part: str = "") -> Callable[[Measured, Clock], Sequence[Block]]:
    """A function that returns the largest value of a fact, or of its `part`, in each process."""

    def numbers(measured: Measured, clock: Clock) -> Sequence[Block]:
        largest: dict[int, float] = {}
        for run in measured.runs:
            value = run.facts.get(name)
            if part:
                value = (value or {}).get(part)
            if isinstance(value, int | float) and math.isfinite(value):
                largest[run.process] = max(largest.get(run.process, 0.0), float(value))
        return [Block(process=p, block=0, values_s=(v,)) for p, v in sorted(largest.items())]

    return numbers


GOALS: dict[str, Goal] = {
    goal.name: goal
    for goal in (
        Goal(
            name=LATENCY,
            unit="s",
            source="the time of a call in whole runs, each in a fresh process",
            numbers=_latencies,
        ),
        Goal(
            name=MEMORY,
            unit="B",
            source="the peak resident memory of a fresh process, including the program around the runtime",
            numbers=_fact("peak_rss_bytes"),
        ),
        Goal(
            name="cpu-time",
            unit="s",
            source="the CPU time of a call in whole runs, each in a fresh process",
            numbers=_cpus,
        ),
        Goal(name=ENERGY, unit="J", source=energy_source, numbers=_joules),
        Goal(
            name="output-error",
            unit="",
            source="the largest difference of outputs from the reference, relative to its largest magnitude",
            numbers=_fact("difference", "relative"),
        ),
    )
}
"""gnomon's own objectives by name. New ones are added as rows here or, by a package, as entry points of `GROUP`."""

GROUP = "gnomon.objectives"


def goal_names() -> tuple[str, ...]:
    """The names of all objectives; those from packages come last."""
    return (*GOALS, *(name for name in named(GROUP) if name not in GOALS))


def goal_of(name: str) -> Goal:
    """The objective with this name. UsageError if it is unknown, or if its package cannot be loaded."""
    if name in GOALS:
        return GOALS[name]
    entry = named(GROUP).get(name)
    if entry is None:
        names = goal_names()
        hint = f"{did_you_mean(name, names)} Objectives: {', '.join(names)}."
        raise UsageError(f"there is no objective {name!r}", hint=hint.lstrip())
    goal = loaded(entry, f"the objective {name}")
    if isinstance(goal, Goal) and goal.name == name:
        return goal
    raise UsageError(
        f"the objective {name} is not a Goal of gnomon.session.objectives with that name",
        hint=f"Fix or remove the package that adds it ({entry.value}).",
    )


def goals_of(names: Sequence[str]) -> tuple[Goal, ...]:
    """The objectives with these names, each once. UsageError for unknown names, or if no name is given."""
    if not names:
        raise UsageError("no objective is given", hint=f"Objectives: {', '.join(goal_names())}.")
    return tuple(goal_of(name) for name in dict.fromkeys(names))


def cost_of(goals: Sequence[Goal], measured: Measured, clock: Clock) -> tuple[float, ...] | None:
    """The cost of a point in each objective; None if the point failed or one of its costs is not known."""
    if not measured.ok:
        return None
    values = [goal.value(measured, clock) for goal in goals]
    costs = tuple(v for v in values if v is not None)
    return costs if len(costs) == len(goals) else None


def estimate(goal: Goal, measured: Measured, clock: Clock) -> Estimate:
    """The value of an objective for a point that ran, with its interval over the processes.

    With several processes, this is the geometric mean of one number per process, and Student's interval of that mean.
    """
    value = goal.value(measured, clock)
    if value is None:
        raise ValueError(f"{goal.name} is not known")
    processes = goal.processes(measured, clock)
    low, high = median_interval(processes if len(processes) > 1 else goal.numbers(measured, clock))
    bounded = low > 0 and math.isfinite(high)
    return Estimate(value=value, low=min(low, value) if bounded else None, high=max(high, value) if bounded else None)


def against(goal: Goal, a: Measured, b: Measured, clock: Clock, *, rivals: int = 1) -> Against:
    """Compare two points that were measured interleaved, process by process.

    The interval has a confidence of 95 %. If a point is compared with several `rivals`, the intervals are wide enough
    to hold simultaneously with 95 % confidence (Bonferroni).
    """
    first, second = goal.value(a, clock), goal.value(b, clock)
    if first is None or second is None:
        return Against(ratio=1.0, low=0.0, high=math.inf, verdict="unknown")
    if first == second == 0:
        return Against(ratio=1.0, low=1.0, high=1.0, verdict="tie")
    if not (first and second):  # an exact 0 is not a matter of noise
        ratio = math.inf if second == 0 else 0.0
        return Against(ratio=ratio, low=ratio, high=ratio, verdict="worse" if ratio else "better")
    left, right = goal.numbers(a, clock), goal.numbers(b, clock)
    if not {(x.process, x.block) for x in left} & {(x.process, x.block) for x in right}:
        return Against(ratio=first / second, low=0.0, high=math.inf, verdict="unknown")
    compared = compare(left, right, confidence=1 - 0.05 / rivals, relevant=RELEVANT)
    if compared.unit != "process":  # with a single process, a difference may be due to chance
        return Against(ratio=compared.ratio, low=0.0, high=math.inf, verdict="unknown")
    verdicts: dict[str, Verdict] = {"faster": "better", "slower": "worse", "tie": "tie"}
    high = math.inf if compared.high is None else compared.high
    return Against(ratio=compared.ratio, low=compared.low or 0.0, high=high, verdict=verdicts[compared.verdict])
