"""Prices by whole runs: each assignment in one fresh process, as often as a search can afford."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gnomon.core.sample import Failure
from gnomon.jobs.contender import Contender, choose_clock
from gnomon.jobs.lab import Lab
from gnomon.jobs.objectives import GOALS, LATENCY, MEMORY, Goal, cost_of
from gnomon.jobs.pareto_space import DecisionSpace
from gnomon.jobs.targets import describe
from gnomon.measure.campaign import Candidate, Measured
from gnomon.measure.clock import Clock
from gnomon.measure.effort import Effort
from gnomon.measure.energy import ENERGY, untold
from gnomon.search.base import Assignment, Cost

_VISITS = 3
_UNKNOWN = "it ran, but does not tell {}"


@dataclass(slots=True, kw_only=True)
class Evaluator:
    """Runs assignments of a space in a lab. What the record holds is not run again.

    `clock` is that of the first run that succeeded, None until then. `failures` tells why assignments failed;
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
        return self.clock


def _vanished() -> Failure:
    return Failure(stage="run", kind="unmeasured", transient=True, message="no run of it succeeded")
