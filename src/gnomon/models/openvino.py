"""OpenVINO's models (IR): the graph of an ``.xml`` file, with its weights in the ``.bin`` file next to it.

Versions 10 and 11 of the format are read; see https://docs.openvino.ai/2025/documentation/openvino-ir-format.html.
Everything that follows from constants alone counts as constant: for example, weights that are stored in fewer bits,
which OpenVINO converts when it compiles the model.
"""

from __future__ import annotations

import graphlib
import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn
from xml.parsers import expat

import numpy as np

from gnomon.core.graph import Graph, Tensor, element_bits
from gnomon.core.strict_json import shown
from gnomon.errors import ModelError
from gnomon.models.model import (
    Limits,
    Model,
    add_to_digest,
    named_operators,
    open_regular,
    read_regular,
    refuse_pointer,
    typed_tensor,
    weights_of,
)
from gnomon.wire import Feed

_MOST_LETTERS = 64 << 20
_MOST_PARTS = 1 << 19
_MOST_RANK = 64
_MOST_DEPTH = 100
_VERSIONS = ("10", "11")
_TYPE = re.compile("(bf|f|i|u)(64|32|16|8|4|2)")
_KINDS = {"f": "float", "bf": "bfloat", "i": "int", "u": "uint"}
_WORDS = {"boolean": "bool", "bool": "bool", "string": "string"}
_PLACE = ("offset", "size")
_NEVER_CONSTANT = frozenset({"Parameter", "ReadValue", "Assign", "RandomUniform", "Multinomial"})
_WITH_BODIES = frozenset({"If", "Loop", "TensorIterator"})
_NO_OPERATORS = frozenset({"Parameter", "Const", "Result"})
_LAYER = ("net", "layers", "layer")
_HINT = "Write it again: openvino.save_model(model, 'model.xml')."


def load_openvino(path: Path, limits: Limits) -> Model:
    """Read an ``.xml`` file, and check that its ``.bin`` exists if it has constants. Raises ModelError.

    The digest covers both files, because weights are part of what a model computes.
    """
    text = read_regular(path, min(limits.max_bytes, _MOST_LETTERS))
    net = _parsed(text)
    digest, size, weights = hashlib.sha256(text), len(text), weights_of(path)
    if weights.exists() or any(layer.type == "Const" for layer in net.layers.values()):
        with open_regular(weights, limits.max_bytes) as file:
            refuse_pointer(weights, file.read(64))
        size += add_to_digest(digest, weights, limits.max_bytes)
    graph = _graph(net, path.stem, digest.hexdigest())
    return Model(path=path, graph=graph, kind="openvino", package=None, size_bytes=size)


def openvino_feeds(model: Model) -> dict[str, Feed]:
    """The feeds of inputs that index an axis of a table or of a state: numbers within the axis. Raises ModelError.

    If the length of the axis is unknown, as for a growing state, only the first row is certain to exist.
    """
    net = _parsed(read_regular(model.path, _MOST_LETTERS))
    feeds: dict[str, Feed] = {}
    for layer in net.layers.values():
        if layer.type != "Gather" or len(layer.read) < 3:
            continue
        (table, port), (key, _), (axis, _) = layer.read[:3]
        while net.layers[key].type == "Convert" and net.layers[key].read:
            key = net.layers[key].read[0][0]
        if net.layers[key].type == "Parameter":
            dims = net.layers[table].outputs[port].dims
            at = _number(net.layers[axis], weights_of(model.path))
            length = dims[at] if at is not None and -len(dims) <= at < len(dims) else 1
            label = _called(net.layers[key], 0, next(iter(net.layers[key].outputs.values())))
            most = max(0, length - 1)
            feeds[label] = {"least": 0, "most": min(most, feeds.get(label, {"most": most})["most"])}
    return feeds


def _dtype(word: str) -> str:
    """The name of an OpenVINO type in numpy or ml_dtypes; "" for an unknown type."""
    match = _TYPE.fullmatch(word)
    return _KINDS[match[1]] + match[2] if match else _WORDS.get(word, "")


def openvino_weights(path: Path) -> Iterator[tuple[str, str, np.ndarray[Any, Any]]]:
    """The constants of a model: their names, types and bytes; the bytes are read only when needed. Raises
    ModelError.
    """
    weights = weights_of(path)
    for layer in _parsed(read_regular(path, _MOST_LETTERS)).layers.values():
        kind = _dtype(layer.data.get("element_type", ""))
        offset, size = (int(layer.data.get(key, "")) if layer.data.get(key, "").isdecimal() else 0 for key in _PLACE)
        if layer.type == "Const" and 0 < size <= weights.stat().st_size - offset:
            yield layer.name, kind, np.memmap(weights, np.uint8, "r", offset, (size,))


def _number(layer: _Layer, weights: Path) -> int | None:
    """The whole number in a constant layer; None for any other layer."""
    kind = _dtype(layer.data.get("element_type", ""))
    bits = element_bits(kind)
    offset = layer.data.get("offset", "")
    if layer.type != "Const" or not kind.startswith("int") or bits < 8 or not re.fullmatch("[0-9]{1,18}", offset):
        return None
    with open_regular(weights, 1 << 62) as file:
        file.seek(int(offset))
        return int.from_bytes(file.read(bits // 8), "little", signed=True)


@dataclass(kw_only=True)
class _Port:
    precision: str
    names: tuple[str, ...]
    dims: list[int] = field(default_factory=list)


@dataclass(kw_only=True)
class _Layer:
    """A layer: its attributes in `data`, its input ports in order, and its output ports.

    `sources` maps each input port to the layer and the port from which it reads.
    """

    name: str
    type: str
    data: Mapping[str, str] = field(default_factory=dict)
    inputs: dict[str, None] = field(default_factory=dict)
    outputs: dict[str, _Port] = field(default_factory=dict)
    sources: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def read(self) -> list[tuple[str, str]]:
        """The layers and ports that the layer reads, in the order of its inputs."""
        return [self.sources[port] for port in self.inputs if port in self.sources]


class _Net:
    """The layers of a file by their ids, except those in the bodies of other layers. The parser fills it."""

    def __init__(self) -> None:
        self.version = ""
        self.layers: dict[str, _Layer] = {}
        self.parts = 0
        self.path: list[str] = []
        self.layer: _Layer | None = None
        self.port: _Port | None = None
        self.text = ""

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self.path.append(tag)
        place, self.text = tuple(self.path), ""
        if len(place) > _MOST_DEPTH:
            _broken(f"it is nested deeper than {_MOST_DEPTH} levels")
        if len(place) == 1:
            _check_net(tag, attributes)
            self.version = attributes["version"]
        elif place == _LAYER:
            self._start_layer(attributes)
        elif place == ("net", "edges", "edge"):
            self._join(attributes)
        elif self.layer is not None and place[:3] == _LAYER:
            if place[3:] == ("data",):
                self.layer.data = dict(attributes)
            elif place[3:] == ("input", "port"):
                self.count()
                self.layer.inputs[_given(attributes, "id")] = None
            elif place[3:] == ("output", "port"):
                names = attributes.get("names", "")
                self.count(1 + names.count(","))
                self.port = _Port(precision=attributes.get("precision", ""), names=_names(names))
                self.layer.outputs[_given(attributes, "id")] = self.port

    def end(self, tag: str) -> None:
        place = tuple(self.path)
        if place == (*_LAYER, "output", "port", "dim") and self.port is not None:
            if len(self.port.dims) == _MOST_RANK:
                _broken(f"a tensor has more than {_MOST_RANK} dimensions")
            self.port.dims.append(_dimension(self.text))
        elif place == (*_LAYER, "output", "port"):
            self.port = None
        elif place == _LAYER:
            self.layer = None
        self.path.pop()

    def count(self, parts: int = 1) -> None:
        """Count layers, ports and names: a file with nothing else would take far more memory than its size."""
        self.parts += parts
        if self.parts > _MOST_PARTS:
            _broken(f"it has more than {_MOST_PARTS} layers, ports and names")

    def letters(self, text: str) -> None:
        if len(self.text) < _MOST_DEPTH:
            self.text += text

    def _start_layer(self, attributes: Mapping[str, str]) -> None:
        key = _given(attributes, "id")
        if key in self.layers:
            _broken(f"two layers have the id {shown(key)}")
        self.count()
        self.layer = self.layers[key] = _Layer(name=_given(attributes, "name"), type=_given(attributes, "type"))

    def _join(self, attributes: Mapping[str, str]) -> None:
        writer, reader = (self.layers.get(_given(attributes, key)) for key in ("from-layer", "to-layer"))
        if writer is None or reader is None:
            _broken("an edge refers to a layer that does not exist")
        source, target = _given(attributes, "from-port"), _given(attributes, "to-port")
        if source not in writer.outputs or target not in reader.inputs or target in reader.sources:
            ends = f"from {shown(writer.name)} to {shown(reader.name)}"
            _broken(f"an edge {ends} refers to a port that does not exist or has another edge")
        reader.sources[target] = (_given(attributes, "from-layer"), source)


def _parsed(text: bytes) -> _Net:
    """The layers of a file, in an order in which each layer comes after the layers that it reads."""
    net = _Net()
    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = net.start, net.end
    parser.CharacterDataHandler = net.letters
    # Entities may expand a billion times over, or name files: no model declares any.
    parser.StartDoctypeDeclHandler = lambda *_: _broken("it declares a document type")
    try:
        parser.Parse(text, True)
    except (expat.ExpatError, ValueError, LookupError) as error:  # LookupError for encodings that expat does not know
        raise ModelError(f"the XML file is broken: {error}", hint=_HINT) from error
    before = {key: [source for source, _ in layer.read] for key, layer in net.layers.items()}
    place = {key: number for number, key in enumerate(before)}
    if any(place[source] >= place[key] for key, sources in before.items() for source in sources):
        try:
            order = list(graphlib.TopologicalSorter(before).static_order())
        except graphlib.CycleError:
            _broken("its layers form a cycle")
        net.layers = {key: net.layers[key] for key in order}
    return net


def _graph(net: _Net, name: str, digest: str) -> Graph:
    tensors: list[Tensor] = []
    places: dict[tuple[str, str], int] = {}
    kept: list[tuple[_Layer, tuple[int, ...], tuple[int, ...]]] = []
    inputs: list[int] = []
    outputs: list[int] = []
    for key, layer in net.layers.items():
        read = tuple(places[source] for source in layer.read)
        constant = layer.type not in _NEVER_CONSTANT and all(tensors[place].constant for place in read)
        constant = constant and (bool(read) or layer.type == "Const")
        unranked = layer.data.get("shape") == "..." or any(tensors[place].shape is None for place in read)
        written = []
        for number, (port, output) in enumerate(layer.outputs.items()):
            places[key, port] = len(tensors)
            written.append(len(tensors))
            tensors.append(_tensor(_called(layer, number, output), layer, output, unranked=unranked, constant=constant))
        if layer.type == "Parameter":
            inputs += written
        elif layer.type == "Result":
            outputs += read
        if layer.type not in _NO_OPERATORS and not constant:
            kept.append((layer, read, tuple(written)))
    if not outputs:
        _broken("it has no outputs")
    if net.version == "10":
        # OpenVINO gives the inputs and outputs of older files the types of its older interface.
        for place in outputs:
            tensors[place] = _typed(tensors[place], "int32" if tensors[place].dtype in _INT32 else "float32")
        for place in inputs:
            if tensors[place].dtype == "float16":
                tensors[place] = _typed(tensors[place], "float32")
    rows = [
        (layer.type, read, written, _macs(layer, [tensors[t] for t in read], [tensors[t] for t in written]))
        for layer, read, written in kept
    ]
    return Graph(
        name=name,
        format="openvino",
        digest=digest,
        tensors=tuple(tensors),
        operators=named_operators(rows, [layer.name for layer, *_ in kept]),
        inputs=tuple(inputs),
        outputs=tuple(dict.fromkeys(outputs)),
    )


def _called(layer: _Layer, number: int, port: _Port) -> str:
    """The name of a tensor. If it has several names, this is the layer's own name or, without such a name, the shortest
    ("input_1:0").
    """
    names = port.names
    own = layer.name + (f".{number}" if len(layer.outputs) > 1 else "")
    return own if own in names or not names else min(names, key=lambda name: (len(name), name))


def _tensor(name: str, layer: _Layer, port: _Port, *, unranked: bool, constant: bool) -> Tensor:
    precision = port.precision or layer.data.get("element_type", "")
    dtype = _dtype(re.sub("^fp", "f", precision.lower()))
    # The port of a tensor of any rank has no dimensions, like that of a scalar: only the source shows the difference.
    shape = None if unranked and not port.dims else tuple(port.dims)
    return typed_tensor(name, shape, dtype, other=precision.lower() or "unknown", constant=constant)


def _typed(tensor: Tensor, dtype: str) -> Tensor:
    """The tensor with another type."""
    return typed_tensor(tensor.name, tensor.shape, dtype, constant=tensor.constant)


_INT32 = frozenset({"int64", "uint64", "int32", "uint32"})


def _macs(layer: _Layer, read: Sequence[Tensor], written: Sequence[Tensor]) -> int | None:
    """Multiply-accumulates, computed from the shapes of an operation's first two inputs and of its result."""
    if layer.type in _WITH_BODIES:
        return None
    skipped = _WEIGHTS.get(layer.type)
    if skipped is None and layer.type != "MatMul":
        return 0
    shapes = [tensor.shape for tensor in (*read[:2], *written[:1])]
    if len(shapes) < 3 or any(shape is None or -1 in shape for shape in shapes):
        return None
    first, second, result = (shape or () for shape in shapes)
    if skipped is not None:
        return math.prod(first if "Backprop" in layer.type else result) * math.prod(second[skipped:])
    turned = layer.data.get("transpose_a", "").lower() in {"true", "1"} and len(first) > 1
    return math.prod(result) * (first[-2 if turned else -1] if first else 1)


_WEIGHTS = {
    "Convolution": 1,
    "ConvolutionBackpropData": 1,
    "GroupConvolution": 2,
    "GroupConvolutionBackpropData": 2,
}
"""For each convolution: the number of leading axes of its weights that do not add to the multiply-accumulates of a
number of the result (of the input, for Backprop).
"""


def _check_net(tag: str, attributes: Mapping[str, str]) -> None:
    if tag != "net":
        raise ModelError(f"the XML file has the root <{tag:.50}>, but OpenVINO's models have <net>", hint=_HINT)
    if attributes.get("version") not in _VERSIONS:
        raise ModelError(
            f"the model is in version {attributes.get('version', 'none')!r:.20} of OpenVINO's format",
            hint=f"gnomon reads versions {' and '.join(_VERSIONS)}. {_HINT}",
        )


def _names(text: str) -> tuple[str, ...]:
    """The names of a tensor in a text that separates them by commas; a comma within a name follows a backslash."""
    return tuple(name.replace("\\,", ",") for name in re.split(r"(?<!\\),", text) if name)


def _dimension(text: str) -> int:
    if not re.fullmatch(r"-1|[0-9]{1,18}", text.strip()):
        _broken("a dimension is not a number")
    return int(text)


def _given(attributes: Mapping[str, str], key: str) -> str:
    return attributes[key] if key in attributes else _broken(f"an element has no {key}")


def _broken(why: str) -> NoReturn:
    raise ModelError(f"the OpenVINO model is broken: {why}", hint=_HINT)
