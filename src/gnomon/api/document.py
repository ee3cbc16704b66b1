"""The documents that jobs answer with, from Python: their JSON Schemas, and how one is read again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def document_names() -> tuple[str, ...]:
    """The documents that have a schema: what follows "gnomon-" in their `format`."""
    from gnomon.jobs.documents import document_names as names

    return names()


def document_schema(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a document, such as "place". UsageError where there is none of that name."""
    from gnomon.jobs.documents import document_schema as schema

    return schema(name)


def read_document(document: Mapping[str, Any]) -> Any:
    """The record of a document that a command printed as JSON, by its `format`; every list a tuple, every part typed.

    ProblemError where it is none of gnomon's, RecordError with all that does not fit where it is of another version.
    """
    from gnomon.jobs.documents import read_document as read

    return read(document)


def report_of(document: Mapping[str, Any]) -> Callable[..., None] | None:
    """What writes the report of a document: report(document, page); None where its format has none."""
    from gnomon.jobs.documents import report_of as of

    return of(document)
