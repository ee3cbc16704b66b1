"""The documents of all jobs: their names, their JSON Schemas, and functions that read a document again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from typing import Any, Literal

from gnomon import plugins
from gnomon.builtin import JOBS
from gnomon.core import codec
from gnomon.errors import ProblemError, UsageError

DOCUMENTS = {name: places for job in JOBS.values() for name, places in job.documents.items()}
"""The record and the report of each document as "module:attribute", by the document's `format` without "gnomon-"."""


def report_of(document: Mapping[str, object]) -> Callable[..., None] | None:
    """The function that writes the report of a document: report(document, page); None for a format without one.

    The function raises the same errors as `read_document`.
    """
    name = str(document.get("format")).removeprefix("gnomon-")
    report: Callable[..., None] | None = _part_of("report", name)
    return report and (lambda document, page: report(read_document(document), page))


def document_record(name: str) -> type[Any]:
    """The record of a document; UsageError for an unknown name."""
    record: type[Any] | None = _part_of("record", name)
    if record is None:
        raise UsageError(f"there is no document {name!r}", hint=f"Documents: {', '.join(document_names())}.{_broken()}")
    return record


def document_schema(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a document; UsageError for an unknown name."""
    return codec.schema_of(document_record(name), title=f"gnomon-{name}")


def read_document(document: Mapping[str, object]) -> Any:
    """The record of a document that a command printed, by its `format`.

    ProblemError for a document that is not gnomon's; RecordError with all mismatches for a document of another version.
    """
    try:
        record = _part_of("record", str(document.get("format", "")).removeprefix("gnomon-"))
    except UsageError as error:  # of a package
        raise ProblemError(error.message, hint=error.hint) from error
    if record is None:
        raise ProblemError(
            f"this is not a document of gnomon: its format is {document.get('format')!r}",
            hint=f"Give the output of --json; formats: {', '.join(f'gnomon-{name}' for name in document_names())}."
            f"{_broken()}",
        )
    return codec.from_json(record, document)


def document_names() -> tuple[str, ...]:
    """The names of all documents; those from packages come last, without those of jobs that cannot be loaded."""
    added = [job.documents for job in plugins.jobs().values() if isinstance(job, plugins.Job)]
    return tuple(dict.fromkeys((*DOCUMENTS, *(name for names in added for name in names))))


def _broken() -> str:
    """A sentence about the jobs of packages that cannot be loaded, as one of them may have the missing document."""
    names = [name for name, job in plugins.jobs().items() if isinstance(job, UsageError)]
    return f" These jobs cannot be loaded (gnomon --help has the reasons): {', '.join(names)}." if names else ""


def _part_of(part: Literal["record", "report"], name: str) -> Any:
    """The record or the report of a document from gnomon or from a package's job; None without one.

    UsageError if the package's part cannot be loaded.
    """
    is_record = part == "record"
    wanted = "a dataclass" if is_record else "a function"

    def fits(value: object) -> bool:
        return isinstance(value, type) and is_dataclass(value) if is_record else callable(value)

    for job in (*JOBS.values(), *plugins.jobs().values()):
        if isinstance(job, plugins.Job) and name in job.documents:
            place = job.documents[name][0 if is_record else 1]
            what = f"the {part} of a package's document {name}"
            return plugins.at(place, what, fits, wanted) if place else None
    return None
