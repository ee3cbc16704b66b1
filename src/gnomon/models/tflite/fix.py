"""Copies of a TFLite or Circle file with fixed shapes, or with the subgraph of a signature moved to the front.

A tensor has two shapes in these files (``schema.fbs`` of TensorFlow): `shape`, in which the converter put 1 for open
dimensions, and `shape_signature`, which has -1 for them. Both are vectors of the same length, so they are overwritten
in place; nothing else in the file changes.

Runtimes run a file's first subgraph. So in the copy for another signature, that signature's subgraph comes first, and
no other signature is left: offsets are overwritten, and the weights of the others stay in the file.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gnomon.errors import ModelError, UsageError
from gnomon.models.model import Limits, Model, model_errors, read_regular
from gnomon.models.tflite.file import Buffer, Table, broken
from gnomon.models.tflite.graph import called_graphs, read_flat

_SHAPE, _SIGNATURE = 0, 7
_GRAPHS, _SIGNATURES = 2, 7


def fixed_flat(model: Model, shapes: Mapping[str, tuple[int, ...]], folder: Path) -> tuple[Model, Path]:
    """The model with inputs of `shapes`, and the file to load: a copy in `folder`, under the name of the user's file.

    If the shapes are those that the converter put into the file, the shapes of all tensors are known. With other
    shapes, the open shapes of tensors stay open, because only a runtime can compute them. The copy keeps the digest of
    the user's file.
    """
    inputs = [model.graph.tensors[index] for index in model.graph.inputs]
    with model_errors(model.path):
        data = bytearray(read_regular(model.path, Limits().max_bytes))
        tables = Buffer(bytes(data)).root().tables(2)[0].tables(0)
        wanted = {i: shapes[t.name] for i, t in zip(model.graph.inputs, inputs, strict=True) if t.name in shapes}
        usual = all((tables[i].integers(_SHAPE) or ()) == shape for i, shape in wanted.items())
        if usual:
            wanted = {i: tables[i].integers(_SHAPE) or () for i in range(len(tables))}
        _write(data, tables, wanted)
    copy = _copied(model, data, folder)
    return copy, copy.path


def with_signature(model: Model, name: str, folder: Path) -> Model:
    """The model for a signature: the given model if the signature runs the first subgraph, otherwise a copy of its file
    in `folder`.

    The copy has the name of the user's file, and its graph keeps the digest of that file. UsageError if the model has
    no such signature, ModelError if such a copy of its file is impossible.
    """
    if name not in model.signatures:
        names = ", ".join(model.signatures)[:300] or "none, so leave out --signature"
        raise UsageError(f"--signature: the model has no signature {name!r}", hint=f"Its signatures: {names}.")
    number = model.signatures[name]
    if number == 0:
        return model
    if model.package:
        raise ModelError("onert runs only a package's first subgraph", hint=f"Give the file: {model.package.models[0]}")
    with model_errors(model.path):
        data = bytearray(read_regular(model.path, Limits().max_bytes))
        root = Buffer(bytes(data)).root()
        called = called_graphs(root)
        if called is None or called & {0, number}:
            raise ModelError(
                f"the subgraph of the signature {name!r} cannot be made the first: operators may call it by number",
                hint="Export the signature as a file of its own.",
            )
        place, table = [(k, t) for k, t in enumerate(root.tables(_SIGNATURES)) if t.text(2) == name][-1]
        at = table.find(4, 4)
        if at is None or number >= model.subgraphs:
            broken("a signature refers to a subgraph that does not exist")
        struct.pack_into("<I", data, at, 0)
        _lead(data, root, _GRAPHS, number, keep=model.subgraphs if called else 1)
        _lead(data, root, _SIGNATURES, place, keep=1)
    return _copied(model, data, folder)


def _copied(model: Model, data: bytearray, folder: Path) -> Model:
    """The model of a changed file, written to `folder` under the name of the user's file."""
    with model_errors(model.path):
        graph, count = read_flat(bytes(data), model.path.stem)
    target = folder / model.path.name
    target.write_bytes(data)
    return replace(model, path=target, graph=replace(graph, digest=model.graph.digest), subgraphs=count)


def _lead(data: bytearray, root: Table, field: int, number: int, *, keep: int) -> None:
    """Exchange the first entry of a vector of tables with another, and shorten the vector to its first
    `keep` entries.
    """
    start, _ = root.buffer.vector(root.buffer.offset(root.find(field) or 0), 4)
    places = (start, start + 4 * number)
    for place, target in zip(places, map(root.buffer.offset, reversed(places)), strict=True):
        if target <= place:
            broken("an offset leads backwards")
        struct.pack_into("<I", data, place, target - place)
    struct.pack_into("<I", data, start - 4, keep)


def _write(data: bytearray, tables: list[Table], wanted: Mapping[int, tuple[int, ...]]) -> None:
    """Write the wanted shapes, which are given by the index of the tensor, into both vectors of each tensor."""
    written: dict[int, tuple[int, ...]] = {}
    for index, table in enumerate(tables):
        for field in (_SHAPE, _SIGNATURE):
            place = table.find(field)
            if place is None:
                continue
            start, count = table.buffer.vector(table.buffer.offset(place), 4)
            shape = wanted.get(index, table.integers(field) or ())
            if count == 0 and field == _SIGNATURE:
                continue
            if count != len(shape):
                broken("a tensor's two shapes have different ranks")
            if written.setdefault(start, shape) != shape:
                raise ModelError(
                    "several tensors share one shape in the file, so their shapes cannot be fixed separately",
                    hint="Export the model with fixed shapes.",
                )
            struct.pack_into(f"<{count}i", data, start, *shape)
