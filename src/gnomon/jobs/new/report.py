"""The report of `gnomon new`."""

from __future__ import annotations

import shlex

from gnomon.jobs.new.document import NewDocument
from gnomon.report.page import Page


def new_report(document: NewDocument, page: Page) -> None:
    """Write the names of the files, and the command that tests the package."""
    page.line(f"The {document.kind} {document.name} is in {document.folder}: {', '.join(document.files)}.")
    package, folder = shlex.quote(f"{document.folder}[test]"), shlex.quote(document.folder)
    page.line(f"Next: pip install -e {package} && pytest {folder}")
