"""Looking at a model's file."""

from __future__ import annotations

from pathlib import Path

from gnomon.jobs.check.document import CheckDocument
from gnomon.models.check import findings_of
from gnomon.models.load import load
from gnomon.runtimes.registry import chosen_runtimes
from gnomon.session.document import model_part


def check(path: Path) -> CheckDocument:
    """The findings in a model's file. ModelError if it cannot be read."""
    model = load(path, inferred=False)
    return CheckDocument(
        model=model_part(path, model.graph),
        size_bytes=model.size_bytes,
        inputs=tuple(model.graph.tensors[index] for index in model.graph.inputs),
        findings=findings_of(model),
        runtimes=tuple(runtime.name for runtime in chosen_runtimes((), model.graph.format)),
    )
