"""The placement that the backend scheduler stab, as published, derives from traces of whole runs.

The source is ``backend_scheduler.py`` and ``op_list.txt`` in ``tools/stab`` of Samsung ONE (read at commit 6cf71e98).
The parts that affect the decision are restated here, including their mistakes: a measured 0 us counts as not measured,
transfers count for nothing, and if an operator has several times on one backend, the last one that was read counts.

This module also computes the exact placement from the traces that stab reads, over every operator and every backend.
Traces do not show the time between operators, so the placement of least sum gives each operator the backend on which it
takes the least time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gnomon.core.graph import sum_of_known
from gnomon.core.sample import Trace, TraceOperator
from gnomon.errors import ProblemError

OP_LIST: Mapping[str, tuple[str, ...]] = {
    "ruy": ("Conv2D", "FullyConnected"),
    "xnnpack": ("Conv2D", "DepthwiseConv2D", "FullyConnected"),
}
"""The published list: backend -> types of operators for which the backend is tried."""

_CPU = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class StabDecision:
    """The decision of the published rule.

    `default` is the backend with the fastest whole run. `mapped` has the fastest backend of each candidate operator,
    unless it is the default, and goes into OP_BACKEND_MAP; `typed` goes into per-type keys, and `backends` goes into
    BACKENDS. `told_us` and `scheduled_us` are the times that the tool itself predicts for each backend and for its
    schedule, None where it cannot predict one. `ended_by` is the error with which the tool ends before it writes
    anything ("": it does not end early).
    """

    default: str
    mapped: Mapping[int, str]
    typed: Mapping[str, str]
    backends: tuple[str, ...]
    told_us: Mapping[str, int | None]
    scheduled_us: int | None
    ended_by: str

    def placed(self, operators: Mapping[int, str]) -> dict[int, str]:
        """The backend on which onert puts each operator (index -> type) with this decision's configuration.

        The backend comes from the map by index, or else from the per-type keys, or else it is the first of BACKENDS,
        which is cpu. So a candidate whose fastest backend is the default runs on cpu if the default's per-type keys
        do not name its type.
        """
        return {i: self.mapped.get(i, self.typed.get(kind, self.backends[0])) for i, kind in operators.items()}


def published_index(operator: TraceOperator) -> int:
    """The index that the published tool reads: in "$1 session $2 subgraph $3 ADD" the 2, the subgraph's index."""
    if operator.session is not None and operator.subgraph is not None:
        return operator.subgraph
    return operator.index


def published_type(operator: TraceOperator) -> str:
    """The type that the published tool reads: the name's last word, or the second word of old names ("$3 ADD")."""
    words = operator.type.split(" ")
    return words[0] if operator.subgraph is None else words[-1]


def published_decision(traces: Mapping[str, Trace]) -> StabDecision:
    """The published rule applied to the traces of backends; a backend without a trace is skipped.

    ProblemError if no trace has the time of a whole run, because the tool then ends without a decision.
    """
    backends = (_CPU, *OP_LIST)
    times, types = _tables(traces, backends)
    wholes = {b: graph.avg_us for b in backends if b in traces and (graph := traces[b].graph) is not None}
    if not wholes:
        raise ProblemError(
            "no trace holds the time of a whole run ('runtime'), so there is no default backend",
            hint=f"Give traces of whole runs for: {', '.join(backends)}.",
        )
    candidates = {type_ for types_ in OP_LIST.values() for type_ in types_}
    best: dict[int, str] = {}
    for index in sorted(times):
        if types[index] in candidates:
            fastest = _fastest(times[index], backends)
            if fastest is not None:
                best[index] = fastest
    default = min(wholes, key=lambda b: wholes[b])  # of equal backends, the first in the list
    mapped = {index: backend for index, backend in best.items() if backend != default}
    totals = {b: sum_of_known([row.get(b, row.get(_CPU)) for row in times.values()]) for b in backends}
    scheduled = [row.get(best.get(i, "") if types[i] in candidates else _CPU) for i, row in times.items()]
    return StabDecision(
        default=default,
        mapped=mapped,
        typed=dict.fromkeys(OP_LIST.get(default, ()), default),
        backends=backends,
        told_us=totals,
        scheduled_us=sum_of_known(scheduled),
        ended_by=_ended_by(times, mapped, default),
    )


def _tables(traces: Mapping[str, Trace], backends: tuple[str, ...]) -> tuple[dict[int, dict[str, int]], dict[int, str]]:
    """The average times by operator and backend, and the types by operator, gathered in the tool's order.

    The tool reads the files in the listed order, and each file in the alphabetical order of backends and names, as
    onert's JSON writer leaves them. The first type of an index is kept, and its last time counts.
    """
    times: dict[int, dict[str, int]] = {}
    types: dict[int, str] = {}
    for backend in backends:
        if backend not in traces:
            continue
        for operator in sorted(traces[backend].operators, key=lambda op: (op.backend, op.name)):
            index = published_index(operator)
            types.setdefault(index, published_type(operator))
            times.setdefault(index, {})[operator.backend] = operator.time.avg_us
    return times, types


def _fastest(times: Mapping[str, int], backends: tuple[str, ...]) -> str | None:
    """The first backend of least time; but if the least time so far is 0 us, the tool takes the next backend anyway."""
    chosen, least = None, 0
    for backend in backends:
        if backend in times and (least == 0 or times[backend] < least):
            chosen, least = backend, times[backend]
    return chosen


def _ended_by(times: Mapping[int, Mapping[str, int]], mapped: Mapping[int, str], default: str) -> str:
    """The error that ends the tool while it adds up its predictions, or "": it looks up times that may not exist."""
    for index in sorted(times):
        if _CPU not in times[index]:
            return f"KeyError: operator {index} has no time on cpu"
    for index in sorted(mapped):
        if default not in times[index]:
            return f"KeyError: operator {index} has no time on the default backend {default}"
    return ""


PERMUTE = "Permute"
"""The operator that onert adds when a tensor changes its layout between backends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A placement (operator index -> backend) and the sum of its times; None if an operator has none."""

    placement: Mapping[int, str]
    predicted_us: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactDecision:
    """The placement of least predicted time over all operators and backends of the traces.

    `types` are the operators' types; `prices_us` are their times by backend. `singles` are the placements of all
    operators on one backend; operators without a time on it are on cpu, or else on a backend where they have a time.
    `best_single` is the backend whose single placement has the least predicted time. `chosen` is this single placement
    if nothing is faster. `lacks` are sentences about the limits of the traces.
    """

    types: Mapping[int, str]
    prices_us: Mapping[int, Mapping[str, float]]
    chosen: Priced
    singles: Mapping[str, Priced]
    best_single: str
    lacks: tuple[str, ...]

    @property
    def mixes(self) -> bool:
        """Return True if the chosen placement is not the best single backend."""
        return self.chosen != self.singles[self.best_single]

    def price(self, placement: Mapping[int, str]) -> Priced:
        """Another placement with its predicted time by the same prices."""
        return Priced(placement=dict(placement), predicted_us=_predicted(self.prices_us, placement))


def exact_decision(traces: Mapping[str, Trace]) -> ExactDecision:
    """The placement of least time, from the traces of backends.

    Each operator of the main graph is a slot, and each backend that has a time for it in any trace is a choice; 0 us is
    a valid time. The time on a backend is the average in that backend's own trace or, failing that, the mean of the
    averages in the other traces. By these prices the placement is never slower than any single backend or the published
    decision. ProblemError if the traces are not of the same graph.
    """
    types = _types(traces)
    prices = _prices(traces, types)
    backends = tuple(dict.fromkeys([*traces, *sorted({b for row in prices.values() for b in row})]))
    singles: dict[str, Priced] = {}
    for backend in backends:
        if any(backend in row for row in prices.values()):
            placement = _single(prices, backend, backends)
            singles[backend] = Priced(placement=placement, predicted_us=_predicted(prices, placement))
    possible = [b for b in singles if singles[b].predicted_us is not None]
    best = min(possible or singles, key=lambda b: (singles[b].predicted_us or 0.0, backends.index(b)))
    order = (best, *(b for b in backends if b != best))  # on a tie the first, which needs no map, is taken
    placement = {index: min((b for b in order if b in row), key=row.__getitem__) for index, row in prices.items()}
    chosen = Priced(placement=placement, predicted_us=_predicted(prices, placement))
    alone = singles[best]
    if alone.predicted_us is not None and (chosen.predicted_us is None or chosen.predicted_us >= alone.predicted_us):
        chosen = alone
    return ExactDecision(
        types=types, prices_us=prices, chosen=chosen, singles=singles, best_single=best, lacks=_lacks(traces, prices)
    )


def _types(traces: Mapping[str, Trace]) -> dict[int, str]:
    """Index -> type of the operators to place. ProblemError if traces disagree or one holds several sessions."""
    types: dict[int, str] = {}
    for backend, trace in traces.items():
        if len(trace.sessions) > 1:
            raise ProblemError(
                f"the trace for {backend} holds {len(trace.sessions)} sessions, and nothing says which is the model's",
                hint="Trace a process that loads only this model.",
            )
        for operator in trace.main:
            if operator.type == PERMUTE:
                continue
            if types.setdefault(operator.index, operator.type) != operator.type:
                raise ProblemError(
                    f"operator {operator.index} is {operator.type} in the trace for {backend} and "
                    f"{types[operator.index]} in another",
                    hint="The traces are of different models: measure again.",
                )
    if not types:
        raise ProblemError("the traces hold no operator", hint="Measure again, with onert's TRACING_MODE=1.")
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


def _predicted(prices: Mapping[int, Mapping[str, float]], placement: Mapping[int, str]) -> float | None:
    total = 0.0
    for index, row in prices.items():
        if placement.get(index) not in row:
            return None
        total += row[placement[index]]
    return total


def _lacks(traces: Mapping[str, Trace], prices: Mapping[int, Mapping[str, float]]) -> tuple[str, ...]:
    """The limits of the traces, in sentences."""
    sentences = ["A trace holds average, least and greatest times but no samples, so no interval can be given."]
    spoilt = sum(1 for t in traces.values() for op in t.main if op.time.avg_us > 2 * op.time.min_us + 2)
    if spoilt:
        sentences.append(
            f"Averages above twice the least time: {spoilt}. Interruptions of a run count in its average, so a busy "
            "machine shifts the decision."
        )
    alone = sum(1 for row in prices.values() if len(row) == 1)
    fine = sum(1 for row in prices.values() if len(row) > 1 and min(row.values()) < 10)
    if fine:
        sentences.append(
            f"Operators with a choice that take under 10 us: {fine}. Traces count whole microseconds, about 1 of which "
            "is spent on tracing."
        )
    if alone:
        sentences.append(f"Operators with a time on only one backend, where they stay: {alone} of {len(prices)}.")
    permutes = sum(1 for trace in traces.values() for op in trace.main if op.type == PERMUTE)
    if permutes:
        sentences.append(f"Permute operators that onert added, which belong to no operator of the model: {permutes}.")
    sentences.append("The cost of changing the backend between operators is not known.")
    if any(trace.graph is None for trace in traces.values()):
        missing = ", ".join(b for b, trace in traces.items() if trace.graph is None)
        sentences.append(f"Traces without the time of a whole run: {missing}.")
    return tuple(sentences)
