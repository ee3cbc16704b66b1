"""A line of a profile's journals, read as what anybody may have written: every value of the kind that it must be."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from gnomon.core.strict_json import is_text, shown
from gnomon.formats.complaints import Complaints

HINT = "Give a folder that `gnomon space profile` made."
_NAME = re.compile(r"[A-Za-z0-9_+-]{1,20000}", re.ASCII)
_MOST = 1 << 53  # whole numbers up to here are exact as floats
_MOST_S = 1e12


def _text(value: Any) -> bool:
    return isinstance(value, str) and is_text(value)


def _name(value: Any) -> bool:
    """What may become a part of a file's name."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _whole(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST


def _number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and abs(value) <= _MOST


def _share(value: Any) -> bool:
    return _number(value) and 0 <= value <= 1


def _seconds(value: Any) -> bool:
    return _number(value) and 0 <= value <= _MOST_S


def _time(value: Any) -> bool:
    return _seconds(value) and value > 0


def _all(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _or_none(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value)


def _scores(value: Any) -> bool:
    return isinstance(value, dict) and all(one is None or _number(one) for one in value.values())


Kind = tuple[str, Callable[[Any], bool]]
_TEXT, _NAMED, _COUNT = ("a text", _text), ("a plain name", _name), ("a whole number from 0", _whole)
_SHARE = ("a share from 0 to 1, or null", _or_none(_share))
_SECONDS = ("seconds", _seconds)
_TEXTS = ("a list of texts", _all(_text))
_NAMES = ("a list of plain names", lambda value: _all(_name)(value) and bool(value))

ACCURACY_KINDS: Mapping[str, Kind] = {
    "key": _TEXT,
    "network": _NAMED,
    "primitives": _NAMES,
    "method": _NAMED,
    "stage": _NAMED,
    "seed": _COUNT,
    "epochs": _COUNT,
    "validation": _SHARE,
    "images": _COUNT,
    "test": _SHARE,
    "curve": ("a list of shares from 0 to 1", _all(_share)),
    "samples": _COUNT,
    "macs": _COUNT,
    "seconds": _SECONDS,
    "cpu_seconds": _SECONDS,
    "score": ("numbers by name", _scores),
    "at_s": _SECONDS,
    "reason": _TEXT,
    "notes": _TEXTS,
}
LATENCY_KINDS: Mapping[str, Kind] = {
    "key": _TEXT,
    "network": _NAMED,
    "primitives": _NAMES,
    "toolchain": _NAMED,
    "call_s": ("a time above 0, or null", _or_none(_time)),
    "low_s": ("a time from 0, or null", _or_none(_seconds)),
    "high_s": ("a time from 0, or null", _or_none(_seconds)),
    "processes": _COUNT,
    "drift": ("a number above 0", _time),
    "clock": _TEXT,
    "artifact": _TEXT,
    "steps": ("a list of objects", _all(lambda one: isinstance(one, dict))),
    "correct": _SHARE,
    "images": _COUNT,
    "quantised": _SHARE,
    "at_s": _SECONDS,
    "reason": _TEXT,
    "notes": _TEXTS,
    "context": ("texts by name", lambda value: isinstance(value, dict) and all(map(_text, value.values()))),
}


def checked_row(document: Mapping[str, Any], kinds: Mapping[str, Kind], needed: tuple[str, ...], where: str) -> Any:
    """The values of a line by name, lists as tuples. ProblemError with all that is wrong and its place."""
    complaints = Complaints(what="profile", hint=HINT)
    for name in needed:
        if name not in document:
            complaints.tell(where, f"{name} is missing")
    for name, value in document.items():
        if name not in kinds:
            complaints.tell(where, f"{shown(name)} is none of a line's keys")
        elif not kinds[name][1](value):
            complaints.tell(where, f"{name}: {kinds[name][0]} expected, {shown(value)} found")
    complaints.raise_any()
    return {name: tuple(value) if isinstance(value, list) else value for name, value in document.items()}
