"""The static content of a page: the sentences, tables and charts of the report."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

from gnomon.errors import RecordError
from gnomon.jobs.compare.document import CompareDocument
from gnomon.jobs.compare.report import compare_report
from gnomon.jobs.documents import read_document, report_of
from gnomon.jobs.html.blocks import MOST_ROWS, Grid, Line, Part, Section, View, grid
from gnomon.jobs.html.measured import measured_sections
from gnomon.report.answer import function_at
from gnomon.report.frame import plain_cell, plain_table, tables_of
from gnomon.report.markdown import escaped, table_lines
from gnomon.report.page import Page, Table

Document = Mapping[str, Any]

_WARNINGS = frozenset({"Warnings", "Skipped"})
"""Headings of a report; the items under them are shown at the top of the page."""
_MEASURED = frozenset({"gnomon-place", "gnomon-profile", "gnomon-pareto"})
"""Documents that hold runs."""


class _Recorder(Page):
    """A terminal page that is recorded instead of written; nothing is wrapped or shortened.

    `answer` is the headline, and `held` has the conditions. They come before the first of the `sections`, each of which
    has a title and parts. Tables have at most `most` rows; nothing else is left out.
    """

    every = True

    def __init__(self, most: int = MOST_ROWS) -> None:
        self.most = most
        self.width, self.brief, self.omitted, self.own_record = 1 << 16, False, [], False
        self.answer = self.held = ""
        self.sections: list[tuple[str, list[Part]]] = [("Summary", [])]

    @contextlib.contextmanager
    def details(self, what: str) -> Iterator[None]:
        yield

    def headline(self, sentence: str) -> None:
        if self.answer:
            self._add(Line(text=sentence))
        self.answer = self.answer or sentence

    def conditions(self, sentence: str) -> None:
        if self.held:
            self._add(Line(text=sentence))
        self.held = self.held or sentence

    def heading(self, title: str) -> None:
        self.sections.append((title, []))

    def line(self, sentence: str, *, indent: int = 0, style: str = "") -> None:
        if sentence.strip():
            self._add(Line(text=sentence))

    def path(self, label: str, path: str) -> None:
        self._add(Line(text=path, label=label or "-"))

    def item(self, text: str, advice: str = "") -> None:
        self._add(Line(text=text, advice=advice, point=True))

    def draw(self, charts: str, *of: Any) -> None:
        self._add(*function_at(charts)(*of))

    def table(self, table: Table[Any]) -> None:
        if table.rows and table.columns:
            self._add(*(chart for draw in table.charts if (chart := draw()).groups))
            self._add(grid(self.sections[-1][0], table, self.most))

    def _add(self, *parts: Part) -> None:
        self.sections[-1][1].extend(parts)


def view(document: Document) -> View:
    """The view of a document; for a format without a report, it shows the document's lists as tables."""
    kept, shown = _recorded(document), document.get("proof") or document
    is_told = bool(kept.answer) and shown["format"] in _MEASURED
    after = tuple(measured_sections(read_document(shown))) if is_told else ()
    first = kept.sections[0][1]
    lead = _lines(takewhile(lambda part: isinstance(part, Line), first))
    del first[: len(lead)]
    return View(
        title=_title(document),
        conditions=kept.held,
        answer=kept.answer,
        lead=lead,
        warnings=_lines(part for title, parts in kept.sections if title in _WARNINGS for part in parts),
        sections=tuple(
            Section(id=f"told-{number}", title=title, parts=tuple(parts))
            for number, (title, parts) in enumerate(kept.sections)
            if parts and title not in _WARNINGS
        ),
        after=after,
        facts=_plain_facts(document),
    )


def _lines(parts: Iterable[Part]) -> tuple[Line, ...]:
    return tuple(part for part in parts if isinstance(part, Line))


def _recorded(document: Document, most: int = MOST_ROWS) -> _Recorder:
    """The report of a document on a recorded page, or the document's lists if it is malformed or has no report."""
    kept = _Recorder(most)
    try:
        (report_of(document) or _lists)(document, kept)
    except RecordError:  # the report cannot be trusted, so the content is shown
        kept = _Recorder(most)
        _lists(document, kept)
    return kept


def cell_parts(document: Document, most: int) -> tuple[str, Grid | None, tuple[Line, ...]]:
    """What a notebook shows of a document's report: its conditions, its first table, if any, with at most `most` rows,
    and its warnings.
    """
    kept = _recorded(document, most)
    return (
        kept.held,
        _table(kept),
        _lines(part for title, parts in kept.sections if title == "Warnings" for part in parts),
    )


def _table(kept: _Recorder) -> Grid | None:
    return next((part for _, parts in kept.sections for part in parts if isinstance(part, Grid)), None)


def markdown(document: Document) -> str:
    """The answer of a document, its conditions, and the first table of its report, in Markdown."""
    kept = _recorded(document)
    table = _table(kept)
    parts = [f"**{escaped(kept.answer)}**" if kept.answer else "", escaped(kept.held)]
    if table is not None:
        parts += ["\n".join(table_lines(table.columns, table.rows, table.chosen)), escaped(table.note)]
    return "\n\n".join(filter(None, parts)) + "\n"


def comparison(document: CompareDocument) -> Section:
    """The section of a comparison: the part of its report below the answer."""
    kept = _Recorder()
    compare_report(document, kept)
    parts = tuple(part for _, parts in kept.sections for part in parts)
    return Section(id="comparison", title="What changed", parts=parts)


def _lists(document: Document, page: Page) -> None:
    """The report of a document of any format: its warnings, and its lists as tables."""
    page.heading("Warnings")
    for row in document.get("doubts") or ():
        page.item(row["message"], row["hint"])
    page.heading("Skipped")
    for row in document.get("missing") or ():
        page.item(f"Skipped: {row['name']}: {' '.join(row['reason'].split())[:300]}", row["hint"])
    for name, rows in tables_of(document).items():
        if name not in ("doubts", "missing"):
            page.heading(name.replace("_", " ").capitalize())
            page.table(plain_table(rows))


def _title(document: Document) -> str:
    name = str(document.get("format", "found")).removeprefix("gnomon-")
    kind = _KINDS.get(name, name).replace("-", " ").capitalize()
    of = next((document[key] for key in _SUBJECTS if document.get(key)), "")
    if isinstance(of, Mapping):
        of = of.get("path") or of.get("name") or ""
    subject = Path(str(of)).name
    return f"{kind} of {subject}" if subject else kind


_KINDS = {"place": "placement", "pareto": "front", "compare": "runs compared"}
"""The kind of a document, where the name of its format does not describe it well."""
_SUBJECTS = ("model", "nnpackage", "profile", "table", "space", "suite", "source")
"""The keys of a document's subject; the first one present is used."""


def _plain_facts(document: Document) -> tuple[tuple[str, str], ...]:
    facts = [
        (key, plain_cell(value))
        for key, value in document.items()
        if isinstance(value, str | int | float) and key not in ("format", "version")
    ]
    for key in ("fingerprint", "versions"):
        values = sorted((document.get(key) or {}).items())
        shown = [f"{name} {value}" for name, value in values if isinstance(value, str | int | float)]
        facts += [(key, ", ".join(shown))] if shown else []
    return tuple((key.replace("_", " "), text) for key, text in facts)
