"""A copy of an ONNX model with fixed input shapes and a name for every node."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.errors import PackageError, UsageError
from gnomon.models.load import load
from gnomon.models.model import Limits, Model
from gnomon.models.onnx_file import external_files, read_onnx

if TYPE_CHECKING:
    import onnx


def fixed_copy(
    model: Model, shapes: Mapping[str, tuple[int, ...]], folder: Path, limits: Limits | None = None
) -> tuple[Model, Path]:
    """The model, and the file to load, with inputs of `shapes` and operators named as in the graph.

    Runtimes tell by name where an operator ran, so each must have one. Returns what was given where nothing needs
    to change; a copy is written into `folder`. UsageError where a shape contradicts the file.
    """
    import onnx

    read = read_onnx(model.path, limits or Limits())
    proto = read.model
    named = [node.name for node in proto.graph.node]
    if not shapes and named == [op.name for op in model.graph.operators]:
        return model, model.path
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for node, operator in zip(copy.graph.node, model.graph.operators, strict=True):
        node.name = operator.name
    if shapes:
        from gnomon.models.onnx_fix import fix_shapes

        for value in copy.graph.input:
            if value.name in shapes:
                _check(value, shapes[value.name])
        copy = fix_shapes(copy, shapes)
    target = folder / (model.path.stem + ".onnx")
    onnx.save(copy, target)
    for extra in external_files(proto, model.path.parent, limits or Limits()):
        beside = folder / extra.relative_to(model.path.parent)
        beside.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(extra, beside)
        except OSError:  # on another file system
            shutil.copyfile(extra, beside)
    return load(target), target


def copy_onnx(source: Path, target: Path, limits: Limits | None = None) -> None:
    """Copy an ONNX file, and the files beside it that hold its weights. PackageError where that fails."""
    try:
        shutil.copyfile(source, target)
        read = read_onnx(source, limits or Limits())
        for extra in external_files(read.model, source.parent, limits or Limits()):
            beside = target.parent / extra.relative_to(source.parent)
            beside.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(extra, beside)
    except OSError as error:
        raise PackageError(
            f"{source} cannot be copied to {target}: {error.strerror}", hint="Check the folder, its rights and space."
        ) from error


def _check(value: onnx.ValueInfoProto, shape: tuple[int, ...]) -> None:
    """UsageError where a shape contradicts what the model says of an input."""
    known = [d.dim_value or None for d in value.type.tensor_type.shape.dim]
    if len(known) != len(shape) or any(k not in (None, s) for k, s in zip(known, shape, strict=True)):
        shown = ", ".join("?" if k is None else str(k) for k in known)
        raise UsageError(
            f"--shape {value.name}={','.join(map(str, shape))} contradicts the model's own ({shown})",
            hint="Keep the dimensions that the model fixes.",
        )
