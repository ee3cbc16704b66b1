"""onert's ``trace.chrome.json``: when each operator began and ended, and on which backend, call by call.

Source: ``ChromeTracingEventWriter.cc`` in ``runtime/onert/core/src/util`` of Samsung ONE. Events are those of Chrome's
trace format, ``B`` and ``E`` with whole microseconds in `ts`; an operator is named "@3 Conv2D", and its thread
"$0 sess, $0 subg, cpu" holds session, subgraph and backend.

onert's ``trace.json``: the SNPE benchmark layout, version "2", that the backend scheduler stab reads.

Source: ``SNPEEventWriter.cc`` in ``runtime/onert/core/src/util`` and ``tools/stab`` of Samsung ONE. Times are integer
microseconds, the average rounded down. Operators are named "$3 ADD" (oldest), "$0 subgraph $3 Add", or, where a process
had several sessions, "$1 session $2 subgraph $3 Add". A key ``gnomon`` beside ``Execution_Data``, which other
readers do not look at, holds where the trace comes from.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn

from gnomon.core.sample import Origin, Spread, Trace, TraceOperator
from gnomon.core.strict_json import Strict, is_text, shown
from gnomon.errors import ProblemError

MOST_BYTES = 256 << 20
"""The longest trace that is read: some million events."""
_EVENT = re.compile(r"@([0-9]{1,9}) (\S{1,200})")
_PLACE = re.compile(r"\$[0-9]{1,9} sess, \$([0-9]{1,9}) subg, (\S{1,200})")
_MOST_US = 10**17


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedOperator:
    """An operator of the main graph on a backend: its index and type, and the microseconds of each call, in order."""

    index: int
    type: str
    backend: str
    calls_us: tuple[int, ...]


def read_chrome_trace(text: bytes) -> tuple[TracedOperator, ...]:
    """The operators of subgraph 0, by index and backend. ProblemError for what is not such a trace."""
    if len(text) > MOST_BYTES:
        _fail(f"{len(text)} bytes, and no more than {MOST_BYTES} are read")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        _fail(f"not JSON: {str(error)[:100]}")
    events = data.get("traceEvents") if isinstance(data, dict) else None
    if not isinstance(events, list):
        _fail("no list of traceEvents")
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
                _fail(f"operator {key[0]} ends before it begins")
            times.setdefault(key, []).append(took_us)
    return tuple(
        TracedOperator(index=key[0], type=types[key], backend=key[1], calls_us=tuple(times[key]))
        for key in sorted(times)
    )


def _event(event: Any) -> tuple[tuple[int, str], str, str, int] | None:
    """Index and backend, type, phase and microseconds of an operator's event; None for all other events."""
    if not isinstance(event, dict):
        _fail("an event that is not an object")
    name, thread, phase, at = (event.get(key) for key in ("name", "tid", "ph", "ts"))
    if not isinstance(name, str) or not isinstance(thread, str) or phase not in ("B", "E"):
        return None
    operator, place = _EVENT.fullmatch(name), _PLACE.fullmatch(thread)
    if operator is None or place is None or int(place[1]) != 0:
        return None
    if not isinstance(at, str | int) or not re.fullmatch("[0-9]{1,17}", str(at)) or int(at) > _MOST_US:
        _fail(f"an event of operator {operator[1]} has no whole microseconds")
    return (int(operator[1]), place[2]), operator[2], phase, int(at)


def _fail(what: str) -> NoReturn:
    raise ProblemError(
        f"the trace is malformed: {what}", hint="Give the trace.chrome.json that onert wrote under TRACING_MODE=1."
    )


MOST_LETTERS = 16 << 20
"""The longest text that is read: some hundred thousand operators."""
_NAME = re.compile(
    r"(?:(?:\$([0-9]{1,9}) session )?\$([0-9]{1,9}) subgraph )?"
    r"\$([0-9]{1,9}) (?!(?:subgraph|session) )(\S(?:.*\S)?)"
)
_NOT_BACKENDS = ("memory", "runtime")
_STATISTICS = ("Avg_Time", "Min_Time", "Max_Time")
_TRACE_MOST_US = 10**15
_HINT = "give a trace.json that onert wrote under TRACING_MODE=1, or measure again without --no-profile"
_FILE = Strict(what="trace", hint=_HINT, most_letters=MOST_LETTERS)
_TEXTS = ("model_sha256", "device", "backend", "runtime")


def read_trace(text: str | bytes) -> Trace:
    """Reads a trace, as JSON text (UTF-8 if bytes).

    Raises ProblemError, which names the path inside the file, for whatever is wrong with it.
    """
    data = _FILE.object(_FILE.parse(text), "$")
    version = data.get("version", "1")
    if version not in ("1", "2"):
        _FILE.fail("$.version", f"'2' expected, {shown(version)} found")
    if "Execution_Data" not in data:
        _FILE.fail("$.Execution_Data", "missing, so this is not a trace of onert")
    whole = _FILE.object(data["Execution_Data"], "$.Execution_Data")
    _FILE.object(whole.get("memory", {}), "$.Execution_Data.memory")
    operators: dict[tuple[int, int, int, str], TraceOperator] = {}
    for backend, entries in whole.items():
        if backend in _NOT_BACKENDS:
            continue
        here = f"$.Execution_Data[{shown(backend)}]"
        for name, entry in _FILE.object(entries, here).items():
            operator = _operator(name, backend, entry, f"{here}[{shown(name)}]")
            key = (*_place(operator), backend)
            if key in operators:
                _FILE.fail(
                    f"{here}[{shown(name)}]", f"operator {operator.index} has a time on {shown(backend)} already"
                )
            operators[key] = operator
    _check_types(list(operators.values()))
    graph = _graph(whole.get("runtime", {}))
    if not operators and graph is None:
        _FILE.fail("$.Execution_Data", "no operator and no whole run in it: nothing was traced")
    ordered = sorted(operators.values(), key=lambda op: (*_place(op), op.backend))
    return Trace(operators=tuple(ordered), graph=graph, version=version, origin=_origin(data.get("gnomon")))


def write_trace(trace: Trace) -> str:
    """The JSON text of a trace, as onert lays it out: what `read_trace` reads back as an equal one."""
    data: dict[str, Any] = {"memory": {}, "runtime": {}}
    if trace.graph is not None:
        data["runtime"]["Graph"] = {**_times(trace.graph), "Runtime": "runtime"}
    for operator in trace.operators:
        entry = {**_times(operator.time), "Runtime": operator.backend}
        data.setdefault(operator.backend, {})[operator.name] = entry
    document: dict[str, Any] = {"Execution_Data": data, "version": trace.version}
    if trace.origin is not None:
        origin = trace.origin
        texts = {name: getattr(origin, name) for name in _TEXTS}
        document["gnomon"] = {
            **texts,
            "threads": origin.threads,
            "taken_at_s": origin.taken_at_s,
            "runs": origin.runs,
        }
    return json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n"


def _operator(name: str, backend: str, entry: Any, path: str) -> TraceOperator:
    match = _NAME.fullmatch(name)
    if match is None:
        _FILE.fail(path, "a name such as '$0 subgraph $3 Conv2D' expected")
    session, subgraph = (None if part is None else int(part) for part in match.group(1, 2))
    time = _spread(entry, path)
    if any(not is_text(part) for part in (backend, match[4])):
        _FILE.fail(path, "half a surrogate pair is not valid text")
    return TraceOperator(
        index=int(match[3]), type=match[4], backend=backend, time=time, subgraph=subgraph, session=session
    )


def _place(operator: TraceOperator) -> tuple[int, int, int]:
    """Which operator it is: where the session and the subgraph are not named, they are the first."""
    return operator.session or 0, operator.subgraph or 0, operator.index


def _check_types(operators: list[TraceOperator]) -> None:
    types: dict[tuple[int, int, int], TraceOperator] = {}
    for operator in operators:
        first = types.setdefault(_place(operator), operator)
        if first.type != operator.type:
            told = f"operator {operator.index} is {shown(operator.type)} here and {shown(first.type)} elsewhere"
            _FILE.fail(f"$.Execution_Data[{shown(operator.backend)}]", told)


def _graph(data: Any) -> Spread | None:
    found = _FILE.object(data, "$.Execution_Data.runtime")
    return _spread(found["Graph"], "$.Execution_Data.runtime.Graph") if "Graph" in found else None


def _spread(data: Any, path: str) -> Spread:
    entry = _FILE.object(data, path)
    values = []
    for key in _STATISTICS:
        value = entry.get(key)
        if type(value) is not int or not 0 <= value <= _TRACE_MOST_US:
            _FILE.fail(f"{path}.{key}", f"a whole number of microseconds expected, {shown(value)} found")
        values.append(value)
    avg, least, most = values
    if not least <= avg <= most:
        _FILE.fail(path, f"the average {avg} does not lie between {least} and {most}")
    return Spread(avg_us=avg, min_us=least, max_us=most)


def _origin(data: Any) -> Origin | None:
    if data is None:
        return None
    found = _FILE.object(data, "$.gnomon")
    for key in _TEXTS:
        if not isinstance(found.get(key), str) or not is_text(found[key]):
            _FILE.fail(f"$.gnomon.{key}", f"a text expected, {shown(found.get(key))} found")
    for key in ("threads", "runs"):
        if type(found.get(key)) is not int or found[key] < 0:
            _FILE.fail(f"$.gnomon.{key}", f"a whole number expected, {shown(found.get(key))} found")
    taken = found.get("taken_at_s")
    if not isinstance(taken, int | float) or isinstance(taken, bool) or not 0 <= taken < 1e15:
        _FILE.fail("$.gnomon.taken_at_s", f"seconds since 1970 expected, {shown(taken)} found")
    numbers = {key: found[key] for key in ("threads", "runs")}
    return Origin(**{key: found[key] for key in _TEXTS}, **numbers, taken_at_s=float(taken))


def _times(time: Spread) -> dict[str, int]:
    return {"Avg_Time": time.avg_us, "Max_Time": time.max_us, "Min_Time": time.min_us}
