"""Models: files of all supported formats as graphs; writing nnpackages; cutting models."""

from __future__ import annotations

from gnomon.models.load import load
from gnomon.models.model import Limits, Model, NnPackage, dynamic_inputs

__all__ = ["Limits", "Model", "NnPackage", "dynamic_inputs", "load"]
