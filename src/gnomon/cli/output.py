"""What commands write: one JSON document, or lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

from gnomon.report.plain import finite


def write_json(document: dict[str, Any] | list[Any]) -> None:
    """The document on the standard output, indented; a number that is not finite becomes null."""
    # ASCII: no terminal, log or locale can misread it, and no control character of a model's names gets through.
    sys.stdout.write(json.dumps(finite(document), indent=1, ensure_ascii=True, allow_nan=False) + "\n")
    sys.stdout.flush()


def write_lines(lines: Iterable[str]) -> None:
    """Lines on the standard output, one at a time, as UTF-8 whatever the locale."""
    out = sys.stdout.buffer
    for line in lines:
        out.write(line.encode("utf-8", "backslashreplace") + b"\n")
    out.flush()
