"""PyTorch's exported programs (.pt2) as graphs, from the archive's JSON: nothing in it is unpickled or run.

The archive is what `torch.export.save` writes: ``models/model.json`` holds the graph, as
``torch/_export/serde/schema.py`` of PyTorch describes it (major version 8).
"""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from mmap import mmap
from typing import Any, BinaryIO, cast

from gnomon.core.graph import Graph, Tensor
from gnomon.core.strict_json import Strict
from gnomon.errors import ModelError, ProblemError
from gnomon.models.model import Row, named_operators, typed_tensor
from gnomon.models.pytorch.types import TYPES, macs

_SCHEMA = 8
_MOST_LETTERS = 256 << 20
_EXPORT = "If you trust the model, export it again: torch.export.save(torch.export.export(model, inputs), 'model.pt2')."
_STRICT = Strict(what="exported program", hint=_EXPORT, most_letters=_MOST_LETTERS)
_SYMBOL = re.compile(r"(?:Symbol\(')?(\w+)(?:'.*\))?")
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, NotImplementedError, OSError, KeyError)


def refuse_pickle() -> ModelError:
    """The error for pickled files of PyTorch: reading such a file runs any code that its author put there."""
    return ModelError("the file is a pickle of PyTorch, and reading a pickle runs its author's code", hint=_EXPORT)


def read_pt2(data: bytes | mmap, name: str) -> tuple[Graph, int]:
    """The graph of an exported program, and the number of its graphs, which is 1. ModelError for any other content, and
    for a broken file.
    """
    try:
        return _graph(_json(data), name, hashlib.sha256(data).hexdigest()), 1
    except ProblemError as error:
        raise ModelError(error.message, hint=error.hint) from error
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise ModelError(f"the exported program is broken: {type(error).__name__}: {error!s:.100}", hint=_EXPORT) from (
            error
        )


def _json(data: bytes | mmap) -> Any:
    try:
        with zipfile.ZipFile(io.BytesIO(data) if isinstance(data, bytes) else cast("BinaryIO", data)) as archive:
            names = archive.namelist()
            graphs = [entry for entry in names if entry.endswith("/models/model.json")]
            if not graphs and any(entry.endswith("/data.pkl") for entry in names):
                raise refuse_pickle()
            if len(graphs) != 1:
                raise ModelError("the archive is not an exported PyTorch program", hint=_EXPORT)
            if archive.getinfo(graphs[0]).file_size > _MOST_LETTERS:
                raise ModelError(f"the program's graph has more than {_MOST_LETTERS} bytes", hint=_EXPORT)
            with archive.open(graphs[0]) as file:
                text = file.read(_MOST_LETTERS + 1)
    except _BROKEN as error:
        raise ModelError(f"the archive is broken: {error!s:.100}", hint="Export or copy it again.") from error
    return _STRICT.parse(text)


def _graph(program: Mapping[str, Any], name: str, digest: str) -> Graph:
    version = program["schema_version"]["major"]
    if version != _SCHEMA:
        raise ModelError(
            f"the program was exported in version {version!s:.20} of its format, but gnomon reads version {_SCHEMA}",
            hint="Export it with PyTorch 2.6 or later; if its version is already newer, use a newer gnomon.",
        )
    module = program["graph_module"]
    graph, signature = module["graph"], module["signature"]
    fed = [spec["user_input"]["arg"] for spec in signature["input_specs"] if "user_input" in spec]
    given = [spec["user_output"]["arg"] for spec in signature["output_specs"] if "user_output" in spec]
    if not all(set(arg) == {"as_tensor"} for arg in (*fed, *given)):
        raise ModelError(
            "an input or output of the program is not a tensor, but gnomon supports only tensors",
            hint="Export the model with tensors as its inputs and outputs, and numbers as constants.",
        )
    written = {t for node in graph["nodes"] for arg in node["outputs"] for t in _tensors(arg)}
    inputs, outputs = (tuple(arg["as_tensor"]["name"] for arg in args) for args in (fed, given))
    values = graph["tensor_values"]
    numbers = {value: number for number, value in enumerate(values)}
    tensors = tuple(
        _tensor(value, meta, value not in written and value not in inputs) for value, meta in values.items()
    )
    rows = [_row(node, numbers, tensors) for node in graph["nodes"]]
    return Graph(
        name=name,
        format="pt2",
        digest=digest,
        tensors=tensors,
        operators=named_operators(rows, [str(node.get("name") or "") for node in graph["nodes"]]),
        inputs=tuple(numbers[value] for value in inputs),
        outputs=tuple(numbers[value] for value in outputs),
    )


def _row(node: Mapping[str, Any], numbers: Mapping[str, int], tensors: tuple[Tensor, ...]) -> Row:
    kind = str(node["target"]).removeprefix("torch.ops.")
    reads, writes = (
        tuple(dict.fromkeys(numbers[value] for arg in args for value in _tensors(arg)))
        for args in ([named["arg"] for named in node["inputs"]], node["outputs"])
    )
    transposed = any(named["name"] == "transposed" and named["arg"].get("as_bool") for named in node["inputs"])
    called = kind.removeprefix("aten.").partition(".")[0]
    shapes = [tensors[number].shape or () for number in reads]
    result = tensors[writes[0]].shape if writes else None
    return kind, reads, writes, macs(called, shapes, result, transposed=bool(transposed))


def _tensors(arg: Mapping[str, Any]) -> Iterator[str]:
    """The tensors that an argument names: one, those of a list, or none."""
    if "as_tensor" in arg:
        yield arg["as_tensor"]["name"]
    for listed in (arg.get("as_tensors"), arg.get("as_optional_tensors")):
        for entry in listed or ():
            inner = entry.get("as_tensor", entry)
            if isinstance(inner, dict) and "name" in inner:
                yield inner["name"]


def _tensor(name: str, meta: Mapping[str, Any], constant: bool) -> Tensor:
    """A tensor; a dimension that the program leaves open is -1."""
    # The file counts types from 1; the first is an unknown type.
    number = meta["dtype"]
    c10 = {13: 15, 28: 27, 34: 28, 35: 29}.get(number, number - 1 if number <= 12 else -1)
    shape = tuple(_dimension(entry) for entry in meta["sizes"])
    if not isinstance(name, str) or len(shape) > 64:
        raise ModelError(f"the program has a tensor with {len(shape)} dimensions or without a name", hint=_EXPORT)
    named = [_SYMBOL.fullmatch(str(entry.get("as_expr", {}).get("expr_str"))) for entry in meta["sizes"]]
    dims = tuple(match[1] if match and size == -1 else "" for match, size in zip(named, shape, strict=True))
    return typed_tensor(name, shape, TYPES.get(c10, ""), constant=constant, dims=dims)


def _dimension(entry: Mapping[str, Any]) -> int:
    size = entry.get("as_int", -1)
    if type(size) is not int or size < -1:
        raise ValueError("a dimension is not a whole number of at least -1")
    return size
