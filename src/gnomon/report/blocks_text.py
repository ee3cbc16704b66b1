"""The report of `gnomon table blocks`, made from its JSON document alone."""

from __future__ import annotations

from typing import Any

from gnomon.report import units
from gnomon.report.text import Column, Page

_NAME = 100


def blocks_report(document: dict[str, Any], page: Page) -> None:
    """The blocks, the dearest first, and the sum of those that were named."""
    rows = sorted(document["blocks"], key=lambda row: -row["mean_s"])
    total = document["sum"]
    page.headline(
        f"{total['blocks']} block{'' if total['blocks'] == 1 else 's'}: {units.time(total['mean_s'])}."
        if total
        else f"{len(rows)} block{'' if len(rows) == 1 else 's'}."
    )
    columns = [
        Column(title="block", number=False, most=_NAME),
        Column(title="mean"),
        Column(title="deviation"),
    ]
    page.table(columns, [_cells(row) for row in rows])
    for told in document["left_out"]:
        page.item(f"left out: {told}")


def _cells(row: dict[str, Any]) -> list[str]:
    name = row["name"] if len(row["name"]) <= _NAME else row["name"][: _NAME - 3] + "..."
    return [name, units.time(row["mean_s"]), "-" if row["std_s"] is None else units.time(row["std_s"])]
