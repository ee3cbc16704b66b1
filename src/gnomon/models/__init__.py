"""Models: ONNX, TFLite, Circle and nnpackage as graphs; writing packages; cutting ONNX models."""

from __future__ import annotations

from gnomon.models.load import load
from gnomon.models.model import Limits, Model, NnPackage, dynamic_inputs

__all__ = ["Limits", "Model", "NnPackage", "dynamic_inputs", "load"]
