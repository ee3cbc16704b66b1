"""The report of `gnomon check`."""

from __future__ import annotations

import shlex
from pathlib import Path

from gnomon.jobs.check.document import CheckDocument
from gnomon.models.model import FORMATS, named_shape
from gnomon.report import units
from gnomon.report.page import Page
from gnomon.report.plain import listed, many


def check_report(document: CheckDocument, page: Page) -> None:
    """Write the findings, each with its next step; then the kind of file and the runtimes that can read it."""
    model, answer = document.model, document.headline()[1]
    page.headline(f"{answer[:1].upper()}{answer[1:]}.")
    for finding in document.findings:
        page.item(f"{finding.message[:1].upper()}{finding.message[1:]}.", finding.hint)
    size = units.mebibytes(document.size_bytes)
    page.line(f"{Path(model.path).name}: {FORMATS[model.format]}, {many(model.operators, 'operator')}, {size}.")
    inputs = [f"{tensor.name} {named_shape(tensor)} {tensor.dtype}" for tensor in document.inputs]
    page.line(f"Inputs: {listed(inputs) or 'none'}.")
    page.line(f"Runtimes that read it: {listed(document.runtimes, len(document.runtimes))}.")
    page.path("next", f"gnomon place {shlex.quote(model.path)}")
