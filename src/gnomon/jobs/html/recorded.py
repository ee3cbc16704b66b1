"""A job's report as parts of a page: the same sentences and tables that a terminal shows, one function for both."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gnomon.jobs.html.blocks import Line, Part, Section, Warned, table
from gnomon.report import page as terminal

_WARNINGS = frozenset({"Warnings", "Warnings and tips", "Skipped"})
_SUMMARY = "Summary"


def recorded(
    document: Mapping[str, Any], report: Callable[..., None]
) -> tuple[str, tuple[Line, ...], tuple[Warned, ...], tuple[Section, ...]]:
    """The report's answer, the lines under it, what it warns of, and all else in sections, in its order."""
    found = _Recorder()
    report(document, found)
    first = found.sections[0][1]
    count = next((k for k, part in enumerate(first) if not isinstance(part, Line)), len(first))
    lead = tuple(part for part in first[:count] if isinstance(part, Line))
    del first[:count]
    sections = [(title, parts) for title, parts in found.sections if parts]
    warned = [part for title, parts in sections if title in _WARNINGS for part in parts if isinstance(part, Line)]
    return (
        found.answer,
        lead,
        tuple(Warned(message=one.text, hint=one.advice) for one in warned),
        tuple(
            Section(id=f"told-{number}", title=title, parts=tuple(parts))
            for number, (title, parts) in enumerate(sections)
            if title not in _WARNINGS
        ),
    )


class _Recorder(terminal.Page):
    """A page of a terminal that is kept instead of being written: nothing is wrapped, shortened or left out."""

    def __init__(self) -> None:
        self.width, self.brief, self.omitted, self.own_record = 1 << 16, False, [], False
        self.answer = ""
        self.sections: list[tuple[str, list[Part]]] = [(_SUMMARY, [])]

    @contextlib.contextmanager
    def details(self, what: str) -> Iterator[None]:
        yield

    def headline(self, sentence: str) -> None:
        if self.answer:
            self._add(Line(text=sentence))
        self.answer = self.answer or sentence

    def heading(self, title: str) -> None:
        self.sections.append((title, []))

    def line(self, sentence: str, *, indent: int = 0, style: str = "") -> None:
        # What a terminal has no room for ("and 7 more: --json has all") is in the tables of the page.
        if sentence.strip() and not (style == "dim" and "--json" in sentence):
            self._add(Line(text=sentence))

    def path(self, label: str, path: str) -> None:
        self._add(Line(text=path, label=label or "-"))

    def item(self, text: str, advice: str = "") -> None:
        self._add(Line(text=text, advice=advice, point=True))

    def table(
        self,
        columns: Sequence[terminal.Column],
        rows: Sequence[Sequence[str]],
        *,
        split: int = 0,
        bold: frozenset[int] = frozenset(),
    ) -> None:
        if rows:
            words = [k for k, one in enumerate(columns) if not one.number]
            titles = [one.title for one in columns]
            # The page marks what stands out itself, by its style.
            cells = [(row[0].removeprefix("> ") if k in bold else row[0], *row[1:]) for k, row in enumerate(rows)]
            self._add(table(self.sections[-1][0], titles, cells, words=words, chosen=bold))

    def _add(self, part: Part) -> None:
        self.sections[-1][1].append(part)
