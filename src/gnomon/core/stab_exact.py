"""The exact placement from the same traces that stab reads: every operator, every backend, proved by the solver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gnomon.core.cost import CostModel, Objective, PairCost
from gnomon.core.solve import Solution, solve
from gnomon.core.space import Slot, Space
from gnomon.core.traces import Trace
from gnomon.errors import ProblemError

PERMUTE = "Permute"
"""What onert itself adds where a tensor changes its layout from one backend to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Microseconds of handing a tensor from operator `producer` to `consumer`, by (backend of one, of the other)."""

    producer: int
    consumer: int
    us: Mapping[tuple[str, str], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A placement (operator index -> backend) and the sum of its times; None where an operator has no time there."""

    placement: Mapping[int, str]
    predicted_us: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactDecision:
    """The placement of least predicted time over all operators and backends of the traces.

    `types` are the operators; `prices_us` their times by backend. `singles` are the placements of all on one backend,
    what it lacks on cpu or else where it has a time; `best_single` is the one of least predicted time. `chosen` is the
    solver's placement, or the best single one where nothing is faster; `solution` is the certificate. `graph_us` are
    the measured averages of whole runs. `lacks` says what the traces do not tell.
    """

    types: Mapping[int, str]
    prices_us: Mapping[int, Mapping[str, float]]
    chosen: Priced
    singles: Mapping[str, Priced]
    best_single: str
    graph_us: Mapping[str, int | None]
    solution: Solution
    transfers: tuple[Transfer, ...]
    lacks: tuple[str, ...]

    @property
    def mixes(self) -> bool:
        """Whether the chosen placement is another than the best single one."""
        return self.chosen != self.singles[self.best_single]

    def price(self, placement: Mapping[int, str]) -> Priced:
        """Another placement by the same prices and transfers."""
        return Priced(placement=dict(placement), predicted_us=_predicted(self.prices_us, self.transfers, placement))


def exact_decision(traces: Mapping[str, Trace], transfers: Sequence[Transfer] = ()) -> ExactDecision:
    """The placement of least time, from traces by the backend that each was taken for.

    Each operator of the main graph is a slot, each backend that has a time for it in any trace a choice; 0 us is a
    value. The time on a backend is the average in that backend's own trace, else the mean of the averages in the
    others. Never slower, by these prices, than any single backend or the published decision. ProblemError where the
    traces do not hold one and the same graph.
    """
    types = _types(traces)
    prices = _prices(traces, types)
    kept = tuple(t for t in transfers if t.producer in prices and t.consumer in prices)
    backends = tuple(dict.fromkeys([*traces, *sorted({b for row in prices.values() for b in row})]))
    singles: dict[str, Priced] = {}
    for backend in backends:
        if any(backend in row for row in prices.values()):
            placement = _single(prices, backend, backends)
            singles[backend] = Priced(placement=placement, predicted_us=_predicted(prices, kept, placement))
    possible = [b for b in singles if singles[b].predicted_us is not None]
    best = min(possible or singles, key=lambda b: (singles[b].predicted_us or 0.0, backends.index(b)))
    # Of equals the solver takes the first: the backend that needs no map.
    order = (best, *(b for b in backends if b != best))
    solution, placement = _solved(prices, kept, order)
    chosen = Priced(placement=placement, predicted_us=_predicted(prices, kept, placement))
    alone = singles[best]
    if alone.predicted_us is not None and (chosen.predicted_us is None or chosen.predicted_us >= alone.predicted_us):
        chosen = alone
    return ExactDecision(
        types=types,
        prices_us=prices,
        chosen=chosen,
        singles=singles,
        best_single=best,
        graph_us={b: t.graph.avg_us if t.graph else None for b, t in traces.items()},
        solution=solution,
        transfers=kept,
        lacks=_lacks(traces, prices, kept),
    )


def _types(traces: Mapping[str, Trace]) -> dict[int, str]:
    """Index -> type of the operators to place. ProblemError where two traces do not agree or hold several sessions."""
    types: dict[int, str] = {}
    for backend, trace in traces.items():
        if len(trace.sessions) > 1:
            raise ProblemError(
                f"the trace for {backend} holds {len(trace.sessions)} sessions, and nothing says which is the model's",
                hint="trace a process that loads only the one model",
            )
        for operator in trace.main:
            if operator.type == PERMUTE:
                continue
            if types.setdefault(operator.index, operator.type) != operator.type:
                raise ProblemError(
                    f"operator {operator.index} is {operator.type} in the trace for {backend} and "
                    f"{types[operator.index]} in another",
                    hint="the traces are of different models: measure again",
                )
    if not types:
        raise ProblemError("the traces hold no operator", hint="measure again, with onert's TRACING_MODE=1")
    return dict(sorted(types.items()))


def _prices(traces: Mapping[str, Trace], types: Mapping[int, str]) -> dict[int, dict[str, float]]:
    seen: dict[int, dict[str, list[int]]] = {index: {} for index in types}
    own: dict[tuple[int, str], int] = {}
    for taken_for, trace in traces.items():
        for operator in trace.main:
            if operator.index in seen and operator.type != PERMUTE:
                seen[operator.index].setdefault(operator.backend, []).append(operator.time.avg_us)
                if operator.backend == taken_for:
                    own[operator.index, operator.backend] = operator.time.avg_us
    return {
        index: {b: float(own.get((index, b), sum(values) / len(values))) for b, values in row.items()}
        for index, row in seen.items()
    }


def _single(prices: Mapping[int, Mapping[str, float]], backend: str, backends: Sequence[str]) -> dict[int, str]:
    order = (backend, "cpu", *backends)
    return {index: next(b for b in order if b in row) for index, row in prices.items()}


def _predicted(
    prices: Mapping[int, Mapping[str, float]], transfers: Sequence[Transfer], placement: Mapping[int, str]
) -> float | None:
    total = 0.0
    for index, row in prices.items():
        if placement.get(index) not in row:
            return None
        total += row[placement[index]]
    for transfer in transfers:
        cost = transfer.us.get((placement[transfer.producer], placement[transfer.consumer]), 0.0)
        total += cost
    return total


def _solved(
    prices: Mapping[int, Mapping[str, float]], transfers: Sequence[Transfer], order: Sequence[str]
) -> tuple[Solution, dict[int, str]]:
    choices = {index: tuple(b for b in order if b in row) for index, row in prices.items()}
    number = {index: n for n, index in enumerate(prices)}
    pairs = []
    for transfer in transfers:
        rows, columns = choices[transfer.producer], choices[transfer.consumer]
        cost = np.array([[[transfer.us.get((a, b), 0.0)] for b in columns] for a in rows])
        pairs.append(PairCost(first=number[transfer.producer], second=number[transfer.consumer], cost=cost))
    model = CostModel(
        space=Space(slots=tuple(Slot(name=f"operator {i}", choices=row) for i, row in choices.items())),
        objectives=(Objective(name="latency", unit="us"),),
        slot_costs=tuple(np.array([[prices[i][b]] for b in row]) for i, row in choices.items()),
        pairs=tuple(pairs),
    )
    solution = solve(model)
    return solution, dict(zip(prices, solution.choices, strict=True))


def _lacks(
    traces: Mapping[str, Trace], prices: Mapping[int, Mapping[str, float]], transfers: Sequence[Transfer]
) -> tuple[str, ...]:
    """What the traces cannot tell, in sentences."""
    told = ["A trace holds the average, least and most of its runs and no samples, so no interval can be given."]
    spoilt = sum(1 for t in traces.values() for op in t.main if op.time.avg_us > 2 * op.time.min_us + 2)
    if spoilt:
        told.append(
            f"{spoilt} averages lie above twice the least time: what interrupts a run counts in its average, so that a "
            "busy machine shifts the decision."
        )
    alone = sum(1 for row in prices.values() if len(row) == 1)
    fine = sum(1 for row in prices.values() if len(row) > 1 and min(row.values()) < 10)
    if fine:
        told.append(
            f"{fine} operators with a choice take under 10 us, and traces count whole microseconds, about 1 us of "
            "which is the tracing's own."
        )
    if alone:
        told.append(f"{alone} of {len(prices)} operators have a time on one backend only, so they stay there.")
    permutes = sum(1 for trace in traces.values() for op in trace.main if op.type == PERMUTE)
    if permutes:
        told.append(f"onert added {permutes} Permute operators in these runs, whose times are no operator's.")
    if not transfers:
        told.append("Nothing is known of what a change of backend costs between operators.")
    if any(trace.graph is None for trace in traces.values()):
        missing = ", ".join(b for b, trace in traces.items() if trace.graph is None)
        told.append(f"No time of a whole run is in the trace for: {missing}.")
    return tuple(told)
