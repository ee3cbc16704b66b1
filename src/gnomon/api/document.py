"""The documents that jobs return, for use from Python: their JSON Schemas, and functions that read a document again."""

from __future__ import annotations

from gnomon.jobs.documents import document_names, document_schema, read_document, report_of

__all__ = ("document_names", "document_schema", "read_document", "report_of")
