"""Makes foreign texts safe to show, and numbers safe for JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.errors import legible
from gnomon.errors import many as many

_PLAIN = {str, int, float, bool, type(None)}


clean = legible
"""Escapes control and formatting characters of a text, such as ``\\x1b``; `lines` keeps line ends.

Names in a model file may come from anywhere, and must not control a terminal, reorder its text or break a table.
"""


def shorten(text: str, width: int, beginning: float = 0.5) -> str:
    """The cleaned text in at most `width` characters; its middle is left out, since names differ at their ends.

    `beginning` is the share of the kept characters that come from before the middle.
    """
    text = clean(text)
    if len(text) <= width:
        return text
    head = int((width - 2) * beginning)
    return f"{text[:head]}..{text[len(text) - (width - head - 2) :]}"


def untaken(name: str, taken: set[str], joint: str = "-") -> str:
    """A name, with a number after the `joint` if it is already `taken`; the result is added to `taken`.

    The names also differ on file systems that ignore case.
    """
    free, number = name, 1
    while free.casefold() in taken:
        number += 1
        free = f"{name}{joint}{number}"
    taken.add(free.casefold())
    return free


def json_text(document: Mapping[str, object] | Sequence[Any]) -> str:
    """The document as indented ASCII JSON with a final line break; each row of plain values is on one line.

    The fast encoder writes the rows, because the front of a large problem has millions of values. ASCII is used because
    no terminal, log or locale can misread it and no control character in a model's names gets through.
    """
    return _indented(document, "\n") + "\n"


def _indented(value: Any, end: str) -> str:
    """JSON of a value; `end` is a line break with the indentation of the last line."""
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
    """JSON of a value on one line; numbers that are not finite become null."""
    try:
        return json.dumps(value, allow_nan=False, separators=separators)
    except ValueError:
        return json.dumps(finite(value), allow_nan=False, separators=separators)


def listed(names: Sequence[str], most: int = 6) -> str:
    """A list of names: "a, b and c", or "a, of c; b" if a name has a comma. Beyond `most`, the rest is only counted."""
    if len(names) > most:
        names = [*names[: most - 1], f"{len(names) - most + 1} more"]
    if any("," in name for name in names):
        return "; ".join(names)
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def finite(value: Any) -> Any:
    """Convert to JSON values: tuples become lists, numbers that are not finite become None, and keys become strings."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


SEVERAL = "several families"
"""The replacement for a family's name if the networks belong to several families."""
