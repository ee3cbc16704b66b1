"""A copy of an ONNX model with fixed input shapes and a name for every node."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.errors import ModelError, PackageError
from gnomon.models.model import Limits, Model, all_known, changed, link_file, model_errors, unique_names, with_shapes
from gnomon.models.onnx.file import OnnxFile, ParsedOnnx, parse_onnx, read_onnx
from gnomon.models.onnx.graph import load_onnx

if TYPE_CHECKING:
    import onnx


def fixed_copy(model: Model, shapes: Mapping[str, tuple[int, ...]], folder: Path) -> tuple[Model, Path]:
    """The model, and the file to load, with inputs of `shapes` and operators named as in the graph.

    Runtimes tell by name where an operator ran, so each must have one, and cuts need shapes: where some are not known
    the copy has what inference tells of them. Returns what was given where nothing needs to
    change; a copy is written into `folder` under the name of the user's file, and keeps the digest of that
    file.
    """
    read = _read_again(model)
    proto = read.model
    named = [node.name for node in proto.graph.node]
    wants_shapes = bool(shapes) or not all_known(model.graph)
    if not wants_shapes and named == [op.name for op in model.graph.operators]:
        return model, model.path
    for node, operator in zip(proto.graph.node, model.graph.operators, strict=True):
        node.name = operator.name
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


def named_copy(model: Model, shapes: Mapping[str, tuple[int, ...]], folder: Path) -> tuple[Model, Path]:
    """The model as it is but for names of its operators, for runtimes that refuse it with its shapes fixed.

    Its graph has the inputs' `shapes`, which the file leaves open; what they are fed with fixes them when it is loaded.
    """
    read = _read_again(model)
    for node, operator in zip(read.model.graph.node, model.graph.operators, strict=True):
        node.name = operator.name
    target = _written(read, read.model, folder / model.path.name)
    return replace(with_shapes(model, shapes), path=target), target


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
