"""Texts of foreign origin made safe to show, and numbers made safe for JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.errors import legible

_PLAIN = {str, int, float, bool, type(None)}


def clean(text: str, *, lines: bool = False) -> str:
    """The text with control and formatting characters escaped, such as ``\\x1b``; `lines` keeps line ends.

    Names in a model file come from anywhere: they shall not steer a terminal, reorder its text or break a table.
    """
    return legible(text, lines=lines)


def shorten(text: str, width: int, beginning: float = 0.5) -> str:
    """The text cleaned, in at most `width` characters: the middle gives way, since names differ at their ends.

    `beginning` is the share of what stays that is from before it.
    """
    text = clean(text)
    if len(text) <= width:
        return text
    head = int((width - 2) * beginning)
    return f"{text[:head]}..{text[len(text) - (width - head - 2) :]}"


def untaken(name: str, taken: set[str], joint: str = "-") -> str:
    """A name, with a number behind the `joint` where it is `taken` already; it is then taken too.

    No two are alike, also where capitals count for nothing, as on some file systems.
    """
    free, number = name, 1
    while free.casefold() in taken:
        number += 1
        free = f"{name}{joint}{number}"
    taken.add(free.casefold())
    return free


def json_text(document: Mapping[str, object] | Sequence[Any]) -> str:
    """The document as ASCII JSON with a line end: indented, but rows of plain values on one line each.

    Rows are left to the fast encoder: a front of a large problem has millions of values. ASCII, since no terminal, log
    or locale can misread it, and no control character of a model's names gets through.
    """
    return _indented(document, "\n") + "\n"


def _indented(value: Any, end: str) -> str:
    """JSON of a value, whose last line ends where `end`, a line end with blanks, leads to."""
    if not isinstance(value, Mapping | list | tuple) or not value:
        return json_row(value)
    further = end + " "
    if isinstance(value, Mapping):
        items = [f"{json_row(str(key))}: {_indented(item, further)}" for key, item in value.items()]
        return f"{{{further}{f',{further}'.join(items)}{end}}}"
    if all(kind in _PLAIN for kind in set(map(type, value))):
        return json_row(value)
    return f"[{further}{f',{further}'.join([_indented(item, further) for item in value])}{end}]"


def json_row(value: Any, *, separators: tuple[str, str] | None = None) -> str:
    """JSON of a value in one line; a number that is not finite becomes null."""
    try:
        return json.dumps(value, allow_nan=False, separators=separators)
    except ValueError:
        return json.dumps(finite(value), allow_nan=False, separators=separators)


def listed(names: Sequence[str], most: int = 6) -> str:
    """Names in a row: "a, b and c", or "a, of c; b" where one has a comma; of more than `most` how many more."""
    if len(names) > most:
        names = [*names[: most - 1], f"{len(names) - most + 1} more"]
    if any("," in name for name in names):
        return "; ".join(names)
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def many(count: int, name: str, several: str = "") -> str:
    """A count of things: "1 layer", "2 layers"."""
    return f"{count} {name if count == 1 else several or name + 's'}"


def finite(value: Any) -> Any:
    """JSON values of a value: tuples become lists, numbers that are not finite None, mapping keys texts."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


SEVERAL = "several families"
"""The word in the place of a family's name where the networks are of several."""
