"""The cutter for a model's format."""

from __future__ import annotations

from pathlib import Path

from gnomon.errors import ModelError
from gnomon.models.cut import Cutter


def open_cutter(path: Path, model_format: str) -> Cutter:
    """A cutter of the model file at `path`, which has this format ("onnx", "tflite").

    Raises ModelError if the model or its format cannot be cut, RuntimeMissingError if a package for reading it is
    missing.
    """
    if model_format == "onnx":
        from gnomon.models.onnx.cut import OnnxCutter

        return OnnxCutter(path)
    if model_format == "tflite":
        from gnomon.models.tflite.cut import FlatCutter

        return FlatCutter(path)
    raise ModelError(f"{model_format} models cannot be cut", hint="Give an ONNX or TFLite model.")
