"""The report of `gnomon pareto`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import ascii_lowercase

from gnomon.jobs.pareto.document import ObjectivePart, ParetoDocument, PointPart, SearchPart
from gnomon.jobs.place.shared_report import closing, conditions_line, doubts, first_warnings, missing, unproved
from gnomon.report import units
from gnomon.report.page import Page, Table
from gnomon.report.parts import failure_text
from gnomon.report.plain import listed, many
from gnomon.session.objectives import Estimate

_CLOCKS = {
    "cpu": "CPU time",
    "wall": "wall time, the fastest 20 % of calls",
    "mixed": "CPU time for single-threaded points, wall time for all others (the fastest 20 % of calls)",
}
_SHORT = {"cpu": "CPU", "wall": "wall"}
_MOST_NAMED = 8
_MOST_FAILURES = 5


def pareto_report(document: ParetoDocument, page: Page) -> None:
    """Write the report: the front first, then its evidence, then the doubts about it."""
    page.headline(headline(document))
    if document.model:
        page.conditions(conditions_line(document.model, document.device or "", document.conditions))
    else:
        page.conditions(f"From {Path(document.source or '').name}; nothing was measured.")
    first_warnings(document.doubts, page)
    page.line(_space_line(document))
    _front(document, page)
    with page.details("what is dominated"):
        _others(document, page)
    if len(document.searches) > 1:
        _spent(document, page)
    else:
        with page.details("the search"):
            _spent(document, page)
        if page.brief:
            page.line(_certificate(document))
    with page.details("what the objectives are"):
        for k, objective in enumerate(document.objectives):
            page.line(f"{objective.name}: {objective.price}.{_off(document, k)}", indent=2)
    for row in document.failures[:_MOST_FAILURES]:
        page.item(f"{row.label} failed: {row.reason}")
    if len(document.failures) > _MOST_FAILURES:
        more = many(len(document.failures) - _MOST_FAILURES, "more assignment")
        page.item(f"{more} failed.", "--json names all failures.")
    missing(document.missing, page)
    doubts(document.doubts, page)
    _package(document, page)
    if document.record and document.campaign:
        closing(
            page,
            record=document.record,
            campaign=document.campaign,
            seconds=document.seconds,
            waited_s=document.waited_s,
            resumed_from="earlier results in the database" if document.resumed else "",
        )


def headline(document: ParetoDocument) -> str:
    """The answer in one sentence."""
    front, objectives = document.front, document.objectives
    names = [objective.name.replace("-", " ") for objective in objectives]
    if len(front) == 1:
        answer = f"One point is best in {_all(names)}: {front[0].label}."
        if document.model and not document.proved:
            answer = f"By one sample each, {answer[0].lower()}{answer[1:]}"
    else:
        ranges = []
        for k, objective in enumerate(objectives):
            values = [point.estimates[k].value for point in front if point.estimates]
            ranges.append(f"{names[k]} {value(min(values), objective)} to {value(max(values), objective)}")
        answer = f"The front has {len(front)} points: {_all(ranges)}."
    if document.chosen is None:
        return answer
    label = next(point.label for point in front if point.number == document.chosen)
    verified = document.verified
    if verified and verified.ok:
        why = unproved(document.doubts, document.reference, document.reference_checked_by)
        how = f"runs ({why})" if why else "verified"
        return f"{answer} Point {document.chosen} is packaged and {how}: {label}."
    if verified and verified.skipped:
        return f"{answer} Point {document.chosen} is packaged, and was not run: {label}."
    return f"{answer} Point {document.chosen} is packaged, but the package was refused: {label}."


def value(number: float | None, objective: ObjectivePart) -> str:
    """A value in the unit of its objective."""
    return units.value(number, objective.unit)


def interval(estimate: Estimate, objective: ObjectivePart) -> str:
    """The interval of an estimate in the unit of its objective; an empty text if it has none."""
    low, high = estimate.low, estimate.high
    if objective.unit in ("s", "J"):
        return units.interval(low, high, estimate.value) if low is not None else ""
    if low is None or high is None or high - low <= 1e-9 * high:
        return ""
    if objective.unit == "B":
        return f"[{units.digits(low / 2**20)}, {units.digits(high / 2**20)}]"
    written = units.digits if objective.unit else units.small
    return f"[{written(low)}, {written(high)}]"


def _all(words: Sequence[str]) -> str:
    return listed(words, len(words))


def _space_line(document: ParetoDocument) -> str:
    space = document.space
    size = f"{int(space.size):,}" if len(space.size) <= 12 else f"about 10^{len(space.size) - 1}"
    own = space.operator_slots
    by = f" by {space.by}" if space.by else ""
    slots = [f"{own} operators" if space.by == "operator" else f"{own} slots of operators{by}"] if own else []
    slots += [f"{slot.name} ({', '.join(slot.choices)})" for slot in space.slots[own:]]
    if not slots:
        return "1 assignment: there is nothing to choose."
    return f"{size} assignments: {listed(slots, len(slots))}."


def _points(document: ParetoDocument, points: Sequence[tuple[str, PointPart]], page: Page) -> None:
    """Write a table of points, each after its mark."""
    chosen = document.chosen
    table = Table(points, chosen=lambda row: row[1].number is not None and row[1].number == chosen)
    table.number("", lambda row: row[0]).text("choice", lambda row: row[1].label, least=24)
    for k, objective in enumerate(document.objectives):
        name, estimated, bounds = objective.name.replace("-", " "), *_estimate_cells(k, objective)
        table.number(name, estimated).text("", bounds, least=14)
        if document.clock == "mixed" and objective.name == "latency":
            table.text("clock", lambda row: _SHORT[row[1].clock or "wall"]).number("wall time", _wall(objective))
    table.number("code", lambda row: row[1].code, most=16)
    table.text("", lambda row: note(document, row[1]), least=10)
    table.split = len(table.columns) - 2
    page.table(table)


Cell = Callable[[tuple[str, PointPart]], str]


def _estimate_cells(k: int, objective: ObjectivePart) -> tuple[Cell, Cell]:
    """The functions that show a point's value in an objective, and its interval."""

    def estimate(row: tuple[str, PointPart]) -> Estimate:
        return (row[1].estimates or ())[k]

    return lambda row: value(estimate(row).value, objective), lambda row: interval(estimate(row), objective)


def _wall(objective: ObjectivePart) -> Cell:
    return lambda row: value(row[1].wall.value if row[1].wall else None, objective)


def note(document: ParetoDocument, point: PointPart) -> str:
    """The points that dominate a point or are indistinguishable from it, in words; "" if there are none."""
    numbers = [p.number for p in document.points]
    if point.dominated_by is not None:
        return f"dominated by {numbers[point.dominated_by]}"
    ties = [str(numbers[k]) for k in point.ties if numbers[k] is not None]
    maybe = [str(numbers[k]) for k in point.maybe_dominated_by if numbers[k] is not None]
    notes = [f"indistinguishable from {', '.join(ties)}"] if ties else []
    notes += [f"possibly dominated by {', '.join(maybe)}"] if maybe else []
    return "; ".join(notes)


def _front(document: ParetoDocument, page: Page) -> None:
    clock = f", by {_CLOCKS[document.clock]}" if document.clock else ""
    how = f"measured again side by side (value, [95 % interval]){clock}" if document.proved else "as sampled"
    page.heading(f"The front, {how}")
    front = document.front
    page.draw("gnomon.jobs.pareto.picture:front_charts", document)
    _points(document, [(str(point.number), point) for point in front], page)
    if document.sessions > 1:
        page.note(
            f"Measured in {document.sessions} sessions, because not all points fit into one. One point ran in every "
            "session, and all times are scaled by it; points of different sessions are compared less precisely."
        )
    if document.clock == "mixed":
        page.note("Two points with CPU times are compared by CPU time, all other pairs by wall time.")
    if any(note(document, point) for point in front):
        page.note(
            "indistinguishable from N: equal within noise in every objective; possibly dominated by N: N is better in "
            "some objective and, within noise, not worse in any."
        )
    plain = next((point for point in front if point.number == document.enough), None)
    if plain:
        page.item(
            f"No mix here is surely better than point {plain.number}, the single backend {plain.label}, by more "
            "than 1 % in any objective.",
            f"Take point {plain.number}, unless more --processes show otherwise: --pick {plain.number}.",
        )


def _others(document: ParetoDocument, page: Page) -> None:
    others = [point for point in document.points if point.number is None]
    alive = [point for point in others if point.estimates is not None]
    if alive:
        beside = "Measured with the front" if document.search.predicted else "Measured again"
        page.heading(f"{beside} and dominated")
        marks = [*ascii_lowercase, *[""] * len(alive)]
        _points(document, list(zip(marks, alive, strict=False)), page)
        page.note(
            "dominated by N: N is surely better by more than 1 % in an objective (95 % for all points together), "
            "surely worse in none, and apparently worse by at most 1 %."
        )
    for point in others:
        if point.estimates is None:
            why = failure_text(point.failure) if point.failure else "it does not report every objective"
            page.item(f"{point.label} failed when it was measured again: {why}")
    _unmeasured(document, page)


def _unmeasured(document: ParetoDocument, page: Page) -> None:
    """Write how many samples were not measured again, with the reasons."""
    if document.left_out:
        page.item(
            f"Not measured again: {many(document.left_out, 'more point')} on the front or within noise of it; there "
            f"was room for {len(document.points)}.",
            "The samples in --json contain all points.",
        )
    if document.behind:
        noise = _noise(document)
        page.line(
            f"Not measured again: {many(document.behind, 'more point')}, because another point is ahead in every "
            f"objective by more than the noise{f' ({noise})' if noise else ''}.",
            indent=2,
        )
    measured = {point.code for point in document.points}
    rest = [sample.label for sample in document.samples if sample.cost is not None and sample.code not in measured]
    if rest and (document.left_out or document.behind):
        more = len(rest) - _MOST_NAMED
        named = "; ".join(f"'{label}'" for label in rest[:_MOST_NAMED])
        page.line(f"Not measured again: {named}{f' and {more} more' if more > 0 else ''}.", indent=2)


def _noise(document: ParetoDocument) -> str:
    """The noise between two processes of the same assignment, by objective and clock."""
    parts = []
    for k, objective in enumerate(document.objectives):
        seen = {clock: 100 * of[k] for clock, of in (document.noise or {}).items()}
        if objective.name != "latency":
            seen = {"": max(seen.values())} if seen else {}
        for clock, share in seen.items():
            by = f" by {_CLOCKS[clock].split(',')[0]}" if clock else ""
            parts.append(f"{objective.name.replace('-', ' ')}{by} up to {units.digits(share)} %")
    return f"between two processes of one assignment, {_all(parts)}" if parts else ""


def _spent(document: ParetoDocument, page: Page) -> None:
    search = document.search
    page.heading("The search")
    if search.predicted:
        points = many(len(document.samples), "point")
        page.line(f"{search.name}: a front of {points} from the prices below, in {units.duration(search.seconds)}.")
    elif len(document.searches) > 1:
        _compared(document.searches, page)
    else:
        failed = f", {search.failed} failed" if search.failed else ""
        replayed = f", {search.replayed} known from the results database" if search.replayed else ""
        spent = f"{search.name}, seed {search.seed}: {many(search.evaluations, 'evaluation')}{failed}{replayed}"
        page.line(f"{spent}, in {units.duration(search.seconds)}.")
    page.line(_certificate(document))
    reached = _reached(search)
    if reached and len(document.searches) == 1:
        page.line(f"99 % of the hypervolume was reached after {many(reached, 'evaluation')}.")


def _last(search: SearchPart) -> float:
    """The volume that a search reached; 0 if it is unknown."""
    return (search.volume[-1] or 0.0) if search.volume else 0.0


def _reached(search: SearchPart, share: float = 0.99) -> int:
    """The number of evaluations after which a search had this share of its final volume; 0 if it has no volume."""
    last = _last(search)
    return next((k for k, volume in enumerate(search.volume, 1) if last > 0 and (volume or 0.0) >= share * last), 0)


def _compared(searches: Sequence[SearchPart], page: Page) -> None:
    """Write a line for each of several searches, with its share of the volume that the best of them dominates."""
    best = max(map(_last, searches))
    page.table(
        Table(
            searches,
            note=f"seed {searches[0].seed}; known: measured before, also by another search; hypervolume: as a share of "
            "the best search's.",
        )
        .text("search", lambda search: search.name)
        .number("evaluations", lambda search: search.evaluations or "-")
        .number("failed", lambda search: search.failed or "-")
        .number("known", lambda search: search.replayed or "-")
        .number("hypervolume", lambda s: f"{100 * _last(s) / best:.1f} %" if s.volume and best > 0 else "-")
        .number("99 % of it after", lambda search: _reached(search) or "-")
    )


def _certificate(document: ParetoDocument) -> str:
    certificate = document.certificate
    if isinstance(certificate, Mapping):
        return f"By the prices, the front covers every assignment within {certificate['epsilon']:.2%}."
    if certificate == "exact":
        return "Exact: by the prices, no assignment is better than the front."
    if certificate == "complete":
        if document.source:
            return "Complete: every assignment of the space is in the dump."
        run_once = "Complete: every assignment was run once; "
        if not document.proved:
            return f"{run_once}none was measured again."
        lost = sum(point.failure is not None for point in document.points)
        which = "all near the front" if document.left_out or document.behind else "all"
        return f"{run_once}{which}{f' but {lost}' if lost else ''} were measured again."
    if document.search.name == "exact":
        return "Heuristic: the exact front of the prices was not finished in time."
    return "Heuristic: there may be better assignments that were not tried."


def _off(document: ParetoDocument, objective: int) -> str:
    """The difference between the measurements and the prices, if the points were chosen by prices alone."""
    if not (document.search.predicted and document.proved):
        return ""
    ratios = [
        point.estimates[objective].value / sampled
        for point in document.points
        if point.estimates and point.sampled and (sampled := point.sampled[objective] or 0.0) > 0
    ]
    return f" Measured: {min(ratios):.2f} to {max(ratios):.2f} times the price." if ratios else ""


def _package(document: ParetoDocument, page: Page) -> None:
    verified = document.verified
    if verified and not verified.ok and not verified.skipped:
        moved = f"{many(len(verified.moved), 'operator')} ran elsewhere"
        why = failure_text(verified.failure) if verified.failure else moved
        page.item(f"The package was refused: {why}.", "Pick another point.")
    if document.model or document.dumpfile or document.pictures:
        page.heading("Files")
    for label, path in (("package", document.package), ("dumpfile", document.dumpfile)):
        if path:
            page.path(label, path)
    for path in document.pictures:
        page.path("picture", path)
    if document.model and document.chosen is None:
        page.path("deploy", "the same command with --pick N, or --under peak-memory=80MB")
