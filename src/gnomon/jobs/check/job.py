"""Looking at a model's file."""

from __future__ import annotations

from pathlib import Path

from gnomon.jobs.check.document import CheckDocument
from gnomon.models.check import check_file
from gnomon.runtimes.registry import chosen_runtimes


def check(path: Path) -> CheckDocument:
    """What is in a model's file that will matter. ModelError where it cannot be read."""
    checked = check_file(path)
    return CheckDocument(
        path=str(path),
        model_format=checked.format,
        operators=checked.operators,
        size_bytes=checked.size_bytes,
        beside=checked.beside,
        inputs=checked.inputs,
        findings=checked.findings,
        runtimes=tuple(runtime.name for runtime in chosen_runtimes((), checked.format)),
    )
