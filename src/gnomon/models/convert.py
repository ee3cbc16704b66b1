"""Converting a model into the format of a runtime that does not load the user's own."""

from __future__ import annotations

from pathlib import Path

from gnomon.models.model import Model

_MADE_FROM = {"onnx": frozenset({"ncnn"})}


def reachable(model_format: str) -> frozenset[str]:
    """The formats in which a model can be given to a runtime: its own, and those that it can be converted to."""
    return frozenset({model_format}) | _MADE_FROM.get(model_format, frozenset())


def convert(model: Model, source: Path, wanted: str, folder: Path) -> Model:
    """The model, whose file with fixed shapes is `source`, in another format, written into `folder`.

    Raises ModelError where it cannot be converted, RuntimeMissingError where the converter is not installed.
    """
    if (model.graph.format, wanted) == ("onnx", "ncnn"):
        from gnomon.models.pnnx import convert_onnx

        return convert_onnx(model, source, folder)
    raise ValueError(f"nothing converts {model.graph.format} to {wanted}")
