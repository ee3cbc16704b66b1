"""The chart that compares two tables."""

from __future__ import annotations

from gnomon.jobs.table.document import TableDiffDocument
from gnomon.report import units
from gnomon.report.chart import BEHIND, LOOKS, Axis, Chart, Group, Mark, timed


def difference_charts(document: TableDiffDocument) -> list[Chart]:
    """The time of each unit in both tables."""
    marks = {
        apart: [
            Mark(
                x=timed(row.times_s[0]),
                y=timed(row.times_s[1]),
                tip=f"{row.label}: {units.time(row.times_s[0])}, then {units.time(row.times_s[1])}",
            )
            for row in document.units
            if row.apart == apart
        ]
        for apart in (False, True)
    }
    return [
        Chart(
            title="Each unit in both tables: the times are equal on the line",
            x=Axis(title="first, ms"),
            y=Axis(title="second, ms"),
            groups=(
                Group(name="within noise", marks=marks[False], look=BEHIND),
                Group(name="different by more than noise", marks=marks[True], look=LOOKS[1]),
            ),
            equal=True,
        )
    ]
