"""The placement of the backend scheduler stab, as published, from the traces of whole runs.

Source: ``backend_scheduler.py`` and ``op_list.txt`` in ``tools/stab`` of Samsung ONE (read at commit 6cf71e98),
restated here with what decides in it, mistakes too: a measured 0 us counts as not measured, transfers count for
nothing, and of several times of one operator on one backend the last one that was read counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gnomon.core.traces import Trace, TraceOperator
from gnomon.errors import ProblemError

OP_LIST: Mapping[str, tuple[str, ...]] = {
    "ruy": ("Conv2D", "FullyConnected"),
    "xnnpack": ("Conv2D", "DepthwiseConv2D", "FullyConnected"),
}
"""The published list: backend -> types of operators that it is tried for."""

_CPU = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class StabDecision:
    """What the published rule decides.

    `default` has the fastest whole run. `best` is the fastest backend of each candidate operator; `mapped` is what of
    it goes into OP_BACKEND_MAP, `typed` into per-type keys and `backends` into BACKENDS. `told_us` and `scheduled_us`
    are the times that the tool itself predicts for each backend and for its schedule, None where it cannot.
    `ended_by` says with which error the tool ends before it writes anything ("": it writes).
    """

    default: str
    best: Mapping[int, str]
    mapped: Mapping[int, str]
    typed: Mapping[str, str]
    backends: tuple[str, ...]
    told_us: Mapping[str, int | None]
    scheduled_us: int | None
    ended_by: str

    def placed(self, operators: Mapping[int, str]) -> dict[int, str]:
        """Where onert puts each operator (index -> type) under this decision's configuration.

        By index where the map has it, else by type, else on the first of BACKENDS, which is cpu: also a candidate
        whose fastest backend is the default, if the default's per-type keys do not name its type.
        """
        return {
            index: self.mapped.get(index, self.typed.get(type_, self.backends[0])) for index, type_ in operators.items()
        }


def published_index(operator: TraceOperator) -> int:
    """The index that the published tool reads: of "$1 session $2 subgraph $3 ADD" the 2, which is the subgraph's."""
    if operator.session is not None and operator.subgraph is not None:
        return operator.subgraph
    return operator.index


def published_type(operator: TraceOperator) -> str:
    """The type that it reads: the name's last word; of the oldest names ("$3 ADD") the second."""
    words = operator.type.split(" ")
    return words[0] if operator.subgraph is None else words[-1]


def published_decision(
    traces: Mapping[str, Trace], op_list: Mapping[str, tuple[str, ...]] | None = None
) -> StabDecision:
    """The published rule on traces by the backend that each was taken for; a backend without a trace is passed over.

    ProblemError where no trace has the time of a whole run: the tool then ends without having decided.
    """
    listed = OP_LIST if op_list is None else op_list
    backends = (_CPU, *listed)
    times, types = _tables(traces, backends)
    wholes = {b: graph.avg_us for b in backends if b in traces and (graph := traces[b].graph) is not None}
    if not wholes:
        raise ProblemError(
            "no trace holds the time of a whole run ('runtime'), so there is no default backend",
            hint=f"give traces of whole runs for: {', '.join(backends)}",
        )
    candidates = {type_ for types_ in listed.values() for type_ in types_}
    best: dict[int, str] = {}
    for index in sorted(times):
        if types[index] in candidates:
            fastest = _fastest(times[index], backends)
            if fastest is not None:
                best[index] = fastest
    default = min(wholes, key=lambda b: wholes[b])  # the first of equals, in the order of the list
    mapped = {index: backend for index, backend in best.items() if backend != default}
    told = {b: _sum([row.get(b, row.get(_CPU)) for row in times.values()]) for b in backends}
    scheduled = [row.get(best.get(i, "") if types[i] in candidates else _CPU) for i, row in times.items()]
    return StabDecision(
        default=default,
        best=best,
        mapped=mapped,
        typed=dict.fromkeys(listed.get(default, ()), default),
        backends=backends,
        told_us=told,
        scheduled_us=_sum(scheduled),
        ended_by=_ended_by(times, mapped, default),
    )


def _tables(traces: Mapping[str, Trace], backends: tuple[str, ...]) -> tuple[dict[int, dict[str, int]], dict[int, str]]:
    """Average times by operator and backend, and types by operator, filled in the tool's order: files as listed, then
    backends and names by the alphabet, as onert's JSON writer leaves them. The first type of an index stays, the last
    time counts.
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
    """The first backend of least time; as long as the least is 0 us, the tool takes whatever comes next."""
    chosen, least = None, 0
    for backend in backends:
        if backend in times and (least == 0 or times[backend] < least):
            chosen, least = backend, times[backend]
    return chosen


def _sum(values: list[int | None]) -> int | None:
    return None if None in values else sum(v for v in values if v is not None)


def _ended_by(times: Mapping[int, Mapping[str, int]], mapped: Mapping[int, str], default: str) -> str:
    """The error that the tool ends with while it adds up its predictions, or "": it looks up times that may not be."""
    for index in sorted(times):
        if _CPU not in times[index]:
            return f"KeyError: operator {index} has no time on cpu"
    for index in sorted(mapped):
        if default not in times[index]:
            return f"KeyError: operator {index} has no time on the default backend {default}"
    return ""
