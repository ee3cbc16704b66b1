"""Reads an ONNX file, which may be hostile, and its external data, within limits on size and memory.

The memory that a protobuf message will take is estimated without parsing it. Two bytes of a hostile file can represent
an empty message that takes a hundred bytes of memory, so large files are walked before they are parsed. The wire format
is described at https://protobuf.dev/programming-guides/encoding/.

This module also translates ONNX element types and shapes into gnomon's terms. It imports the onnx package only when
needed.
"""

from __future__ import annotations

import hashlib
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from gnomon.errors import ModelError
from gnomon.installing import needed
from gnomon.models.model import FORMATS, Limits, add_to_digest, inside, open_regular, read_regular, refuse_pointer

if TYPE_CHECKING:
    import onnx

MESSAGE_BYTES = 300
"""The assumed memory of one parsed message, with its entry in a list."""

WORST_FACTOR = MESSAGE_BYTES // 2
MAX_DEPTH = 100
MAX_MESSAGES = 1 << 22
_UNSEEN_BYTES = 1 << 30
_VARINT, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}  # wire type of a fixed-size value: its number of bytes
_MESSAGE_TYPE = 11  # FieldDescriptor.TYPE_MESSAGE
_TEXT_TYPES = {9, 12}  # FieldDescriptor.TYPE_STRING, TYPE_BYTES


_LIST = "onnx.AttributeProto"
_LONG_BYTES = 1 << 16
"""Lists of attributes with more bytes than this, such as the trees of an ensemble, do not affect shapes."""
Edit = tuple[int, int, bytes]
"""A piece of a file, given by its beginning and its end, and its replacement."""


def check_parsed_size(data: bytes, descriptor: Any, max_memory_bytes: int) -> list[Edit]:
    """The edits that remove the long lists of attributes from `data`; none if it has no such list.

    Raises ModelError if parsing `data` as the message `descriptor` could take more memory than allowed. Files too small
    to do so are accepted without a walk. A walk holds one frame for each level and ends at the limit, or at
    `MAX_MESSAGES`. Runs of numbers and of short texts, which make up most of a large file, are skipped at once.
    """
    if len(data) * WORST_FACTOR <= min(max_memory_bytes, _UNSEEN_BYTES):
        return []
    total, messages, position = 0, 0, 0
    frames = [_Frame(end=len(data), kind=descriptor, length=(0, 0))]
    cuts: list[Edit] = []
    shorter: dict[tuple[int, int], int] = {}
    while frames:
        end, kind = frames[-1].end, frames[-1].kind
        if position == end:
            frames.pop()
            continue
        if total > max_memory_bytes or messages > MAX_MESSAGES:
            raise ModelError(
                f"the ONNX file would take more than {max_memory_bytes} bytes of memory to parse,"
                f" or has more than {MAX_MESSAGES} parts",
                hint="Store its weights in a file beside it (external data).",
            )
        begin = position
        run = _runs(kind).match(data, position, end)
        if run is not None:
            position = run.end()
            # A number takes at least two bytes of the file; texts are counted by their tags.
            total += 4 * (position - begin) + 32 * sum(data.count(tag, begin, position) for tag in _text_tags(kind))
        else:
            tag, position = _varint(data, position, end)
            field = kind.fields_by_number.get(tag >> 3)
            length = position
            size, position = _value_size(data, position, end, tag & 7)
            if tag & 7 != _BYTES:
                total += 8
            elif field is not None and field.type == _MESSAGE_TYPE:
                total, messages = total + MESSAGE_BYTES, messages + 1
                frames.append(_Frame(end=position + size, kind=field.message_type, length=(length, position)))
                if len(frames) > MAX_DEPTH:
                    _broken(f"it is nested deeper than {MAX_DEPTH} levels")
                continue
            elif field is None or field.type in _TEXT_TYPES:
                total += size + 32
            else:
                total += 8 * size
            position += size
        if kind.full_name == _LIST and position - begin > _LONG_BYTES:
            cuts.append((begin, position, b""))
            for frame in frames[1:]:
                left = shorter.get(frame.length, frame.end - frame.length[1])
                shorter[frame.length] = left - (position - begin)
    return sorted([*cuts, *((a, b, _padded(left, b - a)) for (a, b), left in shorter.items())])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """A message on the walk: its end, its kind, and the place of its length."""

    end: int
    kind: Any
    length: tuple[int, int]


def without(data: bytes, edits: Sequence[Edit]) -> bytes:
    """The data with the edits applied."""
    pieces: list[bytes | memoryview] = []
    position = 0
    for begin, end, instead in edits:
        pieces += [memoryview(data)[position:begin], instead]
        position = end
    return b"".join([*pieces, memoryview(data)[position:]])


def _padded(value: int, width: int) -> bytes:
    """A number, written in as many bytes as the one that it replaces."""
    return bytes([*((value >> 7 * k & 0x7F) | 0x80 for k in range(width - 1)), value >> 7 * (width - 1)])


def _tags(kind: Any, wire: int, *, text: bool) -> list[bytes]:
    """The one-byte tags of a message's fields that are lists of numbers or, with `text`, lists of texts."""
    lists = (f for f in kind.fields if f.number < 16 and f.type != _MESSAGE_TYPE)
    fields = (f for f in lists if f.default_value == [])
    return [bytes([f.number << 3 | wire]) for f in fields if (f.type in _TEXT_TYPES) == text]


@cache
def _text_tags(kind: Any) -> tuple[bytes, ...]:
    return tuple(_tags(kind, _BYTES, text=True))


@cache
def _runs(kind: Any) -> re.Pattern[bytes]:
    """A pattern for consecutive numbers, or consecutive texts shorter than 128 bytes, which make up most of a message
    of this kind.
    """

    def of(tags: Sequence[bytes], rest: bytes) -> bytes:
        return b"[%s]%s" % (b"".join(map(re.escape, tags)), rest) if tags else b"(?!)"

    short = b"(?:%s)" % b"|".join(b"%s.{%d}" % (re.escape(bytes([size])), size) for size in range(128))
    numbers = [of(_tags(kind, _VARINT, text=False), rb"[\x80-\xff]{0,9}+[\x00-\x7f]")]
    numbers += [of(_tags(kind, wire, text=False), b".{%d}" % size) for wire, size in _FIXED.items()]
    texts = of(_text_tags(kind), short)
    return re.compile(b"(?:%s)++|(?:%s)++" % (b"|".join(numbers), texts), re.DOTALL)


def _value_size(data: bytes, position: int, end: int, wire: int) -> tuple[int, int]:
    """The number of bytes of a field's value, and the place where the value begins."""
    if wire == _VARINT:
        return 0, _varint(data, position, end)[1]
    if wire == _BYTES:
        size, position = _varint(data, position, end)
    elif wire in _FIXED:
        size = _FIXED[wire]
    else:
        _broken("it has a field of an unknown kind")
    if position + size > end:
        _broken("a length points beyond the end of the file")
    return size, position


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    return _broken("a number is not terminated")


def _broken(why: str) -> NoReturn:
    raise ModelError(f"the ONNX file is broken: {why}", hint="Export or copy the model again.")


MAX_RANK = 64

# Types whose names in numpy or ml_dtypes differ from those in ONNX.
_OTHER_NAMES = {
    "float": "float32",
    "double": "float64",
    "float4_e2m1": "float4_e2m1fn",
    "float6_e2m3": "float6_e2m3fn",
    "float6_e3m2": "float6_e3m2fn",
    "float8_e8m0": "float8_e8m0fnu",
}


def onnx_package() -> Any:
    """The onnx package. Raises RuntimeMissingError if it is not installed."""
    with needed("reading an ONNX model needs the package onnx, which cannot be loaded", "onnx", python=sys.executable):
        import onnx
    return onnx


@lru_cache
def element_type(number: int) -> str:
    """The name of an ONNX element type in numpy or ml_dtypes; "" for an unknown type."""
    names = onnx_package().TensorProto.DataType
    if not number or number not in names.values():
        return ""
    name = re.sub("^(float[0-9])e", r"\1_e", names.Name(number).lower())
    return _OTHER_NAMES.get(name, name)


def check_rank(name: str, rank: int) -> None:
    """Raise ModelError for a rank that no real tensor has; products over so many dimensions could be very slow."""
    if rank > MAX_RANK:
        raise ModelError(f"tensor {name!r} has {rank} dimensions, more than {MAX_RANK}", hint="Export the file again.")


def value_shape(value: onnx.ValueInfoProto) -> tuple[int, tuple[int, ...] | None]:
    """Element type and shape of a value; type 0 if it is not a tensor, shape None if it has no rank."""
    if not value.type.HasField("tensor_type"):
        return 0, None
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return tensor.elem_type, None
    dims = tensor.shape.dim
    check_rank(value.name, len(dims))
    shape = tuple(d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else -1 for d in dims)
    return tensor.elem_type, shape


_UNNAMED = frozenset({"?", "*", "-1", "None"})
"""Placeholders that some exporters write for a dimension without a name."""


def dimension_names(value: onnx.ValueInfoProto) -> tuple[str, ...]:
    """The names of a value's open dimensions, "" for other dimensions; empty if none has a name."""
    names = [d.dim_param if d.dim_param not in _UNNAMED else "" for d in value.type.tensor_type.shape.dim]
    return tuple(names) if any(names) else ()


PROTOBUF_BYTES = (1 << 31) - 1
"""The size of the largest protobuf message; larger models keep their weights in other files."""

MAX_NODES = 1 << 18
MAX_NAMES = 1 << 23


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxFile:
    """A parsed ONNX file, without its external data.

    `whole` is False if long lists of attributes were left out: the model can then be inspected but not written.
    `unsorted` means that the nodes of the file are not in a topological order; the nodes of `model` always are.
    `external` maps the model's names for the files of external data to these files, in the order of their paths.
    `digest` and `size_bytes` cover the file and its external data together; only `read_onnx` sets them.
    """

    model: onnx.ModelProto
    external: Mapping[Path, Path]
    whole: bool = True
    unsorted: bool = False
    digest: str = ""
    size_bytes: int = 0


def parse_onnx(path: Path, limits: Limits, *, whole: bool = True) -> OnnxFile:
    """Parse an ONNX file. Raises ModelError if it is broken, RuntimeMissingError if onnx is not installed.

    The digest, which takes most of the time for a large model, is not computed. A model that is not `whole` lacks the
    long lists of attributes, which for an ensemble of trees take six times the file's size in memory.
    """
    return _parsed(path, limits, whole=whole)[0]


def read_onnx(path: Path, limits: Limits, *, whole: bool = True) -> OnnxFile:
    """Parse an ONNX file as `parse_onnx` does, with its digest and size."""
    parsed, data = _parsed(path, limits, whole=whole)
    digest = hashlib.sha256(data)
    size = len(data)
    for file in dict.fromkeys(parsed.external.values()):
        size += add_to_digest(digest, file, limits.max_bytes)
    return replace(parsed, digest=digest.hexdigest(), size_bytes=size)


def _parsed(path: Path, limits: Limits, *, whole: bool) -> tuple[OnnxFile, bytes]:
    onnx = onnx_package()
    if limits.max_bytes > PROTOBUF_BYTES:
        hint = "No ONNX file is larger: store the weights as external data (save_as_external_data of onnx.save_model)."
        data = read_regular(path, PROTOBUF_BYTES, hint)
    else:
        data = read_regular(path, limits.max_bytes)
    if not data:
        raise ModelError(f"{path} is empty", hint="Export or copy the model again.")
    refuse_pointer(path, data[:64])
    edits = check_parsed_size(data, onnx.ModelProto.DESCRIPTOR, limits.max_memory_bytes)
    whole = whole or not edits
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data if whole else without(data, edits))
    except Exception as error:  # protobuf's DecodeError; the C parsers differ in its class
        _unknown(path, f"it cannot be parsed as ONNX: {error}")
    _check_plausible(model, path)
    if not all(isinstance(text, str) for text in _texts(model)):
        _unknown(path, "it has names that are not UTF-8 text")
    unsorted = sort_nodes(model.graph)
    return OnnxFile(model=model, external=external_files(model, path, limits), whole=whole, unsorted=unsorted), data


def sort_nodes(graph: onnx.GraphProto) -> bool:
    """Put the nodes into a topological order; return True if they were in another one. ModelError for a cycle."""
    nodes = list(graph.node)
    rows = [node_names(node) for node in nodes]
    writer = {name: place for place, (_, results) in enumerate(rows) for name in results}
    before = {place: [writer[name] for name in reads if name in writer] for place, (reads, _) in enumerate(rows)}
    if all(first < place for place, own in before.items() for first in own):
        return False
    try:
        order = list(TopologicalSorter(before).static_order())
    except CycleError as error:
        raise ModelError("the model's nodes form a cycle", hint="Export the model again.") from error
    del graph.node[:]
    graph.node.extend(nodes[place] for place in order)
    return True


def node_names(node: onnx.NodeProto) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names that a node reads, including those that its subgraphs take from outside, and those that it writes."""
    reads = [label for label in node.input if label]
    if any(_subgraphs(node)):
        reads += _captured(node)
    return tuple(reads), tuple(label for label in node.output if label)


def _subgraphs(node: onnx.NodeProto) -> Iterable[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _captured(node: onnx.NodeProto) -> list[str]:
    """The names that a node's subgraphs read but do not define, in order. Protobuf limits the depth to 100."""
    captured: dict[str, None] = {}
    for graph in _subgraphs(node):
        rows = [node_names(inner) for inner in graph.node]
        defined = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
        defined.update(label for _, results in rows for label in results)
        for reads, _ in rows:
            captured.update(dict.fromkeys(label for label in reads if label not in defined))
        captured.update(dict.fromkeys(v.name for v in graph.output if v.name and v.name not in defined))
    return list(captured)


def external_files(model: onnx.ModelProto, file: Path, limits: Limits) -> dict[Path, Path]:
    """The files of external data, each checked to be in the model's folder and to hold the requested data.

    A key is the path, relative to the folder, by which the model names the file; its value is the file itself, with
    links resolved.
    """
    external = onnx_package().TensorProto.EXTERNAL
    needed: dict[Path, int] = {}
    files: dict[Path, Path] = {}
    for tensor in all_tensors(model):
        if tensor.data_location != external:
            continue
        path, location, offset, length = external_place(tensor, file)
        files[Path(location)] = path
        end = offset + (length or 0)
        needed[path] = max(needed.get(path, 0), end)
    for path, end in needed.items():
        with open_regular(path, limits.max_bytes) as opened:
            size = opened.seek(0, 2)
        if size < end:
            raise ModelError(
                f"the external data {path.name} has {size} bytes, but the model needs {end}",
                hint="Copy the whole model again, with its data files.",
            )
    return dict(sorted(files.items(), key=lambda item: (item[1], item[0])))


def read_external(tensor: onnx.TensorProto, file: Path, limits: Limits) -> None:
    """Read the external data of a tensor into the tensor; the model is in `file`. Raises ModelError.

    The onnx package's own reader refuses a file that has a second name (a hard link), as files from a package cache do.
    """
    path, _, offset, length = external_place(tensor, file)
    with open_regular(path, limits.max_bytes) as opened:
        opened.seek(offset)
        tensor.raw_data = opened.read(-1 if length is None else length)
    tensor.data_location = onnx_package().TensorProto.DEFAULT
    del tensor.external_data[:]


LOCATION = b"location"
"""The key under which a tensor names the file of its data: a model without these bytes has no external data."""


def external_bytes(tensor: onnx.TensorProto) -> float:
    """The number of bytes of external data that a tensor names; infinite if it takes a whole file."""
    return next((int(e.value) for e in tensor.external_data if e.key == "length" and e.value.isdigit()), math.inf)


def external_place(tensor: onnx.TensorProto, file: Path) -> tuple[Path, str, int, int | None]:
    """The file of a tensor's external data, the model's name for the file, and the data's offset and length in bytes.

    The file must be in the model's folder. Only in a cache of downloads, which consists of links, may it be a link into
    the folder that the model's own link leads to. Without a length, the data extend to the file's end.
    """
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get(LOCATION.decode(), "")
    path = inside(file.parent, location, f"external data of tensor {tensor.name!r}", or_in=file.resolve().parent)
    length = _number(entries, "length", tensor.name) if "length" in entries else None
    return path, location, _number(entries, "offset", tensor.name), length


def _number(entries: dict[str, str], key: str, tensor: str) -> int:
    text = entries.get(key, "0")
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ModelError(
            f"the external data of tensor {tensor!r} has an invalid {key}: {text[:40]!r}",
            hint="Export the model again.",
        )
    return int(text)


def all_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of the model, including those in attributes, subgraphs and functions."""
    for part in _graphs_and_nodes(model):
        for attribute in getattr(part, "attribute", ()):
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
        for sparse in getattr(part, "sparse_initializer", ()):
            yield from (sparse.values, sparse.indices)
        yield from getattr(part, "initializer", ())


def all_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node of the model, including those in subgraphs and functions."""
    return (part for part in _graphs_and_nodes(model) if hasattr(part, "op_type"))


def _graphs_and_nodes(model: onnx.ModelProto) -> Iterator[Any]:
    """Every graph and every node of the model, including those in subgraphs and functions."""
    pending: list[Any] = [model.graph, *(node for function in model.functions for node in function.node)]
    while pending:
        part = pending.pop()
        yield part
        pending.extend(getattr(part, "node", ()))
        for attribute in getattr(part, "attribute", ()):
            pending.extend(attribute.graphs)
            if attribute.HasField("g"):
                pending.append(attribute.g)


def _texts(model: onnx.ModelProto) -> Iterator[str]:
    """Every name that gnomon reads; for a name that is not UTF-8, the parser returns bytes."""
    for part in _graphs_and_nodes(model):
        yield part.name
        if hasattr(part, "op_type"):
            yield from (part.op_type, part.domain, *part.input, *part.output)
        for group in ("input", "output", "value_info") if hasattr(part, "node") else ():
            for value in getattr(part, group):
                yield from (value.name, *(d.dim_param for d in value.type.tensor_type.shape.dim))
    for tensor in all_tensors(model):
        yield tensor.name
        for entry in tensor.external_data:
            yield from (entry.key, entry.value)


def _check_plausible(model: onnx.ModelProto, path: Path) -> None:
    graph = model.graph
    if model.ir_version <= 0 or not (graph.node or graph.output):
        _unknown(path, "it could be ONNX, but it has no version, or neither nodes nor outputs")
    names = sum(len(node.input) + len(node.output) for node in graph.node[:MAX_NODES])
    if len(graph.node) > MAX_NODES or names > MAX_NAMES:
        raise ModelError(
            f"{path} has {len(graph.node)} nodes with {names} names; at most {MAX_NODES} with {MAX_NAMES} are read",
            hint="Split the model.",
        )


def _unknown(path: Path, why: str) -> NoReturn:
    raise ModelError(
        f"{path} is not a model that gnomon reads: {why}",
        hint=f"Give a file of {', '.join(FORMATS.values())} or an nnpackage, or the program that runs it: --command",
    )
