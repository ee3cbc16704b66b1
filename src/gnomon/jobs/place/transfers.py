"""Placement inside one runtime whose backends do not share tensors: operators are slots, crossings are paid.

A few placements are run, whole and step by step: the single backends, for each side away two in which nearly every
tensor crosses, and some drawn from the request's seed. From them `core.pricing.transfers` fits what each operator takes
on each side and what a crossing costs; the exact solver does the rest. See docs/runtimes/ncnn.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gnomon.core.pricing.transfers import (
    AWAY,
    HOME,
    PlacedRun,
    Sides,
    Step,
    TransferPrices,
    alternating,
    fit_transfers,
    random_sides,
    transfer_model,
    wiring_of,
)
from gnomon.core.solver.solve import Solution, solve
from gnomon.core.stats import median
from gnomon.errors import MeasurementError
from gnomon.jobs.place.inside import REFITS, WORTH, InsidePlacer, InsideResult, uninterrupted_s
from gnomon.measure.campaign import Measured
from gnomon.measure.effort import Clock, Effort
from gnomon.session.contender import Anchor, Contender, level, measure_beside, trace_of
from gnomon.session.model_session import Lab
from gnomon.session.targets import Missing, Target, describe

DRAWN = 8
"""Placements that are drawn for each side away, and run whole beside the designed ones."""

_TRACED_CALLS = 3
_PRICING_S = 30.0
"""About how long the visits of the placements to price from may take together."""
_CALLS_OF_A_VISIT = 3
#: Layers that compute nothing on any backend: they hand on what they read.
_FREE = frozenset({"Input", "Split"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferResult(InsideResult):
    """What pricing and solving gave, with the prices of crossings in `transfers`; `prices_s` are the operators' own."""

    transfers: TransferPrices


class TransferPlacer(InsidePlacer):
    """Prices and solves one target whose other backends have memories of their own; the first one is home."""

    def __init__(self, lab: Lab, target: Target) -> None:
        super().__init__(lab, target)
        support = target.support
        self.folded = support.folded
        self.wiring = wiring_of(self.graph, _FREE, self.folded)
        home, *away = (support.operators[b] for b in self.backends)
        self.movable = tuple((side & home) - self.folded.keys() for side in away)
        self._runs: dict[Sides, PlacedRun] = {}
        for operator in self.graph.operators if away else ():
            if operator.index not in home:
                raise MeasurementError(
                    f"operator {operator.index} ({operator.type}, {operator.name!r}) is not taken by "
                    f"{self.backends[0]}, where inputs and outputs lie",
                    hint="Give --runtime another runtime.",
                )

    def run(self, alive: Sequence[Contender], clock: Clock) -> TransferResult:
        """Price from the singles and from further placements, solve, and refit on the plan until it stays.

        The prices hold for the clock. MeasurementError where too little of it ran.
        """
        best = min(alive, key=lambda c: level(self.lab.runner.known(c.key), clock))
        anchor = Anchor(candidate=best.candidate, clock=clock)
        for contender in alive:
            self._note(contender, self.lab.runner.known(contender.key), clock, 1.0)
        # Two for each side away in which nearly every tensor crosses.
        designed = [
            self.along([side if there == AWAY else HOME for there in sides])
            for side, movable in enumerate(self.movable, start=AWAY)
            for sides in alternating(self.graph, movable)
            if AWAY in sides
        ]
        self._measure(designed, anchor, traced=True)
        self._measure(self.drawn(DRAWN * len(self.movable), self.lab.request.seed), anchor, traced=False)
        refits = 0
        while True:
            runs = list(self._runs.values())
            if not any(run.steps for run in runs):
                raise MeasurementError(
                    f"{self.target.configuration.name} left no trace of any placement",
                    hint="The reasons are among what was skipped.",
                )
            prices = fit_transfers(self.wiring, runs, sides=max(2, len(self.backends)))
            solution = self._solved(prices)
            gain = self._gain(prices.total_s, solution, alive)
            if solution.assignment in self._runs or refits == REFITS or gain < WORTH:
                break
            refits += 1
            if not self._measure([solution.assignment], anchor, traced=True):
                break
        plan = solution.assignment, prices.total_s(solution.assignment)
        greedy = self.along([int(row.argmin()) for row in prices.own_s])
        contenders, why = self._contenders(prices.total_s, alive, gain, plan, greedy)
        return TransferResult(
            target=self.target,
            backends=self.backends,
            prices_s=prices.own_s[:, : len(self.backends)],
            solution=solution,
            contenders=contenders,
            why=why,
            transfers=prices,
        )

    def drawn(self, number: int, seed: int) -> list[Sides]:
        """Placements that are drawn from a seed."""
        return [self.along(sides) for sides in random_sides(self.wiring.count, self.movable, number, seed)]

    def along(self, sides: Sequence[int]) -> Sides:
        """The sides, with operators that the runtime folds away where they go with."""
        return tuple(sides[self.folded.get(k, k)] for k in range(len(sides)))

    def single(self, backend: str) -> Sides:
        """Everything that the backend takes on it, the rest at home."""
        return self.along(super().single(backend))

    def _solved(self, prices: TransferPrices) -> Solution:
        """The exact minimum, its assignment that of the operators alone."""
        found = solve(transfer_model([op.name for op in self.graph.operators], self.backends, prices))
        sides = self.along(found.assignment[: self.wiring.count])
        return replace(found, assignment=sides, choices=tuple(self.backends[side] for side in sides))

    def _measure(self, wanted: Sequence[Sides], anchor: Anchor, *, traced: bool) -> bool:
        """Run placements beside the anchor, and keep what they took; whether all of them ran."""
        new = [sides for sides in dict.fromkeys(wanted) if sides not in self._runs]
        if not new:
            return True
        contenders = [self.contender("plan", "a placement to price from", sides, None) for sides in new]
        effort = self.effort(len(new))
        candidates = [c.candidate for c in contenders]
        if traced:
            candidates += [replace(trace_of(c), calls_least=_TRACED_CALLS) for c in contenders]
        measured, factors = measure_beside(self.lab.runner, "price transfers", candidates, anchor, effort)
        failed = []
        for contender in contenders:
            found = measured[contender.key]
            if found.ok:
                self._note(contender, found, anchor.clock, factors[contender.key])
            else:
                failed.append(describe(found.failure))
        if failed:
            reason = f"{len(failed)} of {len(new)} placements to price from failed: {failed[0]}"
            self.lab.missing.append(Missing(name=f"{self.target.configuration.name}, pricing", reason=reason))
        return not failed

    def effort(self, number: int) -> Effort:
        """One process for each of a number of placements, visited as often as the time for pricing allows.

        Many visits of few calls are what tells the machine's own speed from its neighbours'. None is spared any for
        being slow, as all count for the prices.
        """
        effort = self.lab.request.effort
        runs = [run.total_s for run in self._runs.values() if run.total_s is not None]
        usual = max(sum(runs) / len(runs), 1e-9) if runs else 1e-9
        rounds = int(_PRICING_S / (_CALLS_OF_A_VISIT * number * max(usual, effort.block_s)))
        return replace(
            effort,
            processes_least=1,
            processes_most=1,
            rounds=max(2, min(effort.rounds, rounds)),
            samples_least=effort.samples_least if rounds > 1 else 1,
            laggard=1e9,
        )

    def _note(self, contender: Contender, whole: Measured, clock: Clock, factor: float) -> None:
        """Keep what a placement took, brought to the speed that the machine had while the anchor was profiled."""
        traced = self.lab.runner.known(trace_of(contender).key)
        steps = _steps_of(traced, self.wiring.count) if traced.ok else ()
        sides = self.assignment(contender)
        self._runs[sides] = PlacedRun(
            sides=sides,
            total_s=level(whole, clock) * factor,
            steps=tuple(replace(step, time_s=step.time_s * factor) for step in steps),
            apart=not self.target.configuration.steps_within,
        )


def _steps_of(traced: Measured, count: int) -> tuple[Step, ...]:
    """The steps of traced runs: operators that were timed together, and the median of their seconds over processes."""
    found: dict[tuple[int, ...], list[float]] = {}
    for run in traced.runs:
        for row in run.operators:
            operators = tuple(k for k in row.sources if 0 <= k < count)
            if operators and row.wall_ns:
                found.setdefault(operators, []).append(uninterrupted_s(row.wall_ns))
    return tuple(Step(operators=operators, time_s=median(times)) for operators, times in found.items())


def inside_placer(lab: Lab, target: Target) -> InsidePlacer:
    """What prices and solves a target of several backends: with transfers, where they have memories of their own."""
    return TransferPlacer(lab, target) if target.configuration.transfers else InsidePlacer(lab, target)
