"""The report of `gnomon compare`, and its Markdown for a pull request, both derived only from the document."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gnomon.core.decision import SEEN
from gnomon.jobs.compare.document import (
    NO_MODEL,
    ORDER,
    CompareDocument,
    OperatorsPart,
    PairPart,
    SelfTestPart,
    SidePart,
    VerdictPart,
    kind_of,
    word,
)
from gnomon.report import units
from gnomon.report.conditions import held_for
from gnomon.report.markdown import escaped, table_lines
from gnomon.report.page import Page, Table
from gnomon.report.plain import clean, listed, many
from gnomon.report.units import ratio_interval

_FEW, _MOST = 5, 40


def compare_report(document: CompareDocument, page: Page) -> None:
    """Write the report: the changes, each configuration, the changed operators, and what cannot be compared."""
    page.headline(document.headline()[1])
    sides = document.sides
    for pair in document.pairs:
        _pair(sides[0], sides[pair.side], pair, document, page)
    if document.self_test:
        _self_test(document.self_test, document, page)


def _self_test(parts: Sequence[SelfTestPart], document: CompareDocument, page: Page) -> None:
    """Write the slow-downs that comparisons on the machine can find, and the time that they need to find the limit."""
    limit = units.percent(document.fail_slower).lstrip("+")
    page.heading(
        f"A slow-down of {limit} (found: of {parts[0].windows} comparisons with it; wrong: of as many without it)"
    )
    table = Table(parts).text("configuration", lambda part: part.label, least=20)
    table.number("scatter per turn", lambda part: part.scatter, lambda scatter: units.percent(scatter).lstrip("+"))
    table.number("seen in 60 s", lambda part: part.sees_in_60_s, units.percent)
    table.number("in 300 s", lambda part: part.sees_in_300_s, units.percent)
    table.number("needs", lambda part: part.needed_s, units.duration)
    table.number("turns", lambda part: part.needed_s and part.needed_s / part.turn_s, units.count)
    table.number("found", lambda part: part.found).number("wrong", lambda part: part.wrong)
    page.table(table)
    if document.again:
        page.path("next", document.again)


def _pair(before: SidePart, after: SidePart, pair: PairPart, document: CompareDocument, page: Page) -> None:
    both = (("Before", before), ("After", after)) if document.self_test is None else (("Measured", before),)
    for when, side in both:
        page.line(f"{when}: {f'{side.name}, ' if page.every else ''}{_who(side)}.")
    if before.model_sha256 != after.model_sha256:
        page.line("The models differ; they are compared as two versions of one model.")
    for reason in pair.changed:
        page.line(f"Changed on purpose: {reason}.")
    for reason in pair.unlike:
        page.item(f"Not compared: {reason}.", _CHANGED)
    rows = sorted(pair.configurations, key=lambda row: (ORDER.index(kind_of(row)), -abs(row.ratio - 1)))
    if rows:
        sure, clock = units.share(1 - document.alpha), units.CLOCKS[pair.clock]
        page.heading(f"One inference by {clock} (ratio: after over before, [{sure} for all together])")
        table = _table("configuration", rows).number("processes", lambda row: " + ".join(map(str, row.processes)))
        table.split = 6
        page.table(table)
        _power(rows, document.fail_slower if document.self_test is None else None, page)
    if any(row.sessions and row.sessions.known_by == "turns" for row in rows):
        page.line("Measured by turns: each process is compared with the one beside it.", indent=1, style="dim")
    for reason, advice in doubts(rows):
        page.item(reason, advice)
    for name, labels in (("before", pair.only_before), ("after", pair.only_after)):
        if labels:
            page.line(f"Measured only {name}: {listed(labels)}.")
    _operators(pair.operators, page)


def power(rows: Sequence[VerdictPart]) -> str:
    """The slow-down that the measurement would have found in the least certain of the configurations."""
    sees = max((math.inf if row.sees is None else row.sees for row in rows), default=math.inf)
    if units.vague(1.0, 1 + sees):
        return "These processes are too few to detect any slow-down."
    size = units.percent(sees).lstrip("+")
    return f"A slow-down of {size} would have been detected with {units.share(SEEN)} probability."


def _power(rows: Sequence[VerdictPart], limit: float | None, page: Page) -> None:
    """Write the slow-down that would have been found, and the next step if the gate is undecided."""
    page.line(power(rows), indent=1, style="dim")
    if limit is None or not any(row.gate == "undecided" for row in rows):
        return
    longer = "Measure longer (--budget), or at a quiet time."
    by_turns = f"Measure both models' files by turns: gnomon compare OLD NEW --fail-slower {100 * limit:g}%"
    page.item(
        f"It is undecided whether any configuration is slower by {units.percent(limit).lstrip('+')}.",
        longer if all(row.sessions and row.sessions.known_by == "turns" for row in rows) else by_turns,
    )


def doubts(rows: Sequence[VerdictPart]) -> list[tuple[str, str]]:
    """Reasons why verdicts are less certain than they could be, each with advice."""
    warnings = [
        (f"Warning: {reason}; intervals are wider for this reason.", "Measure both at a quiet time.")
        for reason in dict.fromkeys(reason for row in rows for reason in row.differs)
    ]
    moved = [row.label for row in rows if row.moved > 0]
    if moved:
        why = f"the machine's speed changes within or between runs ({listed(moved)})"
        advice = "Let the device settle, or measure longer; earlier runs in the database show how much runs differ."
        warnings.append((f"Warning: {why}; intervals are wider for this reason.", advice))
    unknown = (row.sessions for row in rows if row.verdict == "unknown" and row.sessions)
    sessions = next((part for part in unknown if part.known_by == "assumed" and part.spread), None)
    if sessions is not None:
        spread = units.percent(sessions.spread).lstrip("+")
        why = f"The differences between runs of a model are unknown; a standard deviation of {spread} is assumed."
        more = many(sessions.needed or 0, "more time")
        warnings.append((why, f"Measure it {more} with this results database, or set the deviation: --sessions 1%"))
    return warnings


_CHANGED = "To compare nevertheless, name the difference: --changed machine, governor, version, threads, shapes, .."


def _who(side: SidePart) -> str:
    conditions = side.conditions
    name = side.name if side.model == NO_MODEL else side.model
    where = held_for(name, side.device, conditions) if conditions else f"{name} on {side.device}"
    by = f"; {side.python}: {listed([' '.join(words) for words in side.versions.items()])}" if side.python else ""
    return f"{where}{by}; run {side.campaign[:8]}"


def _operators(parts: Sequence[OperatorsPart], page: Page) -> None:
    for part in parts:
        changed = part.changed
        if not changed:
            continue
        page.heading(f"{part.label}: kernels that changed, in order of execution ({len(changed)} of {part.compared})")
        table = _table("kernel", changed)
        table.most = _FEW if page.brief else _MOST
        page.table(table)


def _table(what: str, rows: Sequence[VerdictPart]) -> Table[VerdictPart]:
    """The times before and after, with the verdict."""
    return (
        Table(rows)
        .text(what, lambda row: row.label, least=20)
        .number("before", lambda row: row.before_s, units.time)
        .number("after", lambda row: row.after_s, units.time)
        .number("ratio", lambda row: row.ratio, units.digits)
        .text("interval", lambda row: ratio_interval(row.low, row.high), least=14)
        .text("verdict", word, least=8)
    )


def markdown(document: CompareDocument) -> str:
    """The comparison as Markdown, for a pull request."""
    lines = [f"**gnomon**: {escaped(document.headline()[1])}", ""]
    for pair in document.pairs:
        lines += [f"- changed on purpose: {escaped(reason)}" for reason in pair.changed]
        lines += [f"- not compared: {escaped(reason)}" for reason in pair.unlike]
        lines += [f"- measured only before: {escaped(label)}" for label in pair.only_before]
        lines += [f"- measured only after: {escaped(label)}" for label in pair.only_after]
        if not pair.configurations:
            continue
        table = _table("configuration", pair.configurations)
        cells = [[column.cell(row) for column in table.columns] for row in table.rows]
        lines += ["", *table_lines(table.columns, cells), "", power(pair.configurations)]
        for part in pair.operators:
            if part.changed:
                first = part.changed[0]
                text = f"In {part.label}, {len(part.changed)} of {part.compared} kernels changed, the first:"
                kernel = clean(first.label).replace("`", "")
                lines += ["", f"{escaped(text)} `{kernel}` ({units.digits(first.ratio)})."]
    return "\n".join(lines) + "\n"
