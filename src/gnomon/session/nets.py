"""Nets of layers, read from ONNX and TFLite files and from the sources of blocks in search spaces."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnomon.errors import ModelError, ProblemError, UsageError
from gnomon.models.load import load
from gnomon.models.net import ModelNet, net_of_onnx
from gnomon.models.tflite_net import net_of_tflite
from gnomon.models.units import OPSET
from gnomon.session.model import read_model
from gnomon.session.request import ModelRequest
from gnomon.spaces.layers import Shape
from gnomon.spaces.sources import Source
from gnomon.spaces.unit import Net, needed
from gnomon.system.process import guarded_folder


def read_net(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> ModelNet:
    """The net of an ONNX or TFLite model. UsageError for a model in another format."""
    with ExitStack() as stack:
        read = read_model(ModelRequest(model=path, shapes=dict(shapes)), stack)
        model = replace(read.model, path=read.source)
        if model.graph.format == "tflite":
            return net_of_tflite(model, path)
        if model.graph.format != "onnx":
            raise UsageError(
                f"{path} has the format {model.graph.format}, but units can only be read from ONNX and TFLite",
                hint="Convert the model to ONNX, or measure it whole with gnomon profile.",
            )
        return net_of_onnx(model, path)


@functools.lru_cache(maxsize=4096)
def net_of_source(made_of: Any, shape: Shape) -> Net:
    """The net of a PyTorch module, of a function that creates one, or of an ONNX file (`Source`), for this input shape.

    ProblemError for a source that cannot be exported or read, has several inputs, or has operators that cannot be
    layers. RuntimeMissingError for a module if PyTorch is not installed.
    """
    if Source(made_of).is_file:
        path = Path(made_of)
        if not path.is_file():
            hint = "Give the path of an ONNX file. For a block that does nothing, use gnomon.spaces.skip."
            raise ProblemError(f"there is no file {path}", hint=hint)
        graph = load(path).graph
        first = [graph.tensors[index].name for index in graph.inputs[:1]]
        return _whole(str(path), path, dict.fromkeys(first, shape))
    from gnomon.training.export import export_module
    from gnomon.training.modules import module_for

    name = getattr(made_of, "__name__", type(made_of).__name__)
    with guarded_folder("gnomon-block-") as folder:
        path = folder / "block.onnx"
        failure = export_module(module_for(made_of, shape[1], name), shape, path, opset=OPSET)
        if failure is not None:
            raise ProblemError(f"PyTorch cannot export {name}: {failure.message}", hint="Correct it, or leave it out.")
        return _whole(name, path, {})


def _whole(name: str, path: Path, shapes: Mapping[str, Shape]) -> Net:
    """The net of a block. ProblemError if it has several inputs, or operators that cannot be layers."""
    try:
        read = read_net(path, shapes)
        several = [] if len(read.net.inputs) == 1 else [f"{len(read.net.inputs)} inputs"]
        lacking = ", ".join(dict.fromkeys([*several, *(f"{part.type} ({part.reason})" for part in read.left_out)]))
    except ModelError as error:
        lacking = error.message
    if lacking:
        raise ProblemError(
            f"{name} cannot be written as layers: {lacking}",
            hint="Change the block, or measure whole networks with gnomon space profile.",
        )
    return needed(read.net.inputs, read.net.nodes, read.net.output)
