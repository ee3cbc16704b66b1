"""The base of all results in Python: they convert to documents, JSON, frames, short texts and notebook cells."""

from __future__ import annotations

import html
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gnomon.core import codec
from gnomon.errors import UsageError, exit_code_of
from gnomon.report.plain import clean, json_text, many, shorten

if TYPE_CHECKING:
    from gnomon.report.frame import Rows

SVG = "image/svg+xml"
"""The media type of pictures in notebooks."""

_WIDTH, _MOST_ROWS = 160, 20


class Answer:
    """The base of results, which are records of documents; class variables and `headline` describe each kind.

    `charts_by` names the function that makes the charts as "module:function"; it is imported when needed. `main` is the
    main table of the document ("": the first one). `brief` selects the main columns of that table: it maps their names,
    which end in their units, to the keys of the rows.
    """

    __slots__ = ("_document",)

    _document: dict[str, Any]
    charts_by: ClassVar[str] = ""
    main: ClassVar[str] = ""
    brief: ClassVar[Mapping[str, str]] = {}

    def document(self) -> dict[str, Any]:
        """The result as JSON values, as the command prints it with --json (docs/formats/documents.md).

        The document is computed once.
        """
        if not hasattr(self, "_document"):
            object.__setattr__(self, "_document", codec.document(self))
        return self._document

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 0, or the code in `gnomon.errors` for the answer's warnings."""
        return exit_code_of(doubt.kind for doubt in getattr(self, "doubts", ()) or ())

    def to_json(self) -> str:
        """The document as text, as the command prints it."""
        return json_text(self.document())

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """A self-contained HTML page that shows the whole result and embeds the document (docs/jobs/report.md).

        The page is also written to `path`, if it is given.
        """
        page = str(function_at("gnomon.api.html:page")([self.document()], [type(self).__name__]))
        if path is not None:
            Path(path).write_text(page, encoding="utf-8")
        return page

    def to_markdown(self) -> str:
        """The answer, its conditions, and the first table of the report, in Markdown."""
        return str(function_at("gnomon.api.html:markdown")(self.document()))

    def table_rows(self) -> dict[str, Rows]:
        """The lists of the document as rows, by their keys, and all samples as `runs` if it has any."""
        from gnomon.report.frame import tables_of

        return tables_of(self.document())

    def frame(self, table: str | None = None, *, using: Literal["pandas", "pyarrow"] = "pandas") -> Any:
        """A table as a `pandas.DataFrame` or a `pyarrow.Table`; None: the main columns of the main table.

        For configurations, these are the time in microseconds with its interval, and the ratio to the best.

        UsageError if there is no such table, or if the package is not installed.
        """
        from gnomon.report.frame import frame

        if table is None and (rows := self.brief_rows()):
            return frame(rows, using)
        tables = self.table_rows()
        main = self.main if self.main in tables else next(iter(tables), "")
        name = main if table is None else table
        if name not in tables:
            message = "this result has no tables" if not tables else f"there is no table {name!r}"
            raise UsageError(message, hint=f"Tables: {', '.join(tables)}." if tables else "Use its document().")
        return frame(tables[name], using)

    def main_rows(self) -> Rows:
        """The rows of the main table."""
        return self.table_rows().get(self.main, [])

    def brief_rows(self) -> Rows:
        """The rows of the main table with the brief columns, if there are any; columns whose names end in "_us" are
        converted to microseconds.
        """
        return [
            {
                name: 1e6 * value if name.endswith("_us") and isinstance(value := row.get(key), float) else row.get(key)
                for name, key in self.brief.items()
            }
            for row in (self.main_rows() if self.brief else ())
        ]

    def headline(self) -> tuple[str, str]:
        """The subject and the answer, one line each."""
        return "", ""

    def __repr__(self) -> str:
        subject, answer = self.headline()
        title = " of ".join(filter(None, (type(self).__name__, subject)))
        warnings = len(getattr(self, "doubts", ()) or ())
        warned = f"{many(warnings, 'warning')}: frame('doubts'). " if warnings else ""
        see = f"{warned}See document(), to_json(), table_rows() and frame()."
        return "\n".join(shorten(line, _WIDTH) for line in (title, answer, see) if line)

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        """Text, HTML, and a picture if there is one; the HTML contains it too, as notebooks show only one form."""
        bundle: dict[str, Any] = {"text/plain": repr(self), "text/html": self._html()}
        if self.charts_by and (charts := function_at(self.charts_by)(self)):
            from gnomon.report.svg import picture

            bundle[SVG] = picture(charts)
            bundle["text/html"] += f"<div>{bundle[SVG]}</div>"
        return bundle

    def _html(self) -> str:
        subject, answer = self.headline()
        title = " of ".join(filter(None, (type(self).__name__, subject)))
        conditions, table, warnings = function_at("gnomon.api.html:cell_parts")(self.document(), _MOST_ROWS)
        texts = [answer, conditions, *(f"Warning: {line.text} {line.advice}".strip() for line in warnings)]
        parts = [f"<p><strong>{_escaped(title)}</strong></p>", *(f"<p>{_escaped(text)}</p>" for text in texts if text)]
        if table:
            shown = [k for k, column in enumerate(table.columns) if not column.extra]
            rows = ["".join(f"<th>{_escaped(table.columns[k].title)}</th>" for k in shown)]
            for number, row in enumerate(table.rows):
                kind = "th" if number in table.chosen else "td"
                rows.append("".join(f"<{kind}>{_escaped(row[k])}</{kind}>" for k in shown))
            parts.append(f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>")
            parts += [f"<p>{_escaped(table.note)}</p>"] if table.note else []
        return "".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FirstVersion(Answer):
    """A result whose document has version 1; `format` names the kind of document."""

    format: str
    version: Literal[1] = 1


def _escaped(text: str) -> str:
    return html.escape(clean(text))


def function_at(place: str) -> Any:
    """The function that "module:function" names; this call imports its module."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
