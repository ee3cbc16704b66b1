"""Marks on the nodes of an ONNX file, to which ONNX Runtime's rules for placing nodes refer.

Rules match a node's metadata property ``layer_ann``. Nodes are also given names that contain their place in the file,
so that a name still identifies the operator after the runtime has appended to it or fused nodes under it. Only the few
necessary fields of the protobuf message are read, because the message may contain gigabytes of weights; no package is
needed for this. The field numbers are those in ONNX's onnx.proto.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

_GRAPH, _NODE = 7, 1
_INPUT, _OUTPUT, _NAME, _TYPE, _ATTRIBUTE, _DOMAIN, _METADATA = 1, 2, 3, 4, 5, 7, 9
_KEY, _VALUE = 1, 2
_ATTRIBUTE_NAME, _ATTRIBUTE_FLOAT, _ATTRIBUTE_TYPE, _FLOAT = 1, 2, 20, 1
_VARINT, _WIDE, _LENGTH, _NARROW = 0, 1, 2, 5
_PROPERTY, _OPERATOR = "layer_ann", "gnomon.operator"
_NUMBERED = re.compile(r"gnomon(\d+)(?!\d)")


class NotOnnx(ValueError):
    """The bytes are not an ONNX model."""


@dataclass(frozen=True)
class Node:
    """A node of the main graph: its operator, its name and type, and the tensors that it reads and writes.

    The operator is the node's place in the file, unless the file is from a gnomon package, where HardSwish may be two
    nodes.
    """

    operator: int
    name: str
    type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    mark: str
    start: int
    end: int


def mark_of(backend: str) -> str:
    """The prefix of the marks on a backend's nodes. It ends with a delimiter, because rules match prefixes."""
    return f"gnomon.{backend}/"


def number_of(name: str) -> int | None:
    """The number of the node from which the runtime derived a name; None for a name that has no number."""
    match = _NUMBERED.match(name)
    return int(match[1]) if match else None


def nodes_of(model: bytes) -> list[Node]:
    """The operators of the main graph, in order; an operator made up of several nodes is given as its first node, with
    the tensors of all its nodes.

    NotOnnx if the bytes are not an ONNX model.
    """
    nodes: dict[int, Node] = {}
    spans = [(start, end) for number, _, start, end in _fields(model, *_graph(model)) if number == _NODE]
    for place, (start, end) in enumerate(spans):
        node = _node(model, start, end, place)
        first = nodes.get(node.operator)
        if first is not None:
            node = replace(first, inputs=first.inputs + node.inputs, outputs=first.outputs + node.outputs)
        nodes[node.operator] = node
    if sorted(nodes) != list(range(len(nodes))):
        raise NotOnnx("its operators are numbered with gaps")
    return [nodes[operator] for operator in range(len(nodes))]


def marked(model: bytes, backends: Mapping[int, str], expanded: frozenset[str] = frozenset()) -> bytes:
    """The model, with its nodes numbered by operator and the nodes of the operators in `backends` marked.

    An earlier mark of a node is kept after the new mark, unless gnomon made it. Unmarked nodes of the types `expanded`
    (HardSwish) are replaced by the nodes that define them.
    """
    begin, finish = _graph(model)
    chunks: list[bytes] = []
    copied, place = begin, 0
    seen: set[int] = set()
    for number, tag, start, end in _fields(model, begin, finish):
        if number != _NODE:
            continue
        node = _node(model, start, end, place)
        chunks.append(model[copied:tag])
        if node.type in expanded and not node.domain and node.operator not in backends:
            chunks += [_message(_NODE, body) for body in _hard_swish(node)]
        else:
            again = f"/{node.type}" if node.operator in seen else ""
            chunks.append(_message(_NODE, _numbered(model, node, again, backends.get(node.operator))))
        seen.add(node.operator)
        copied, place = end, place + 1
    chunks.append(model[copied:finish])
    graph = b"".join(chunks)
    tag = next(tag for number, tag, _, end in _fields(model, 0, len(model)) if number == _GRAPH and end == finish)
    return b"".join([model[:tag], _message(_GRAPH, graph), model[finish:]])


def _numbered(model: bytes, node: Node, again: str, backend: str | None) -> bytes:
    kept: list[bytes] = []
    value = (mark_of(backend) if backend is not None else "") + re.sub(r"^gnomon\.[^/]*/", "", node.mark)
    for number, tag, start, end in _fields(model, node.start, node.end):
        changes = number == _METADATA and _texts(model, start, end).get(_KEY) == [_PROPERTY] and value != node.mark
        if number != _NAME and not changes:
            kept.append(model[tag:end])
    kept.append(_text(_NAME, f"gnomon{node.operator}{again}"))
    if value and value != node.mark:
        kept.append(_message(_METADATA, _text(_KEY, _PROPERTY) + _text(_VALUE, value)))
    return b"".join(kept)


def _hard_swish(node: Node) -> list[bytes]:
    """HardSwish as ONNX defines it: x * max(0, min(1, x / 6 + 0.5))."""
    inner = f"{node.outputs[0]}/gnomon"
    gate = [_text(_INPUT, node.inputs[0]), _text(_OUTPUT, inner), _text(_NAME, f"gnomon{node.operator}")]
    gate += [_text(_TYPE, "HardSigmoid"), _attribute("alpha", 1 / 6), _attribute("beta", 0.5)]
    product = [_text(_INPUT, node.inputs[0]), _text(_INPUT, inner), _text(_OUTPUT, node.outputs[0])]
    product += [_text(_NAME, f"gnomon{node.operator}/Mul"), _text(_TYPE, "Mul")]
    return [b"".join(gate), b"".join(product)]


def _attribute(name: str, value: float) -> bytes:
    body = _text(_ATTRIBUTE_NAME, name) + bytes([_ATTRIBUTE_FLOAT << 3 | _NARROW]) + struct.pack("<f", value)
    return _message(_ATTRIBUTE, body + _varint(_ATTRIBUTE_TYPE << 3) + _varint(_FLOAT))


def _node(model: bytes, start: int, end: int, place: int) -> Node:
    texts = _texts(model, start, end)
    said: dict[str, str] = {}
    for number, _, begin, finish in _fields(model, start, end):
        if number == _METADATA:
            entry = _texts(model, begin, finish)
            said["".join(entry.get(_KEY, ()))] = "".join(entry.get(_VALUE, ()))
    operator = said.get(_OPERATOR, "")
    return Node(
        operator=int(operator) if operator.isascii() and operator.isdigit() and len(operator) < 10 else place,
        name=(texts.get(_NAME) or [""])[-1],
        type=(texts.get(_TYPE) or [""])[-1],
        domain=(texts.get(_DOMAIN) or [""])[-1],
        inputs=tuple(texts.get(_INPUT, ())),
        outputs=tuple(texts.get(_OUTPUT, ())),
        mark=said.get(_PROPERTY, ""),
        start=start,
        end=end,
    )


def _graph(model: bytes) -> tuple[int, int]:
    graphs = [(start, end) for number, _, start, end in _fields(model, 0, len(model)) if number == _GRAPH]
    if len(graphs) != 1:
        raise NotOnnx("it does not contain exactly one graph")
    return graphs[0]


def _texts(model: bytes, start: int, end: int) -> dict[int, list[str]]:
    """The short fields of a message as strings, by field number."""
    texts: dict[int, list[str]] = {}
    for number, _, begin, finish in _fields(model, start, end):
        if number in (_INPUT, _OUTPUT, _NAME, _TYPE, _DOMAIN):
            texts.setdefault(number, []).append(model[begin:finish].decode("utf-8", "replace"))
    return texts


def _fields(model: bytes, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The number of each field, its start, and the start and end of its value."""
    at = start
    while at < end:
        tag = at
        key, at = _read_varint(model, at, end)
        kind, begin = key & 7, at
        if kind == _VARINT:
            _, at = _read_varint(model, at, end)
        elif kind == _LENGTH:
            length, begin = _read_varint(model, at, end)
            at = begin + length
        elif kind in (_WIDE, _NARROW):
            at += 8 if kind == _WIDE else 4
        else:
            raise NotOnnx(f"it has a field of the unknown wire type {kind}")
        if at > end:
            raise NotOnnx("a field is longer than its message")
        yield key >> 3, tag, begin, at


def _read_varint(model: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 64:
        byte = model[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7
    raise NotOnnx("a number is incomplete or too long")


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _message(number: int, body: bytes) -> bytes:
    return b"".join([_varint(number << 3 | _LENGTH), _varint(len(body)), body])


def _text(number: int, text: str) -> bytes:
    return _message(number, text.encode())
