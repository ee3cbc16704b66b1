"""Placement inside one runtime: the operators are the slots, and the backends of its process are the choices.

The operators' times come from the runtime's own trace of whole runs, so that each operator is priced in its context.
Totals come from runs without tracing. See docs/jobs/place.md.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from gnomon.core.brief import brief
from gnomon.core.cost import CostModel, Objective
from gnomon.core.pricing.price import Array, Observation, operator_prices
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
from gnomon.core.solver.solve import Solution
from gnomon.core.space import Slot, Space
from gnomon.core.stats import median, quantile, trimmed_mean
from gnomon.errors import MeasurementError
from gnomon.jobs.place.limits import Limits, names_of, solved
from gnomon.measure.campaign import Measured
from gnomon.measure.effort import Clock, Effort
from gnomon.session.contender import Anchor, Contender, Kind, contender_in, level, measure_beside, trace_of
from gnomon.session.model_session import ModelSession
from gnomon.session.targets import Missing, Target, describe

REFITS = 3
"""The maximum number of times that a plan is run and the prices are refitted."""
TotalOf = Callable[[Sequence[int]], float]
"""The predicted seconds of an assignment."""

WORTH = 1.01
"""The smallest predicted gain over the best single backend for which a plan is run; a smaller gain cannot be
measured.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class InsideResult:
    """The prices, the solution and the contenders of a placement inside one configuration.

    `prices_s` has the shape (operators, backends) and is infinite where a backend does not take an operator. `solution`
    is the minimum over these prices within the limits. `why` is the reason if no plan is among the contenders. Their
    plan is the solution or, if the solution promises too little, a plan that was faster when it was run.
    """

    target: Target
    backends: tuple[str, ...]
    prices_s: Array
    solution: Solution
    contenders: tuple[Contender, ...]
    why: str

    __repr__ = brief


class InsidePlacer:
    """Prices one target of a session, and solves for its fastest placement within limits."""

    def __init__(self, session: ModelSession, target: Target, limits: Limits | None = None) -> None:
        self.session, self.target, self.graph = session, target, target.placed.graph
        self.limits = limits or Limits()
        support = target.support.operators
        self.backends = tuple(b for b in target.configuration.backends if support.get(b))
        self._observed: dict[tuple[int, ...], float] = {}
        for operator in self.graph.operators:
            if not any(operator.index in support[b] for b in self.backends):
                raise MeasurementError(
                    f"no backend of {self.target.configuration.name} takes operator {operator.index} "
                    f"({operator.type}, {operator.name!r}); tried {', '.join(self.target.configuration.backends)}",
                    hint="Give --runtime another runtime, or replace the operator in the model.",
                )

    def single(self, backend: str) -> tuple[int, ...]:
        """An assignment: the operators that the backend takes on this backend, each of the others on the first that
        takes it.
        """
        support = self.target.support.operators
        order = (backend, *(b for b in self.backends if b != backend))
        taken = (next(b for b in order if op.index in support[b]) for op in self.graph.operators)
        return tuple(map(self.backends.index, taken))

    def contender(self, kind: Kind, label: str, assignment: Sequence[int], predicted_s: float | None) -> Contender:
        """A contender for an assignment of backend indices."""
        named = {index: self.backends[b] for index, b in enumerate(assignment)}
        # Use the backends' names, because their numbers change meaning if other backends are used.
        identity = hashlib.sha256("\0".join(named.values()).encode()).hexdigest()[:12]
        key = f"{self.target.configuration.name}/{identity}"
        contender = contender_in(self.session, self.target, kind, label, named, key=key, assigned=True)
        return replace(contender, predicted_s=predicted_s)

    def run(self, alive: Sequence[Contender], clock: Clock) -> InsideResult:
        """Price from the profiled single backends, solve, and refit with runs of the plan until it stays the same."""
        observations = [
            self._observe(c, self.session.runner.known(c.key), clock, 1.0)
            for c in alive
            if self.session.runner.known(trace_of(c).key).ok
        ]
        if not observations:
            raise MeasurementError(
                f"{self.target.configuration.name} wrote no trace of any single backend",
                hint="The reasons are listed with the skipped configurations; `gnomon profile` needs no trace.",
            )
        best = min(alive, key=lambda c: level(self.session.runner.known(c.key), clock))
        anchor = Anchor(candidate=best.candidate, clock=clock)
        refits = 0
        while True:
            prices = self._allowed(operator_prices(observations, len(self.backends)))
            solution = tried = self._solved(self._model(prices))
            gain = self._gain(partial(_sum_s, prices), solution, alive)
            if gain < WORTH and not refits:
                # If other processes slowed down the untraced runs, the fitted constants that account for this hide the
                # gain from small operators. Therefore, the best plan by the traces alone is run once to measure its
                # gain.
                traced = self._allowed(self._traced_table(alive))
                tried = self._solved(self._model(traced))
                gain = self._gain(partial(_sum_s, traced), tried, alive)
            if tried.assignment in self._observed or refits == REFITS or gain < WORTH:
                break
            plan = self.contender("plan", "plan", tried.assignment, tried.value)
            again, factor = self._refine(plan, anchor)
            refits += 1
            if not (again.ok and self.session.runner.known(trace_of(plan).key).ok):
                self.session.missing.append(Missing(name="plan", reason=describe(again.failure)))
                break
            # The plan's own context counts more than the contexts of the single backends.
            observations.append(self._observe(plan, again, clock, 4.0, factor))
        chosen, gain = (solution.assignment, solution.value), self._gain(partial(_sum_s, prices), solution, alive)
        if gain < WORTH:
            chosen, gain = self._fastest_run(alive, clock) or (chosen, gain)
        greedy = tuple(int(b) for b in self._traced_table(alive).argmin(axis=1))
        contenders, why = self._contenders(partial(_sum_s, prices), alive, gain, chosen, greedy)
        return InsideResult(
            target=self.target,
            backends=self.backends,
            prices_s=prices,
            solution=solution,
            contenders=contenders,
            why=why,
        )

    def assignment(self, contender: Contender) -> tuple[int, ...]:
        """The index of each operator's backend in a contender."""
        return tuple(self.backends.index(contender.backends[op.index]) for op in self.graph.operators)

    def _gain(self, total_s: TotalOf, solution: Solution, alive: Sequence[Contender]) -> float:
        """The predicted speedup of the solution over the best single backend that keeps the limits."""
        best = min((total_s(self.assignment(c)) for c in self.limits.free(alive)), default=math.inf)
        return best / solution.value if solution.value > 0 else 1.0

    def _contenders(
        self,
        total_s: TotalOf,
        alive: Sequence[Contender],
        gain: float,
        plan: tuple[Sequence[int], float],
        greedy: Sequence[int],
    ) -> tuple[tuple[Contender, ...], str]:
        """The single backends with predicted seconds, the plan and the greedy choice; also the reason if the last two
        are left out.

        `plan` is an assignment and its seconds; `gain` is the gain that it promises.
        """
        name = self.target.configuration.name
        wanted = [self.contender("single", c.label, self.assignment(c), total_s(self.assignment(c))) for c in alive]
        if gain >= WORTH:
            wanted.append(self.contender("plan", f"{name}: plan", *plan))
            wanted.append(self.contender("greedy", f"{name}: greedy", greedy, total_s(greedy)))
        different: dict[str, Contender] = {}
        for contender in wanted:
            different.setdefault(contender.key, contender)
        why = f"according to the prices, no mix gains more than {max(gain - 1, 0.0):.1%}, too little to be measured"
        return tuple(different.values()), "" if gain >= WORTH else why

    def singles(self) -> list[Contender]:
        """A contender for each backend that takes any operator; each assignment occurs once."""
        contenders: dict[str, Contender] = {}
        name = self.target.configuration.name
        for backend in self.backends:
            assignment = self.single(backend)
            others = sorted({self.backends[b] for b in assignment} - {backend})
            strange = sum(1 for b in assignment if self.backends[b] != backend)
            label = f"{name}:{backend}"
            if others:
                label += f" (+{','.join(others)} for {strange} of {len(assignment)})"
            contender = self.contender("single", label, assignment, None)
            contenders.setdefault(contender.key, contender)
        return list(contenders.values())

    def _refine(self, plan: Contender, anchor: Anchor) -> tuple[Measured, float]:
        """Run the plan next to the anchor, then with tracing; also return the factor of the machine's drift."""
        effort = self.session.request.effort
        effort = replace(effort, processes_most=effort.processes_least)
        measured, factor = measure_beside(self.session.runner, "refine", [plan.candidate], anchor, effort)
        if measured[plan.key].ok:
            self.session.runner.measure("refine, traced", [trace_of(plan)], effort)
        return measured[plan.key], factor[plan.key]

    def _observe(
        self, contender: Contender, whole: Measured, clock: Clock, weight: float, factor: float = 1.0
    ) -> Observation:
        total = level(whole, clock) * factor
        times = traced_times(self.session.runner.known(trace_of(contender).key), len(self.graph.operators))
        assignment = self.assignment(contender)
        self._observed[assignment] = total
        return Observation(assignment=assignment, operator_s=times, total_s=total, weight=weight)

    def _allowed(self, prices: Array) -> Array:
        """Set prices to infinity where, according to the runtime, a backend does not take an operator."""
        support = self.target.support.operators
        for column, backend in enumerate(self.backends):
            for operator in self.graph.operators:
                if operator.index not in support[backend]:
                    prices[operator.index, column] = np.inf
        return prices

    def _model(self, prices: Array) -> CostModel:
        """A cost model without transfers, because the backends of one process share their tensors."""
        slots = tuple(Slot(name=op.name, choices=self.backends) for op in self.graph.operators)
        return CostModel(
            space=Space(slots=slots),
            objectives=(Objective(name="latency", unit="s"),),
            slot_costs=tuple(row[:, None] for row in prices),
        )

    def _solved(self, model: CostModel, groups: Sequence[Sequence[int]] | None = None) -> Solution:
        """The best assignment within the limits; `groups` are the operators of each slot (default: one each)."""
        own = groups or [(op.index,) for op in self.graph.operators]
        names = [names_of(self.target.configuration, backend) for backend in self.backends]
        return solved(self.limits.within(model, self.graph, own, names))

    def _fastest_run(
        self, alive: Sequence[Contender], clock: Clock
    ) -> tuple[tuple[tuple[int, ...], float], float] | None:
        """The fastest plan that was run: its assignment, its seconds, and its gain over the best single backend.

        None if no plan was run or none gained enough. A plan that was run is worth proving whatever its price.
        """
        singles = {self.assignment(c) for c in alive}
        plans = {taken_s: a for a, taken_s in self._observed.items() if a not in singles}
        if not plans:
            return None
        taken_s = min(plans)
        levels_s = (level(self.session.runner.known(c.key), clock) for c in self.limits.free(alive))
        gain = min(levels_s, default=math.inf) / taken_s
        return ((plans[taken_s], taken_s), gain) if gain >= WORTH else None

    def _traced_table(self, singles: Sequence[Contender]) -> Array:
        """Traced times of the single backends, on which a greedy choice per operator is based."""
        table = np.full((len(self.graph.operators), len(self.backends)), math.inf)
        for contender in singles:
            times = traced_times(self.session.runner.known(trace_of(contender).key), len(table))
            for index, time_s in enumerate(times):
                column = self.backends.index(contender.backends[index])
                table[index, column] = min(table[index, column], time_s)
        return table


def _sum_s(prices: Array, assignment: Sequence[int]) -> float:
    """The predicted seconds of an assignment."""
    return float(sum(prices[i, b] for i, b in enumerate(assignment)))


def uninterrupted_s(wall_ns: Sequence[int]) -> float:
    """The mean seconds of traced calls, excluding those that were interrupted."""
    upper = quantile(wall_ns, 0.6)
    return trimmed_mean([t for t in wall_ns if t <= upper], proportion=0.05) * 1e-9


def traced_times(traced: Measured, count: int) -> tuple[float, ...]:
    """The seconds of each operator from traced runs: a trimmed mean per process, then the median over the processes.

    The times of an operator's kernels are added up, and the time of a kernel that computes several operators is divided
    equally among them, because nothing more is known. A trace counts whole microseconds, for which a median would be
    too coarse. Trimming excludes interrupted calls. MeasurementError if the trace has no time for an operator.
    """
    times_s: list[list[float]] = [[] for _ in range(count)]
    for run in traced.runs:
        sums: dict[int, float] = {}
        for row in run.operators:
            for index in row.sources:
                if 0 <= index < count and row.wall_ns:
                    own_s = uninterrupted_s(row.wall_ns) / len(row.sources)
                    sums[index] = sums.get(index, 0.0) + own_s
        for index, time_s in sums.items():
            times_s[index].append(time_s)
    for index, values in enumerate(times_s):
        if not values:
            raise MeasurementError(
                f"the runtime's trace has no time for operator {index}",
                hint="Repeat the command. If the error persists, the runtime removed the operator: please report it.",
            )
    return tuple(median(values) for values in times_s)


DRAWN = 8
"""For each backend away from home, the number of random placements that are run as a whole, in addition to the designed
ones.
"""

_TRACED_CALLS = 3
_PRICING_S = 30.0
"""The approximate total time, in seconds, for all visits to the placements that are run for pricing."""
_CALLS_OF_A_VISIT = 3
#: Layers that compute nothing on any backend and only pass on their input.
_FREE = frozenset({"Input", "Split"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferResult(InsideResult):
    """Like `InsideResult`, with the prices of crossings in `transfers`; `prices_s` has only those of the operators."""

    transfers: TransferPrices


class TransferPlacer(InsidePlacer):
    """Prices one target whose backends have separate memories, so that crossings between them have a cost, and solves
    for its fastest placement.

    The first backend is home. A few placements are run both as a whole and step by step: the single backends and, for
    each backend away from home, two placements in which nearly every tensor crosses. Some random placements, drawn with
    the request's seed, are run only as a whole. From all these runs, `core.pricing.transfers` fits the time of each
    operator on each side and the cost of a crossing. See docs/runtimes/ncnn.md.
    """

    def __init__(self, session: ModelSession, target: Target, limits: Limits | None = None) -> None:
        super().__init__(session, target, limits)
        support = target.support
        self.folded = support.folded
        self.wiring = wiring_of(self.graph, _FREE, self.folded)
        home, *away = (support.operators[b] for b in self.backends)
        self.movable = tuple((side & home) - self.folded.keys() for side in away)
        self._runs: dict[Sides, PlacedRun] = {}
        for operator in self.graph.operators if away else ():
            if operator.index not in home:
                raise MeasurementError(
                    f"{self.backends[0]}, which holds the inputs and outputs, cannot run operator {operator.index} "
                    f"({operator.type}, {operator.name!r})",
                    hint="Give --runtime another runtime.",
                )

    def run(self, alive: Sequence[Contender], clock: Clock) -> TransferResult:
        """Price from single backends and further placements, solve, and refit with runs of the plan until it no longer
        changes.

        The prices are times measured by this clock. MeasurementError if no placement wrote a trace.
        """
        best = min(alive, key=lambda c: level(self.session.runner.known(c.key), clock))
        anchor = Anchor(candidate=best.candidate, clock=clock)
        for contender in alive:
            self._note(contender, self.session.runner.known(contender.key), clock, 1.0)
        # For each backend away from home, two placements in which nearly every tensor crosses.
        designed = [
            self.along([side if there == AWAY else HOME for there in sides])
            for side, movable in enumerate(self.movable, start=AWAY)
            for sides in alternating(self.graph, movable)
            if AWAY in sides
        ]
        self._measure(designed, anchor, traced=True)
        self._measure(self.drawn(DRAWN * len(self.movable), self.session.request.seed), anchor, traced=False)
        refits = 0
        while True:
            runs = list(self._runs.values())
            if not any(run.steps for run in runs):
                raise MeasurementError(
                    f"{self.target.configuration.name} wrote no trace of any placement",
                    hint="The reasons are listed with the skipped configurations.",
                )
            prices = fit_transfers(self.wiring, runs, sides=max(2, len(self.backends)))
            solution = self._placed(prices)
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
        """Random placements drawn from a seed."""
        return [self.along(sides) for sides in random_sides(self.wiring.count, self.movable, number, seed)]

    def along(self, sides: Sequence[int]) -> Sides:
        """The sides, with each folded operator on the side of the operator into which the runtime folds it."""
        return tuple(sides[self.folded.get(k, k)] for k in range(len(sides)))

    def single(self, backend: str) -> Sides:
        """An assignment: the operators that the backend takes on this backend, and the others at home."""
        return self.along(super().single(backend))

    def _placed(self, prices: TransferPrices) -> Solution:
        """The best placement within the limits, with an assignment of the operators only."""
        groups: list[list[int]] = [[] for _ in self.graph.operators]
        for index in range(len(groups)):
            groups[self.folded.get(index, index)].append(index)
        model = transfer_model([op.name for op in self.graph.operators], self.backends, prices)
        solution = self._solved(model, groups)
        sides = self.along(solution.assignment[: self.wiring.count])
        return replace(solution, assignment=sides, choices=tuple(self.backends[side] for side in sides))

    def _measure(self, wanted: Sequence[Sides], anchor: Anchor, *, traced: bool) -> bool:
        """Run placements next to the anchor and keep their times; return True if all of them ran."""
        new = [sides for sides in dict.fromkeys(wanted) if sides not in self._runs]
        if not new:
            return True
        contenders = [self.contender("plan", "a placement for pricing", sides, None) for sides in new]
        effort = self.effort(len(new))
        candidates = [c.candidate for c in contenders]
        if traced:
            candidates += [replace(trace_of(c), calls_least=_TRACED_CALLS) for c in contenders]
        measured, factors = measure_beside(self.session.runner, "price transfers", candidates, anchor, effort)
        failed = []
        for contender in contenders:
            outcome = measured[contender.key]
            if outcome.ok:
                self._note(contender, outcome, anchor.clock, factors[contender.key])
            else:
                failed.append(describe(outcome.failure))
        if failed:
            reason = f"{len(failed)} of {len(new)} placements needed for pricing failed: {failed[0]}"
            self.session.missing.append(Missing(name=f"{self.target.configuration.name}, pricing", reason=reason))
        return not failed

    def effort(self, number: int) -> Effort:
        """The effort for `number` placements: one process each, visited as often as the time for pricing allows.

        Many visits of few calls distinguish the machine's own speed from the effect of other processes. Slow placements
        get as many visits as fast ones, because all count for the prices.
        """
        effort = self.session.request.effort
        runs = [run.total_s for run in self._runs.values()]
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
        """Keep the times of a placement, scaled to the speed of the machine while the anchor was profiled."""
        traced = self.session.runner.known(trace_of(contender).key)
        steps = _steps_of(traced, self.wiring.count) if traced.ok else ()
        sides = self.assignment(contender)
        self._runs[sides] = PlacedRun(
            sides=sides,
            total_s=level(whole, clock) * factor,
            steps=tuple(replace(step, time_s=step.time_s * factor) for step in steps),
            apart=not self.target.configuration.steps_within,
        )


def _steps_of(traced: Measured, count: int) -> tuple[Step, ...]:
    """The steps of traced runs: operators that were timed together, and their median seconds over the processes."""
    by_step: dict[tuple[int, ...], list[float]] = {}
    for run in traced.runs:
        for row in run.operators:
            operators = tuple(k for k in row.sources if 0 <= k < count)
            if operators and row.wall_ns:
                by_step.setdefault(operators, []).append(uninterrupted_s(row.wall_ns))
    return tuple(Step(operators=operators, time_s=median(times)) for operators, times in by_step.items())


def inside_placer(session: ModelSession, target: Target, limits: Limits | None = None) -> InsidePlacer:
    """The placer of a target with several backends, with transfers if the backends have separate memories."""
    return (TransferPlacer if target.configuration.transfers else InsidePlacer)(session, target, limits)
