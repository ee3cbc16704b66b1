"""onert's ``trace.chrome.json``: when each operator began and ended, and on which backend, call by call.

Source: ``ChromeTracingEventWriter.cc`` in ``runtime/onert/core/src/util`` of Samsung ONE. Events are those of Chrome's
trace format, ``B`` and ``E`` with whole microseconds in `ts`; an operator is named "@3 Conv2D", and its thread "$0
sess, $0 subg, cpu" holds the session, subgraph and backend.

The module also reads onert's ``trace.json``: version "2" of the SNPE benchmark layout, the input of the backend
scheduler stab.

Source: ``SNPEEventWriter.cc`` in ``runtime/onert/core/src/util`` and ``tools/stab`` of Samsung ONE. Times are integer
microseconds, with the average rounded down. Operators are named "$0 subgraph $3 Add", or "$3 ADD" in the oldest files,
or "$1 session $2 subgraph $3 Add" if a process had several sessions. The origin of the trace is under a key ``gnomon``
next to ``Execution_Data``; other readers ignore this key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from gnomon.core.codec import OTHERS_TOO, decode, read_json, to_json, within
from gnomon.core.sample import Origin, Spread, Trace, TraceOperator
from gnomon.core.strict_json import Complaints, Strict, is_text, shown
from gnomon.errors import ProblemError
from gnomon.wire import KernelTimes

_CHROME = Strict(
    what="trace", hint="Give the trace.chrome.json that onert wrote with TRACING_MODE=1.", most_letters=256 << 20
)
_EVENT = re.compile(r"@([0-9]{1,9}) (\S{1,200})")
_PLACE = re.compile(r"\$[0-9]{1,9} sess, \$([0-9]{1,9}) subg, (\S{1,200})")
_MOST_US = 10**17


def read_chrome_trace(text: bytes) -> tuple[KernelTimes, ...]:
    """The times of the operators of subgraph 0, with their types, indices and backends. ProblemError for any other
    content.
    """
    events = _CHROME.object(_CHROME.parse(text), "$").get("traceEvents")
    if not isinstance(events, list):
        _CHROME.fail("$.traceEvents", "a list expected")
    begun: dict[tuple[int, str], int] = {}
    types: dict[tuple[int, str], str] = {}
    times: dict[tuple[int, str], list[int]] = {}
    for event in events:
        read = _event(event)
        if read is None:
            continue
        key, kind, phase, at_us = read
        types.setdefault(key, kind)
        if phase == "B":
            begun[key] = at_us
        elif key in begun:
            took_us = at_us - begun.pop(key)
            if took_us < 0:
                _CHROME.fail("$.traceEvents", f"operator {key[0]} ends before it begins")
            times.setdefault(key, []).append(took_us * 1000)
    return tuple(
        {"name": types[key], "sources": [key[0]], "backend": key[1], "wall_ns": times[key]} for key in sorted(times)
    )


def _event(event: Any) -> tuple[tuple[int, str], str, str, int] | None:
    """The index and backend, type, phase and microseconds of an operator's event; None for any other event."""
    read = _CHROME.object(event, "$.traceEvents[]")
    name, thread, phase, at = (read.get(key) for key in ("name", "tid", "ph", "ts"))
    if not isinstance(name, str) or not isinstance(thread, str) or phase not in ("B", "E"):
        return None
    operator, place = _EVENT.fullmatch(name), _PLACE.fullmatch(thread)
    if operator is None or place is None or int(place[1]) != 0:
        return None
    if not isinstance(at, str | int) or not re.fullmatch("[0-9]{1,17}", str(at)) or int(at) > _MOST_US:
        _CHROME.fail("$.traceEvents", f"an event of operator {operator[1]} has no time in whole microseconds")
    return (int(operator[1]), place[2]), operator[2], phase, int(at)


MOST_LETTERS = 16 << 20
"""The longest text that is read: a few hundred thousand operators."""
_NAME = re.compile(
    r"(?:(?:\$([0-9]{1,9}) session )?\$([0-9]{1,9}) subgraph )?"
    r"\$([0-9]{1,9}) (?!(?:subgraph|session) )(\S(?:.*\S)?)"
)
_NOT_BACKENDS = ("memory", "runtime")
_TRACE_MOST_US = 10**15
_HINT = "Give a trace.json that onert wrote with TRACING_MODE=1, or measure again without --no-profile."
_FILE = Strict(what="trace", hint=_HINT, most_letters=MOST_LETTERS)
Micros = Annotated[int, within(0, _TRACE_MOST_US, "a whole number of microseconds")]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Times:
    """Times as onert writes them."""

    __pydantic_config__: ClassVar[Any] = OTHERS_TOO
    Avg_Time: Micros
    Min_Time: Micros
    Max_Time: Micros

    def __post_init__(self) -> None:
        if not self.Min_Time <= self.Avg_Time <= self.Max_Time:
            message = f"the average {self.Avg_Time} is not between {self.Min_Time} and {self.Max_Time}"
            raise ProblemError(message)

    @property
    def spread(self) -> Spread:
        """The times as a record."""
        return Spread(avg_us=self.Avg_Time, min_us=self.Min_Time, max_us=self.Max_Time)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Whole:
    __pydantic_config__: ClassVar[Any] = OTHERS_TOO
    Graph: _Times | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """The parts of a trace's file that are used."""

    __pydantic_config__: ClassVar[Any] = OTHERS_TOO
    version: Literal["1", "2"] = "1"
    Execution_Data: Mapping[str, Mapping[str, object]]
    gnomon: Origin | None = None


def read_trace(text: str | bytes) -> Trace:
    """Read a trace, as JSON text (UTF-8 if bytes).

    Raises ProblemError, with the path inside the file, for any fault in it.
    """
    complaints = Complaints(what=_FILE.what, hint=_HINT)
    read = read_json(_File, text, _FILE)
    whole: _Whole = decode(_Whole, read.Execution_Data.get("runtime", {}), complaints, "$.Execution_Data.runtime")
    operators: dict[tuple[int, int, int, str], TraceOperator] = {}
    for backend, entries in read.Execution_Data.items():
        if backend in _NOT_BACKENDS:
            continue
        here = f"$.Execution_Data[{shown(backend)}]"
        for name, entry in entries.items():
            place = f"{here}[{shown(name)}]"
            times: _Times = decode(_Times, entry, complaints, place)
            complaints.raise_any()
            operator = _operator(name, backend, times.spread, place)
            key = (*_place(operator), backend)
            if key in operators:
                _FILE.fail(place, f"operator {operator.index} has two times on {shown(backend)}")
            operators[key] = operator
    complaints.raise_any()
    _check_types(list(operators.values()))
    if not operators and whole.Graph is None:
        _FILE.fail("$.Execution_Data", "it contains neither operators nor a whole run, so nothing was traced")
    ordered = sorted(operators.values(), key=lambda op: (*_place(op), op.backend))
    graph = whole.Graph.spread if whole.Graph else None
    return Trace(operators=tuple(ordered), graph=graph, version=read.version, origin=read.gnomon)


def write_trace(trace: Trace) -> str:
    """The JSON text of a trace in onert's layout, which `read_trace` reads back as an equal trace."""
    data: dict[str, dict[str, object]] = {"memory": {}, "runtime": {}}
    if trace.graph is not None:
        data["runtime"]["Graph"] = {**_times(trace.graph), "Runtime": "runtime"}
    for operator in trace.operators:
        entry = {**_times(operator.time), "Runtime": operator.backend}
        data.setdefault(operator.backend, {})[operator.name] = entry
    document: dict[str, object] = {"Execution_Data": data, "version": trace.version}
    if trace.origin is not None:
        document["gnomon"] = to_json(trace.origin)
    return json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n"


def _operator(name: str, backend: str, time: Spread, path: str) -> TraceOperator:
    match = _NAME.fullmatch(name)
    if match is None:
        _FILE.fail(path, "a name such as '$0 subgraph $3 Conv2D' expected")
    session, subgraph = (None if part is None else int(part) for part in match.group(1, 2))
    if any(not is_text(part) for part in (backend, match[4])):
        _FILE.fail(path, "half a surrogate pair is not valid text")
    return TraceOperator(
        index=int(match[3]), type=match[4], backend=backend, time=time, subgraph=subgraph, session=session
    )


def _place(operator: TraceOperator) -> tuple[int, int, int]:
    """The session, subgraph and index of an operator; a session or subgraph that is not named is the first."""
    return operator.session or 0, operator.subgraph or 0, operator.index


def _check_types(operators: list[TraceOperator]) -> None:
    types: dict[tuple[int, int, int], TraceOperator] = {}
    for operator in operators:
        first = types.setdefault(_place(operator), operator)
        if first.type != operator.type:
            message = f"operator {operator.index} is {shown(operator.type)} here and {shown(first.type)} elsewhere"
            _FILE.fail(f"$.Execution_Data[{shown(operator.backend)}]", message)


def _times(time: Spread) -> dict[str, int]:
    return {"Avg_Time": time.avg_us, "Max_Time": time.max_us, "Min_Time": time.min_us}
