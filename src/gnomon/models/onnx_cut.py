"""Cutting an ONNX model into segments. See `gnomon.models.cut`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.models.cut import Cutter
from gnomon.models.files import model_errors
from gnomon.models.model import Limits
from gnomon.models.onnx_file import read_onnx
from gnomon.models.onnx_graph import onnx_graph
from gnomon.models.onnx_shapes import tensor_shapes
from gnomon.models.onnx_submodel import Source, save, submodel

if TYPE_CHECKING:
    import onnx


class OnnxCutter(Cutter):
    """Cuts one ONNX model: nodes that make constants are repeated, initializers copied where they are read."""

    def __init__(self, model: Path | str | onnx.ModelProto, limits: Limits | None = None) -> None:
        """Reads the model, unless it is parsed already. Raises ModelError and RuntimeMissingError."""
        limits = limits or Limits()
        folder, digest, name = None, "", "model"
        with model_errors(model if isinstance(model, (str, Path)) else "the ONNX model"):
            if isinstance(model, (str, Path)):
                read = read_onnx(Path(model), limits)
                folder, digest, name = Path(model).parent, read.digest, Path(model).stem
                model = read.model
            shapes = tensor_shapes(model, limits)
            graph = onnx_graph(model, shapes, name=name, digest=digest)
        self._source = Source(model=model, graph=graph, shapes=shapes, folder=folder, limits=limits)
        super().__init__(graph)

    def write(self, nodes: Sequence[int], inputs: Sequence[int], outputs: Sequence[int], dest: Path) -> None:
        """Write the nodes as an ONNX model; ModelError where a boundary's type is unknown."""
        save(submodel(self._source, list(nodes), list(inputs), list(outputs)), dest)
