"""The reports of `gnomon solve` and `gnomon front`."""

from __future__ import annotations

from collections.abc import Mapping

from gnomon.jobs.solve.document import FrontDocument, ObjectivePart, SolveDocument
from gnomon.report import units
from gnomon.report.page import Column, Page
from gnomon.report.parts import assignment_text

_SHOWN = 20


def solve_report(document: SolveDocument, page: Page) -> None:
    """The assignment found, its cost, and what is proved about it."""
    proof = "proved the least" if document.optimal else "the best found in the time; not proved the least"
    page.headline(f"Cost {', '.join(f'{value:g}' for value in document.cost)}: {proof}.")
    page.line(assignment_text(document.assignment, most=200), indent=1)
    if not document.optimal and document.bound is not None:
        page.line(f"No assignment has a weighted cost below {document.bound:g}.", indent=1)
    page.line(f"By {document.method} (width {document.width}) in {units.time(document.seconds)}.", indent=1)


def front_report(document: FrontDocument, page: Page) -> None:
    """How many trade-offs there are, what is proved about them, and some of them from end to end."""
    points = document.points
    count = "1 trade-off" if len(points) == 1 else f"{len(points)} trade-offs"
    page.headline(f"{count}: {proof(document.certificate)}.")
    heads = [_title(objective) for objective in document.objectives]
    columns = [*(Column(title=head) for head in heads), Column(title="assignment", number=False, most=64)]
    chosen = _spread(len(points))
    rows = [[f"{c:g}" for c in points[i].cost] + [assignment_text(points[i].assignment, most=8)] for i in chosen]
    page.table(columns, rows)
    if len(chosen) < len(points):
        page.line(f"{len(chosen)} of {len(points)} are shown; --json has all.", indent=1, style="dim")
    page.line(f"Found in {units.time(document.seconds)}.", indent=1)


def proof(certificate: str | Mapping[str, float]) -> str:
    """What a certificate, as JSON, says about the points."""
    if certificate == "exact":
        return "proved to be all there are"
    if isinstance(certificate, Mapping):
        return f"proved to be within {100 * certificate['epsilon']:.3g} % of all there are"
    return "the best found; nothing is proved about others"


def _title(objective: ObjectivePart) -> str:
    return f"{objective.name} ({objective.unit})" if objective.unit else objective.name


def _spread(count: int) -> list[int]:
    """Both ends and some between, evenly."""
    if count <= _SHOWN:
        return list(range(count))
    return sorted({round(i * (count - 1) / (_SHOWN - 1)) for i in range(_SHOWN)})
