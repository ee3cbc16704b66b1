"""Prices by whole runs: each assignment in one fresh process, as often as a search can afford."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

from gnomon.core.sample import Failure
from gnomon.jobs.contender import Contender, choose_clock
from gnomon.jobs.lab import Lab
from gnomon.jobs.objectives import GOALS, LATENCY, MEMORY, Goal, cost_of
from gnomon.jobs.pareto_space import DecisionSpace
from gnomon.jobs.targets import describe
from gnomon.measure.campaign import Candidate, Measured
from gnomon.measure.clock import Clock, cpu_tells
from gnomon.measure.effort import Effort
from gnomon.measure.energy import ENERGY, untold
from gnomon.search.base import Assignment, Cost, Told

_VISITS = 3
_UNKNOWN = "it ran, but does not tell {}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What an assignment costs by the wall's clock, and by CPU time where that is the time of its calls.

    `single` names the single backend that it is, None for a mix.
    """

    assignment: Assignment
    wall: Cost
    cpu: Cost | None = None
    single: Hashable | None = None


@dataclass(slots=True, kw_only=True)
class Evaluator:
    """Runs assignments of a space in a lab. What the record holds is not run again.

    `clock` is that of the costs it answers with, which all are compared by: the first run that succeeded decides, None
    until then; wall time where some choice lets several threads work. `failures` tells why assignments failed;
    `replayed` counts those that the record held. `unmeasured` are those of `failures` that were never run to an end, so
    that nothing is known of them.
    """

    lab: Lab
    space: DecisionSpace
    goals: Sequence[Goal]
    clock: Clock | None = None
    failures: dict[Assignment, str] = field(default_factory=dict)
    measured: dict[Assignment, Measured] = field(default_factory=dict)
    replayed: int = 0
    unmeasured: set[Assignment] = field(default_factory=set)

    def __call__(self, assignment: Assignment) -> Cost | None:
        """What an assignment costs in each objective; None if it failed or does not tell."""
        candidate = self.candidate(self.space.contender(self.lab, assignment))
        before = len(self.lab.runner.known(candidate.key).runs)
        found = self.lab.runner.measure("search", [candidate], self.effort())[candidate.key]
        self.replayed += before > 0 and len(found.runs) == before
        self.measured[assignment] = found
        if not found.ok:
            failure = found.failure or _vanished()
            self.failures[assignment] = describe(failure)
            if failure.kind == "unmeasured":
                self.unmeasured.add(assignment)
            return None
        cost = cost_of(self.goals, found, self._clock(found))
        if cost is None:
            lacking = [g.name for g in self.goals if g.value(found, self._clock(found)) is None]
            why = untold(found.runs) if ENERGY in lacking else ""
            self.failures[assignment] = _UNKNOWN.format(" and ".join(lacking)) + (f": {why}" if why else "")
        return cost

    def samples(self, told: Sequence[Told]) -> tuple[Sample, ...]:
        """The results that did not fail, by each clock; by the cost alone where nothing was run of one."""
        return tuple(self._sample(t, self.measured.get(t.assignment)) for t in told if t.cost is not None)

    def again(self, samples: Sequence[Sample]) -> dict[Assignment, Sample]:
        """The same assignments in one more fresh process each; without those that did not run this time."""
        contenders = {s.assignment: self.space.contender(self.lab, s.assignment) for s in samples}
        candidates = {a: replace(c.candidate, key=f"again/{c.key}") for a, c in contenders.items()}
        # Slow ones get all their visits: it is their noise that is asked for.
        effort = replace(self.effort(), laggard=1e9)
        measured = self.lab.runner.measure("sample again", list(candidates.values()), effort)
        found = {a: measured[c.key] for a, c in candidates.items()}
        costs = {a: cost_of(self.goals, m, self.clock_of(a, m)) for a, m in found.items()}
        return {a: self._sample(Told(assignment=a, cost=costs[a]), m) for a, m in found.items() if costs[a] is not None}

    def clock_of(self, assignment: Assignment, found: Measured) -> Clock:
        """The clock of an assignment alone: CPU time where one thread works and it tells, else wall time."""
        threaded = self.space.threaded(assignment, self.lab.request.wish.threads)
        return "cpu" if not threaded and cpu_tells(found.runs) else "wall"

    def _sample(self, told: Told, found: Measured | None) -> Sample:
        cost, cpu = told.cost or (), None
        if found is not None:
            wall = cost_of(self.goals, found, "wall")
            if self.clock_of(told.assignment, found) == "cpu":
                cpu = cost_of(self.goals, found, "cpu")
            cost = cost if wall is None else wall
        return Sample(assignment=told.assignment, wall=cost, cpu=cpu, single=self.space.single(told.assignment))

    def candidate(self, contender: Contender) -> Candidate:
        """What is measured of a contender while searching."""
        return replace(contender.candidate, key=f"search/{contender.key}")

    def effort(self) -> Effort:
        """One fresh process, few visits: what is worth more is measured again in the proof."""
        effort = self.lab.request.effort
        return replace(effort, processes_least=1, processes_most=1, rounds=min(effort.rounds, _VISITS))

    def dump_rows(self) -> list[tuple[Assignment, float, int]]:
        """Latency in seconds and peak memory in bytes of each assignment that tells both, in order."""
        rows = []
        for assignment, found in self.measured.items():
            if found.ok:
                cost = cost_of((GOALS[LATENCY], GOALS[MEMORY]), found, self._clock(found))
                if cost is not None:
                    rows.append((assignment, cost[0], int(cost[1])))
        return rows

    def _clock(self, found: Measured) -> Clock:
        if self.clock is None:
            self.clock = "wall" if self.space.parallel else choose_clock(self.lab, [found])
        # Where the CPU time of a later one does not tell all, its wall time stands for it.
        return self.clock if cpu_tells(found.runs) else "wall"


def _vanished() -> Failure:
    return Failure(stage="run", kind="unmeasured", transient=True, message="no run of it succeeded")
