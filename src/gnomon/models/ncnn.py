"""An ncnn model: a ``.param`` text with its weights in the ``.bin`` file beside it."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from gnomon.core.graph import Graph, Operator, Tensor
from gnomon.errors import ModelError, UsageError
from gnomon.formats.ncnn_param import MAGIC, MAX_CHARACTERS, Layer, NcnnParam, parse_ncnn_param, write_ncnn_param
from gnomon.models.files import add_to_digest, read_text
from gnomon.models.model import Limits, Model
from gnomon.models.naming import unique_names
from gnomon.models.ncnn_shapes import Shape, layer_macs, output_shapes

NCNN_MAGIC = MAGIC.encode()
"""The first bytes of a ``.param`` file."""

_MAX_RANK = 4
_NUMBERED = re.compile(r"(in|out)([0-9]{1,6})")


def load_ncnn(path: Path, limits: Limits | None = None) -> Model:
    """Reads a ``.param`` file, and checks that its ``.bin`` is there. Raises ModelError.

    The digest is over both files, as weights count for what a model computes.
    """
    limits = limits or Limits()
    text = read_text(path, min(limits.max_bytes, 4 * MAX_CHARACTERS))
    param = parse_ncnn_param(text)
    digest = hashlib.sha256(text.encode())
    size = len(text.encode()) + add_to_digest(digest, weights_of(path), limits.max_bytes)
    graph = ncnn_graph(param, name=path.stem, digest=digest.hexdigest())
    return Model(path=path, graph=graph, kind="ncnn", package=None, size_bytes=size)


def weights_of(path: Path) -> Path:
    """The file of weights that belongs to a ``.param`` file: of the same name, ending in ``.bin``."""
    return path.with_suffix(".bin")


def ncnn_graph(param: NcnnParam, *, name: str, digest: str) -> Graph:
    """The graph of an ncnn model: every layer is an operator, also those that only hand on, such as Split.

    Inputs are what the Input layers write, outputs what other layers write and none reads; those that a converter
    numbered (in0, out1) are in the order of their numbers, others in the file's. Shapes lack a batch axis, as ncnn
    does.
    """
    places: dict[str, int] = {}
    shapes: list[Shape] = []
    tensors: list[Tensor] = []
    operators: list[Operator] = []
    names = unique_names([layer.name for layer in param.layers], [layer.type for layer in param.layers])
    for index, (layer, own) in enumerate(zip(param.layers, names, strict=True)):
        read = tuple(shapes[places[blob]] for blob in layer.inputs)
        made = output_shapes(layer, read)
        for blob, shape in zip(layer.outputs, made, strict=True):
            places[blob] = len(tensors)
            shapes.append(shape)
            size = None if shape is None else 4 * math.prod(shape)
            tensors.append(Tensor(name=blob, shape=shape, dtype="float32", size_bytes=size))
        operators.append(
            Operator(
                index=index,
                name=own,
                type=layer.type,
                inputs=tuple(places[blob] for blob in layer.inputs),
                outputs=tuple(places[blob] for blob in layer.outputs),
                macs=layer_macs(layer, read, made),
            )
        )
    read_blobs = {blob for layer in param.layers for blob in layer.inputs}
    inputs = [blob for layer in param.layers if layer.type == "Input" for blob in layer.outputs]
    outputs = [blob for blob in places if blob not in read_blobs and blob not in inputs]
    return Graph(
        name=name,
        format="ncnn",
        digest=digest,
        tensors=tuple(tensors),
        operators=tuple(operators),
        inputs=tuple(places[blob] for blob in _numbered(inputs)),
        outputs=tuple(places[blob] for blob in _numbered(outputs)),
    )


def _numbered(blobs: Sequence[str]) -> Sequence[str]:
    """In the order of their numbers, if a converter numbered them all."""
    matches = [_NUMBERED.fullmatch(blob) for blob in blobs]
    if not all(matches):
        return blobs
    return sorted(blobs, key=lambda blob: int(blob.lstrip("inout")))


def with_input_shapes(param: NcnnParam, shapes: Mapping[str, tuple[int, ...]]) -> NcnnParam:
    """A copy whose Input layers declare these shapes, (c, h, w) or shorter, by the names of their blobs.

    UsageError for a name that no Input layer has and for a shape that ncnn cannot hold.
    """
    known = [blob for layer in param.layers if layer.type == "Input" for blob in layer.outputs]
    for name, shape in shapes.items():
        if name not in known:
            raise UsageError(f"the model has no input {name!r}", hint=f"Its inputs: {', '.join(known)}.")
        if not 1 <= len(shape) <= _MAX_RANK or min(shape) < 1:
            raise UsageError(
                f"ncnn cannot hold an input of shape {shape}",
                hint="Give one to four sizes from 1, without a batch axis, such as 3,224,224.",
            )
    return NcnnParam(layers=tuple(_with_shape(layer, shapes) for layer in param.layers))


def _with_shape(layer: Layer, shapes: Mapping[str, tuple[int, ...]]) -> Layer:
    if layer.type != "Input" or not layer.outputs or layer.outputs[0] not in shapes:
        return layer
    shape = shapes[layer.outputs[0]]
    keys = {1: (0,), 2: (1, 0), 3: (2, 1, 0), 4: (2, 11, 1, 0)}[len(shape)]
    for key, size in sorted(zip(keys, shape, strict=True)):
        layer = layer.with_integer(key, size)
    return layer


def fixed_ncnn(model: Model, shapes: Mapping[str, tuple[int, ...]], folder: Path) -> Model:
    """The model with inputs of these shapes: as it is if there are none, else a copy in `folder`.

    The copy's weights are a link. It keeps the digest of the user's file. UsageError as `with_input_shapes`.
    """
    if not shapes:
        return model
    param = with_input_shapes(parse_ncnn_param(read_text(model.path, 4 * MAX_CHARACTERS)), shapes)
    path = folder / model.path.name
    try:
        path.write_text(write_ncnn_param(param), encoding="utf-8")
        weights_of(path).symlink_to(weights_of(model.path).absolute())
    except OSError as error:
        raise ModelError(f"{path} cannot be written: {error.strerror}", hint="Check the disk.") from error
    copy = load_ncnn(path)
    graph = ncnn_graph(param, name=model.graph.name, digest=model.graph.digest)
    return Model(path=path, graph=graph, kind="ncnn", package=None, size_bytes=copy.size_bytes)
