"""Tables that are scanned, read as a whole: whatever is wrong with one is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gnomon.core.strict_json import Complaints
from gnomon.formats.snpe.table import scan_snpe_csv, scan_snpe_json

Table = TypeVar("Table")


def whole(scan: Callable[[str | bytes], tuple[Table, Complaints]]) -> Callable[[str | bytes], Table]:
    """Reads by a scan. ProblemError with all of its complaints."""

    def read(text: str | bytes) -> Table:
        table, complaints = scan(text)
        complaints.raise_any()
        return table

    return read


read_snpe_csv, read_snpe_json = whole(scan_snpe_csv), whole(scan_snpe_json)
