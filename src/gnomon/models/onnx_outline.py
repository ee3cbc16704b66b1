"""An ONNX file as a model of which only the inputs and outputs have shapes: enough to run it, and read in milliseconds.

`gnomon.models.load` infers the shapes of all tensors, in a process of its own, as inference may crash on a hostile
file. That takes a fifth of a second a file, which is longer than a small network is measured.
"""

from __future__ import annotations

from pathlib import Path

from gnomon.models.files import model_errors
from gnomon.models.model import Limits, Model, dynamic_inputs
from gnomon.models.onnx_file import read_onnx
from gnomon.models.onnx_graph import onnx_graph
from gnomon.models.onnx_shapes import tensor_shapes
from gnomon.models.onnx_types import value_shape


def load_onnx(path: Path, limits: Limits) -> Model:
    """An ONNX file with the shapes that inference finds. To be called under `model_errors`."""
    read = read_onnx(path, limits)
    shapes = tensor_shapes(read.model, limits)
    graph = onnx_graph(read.model, shapes, name=path.stem, digest=read.digest)
    return Model(path=path, graph=graph, kind="onnx", package=None, size_bytes=read.size_bytes)


def load_outline(path: Path, limits: Limits | None = None) -> Model | None:
    """Reads an ONNX file; None where it does not fix the shape of an input or of an output.

    Operators have no multiply-accumulates, and tensors inside no shape. Raises ModelError for a broken file, and
    RuntimeMissingError where the package onnx is not installed.
    """
    with model_errors(path):
        read = read_onnx(path, limits or Limits())
        source = read.model.graph
        shapes = {value.name: value_shape(value) for value in (*source.input, *source.output)}
        graph = onnx_graph(read.model, shapes, name=path.stem, digest=read.digest)
        model = Model(path=path, graph=graph, kind="onnx", package=None, size_bytes=read.size_bytes)
        made = (graph.tensors[index].shape for index in graph.outputs)
        known = not dynamic_inputs(graph) and all(shape is not None and -1 not in shape for shape in made)
        return model if known else None
