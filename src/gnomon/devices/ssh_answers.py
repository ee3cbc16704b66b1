"""What a keeper answers, read without trusting it: a device may be broken, or somebody else's."""

from __future__ import annotations

import json
from typing import Any, TypeVar

T = TypeVar("T")


class NonsenseError(Exception):
    """An answer that no keeper gives; `told` is its beginning."""

    def __init__(self, told: bytes) -> None:
        super().__init__(told)
        self.told = told[:80]


def message_of(payload: bytes) -> dict[str, Any]:
    """The JSON object of a frame. NonsenseError if it is none, or holds what JSON has no number for."""
    try:
        message = json.loads(payload, parse_constant=_no_number)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise NonsenseError(payload)
    return message


def _no_number(name: str) -> None:
    raise ValueError(name)


def field_of(message: dict[str, Any], name: str, kind: type[T]) -> T:
    """A field of an object. NonsenseError if it is not there, or of another kind."""
    value = message.get(name)
    if not isinstance(value, kind):
        raise NonsenseError(f"{name}: {value!r:.60}".encode())
    return value


def count_of(payload: bytes) -> int:
    """The number of bytes that a frame tells of. NonsenseError if it is none."""
    if not payload.isdigit() or len(payload) > 12:
        raise NonsenseError(payload)
    return int(payload)
