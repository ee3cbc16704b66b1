"""The chart of trade-offs between two objectives."""

from __future__ import annotations

from gnomon.jobs.solve.document import FrontDocument
from gnomon.report.chart import Axis, Chart, Group, Mark, Value


def front_charts(document: FrontDocument) -> list[Chart]:
    """The points by the first two objectives; none where there is one alone."""
    names = [f"{one.name}{one.unit and ', ' + one.unit}" for one in document.objectives]
    if len(names) < 2 or not document.points:
        return []
    marks = [
        Mark(
            x=Value(value=one.cost[0]),
            y=Value(value=one.cost[1]),
            tip=", ".join(f"{name} {cost:g}" for name, cost in zip(names, one.cost, strict=True)),
        )
        for one in document.points
    ]
    x, y = Axis(title=names[0]), Axis(title=names[1])
    return [Chart(title="Lower and further left is better", x=x, y=y, groups=(Group(marks=marks),))]
