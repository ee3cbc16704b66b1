"""The documents that jobs answer with, from Python: their JSON Schemas, and how one is read again."""

from __future__ import annotations

from gnomon.jobs.documents import document_names, document_schema, read_document, report_of

__all__ = ("document_names", "document_schema", "read_document", "report_of")
