"""What a page shows of a document before any script runs: sentences, tables and small charts, by its format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnomon.errors import RecordError
from gnomon.jobs.compare.document import CompareDocument, VerdictPart
from gnomon.jobs.compare.report import doubts, verdict_words
from gnomon.jobs.documents import read_document, report_of
from gnomon.jobs.html.blocks import MOST_ROWS, Section, Table, View, Warned, table
from gnomon.jobs.html.measured import measured_sections
from gnomon.jobs.html.pictures import pictures
from gnomon.jobs.html.recorded import recorded
from gnomon.report import units
from gnomon.report.answer import plain_cell
from gnomon.report.frame import tables_of
from gnomon.report.parts import ratio_interval

Document = Mapping[str, Any]

_MOST_COLUMNS = 10


def view(document: Document) -> View:
    """What is shown of a document: of a format that has no report, its lists as tables."""
    if document.get("format") == "gnomon-compare":
        return _compared(document)
    report = report_of(document)
    if report is None:
        return _others(document)
    try:
        return _told(document, report)
    except RecordError:  # it does not fit its record, so that its report cannot be trusted: what it holds is shown
        return _others(document)


def _warnings(document: Document) -> tuple[Warned, ...]:
    rows = [Warned(message=_sentence(row["message"]), hint=row["hint"]) for row in document.get("doubts") or ()]
    for row in document.get("missing") or ():
        reason = " ".join(row["reason"].split())
        rows.append(Warned(message=f"Skipped: {row['name']}: {reason[:300]}", hint=row["hint"]))
    return tuple(rows)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def comparison(document: CompareDocument) -> Section:
    """The section of a comparison: per later run what cannot be compared, the verdicts, and what changed first."""
    parts: list[Table] = []
    lines: list[str] = []
    sides = document.sides
    for pair in document.pairs:
        after = sides[pair.side]
        lines += [f"Not compared with {after.name}: {told}." for told in pair.unlike]
        named = f"{after.name} (run {after.campaign[:8]}) after {sides[0].name} ({sides[0].campaign[:8]})"
        if pair.configurations:
            sure = units.share(1 - document.alpha)
            parts.append(
                _verdicts(
                    f"{named}, {units.CLOCKS[pair.clock]}", "configuration", pair.configurations, f"{sure} interval"
                )
            )
        lines += [f"{told} {advice}" for told, advice in doubts(pair.configurations)]
        for part in pair.operators:
            if part.changed:
                told = f"{part.label}: kernels that changed, the first first ({len(part.changed)} of"
                parts.append(_verdicts(f"{told} {part.compared})", "kernel", part.changed, "interval"))
        for when, labels in (("before", pair.only_before), ("after", pair.only_after)):
            if labels:
                lines.append(f"Measured only {when}: {', '.join(labels)}.")
    return Section(id="comparison", title="What changed", parts=tuple(parts), lines=tuple(dict.fromkeys(lines)))


def _verdicts(title: str, what: str, rows: Sequence[VerdictPart], interval: str) -> Table:
    return table(
        title,
        (what, "before", "after", "ratio", interval, "verdict"),
        (
            (
                row.label,
                units.time(row.before_s),
                units.time(row.after_s),
                units.digits(row.ratio),
                ratio_interval(row.low, row.high),
                verdict_words(row),
            )
            for row in rows
        ),
        words=(0, 5),
    )


def _compared(document: Document) -> View:
    found: CompareDocument = read_document(document)
    return View(
        title="Runs compared",
        answer=found.headline()[1],
        subject=", ".join(side.name for side in found.sides),
        warnings=(),
        sections=(comparison(found),),
    )


def _told(document: Document, report: Callable[..., None]) -> View:
    """A document whose report is known: the report, between pictures of it, and how what it is of was measured."""
    answer, lead, warnings, told = recorded(document, report)
    proof = document.get("proof")
    shown = document if proof is None else proof
    measured = read_document(shown) if shown["format"] in _MEASURED else None
    return View(
        title=_title(document),
        answer=answer,
        subject="",
        warnings=warnings,
        sections=(*pictures(*([document] if proof is None else [document, proof])), *told),
        after=() if measured is None else tuple(measured_sections(measured)),
        lead=lead,
        facts=_plain_facts(document),
    )


_MEASURED = frozenset({"gnomon-place", "gnomon-profile", "gnomon-pareto"})
"""Documents that hold runs."""


def _others(document: Document) -> View:
    """A document of any format: its plain values, and its lists as tables."""
    sections: list[Section] = []
    for name, rows in tables_of(document).items():
        names = dict.fromkeys(key for row in rows[:MOST_ROWS] for key in row)
        plain = [n for n in names if not any(isinstance(row.get(n), list | dict) for row in rows[:MOST_ROWS])]
        shown = plain[:_MOST_COLUMNS]
        if not shown or name in ("doubts", "missing"):
            continue
        words = [k for k, n in enumerate(shown) if any(isinstance(row.get(n), str) for row in rows[:MOST_ROWS])]
        title = name.replace("_", " ")
        part = table(
            title,
            (n.replace("_", " ") for n in shown),
            (tuple(plain_cell(row.get(n)) for n in shown) for row in rows),
            words=words,
        )
        sections.append(Section(id=f"table-{len(sections)}", title=title.capitalize(), parts=(part,)))
    return View(
        title=_title(document),
        answer="",
        subject="",
        warnings=_warnings(document),
        sections=tuple(sections),
        facts=_plain_facts(document),
    )


def _title(document: Document) -> str:
    name = str(document.get("format", "found")).removeprefix("gnomon-")
    kind = _KINDS.get(name, name).replace("-", " ").capitalize()
    of = next((document[key] for key in _SUBJECTS if document.get(key)), "")
    if isinstance(of, Mapping):
        of = of.get("path") or of.get("name") or ""
    subject = Path(str(of)).name
    return f"{kind} of {subject}" if subject else kind


_KINDS = {"place": "placement", "pareto": "front"}
"""What a document is, where its format does not say so."""
_SUBJECTS = ("model", "nnpackage", "profile", "table", "space", "suite", "source")
"""What a document is of, by the first of these that it has."""


def _plain_facts(document: Document) -> tuple[tuple[str, str], ...]:
    facts = [
        (key, plain_cell(value))
        for key, value in document.items()
        if isinstance(value, str | int | float) and key not in ("format", "version")
    ]
    for key in ("fingerprint", "versions"):
        values = sorted((document.get(key) or {}).items())
        known = [f"{name} {value}" for name, value in values if isinstance(value, str | int | float)]
        facts += [(key, ", ".join(known))] if known else []
    return tuple((key.replace("_", " "), told) for key, told in facts)
