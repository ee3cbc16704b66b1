"""A copy of an ONNX model with fixed input shapes and a name for every node."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.errors import ModelError, PackageError
from gnomon.models.model import Limits, Model, all_known, changed, link_file, model_errors, unique_names
from gnomon.models.onnx.file import (
    OnnxFile,
    ParsedOnnx,
    external_bytes,
    onnx_package,
    parse_onnx,
    read_external,
    read_onnx,
)
from gnomon.models.onnx.graph import load_onnx

if TYPE_CHECKING:
    import onnx


_SMALL_BYTES = 1 << 10
"""Of external data so much is read into a copy: what inference needs the values of, such as shapes."""
_IR_VERSION = 10
"""What runtimes of some years know: a copy is of no newer version of the format than its operators need."""


def fixed_copy(
    model: Model, shapes: Mapping[str, tuple[int, ...]], folder: Path, *, refused: bool = False
) -> tuple[Model, Path]:
    """The model, and the file to cut, with inputs of `shapes` and operators named as in the graph.

    Chains are cut by the names of operators and the shapes between them: where some are not known the copy has what
    inference tells of them. Returns what was given where nothing needs to change. For a runtime that has `refused` the
    file that also is its data's place and its version. A copy is written into `folder` under the name of the user's
    file, and keeps the digest of that file.
    """
    read = _read_again(model)
    proto = read.model
    wants_shapes = bool(shapes) or not all_known(model.graph)
    oldest = onnx_package().helper.find_min_ir_version_for(proto.opset_import, ignore_unknown=True)
    newest = max(oldest, _IR_VERSION)
    movable = refused and (read.external or proto.ir_version > newest)
    if not (wants_shapes or movable) and _has_names(proto, model):
        return model, model.path
    for node, operator in zip(proto.graph.node, model.graph.operators, strict=True):
        node.name = operator.name
    proto.ir_version = min(proto.ir_version, newest)
    for tensor in proto.graph.initializer:
        if tensor.external_data and external_bytes(tensor) <= _SMALL_BYTES:
            read_external(tensor, model.path, Limits())
    if wants_shapes:
        from gnomon.models.onnx.fix import fix_shapes

        proto = fix_shapes(proto, shapes)
    target = _written(read, proto, folder / model.path.name)
    if not wants_shapes:  # names are all that changed, and the graph has them already
        return replace(model, path=target), target
    with model_errors(target):
        copy = load_onnx(target, Limits())
    return replace(copy, graph=replace(copy.graph, digest=model.graph.digest)), target


def _read_again(model: Model) -> OnnxFile:
    """The file of a model that was read. ModelError where it is another one by now."""
    read = read_onnx(model.path, Limits())
    if read.digest != model.graph.digest:
        raise changed(model.path)
    return read


def named_copy(model: Model, folder: Path) -> Path | None:
    """A copy that differs from the file by the names of its nodes alone: those of the graph's operators.

    Profilers tell by name which operator a kernel is of. None where the file has these names already.
    """
    read = _read_again(model)
    if _has_names(read.model, model):
        return None
    for node, operator in zip(read.model.graph.node, model.graph.operators, strict=True):
        node.name = operator.name
    return _written(read, read.model, folder / model.path.name)


def _has_names(proto: onnx.ModelProto, model: Model) -> bool:
    return [node.name for node in proto.graph.node] == [op.name for op in model.graph.operators]


def named_dims(model: Model, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The values of the dimensions that the file leaves open by a name; none of one that is given several values."""
    found: dict[str, set[int]] = {}
    for value in parse_onnx(model.path, Limits()).model.graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False):
            if dim.dim_param:
                found.setdefault(dim.dim_param, set()).add(size)
    return {name: sizes.pop() for name, sizes in found.items() if len(sizes) == 1}


def _written(read: ParsedOnnx, proto: onnx.ModelProto, target: Path) -> Path:
    target.write_bytes(proto.SerializeToString())
    for name, file in read.external.items():
        link_file(file, target.parent / name)
    return target


def copy_onnx(source: Path, target: Path, limits: Limits | None = None) -> None:
    """Copy an ONNX file, and the files beside it that hold its weights. PackageError where that fails."""
    try:
        shutil.copyfile(source, target)
        read = parse_onnx(source, limits or Limits())
        for name, file in read.external.items():
            beside = target.parent / name
            beside.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, beside)
    except OSError as error:
        raise PackageError(
            f"{source} cannot be copied to {target}: {error.strerror}", hint="Check the folder, its rights and space."
        ) from error


def noted_copy(source: Path, notes: Mapping[str, Mapping[str, str]], target: Path, *, digest: str) -> int:
    """Copy an ONNX file with notes in the metadata of its nodes, by their names in its graph; returns how many match.

    Weights beside it are copied as well. ModelError if the file is another than that of `digest`, PackageError if the
    copy cannot be written.
    """
    with model_errors(source):
        read = read_onnx(source, Limits())
    if read.digest != digest:
        raise ModelError(f"{source} is another file than the one that was measured", hint="Name that one by --model.")
    nodes = read.model.graph.node
    labels = unique_names([node.name for node in nodes], [node.op_type for node in nodes])
    count = 0
    for node, label in zip(nodes, labels, strict=True):
        own = notes.get(label, {})
        count += bool(own)
        kept = [entry for entry in node.metadata_props if entry.key not in own]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
        for key, value in own.items():
            node.metadata_props.add(key=key, value=value)
    if count:
        copy_onnx(source, target)
        try:
            target.write_bytes(read.model.SerializeToString())
        except OSError as error:
            raise PackageError(f"{target} cannot be written: {error.strerror}", hint="Make room there.") from error
    return count
