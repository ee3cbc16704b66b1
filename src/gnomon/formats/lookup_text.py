"""The latency lookup table of aw_nas: a line a layer, a number a primitive, in milliseconds, with blanks between.

Source: ``LatencyObjective`` of aw_nas, whose ``latency_file`` it is, and which adds up one number of each line. The
numbers of a line stand in the order of ``cell_shared_primitives`` of the layer's cell group.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from gnomon.core.strict_json import shown
from gnomon.errors import ProblemError
from gnomon.formats.complaints import Complaints
from gnomon.formats.snpe_csv import csv_text, line_of

_HINT = "Give a line a layer, with a number of milliseconds for each primitive of its cell group, blanks between."
_WHAT = "lookup table"
_MOST_LAYERS = 10_000
_MOST_PRIMITIVES = 10_000
_NUMBER = re.compile(r"[-+]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][-+]?[0-9]{1,3})?", re.ASCII)


def read_lookup(text: str | bytes, widths: Sequence[int] | None = None) -> tuple[tuple[float, ...], ...]:
    """Milliseconds by layer and primitive; with `widths`, layer l must have `widths[l]` of them.

    A number may be below 0: what a layer is corrected by may be more than it takes. ProblemError with everything that
    is wrong, each with its line.
    """
    complaints = Complaints(what=_WHAT, hint=_HINT)
    rows = csv_text(text, _WHAT, _HINT).replace("\r\n", "\n").removesuffix("\n").split("\n")
    if len(rows) > _MOST_LAYERS:
        raise ProblemError(f"the {_WHAT} has {len(rows)} lines, and no more than {_MOST_LAYERS} are read", hint=_HINT)
    if widths is not None and len(rows) != len(widths):
        complaints.tell(line_of(len(rows)), f"{len(rows)} lines, and there are {len(widths)} layers")
    found = []
    for number, row in enumerate(rows, 1):
        words = row.split()
        wrong = [word for word in words if not _NUMBER.fullmatch(word) or math.isinf(float(word))]
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
