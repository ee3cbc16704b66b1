"""Tables of reports in Markdown."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from typing import Any

from gnomon.report.page import Column
from gnomon.report.plain import clean

_MEANT = re.compile(r"[\\`*_\[\]|~]")


def escaped(text: str) -> str:
    """Escape a foreign text so that Markdown shows it literally, without elements, links, pictures or line breaks."""
    return _MEANT.sub(r"\\\g<0>", clean(text)).replace("&", "&amp;").replace("<", "&lt;")


def table_lines(
    columns: Sequence[Column[Any]], rows: Sequence[Sequence[str]], chosen: Container[int] = ()
) -> list[str]:
    """The lines of a table without its extra columns; the first cells of `chosen` rows are highlighted."""
    shown = [k for k, column in enumerate(columns) if not column.extra]
    lines = [[escaped(columns[k].title) for k in shown], ["--:" if columns[k].number else "---" for k in shown]]
    for number, row in enumerate(rows):
        first, *others = (escaped(row[k]) for k in shown)
        lines.append([f"**{first}**" if number in chosen else first, *others])
    return [f"| {' | '.join(cells)} |" for cells in lines]
