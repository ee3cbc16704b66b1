"""What `gnomon check` prints."""

from __future__ import annotations

import shlex
from pathlib import Path

from gnomon.jobs.check.document import CheckDocument
from gnomon.models.model import FORMATS, named_shape
from gnomon.report import units
from gnomon.report.page import Page
from gnomon.report.plain import listed, many


def check_report(document: CheckDocument, page: Page) -> None:
    """What was found, each with its next step; then what kind of file it is, and who reads it."""
    page.headline(f"{document.headline()[1].capitalize()}.")
    for finding in document.findings:
        page.item(f"{finding.message[:1].upper()}{finding.message[1:]}.", finding.hint)
    size = units.mebibytes(document.size_bytes)
    beside = f" with {listed(document.beside, 3)}" if document.beside else ""
    kind = FORMATS.get(document.model_format, document.model_format)
    page.line(f"{Path(document.path).name}: {kind}, {many(document.operators, 'operator')}, {size}{beside}.")
    inputs = [f"{tensor.name} {named_shape(tensor)} {tensor.dtype}" for tensor in document.inputs]
    page.line(f"Inputs: {listed(inputs) or 'none'}.")
    page.line(f"Runtimes that read it: {listed(document.runtimes, len(document.runtimes))}.")
    page.path("next", f"gnomon place {shlex.quote(document.path)}")
