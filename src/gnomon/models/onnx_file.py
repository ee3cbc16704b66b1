"""Reading an ONNX file that may be hostile: size, memory, external data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from gnomon.errors import ModelError
from gnomon.models.files import add_to_digest, inside, open_regular, read_regular
from gnomon.models.model import Limits
from gnomon.models.onnx_types import onnx_package
from gnomon.models.onnx_wire import check_parsed_size

if TYPE_CHECKING:
    import onnx

PROTOBUF_BYTES = (1 << 31) - 1
"""No protobuf message is larger; larger models keep their weights in files beside it."""

MAX_NODES = 1 << 18
MAX_NAMES = 1 << 23


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxFile:
    """A parsed ONNX file, whose external data stays unread. `digest` is over the file and its external data.

    `external` are the files of external data, by what the model calls them, in order of their paths.
    """

    model: onnx.ModelProto
    digest: str
    size_bytes: int
    external: Mapping[Path, Path]


def read_onnx(path: Path, limits: Limits) -> OnnxFile:
    """Parses an ONNX file. Raises ModelError where it is broken, RuntimeMissingError without onnx."""
    onnx = onnx_package()
    if limits.max_bytes > PROTOBUF_BYTES:
        hint = "no ONNX file is larger: keep the weights as external data (onnx.save_model does)"
        data = read_regular(path, PROTOBUF_BYTES, hint)
    else:
        data = read_regular(path, limits.max_bytes)
    if not data:
        raise ModelError(f"{path} is empty", hint="export or copy the model again")
    check_parsed_size(data, onnx.ModelProto.DESCRIPTOR, limits.max_memory_bytes)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:  # protobuf's DecodeError; the C parsers differ in its class
        _unknown(path, f"parsing it as ONNX says: {error}")
    _check_plausible(model, path)
    if not all(isinstance(text, str) for text in _texts(model)):
        _unknown(path, "it has names that are not UTF-8 text")
    digest = hashlib.sha256(data)
    size = len(data)
    external = external_files(model, path.parent, limits)
    for file in dict.fromkeys(external.values()):
        size += add_to_digest(digest, file, limits.max_bytes)
    return OnnxFile(model=model, digest=digest.hexdigest(), size_bytes=size, external=external)


def external_files(model: onnx.ModelProto, folder: Path, limits: Limits) -> dict[Path, Path]:
    """The files of external data, each checked to lie in the model's folder and to hold what is asked for.

    A key is the path relative to the folder by which the model calls the file; its value the file itself, links
    resolved.
    """
    external = onnx_package().TensorProto.EXTERNAL
    needed: dict[Path, int] = {}
    files: dict[Path, Path] = {}
    for tensor in all_tensors(model):
        if tensor.data_location != external:
            continue
        path, location, offset, length = _external_place(tensor, folder)
        files[Path(location)] = path
        end = offset + (length or 0)
        needed[path] = max(needed.get(path, 0), end)
    for path, end in needed.items():
        with open_regular(path, limits.max_bytes) as file:
            size = file.seek(0, 2)
        if size < end:
            raise ModelError(
                f"external data {path.name} holds {size} bytes, and the model asks for {end}",
                hint="copy the whole model again, with its data files",
            )
    return dict(sorted(files.items(), key=lambda item: (item[1], item[0])))


def read_external(tensor: onnx.TensorProto, folder: Path, limits: Limits) -> None:
    """Reads the external data of a tensor into it. Raises ModelError.

    The onnx package's own reader refuses a file that has a second name, as files from a package cache do.
    """
    path, _, offset, length = _external_place(tensor, folder)
    with open_regular(path, limits.max_bytes) as file:
        file.seek(offset)
        tensor.raw_data = file.read(-1 if length is None else length)
    tensor.data_location = onnx_package().TensorProto.DEFAULT
    del tensor.external_data[:]


def _external_place(tensor: onnx.TensorProto, folder: Path) -> tuple[Path, str, int, int | None]:
    """The file of a tensor's external data, what the model calls it, and offset and length in it in bytes.

    Without a length the data go to the file's end.
    """
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    path = inside(folder, location, f"external data of tensor {tensor.name!r}")
    length = _number(entries, "length", tensor.name) if "length" in entries else None
    return path, location, _number(entries, "offset", tensor.name), length


def _number(entries: dict[str, str], key: str, tensor: str) -> int:
    text = entries.get(key, "0")
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ModelError(
            f"external data of tensor {tensor!r} has the {key} {text[:40]!r}", hint="export the model again"
        )
    return int(text)


def all_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of the model, those in attributes, subgraphs and functions included."""
    for part in _graphs_and_nodes(model):
        for attribute in getattr(part, "attribute", ()):
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
        for sparse in getattr(part, "sparse_initializer", ()):
            yield from (sparse.values, sparse.indices)
        yield from getattr(part, "initializer", ())


def _graphs_and_nodes(model: onnx.ModelProto) -> Iterator[Any]:
    """Every graph and every node of the model, those in subgraphs and functions included."""
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
    """Every name that gnomon reads; the parser hands out bytes where one is not UTF-8."""
    for part in _graphs_and_nodes(model):
        yield part.name
        if hasattr(part, "op_type"):
            yield from (part.op_type, part.domain, *part.input, *part.output)
        for group in ("input", "output", "value_info") if hasattr(part, "node") else ():
            yield from (value.name for value in getattr(part, group))
    for tensor in all_tensors(model):
        yield tensor.name
        for entry in tensor.external_data:
            yield from (entry.key, entry.value)


def _check_plausible(model: onnx.ModelProto, path: Path) -> None:
    graph = model.graph
    if model.ir_version <= 0 or not graph.node:
        _unknown(path, "as ONNX it would have no version or no node")
    names = sum(len(node.input) + len(node.output) for node in graph.node[:MAX_NODES])
    if len(graph.node) > MAX_NODES or names > MAX_NAMES:
        raise ModelError(
            f"{path} has {len(graph.node)} nodes, more than gnomon reads", hint="no known model has so many"
        )


def _unknown(path: Path, why: str) -> NoReturn:
    raise ModelError(
        f"{path} is not a model that gnomon reads: {why}",
        hint="give an ONNX, TFLite or Circle file, or an nnpackage folder",
    )
