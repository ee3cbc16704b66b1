"""The chart of trade-offs between two objectives."""

from __future__ import annotations

from gnomon.jobs.solve.document import FrontDocument
from gnomon.report.chart import Axis, Chart, Group, Mark, Value


def front_charts(document: FrontDocument) -> list[Chart]:
    """The points by the first two objectives; nothing if there is only one objective."""
    names = [f"{objective.name}{objective.unit and ', ' + objective.unit}" for objective in document.objectives]
    if len(names) < 2 or not document.points:
        return []
    marks = [
        Mark(
            x=Value(value=point.cost[0]),
            y=Value(value=point.cost[1]),
            tip=", ".join(f"{name} {cost:g}" for name, cost in zip(names, point.cost, strict=True)),
        )
        for point in document.points
    ]
    x, y = Axis(title=names[0]), Axis(title=names[1])
    return [Chart(title="Lower and further left is better", x=x, y=y, groups=(Group(marks=marks),))]
