"""Texts of foreign origin made safe to show, and numbers made safe for JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gnomon.errors import legible


def clean(text: str, *, lines: bool = False) -> str:
    """The text with control and formatting characters escaped, such as ``\\x1b``; `lines` keeps line ends.

    Names in a model file come from anywhere: they shall not steer a terminal, reorder its text or break a table.
    """
    return legible(text, lines=lines)


def shorten(text: str, width: int) -> str:
    """The text cleaned, in at most `width` characters: the middle gives way, since names differ at their ends."""
    text = clean(text)
    if len(text) <= width:
        return text
    head = (width - 2) // 2
    return f"{text[:head]}..{text[len(text) - (width - head - 2) :]}"


def finite(value: Any) -> Any:
    """JSON values of a value: tuples become lists, numbers that are not finite None, mapping keys texts."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
