"""The meta file of a table of SNPE times, which describes the measurement.

The meta file next to a latency table of nnabla-nas has ``key:value`` lines about the phone and the SDK. It is a csv
with colons as separators, so a key or a value that contains a colon is quoted: ``"SNPE SDK version:":1.33.1.608``.
Lines end in CR LF. Source: create_latency_table.py of sony/nnabla-nas.
"""

from __future__ import annotations

from collections.abc import Mapping

from gnomon.core.strict_json import Complaints, shown
from gnomon.formats.snpe.table import csv_rows, line_of, written

META_KEYS = (
    "ro.product.model",
    "ro.product.board",
    "ro.product.cpu.abi",
    "ro.build.version.sdk",
    "ro.product.manufacturer",
    "Date",
    "Architectures",
    "Devices",
    "SNPE SDK version:",
)
"""The keys that create_latency_table.py takes from the results of snpe-bench, in its order."""

_HINT = "Give the .meta file that create_latency_table.py of nnabla-nas wrote beside its csv."
_MOST_LINES = 10_000


def read_snpe_meta(text: str | bytes) -> dict[str, str]:
    """The keys and values of a meta file, in its order. Files that lost their quotes are read too.

    ProblemError with all faults, each with its line.
    """
    complaints = Complaints(what="meta file of a latency table", hint=_HINT)
    values: dict[str, str] = {}
    for line, row in csv_rows(text, complaints, _MOST_LINES, ":"):
        key, value = _pair(row)
        if value is None or not key:
            complaints.tell(line_of(line), f"key:value expected, {shown(':'.join(row))} found")
        elif key in values:
            complaints.tell(line_of(line), f"an earlier line has the key {shown(key)} already")
        else:
            values[key] = value
    complaints.raise_any()
    return values


def write_snpe_meta(meta: Mapping[str, str]) -> str:
    """The meta file, exactly as create_latency_table.py writes it."""
    return written(meta.items(), ":")


def _pair(row: list[str]) -> tuple[str, str | None]:
    if len(row) == 2:
        return row[0], row[1]
    whole = ":".join(row)
    for key in META_KEYS:  # one of the keys ends in a colon
        if whole.startswith(f"{key}:"):
            return key, whole[len(key) + 1 :]
    return row[0], whole[len(row[0]) + 1 :] if len(row) > 1 else None
