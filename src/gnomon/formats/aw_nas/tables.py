"""Tables of aw_nas: accuracies and latencies of base networks, and the latencies that a search looks up.

The published profiler of search spaces writes ``accuracy_table.yaml`` (0 to 1) and ``latency_table.yaml`` (in the
board's unit, milliseconds) with PyYAML: ``<id>: <number>``, sorted, with one entry on each line (in flow style before
PyYAML 5.1). An id looks like ``Mobile_1_1_3_1_1``, or ``Mobileblock_1+VGGblock_3`` for a network of several families.
Output has exactly the form that PyYAML writes, letter for letter.

The lookup table is text with one line for each layer, which has one number for each primitive, in milliseconds,
separated by spaces. It is the ``latency_file`` of aw_nas's ``LatencyObjective``, which adds up one number from each
line. The numbers on a line are in the order of ``cell_shared_primitives`` of the layer's cell group.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from gnomon.core.strict_json import Complaints, file_text, shown
from gnomon.errors import ProblemError
from gnomon.formats.yaml import read_yaml

_MOST_LETTERS = 4 << 20
_MOST_NODES = 200_000
_MOST_NAME = 1024
_LONG = 123  # PyYAML puts "? " before a key of at least this length, and breaks the line after it
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*_[0-9]+(\+[A-Za-z][A-Za-z0-9_]*_[0-9]+)*", re.ASCII)
_NUMBER = re.compile(
    r"[-+]?(0|[1-9][0-9]{0,30}|[0-9]{0,30}\.[0-9]{1,30}|[0-9]{1,30}\.)([eE][-+]?[0-9]{1,3})?", re.ASCII
)
_HINT = "Give a table with a line for each network: its id, a colon, and a number."


def read_accuracies(text: str | bytes) -> dict[str, float]:
    """Accuracies by network, from 0 to 1. ProblemError with all faults, each with its line."""
    return _read(text, "accuracy table", 1.0)


def read_latencies(text: str | bytes) -> dict[str, float]:
    """Latencies by network, above 0. ProblemError with all faults, each with its line."""
    return _read(text, "latency table", math.inf)


def write_flat_table(table: Mapping[str, float]) -> str:
    """The table, sorted by id. ProblemError for an invalid id or a number that is not finite."""
    wrong = [name for name, value in table.items() if not _good(name) or not math.isfinite(value)]
    if wrong:
        raise ProblemError(
            f"a table of networks cannot hold these rows: {', '.join(shown(name) for name in wrong[:20])}",
            hint="Give ids such as Mobile_1_1_3, and finite numbers.",
        )
    return "".join(_written(name, float(table[name])) for name in sorted(table)) or "{}\n"


def _written(name: str, value: float) -> str:
    number = repr(value)
    if "." not in number:  # YAML 1.1 has no number without a point before its exponent
        number = number.replace("e", ".0e")
    return f"{name}: {number}\n" if len(name) < _LONG else f"? {name}\n: {number}\n"


def _read(text: str | bytes, what: str, most: float) -> dict[str, float]:
    whole = file_text(text, what, _HINT, _MOST_LETTERS).replace("\ufeff", "")
    table, complaints = read_yaml(whole, what, _HINT, most_nodes=_MOST_NODES), Complaints(what=what, hint=_HINT)
    is_latency = most == math.inf
    expected = "a number above 0" if is_latency else f"a number from 0 to {most:g}"
    numbers: dict[str, float] = {}
    for key, node in table.value if table.id == "mapping" else ():
        name, place = key.value, f"line {key.start_mark.line + 1}"
        text = node.value if node.id == "scalar" and not node.style else ""
        number = float(text) if _NUMBER.fullmatch(text) else math.nan
        if not _good(name):
            complaints.tell(place, f"the id of a network, such as Mobile_1_1_3, expected, {shown(name)} found")
        elif not (0 < number < math.inf if is_latency else 0 <= number <= most):
            percent = " (divide percentages by 100)" if not is_latency and most < number <= 100 else ""
            complaints.tell(place, f"{expected}{percent} expected for {name[:60]}, {shown(text)} found")
        numbers[name] = number
    if not numbers:
        complaints.tell("line 1", "the table has no network")
    complaints.raise_any()
    return numbers


def _good(name: str) -> bool:
    return len(name) <= _MOST_NAME and _NAME.fullmatch(name) is not None


def write_lookup(rows: Sequence[Sequence[float]]) -> str:
    """The lookup table, with as many digits as are needed to read each number back exactly.

    ProblemError if there is no layer, a layer has no number, or a number is not finite.
    """
    if not rows or not all(rows) or not all(math.isfinite(ms) for row in rows for ms in row):
        raise ProblemError(
            "the lookup table needs a finite number for each layer and primitive",
            hint="Give at least one layer, each with at least one number, all finite.",
        )
    return "".join(" ".join(repr(float(ms)) for ms in row) + "\n" for row in rows)
