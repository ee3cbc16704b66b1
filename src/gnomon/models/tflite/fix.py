"""A copy of a TFLite or Circle file whose open shapes are fixed.

A tensor has two shapes in these files (``schema.fbs`` of TensorFlow): `shape`, in which the converter put 1 for what is
open, and `shape_signature`, which has -1 there. They are vectors of as many numbers each, so that both are written over
in place; nothing else of the file changes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gnomon.errors import ModelError
from gnomon.models.model import Limits, Model, model_errors, read_regular
from gnomon.models.tflite.file import Buffer, Table, broken
from gnomon.models.tflite.graph import read_flat

_SHAPE, _SIGNATURE = 0, 7


def fixed_flat(model: Model, shapes: Mapping[str, tuple[int, ...]], folder: Path) -> tuple[Model, Path]:
    """The model with inputs of `shapes`, and the file to load: a copy in `folder`, under the name of the user's file.

    Where the shapes are those that the converter put into the file, the shapes of all tensors are known; where they are
    others, those of tensors that the file leaves open stay open, as only a runtime computes them. The copy keeps the
    digest of the user's file.
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
        fixed, _ = read_flat(bytes(data), model.path.stem)
    target = folder / model.path.name
    target.write_bytes(data)
    return replace(model, path=target, graph=replace(fixed, digest=model.graph.digest)), target


def _write(data: bytearray, tables: list[Table], wanted: Mapping[int, tuple[int, ...]]) -> None:
    """Write the shapes of tensors, by their index, over both vectors that each has."""
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
                broken("a tensor's two shapes have unlike ranks")
            if written.setdefault(start, shape) != shape:
                raise ModelError(
                    "the file has one vector for the shapes of several tensors, so they cannot be fixed one by one",
                    hint="export the model with fixed shapes",
                )
            struct.pack_into(f"<{count}i", data, start, *shape)
