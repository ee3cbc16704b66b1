"""Accuracy and latency tables of base networks: flat YAML, ``<id>: <number>``, sorted, one a line.

The published profiler of search spaces writes ``accuracy_table.yaml`` (0 to 1) and ``latency_table.yaml`` (in the unit
of its board, milliseconds) so, with PyYAML. An id is such as ``Mobile_1_1_3_1_1``, or ``Mobileblock_1+VGGblock_3`` for
a network of several families. Written is what PyYAML writes, letter for letter; read is that, the flow style of PyYAML
before 5.1, and no other YAML: so no file can make anything, or grow.

The latency lookup table of aw_nas: a line a layer, a number a primitive, in milliseconds, with blanks between.

Source: ``LatencyObjective`` of aw_nas, whose ``latency_file`` it is, and which adds up one number of each line. The
numbers of a line stand in the order of ``cell_shared_primitives`` of the layer's cell group.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from gnomon.core.strict_json import Complaints, shown
from gnomon.errors import ProblemError
from gnomon.formats.snpe.table import csv_text, line_of

_MOST_ROWS = 1 << 18
_MOST_NAME = 1024
_LONG = 123  # PyYAML puts "? " before a key of this length, and breaks the line behind it
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*_[0-9]+(\+[A-Za-z][A-Za-z0-9_]*_[0-9]+)*", re.ASCII)
_NUMBER = re.compile(
    r"[-+]?(0|[1-9][0-9]{0,30}|[0-9]{0,30}\.[0-9]{1,30}|[0-9]{1,30}\.)([eE][-+]?[0-9]{1,3})?", re.ASCII
)
_SPECIAL = re.compile(r"[-+]?\.?(inf|nan)(inity)?", re.ASCII | re.IGNORECASE)
_ROW = re.compile(r"(?P<quote>['\"]?)(?P<name>[^'\":\s]*)(?P=quote)\s*:(\s+(?P<value>.*))?")
_HINT = "Give a table of networks, a line each: its id, a colon, and a number."


def read_accuracies(text: str | bytes) -> dict[str, float]:
    """Accuracies by network, from 0 to 1. ProblemError with everything that is wrong, each with its line."""
    return _read(text, "accuracy table", 1.0)


def read_latencies(text: str | bytes) -> dict[str, float]:
    """Latencies by network, above 0. ProblemError with everything that is wrong, each with its line."""
    return _read(text, "latency table", math.inf)


def write_flat_table(table: Mapping[str, float]) -> str:
    """The table, sorted by id. ProblemError for an id that is none, and for a number that is not finite."""
    wrong = [name for name, value in table.items() if not _good(name) or not math.isfinite(value)]
    if wrong:
        raise ProblemError(
            f"these rows cannot be written: {', '.join(shown(name) for name in wrong[:20])}",
            hint="Give networks by their ids, and finite numbers.",
        )
    return "".join(_written(name, float(table[name])) for name in sorted(table)) or "{}\n"


def _written(name: str, value: float) -> str:
    number = repr(value)
    if "." not in number:  # YAML 1.1 has no number without a point before its exponent
        number = number.replace("e", ".0e")
    return f"{name}: {number}\n" if len(name) < _LONG else f"? {name}\n: {number}\n"


def _read(text: str | bytes, what: str, most: float) -> dict[str, float]:
    complaints = Complaints(what=what, hint=_HINT)
    found: dict[str, float] = {}
    seen: dict[str, int] = {}
    for line, name, value in _rows(csv_text(text, what, _HINT), complaints):
        before = seen.setdefault(name, line)
        if len(seen) > _MOST_ROWS:
            complaints.tell(line_of(line), f"more than {_MOST_ROWS} networks")
            break
        if not _good(name):
            complaints.tell(line_of(line), f"the id of a network such as Mobile_1_1_3 expected, {shown(name)} found")
        elif before != line:
            complaints.tell(line_of(line), f"the network {name[:60]} is there already, in line {before}")
        elif (wrong := _wrong(value, most)) is not None:
            complaints.tell(line_of(line), f"{wrong} expected for {name[:60]}, {shown(value)} found")
        else:
            found[name] = float(value)
    if not found and not complaints.told:
        complaints.tell(line_of(1), "no network at all")
    complaints.raise_any()
    return found


def _good(name: str) -> bool:
    return len(name) <= _MOST_NAME and _NAME.fullmatch(name) is not None


def _wrong(text: str, most: float) -> str | None:
    """What is expected in place of a value, if it is wrong."""
    least_told = "a number above 0" if most == math.inf else f"a number from 0 to {most:g}"
    if not _NUMBER.fullmatch(text):
        return f"{least_told}, not infinite," if _SPECIAL.fullmatch(text) else least_told
    value = float(text)
    good = 0 < value < math.inf if most == math.inf else 0 <= value <= most
    return None if good else least_told


def _rows(text: str, complaints: Complaints) -> Iterator[tuple[int, str, str]]:
    """Line, id and value of each row that is one; what is none is told."""
    pending: tuple[int, str] | None = None
    for number, row in _pieces(text):
        if pending is not None:
            line, name = pending
            pending = None
            if row.startswith(":"):
                yield line, name, row[1:].strip()
                continue
            complaints.tell(line_of(line), f"no number behind {shown(name)}")
        if row.startswith("? "):
            pending = number, row[2:].strip().strip("'\"")
            continue
        match = _ROW.fullmatch(row)
        if match is None:
            complaints.tell(line_of(number), f"an id, a colon and a number expected, {shown(row)} found")
        else:
            yield number, match["name"], (match["value"] or "").strip()
    if pending is not None:
        complaints.tell(line_of(pending[0]), f"no number behind {shown(pending[1])}")


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """The rows without comments: lines, or what stands between the commas of ``{..}``."""
    lines = [
        (number, bare)
        for number, row in enumerate(text.split("\n"), 1)
        if (bare := re.sub(r"(^|\s)#.*$", "", row).rstrip()) and not (number == 1 and bare == "---")
    ]
    if not (lines and lines[0][1].startswith("{") and lines[-1][1].endswith("}")):
        yield from lines
        return
    lines[0] = (lines[0][0], lines[0][1][1:])
    lines[-1] = (lines[-1][0], lines[-1][1][:-1])
    for number, row in lines:
        for piece in row.split(","):
            if piece.strip():
                key, mark, rest = piece.strip().partition(" : ")  # "? long id : 1.0"
                if mark and key.startswith("? "):
                    yield number, key
                    yield number, f": {rest}"
                else:
                    yield number, piece.strip()


_LOOKUP_TEXT_HINT = (
    "Give a line a layer, with a number of milliseconds for each primitive of its cell group, blanks between."
)
_WHAT = "lookup table"
_MOST_LAYERS = 10_000
_MOST_PRIMITIVES = 10_000
_LOOKUP_TEXT_NUMBER = re.compile(r"[-+]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][-+]?[0-9]{1,3})?", re.ASCII)


def read_lookup(text: str | bytes, widths: Sequence[int] | None = None) -> tuple[tuple[float, ...], ...]:
    """Milliseconds by layer and primitive; with `widths`, layer l must have `widths[l]` of them.

    A number may be below 0: what a layer is corrected by may be more than it takes. ProblemError with everything that
    is wrong, each with its line.
    """
    complaints = Complaints(what=_WHAT, hint=_LOOKUP_TEXT_HINT)
    rows = csv_text(text, _WHAT, _LOOKUP_TEXT_HINT).replace("\r\n", "\n").removesuffix("\n").split("\n")
    if len(rows) > _MOST_LAYERS:
        raise ProblemError(
            f"the {_WHAT} has {len(rows)} lines, and no more than {_MOST_LAYERS} are read", hint=_LOOKUP_TEXT_HINT
        )
    if widths is not None and len(rows) != len(widths):
        complaints.tell(line_of(len(rows)), f"{len(rows)} lines, and there are {len(widths)} layers")
    found = []
    for number, row in enumerate(rows, 1):
        words = row.split()
        wrong = [word for word in words if not _LOOKUP_TEXT_NUMBER.fullmatch(word) or math.isinf(float(word))]
        wanted = widths[number - 1] if widths is not None and number <= len(widths) else None
        if not words:
            complaints.tell(line_of(number), "no number at all")
        elif len(words) > _MOST_PRIMITIVES:
            complaints.tell(line_of(number), f"more than {_MOST_PRIMITIVES} numbers")
        elif wrong:
            complaints.tell(line_of(number), f"finite numbers expected, {', '.join(map(shown, wrong[:3]))} found")
        elif wanted is not None and len(words) != wanted:
            complaints.tell(line_of(number), f"{len(words)} numbers, and the layer's group has {wanted} primitives")
        else:
            found.append(tuple(float(word) for word in words))
    complaints.raise_any()
    return tuple(found)


def write_lookup(rows: Sequence[Sequence[float]]) -> str:
    """The table, each number with as many digits as it takes to read it again.

    ProblemError for no layer, a layer without a number, and a number that is not finite.
    """
    if not rows or not all(rows) or not all(math.isfinite(ms) for row in rows for ms in row):
        raise ProblemError(
            f"the {_WHAT} needs a finite number for each layer and primitive",
            hint="Give layers, each with its numbers.",
        )
    return "".join(" ".join(repr(float(ms)) for ms in row) + "\n" for row in rows)
