"""Checks a model's file without running the model."""

from __future__ import annotations

from pathlib import Path

from gnomon.jobs.check.document import CheckDocument
from gnomon.models.check import findings_of, findings_of_decoder
from gnomon.models.gguf import is_gguf, read_gguf
from gnomon.models.load import load
from gnomon.runtimes.registry import chosen_runtimes
from gnomon.session.document import ModelPart, model_part


def check(path: Path) -> CheckDocument:
    """The findings in a model's file. ModelError if it cannot be read."""
    if not path.is_dir() and is_gguf(path):
        decoder = read_gguf(path)
        return CheckDocument(
            model=ModelPart(path=str(path), format="gguf", sha256="", operators=0, macs=None),
            size_bytes=path.stat().st_size,
            inputs=(),
            findings=findings_of_decoder(decoder),
            runtimes=(),
            decoder=decoder,
        )
    model = load(path, inferred=False)
    return CheckDocument(
        model=model_part(path, model.graph),
        size_bytes=model.size_bytes,
        inputs=tuple(model.graph.tensors[index] for index in model.graph.inputs),
        findings=findings_of(model),
        runtimes=tuple(runtime.name for runtime in chosen_runtimes((), model.graph.format)),
    )
