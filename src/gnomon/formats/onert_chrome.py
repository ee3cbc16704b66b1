"""onert's ``trace.chrome.json``: when each operator began and ended, and on which backend, call by call.

Source: ``ChromeTracingEventWriter.cc`` in ``runtime/onert/core/src/util`` of Samsung ONE. Events are those of Chrome's
trace format, ``B`` and ``E`` with whole microseconds in `ts`; an operator is named "@3 Conv2D", and its thread
"$0 sess, $0 subg, cpu" holds session, subgraph and backend.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn

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
    """The operators of subgraph 0, by index and backend. ProblemError for what is no such trace."""
    if len(text) > MOST_BYTES:
        _fail(f"{len(text)} bytes, and no more than {MOST_BYTES} are read")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        _fail(f"no JSON: {str(error)[:100]}")
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
        _fail("an event that is no object")
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
