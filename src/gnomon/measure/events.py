"""The events that the agent may write (docs/agent.md), read without trusting them: a device may be somebody else's."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from gnomon.errors import AgentError
from gnomon.measure.environment import judge

Event = dict[str, Any]
_Check = Callable[[Any], bool]

_MOST_NS = 1 << 62


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _truth(value: Any) -> bool:
    return isinstance(value, bool)


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST_NS


def _times(value: Any) -> bool:
    return isinstance(value, list) and all(map(_count, value))


def _kernels(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(row, dict)
        and _text(row.get("name"))
        and _text(row.get("backend"))
        and _times(row.get("wall_ns"))
        and isinstance(row.get("sources"), list)
        and all(_text(source) or _count(source) for source in row["sources"])
        for row in value
    )


def _energy(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    numbers = (value.get("spent_uj", 0), value.get("wall_ns", 0))
    return _text(value.get("unknown")) or all(_count(number) and number > 0 for number in numbers)


def _snapshots(value: Any) -> bool:
    """Whether it can be judged, as every report does later."""
    try:
        judge(value["before"], value["after"])
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError):
        return False
    return True


def _or_nothing(check: _Check) -> _Check:
    return lambda value: value is None or check(value)


#: The fields that each event must have.
_FIELDS: Mapping[str, Mapping[str, _Check]] = {
    "alive": {},
    "end": {},
    "answer": {"key": _text, "answer": _object},
    "failure": {
        "candidate": _text,
        "stage": _text,
        "kind": _text,
        "transient": _truth,
        "message": _text,
        "log_tail": _text,
    },
    "environment": {"data": _snapshots},
    "opened": {"candidate": _text},
    "block": {
        "candidate": _text,
        "block": _count,
        "started_at_s": _seconds,
        "wall_ns": lambda value: _times(value) and len(value) > 0,
        "cpu_ns": _times,
        "inner": lambda value: _count(value) and value > 0,
        "peak_rss_bytes": _or_nothing(_count),
    },
}
#: And those that they may have.
_MORE: Mapping[str, Mapping[str, _Check]] = {
    "failure": {"block": _count, "hint": _text},
    "opened": {"where": lambda value: isinstance(value, list), "sensitivity": _object, "difference": _object},
    "block": {"operators": _kernels, "waits": _or_nothing(_count), "energy": _energy},
}


def event_of(line: str) -> Event:
    """The event of a line. AgentError if it is none that the protocol knows."""
    try:
        event: Event = json.loads(line)
        kind = event["event"]
        needed, more = _FIELDS[kind], _MORE.get(kind, {})
        if all(name in event and check(event[name]) for name, check in needed.items()) and all(
            check(event[name]) for name, check in more.items() if name in event
        ):
            return event
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise senseless(line)


def senseless(line: str) -> AgentError:
    """The error for a line that cannot be meant."""
    return AgentError(
        f"the agent wrote a line that is no event: {line[:200]!r}", hint="Please report this, with the line."
    )


def check_asked(event: Event, visits: Mapping[str, frozenset[int]]) -> None:
    """AgentError for what was measured of a candidate, or in a visit, that the request does not name.

    `visits` are those that were asked for, by the candidates' keys.
    """
    if event["event"] not in ("opened", "block", "failure"):
        return
    key, block = event["candidate"], event.get("block", 0)
    if key not in visits or (event["event"] == "block" and block not in visits[key]):
        raise AgentError(
            f"the agent tells of visit {block} of {key[:80]!r}, which was not asked for", hint="Please report this."
        )
