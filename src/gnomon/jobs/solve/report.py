"""The reports of `gnomon solve` and `gnomon front`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from gnomon.jobs.solve.document import FrontDocument, FrontPointPart, ObjectivePart, SolveDocument
from gnomon.report import units
from gnomon.report.conditions import LimitPart
from gnomon.report.page import Page, Table
from gnomon.report.parts import assignment_text
from gnomon.report.plain import many

_SHOWN = 20  # at most this many points of a front are shown, evenly spaced and including both ends


def solve_report(document: SolveDocument, page: Page) -> None:
    """Write the assignment found, its cost, and the proof."""
    proof = "proved to be the least" if document.optimal else "the best found in time, not proved to be the least"
    page.headline(f"Cost {', '.join(f'{value:g}' for value in document.cost)}: {proof}.")
    page.line(assignment_text(document.assignment, most=200), indent=1)
    if not document.optimal and document.bound is not None:
        page.line(f"No assignment has a weighted cost below {document.bound:g}.", indent=1)
    if document.free is not None and document.bound is not None:
        page.line(f"The limits add {max(0.0, document.bound - document.free):.3g} to the cost.", indent=1)
    for limit in document.limits:
        page.line(limit_line(limit, "{:.3g}".format), indent=1)
    page.line(f"Solved by {document.method} (width {document.width}) in {units.time(document.seconds)}.", indent=1)


def limit_line(limit: LimitPart, cost: Callable[[float], str]) -> str:
    """The use of a limit, and what a larger limit would save; `cost` writes a value of the objective."""
    used, most, slack = (units.limited(n, limit.unit) for n in (limit.used, limit.at_most, limit.slack))
    saved = cost(limit.price * limit.at_most / 100) if limit.price and limit.at_most else ""
    saves = f"; 1 % more saves about {saved}" if saved else ""
    peak = f" at the peak, in {limit.at}," if limit.at is not None else ""
    return f"{limit.name}: {used}{peak} of at most {most}, {slack} left{saves}."


def front_report(document: FrontDocument, page: Page) -> None:
    """Write the number of trade-offs, their proof, and some of them, from one end to the other."""
    points = document.points
    if document.swept is None:
        page.headline(f"{many(len(points), 'trade-off')}: {proof(document.certificate)}.")
    else:
        limits = f"{many(len(points), 'limit')} of {document.swept.name}"
        page.headline(f"The least cost at {limits}: {_swept_proof(document.certificate)}.")
    spread = np.linspace(0, len(points) - 1, min(len(points), _SHOWN)).round().astype(int)
    shown = points if page.every else [points[i] for i in spread]
    note = "" if len(shown) == len(points) else f"{len(shown)} of {len(points)} are shown; --json has all."
    table = Table(shown, note=note)
    if document.swept is not None:
        unit = document.swept.unit
        table.number(f"{document.swept.name} at most", lambda point: units.value(point.at_most or 0.0, unit or ""))
    for k, objective in enumerate(document.objectives):
        table.number(_title(objective), _cost(k))
    page.draw("gnomon.jobs.solve.picture:front_charts", document)
    page.table(table.text("assignment", lambda point: assignment_text(point.assignment, most=8), most=64))
    page.line(f"Found in {units.time(document.seconds)}.", indent=1)


def _swept_proof(certificate: str | Mapping[str, float]) -> str:
    """What a certificate, as JSON, says about the points of a sweep, in words."""
    if isinstance(certificate, Mapping):
        return f"each proved within {100 * certificate['epsilon']:.3g} % of the least"
    return "each proved" if certificate == "exact" else "the best found; not all are proved"


def proof(certificate: str | Mapping[str, float]) -> str:
    """What a certificate, as JSON, says about the points of a front, in words."""
    if certificate == "exact":
        return "proved to be all there are"
    if isinstance(certificate, Mapping):
        return f"proved to cover all there are within {100 * certificate['epsilon']:.3g} %"
    return "the best found, not proved to be all there are"


def _cost(objective: int) -> Callable[[FrontPointPart], str]:
    return lambda point: f"{point.cost[objective]:g}"


def _title(objective: ObjectivePart) -> str:
    return f"{objective.name} ({objective.unit})" if objective.unit else objective.name
