"""A copy of an ONNX model with fixed input shapes and a name for every node."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gnomon.errors import ModelError, PackageError, system_errors
from gnomon.models.model import Limits, Model, all_known, changed, link_file, model_errors, unique_names
from gnomon.models.onnx.file import OnnxFile, external_bytes, onnx_package, read_external, read_onnx
from gnomon.models.onnx.graph import onnx_graph, tensor_shapes

if TYPE_CHECKING:
    import onnx


_SMALL_BYTES = 1 << 10
"""External data of at most this size are stored inside a copy: inference needs values such as shapes."""
_IR_VERSION = 10
"""A version of the format that older runtimes read: a copy has a newer one only if its operators require it."""


class Analysed(NamedTuple):
    """A model as it is analysed: its graph has the inputs' shapes, and everything that is then constant is folded.

    `model` has this graph, and `source` is the graph's file: a copy, or the user's file if no change is needed. `named`
    is a copy that differs from the user's file only in its nodes' names, which are those of the graph, because
    profilers identify operators by name; it is None if the user's file has these names. `dims` holds the values of the
    open dimensions that have a name in the file.
    """

    model: Model
    source: Path
    named: Path | None
    dims: dict[str, int]


def fixed_copy(model: Model, shapes: Mapping[str, tuple[int, ...]], folder: Path, *, refused: bool = False) -> Analysed:
    """The model with inputs of `shapes` and operators named as in the graph; its copies are written into `folder`.

    Cutting needs the names of operators and the shapes between them: if some shapes are unknown, the copy has those
    that inference finds. The nodes of a copy are in a topological order. Copies have the name of the user's file and
    keep its digest. If a runtime has `refused` the file, a copy is also written to put its external data next to it and
    to lower its version. A file with very long lists of attributes gets no copy.
    """
    read = read_onnx(model.path, Limits(), whole=False)
    if read.digest != model.graph.digest:
        raise changed(model.path)
    proto, dims = read.model, _named_dims(read.model, shapes)
    oldest = onnx_package().helper.find_min_ir_version_for(proto.opset_import, ignore_unknown=True)
    newest = max(oldest, _IR_VERSION)
    movable = refused and (read.external or proto.ir_version > newest)
    has_names = [node.name for node in proto.graph.node] == [op.name for op in model.graph.operators]
    wants_shapes = bool(shapes) or not all_known(model.graph)
    if has_names and not (wants_shapes or movable or read.unsorted):
        return Analysed(model, model.path, None, dims)
    for node, operator in zip(proto.graph.node, model.graph.operators, strict=True):
        node.name = operator.name
    target, named = folder / model.path.name, None
    if wants_shapes and read.whole and not has_names:
        (folder / "named").mkdir()
        named = _written(read, proto, folder / "named" / model.path.name)
    proto.ir_version = min(proto.ir_version, newest)
    for tensor in proto.graph.initializer:
        if tensor.external_data and external_bytes(tensor) <= _SMALL_BYTES:
            read_external(tensor, model.path, Limits())
    graph = model.graph
    if wants_shapes:
        from gnomon.models.onnx.fix import fix_shapes

        fix_shapes(proto, shapes)
        with model_errors(model.path):
            graph = onnx_graph(proto, tensor_shapes(proto, Limits()), name=model.path.stem, digest=graph.digest)
    if not read.whole:
        return Analysed(replace(model, graph=graph), model.path, None, dims)
    source = _written(read, proto, target)
    named = source if not (wants_shapes or has_names) else named
    return Analysed(replace(model, graph=graph, path=source), source, named, dims)


def _named_dims(proto: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The values of named dimensions, except for names to which `shapes` gives several values."""
    by_name: dict[str, set[int]] = {}
    for value in proto.graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False):
            if dim.dim_param:
                by_name.setdefault(dim.dim_param, set()).add(size)
    return {name: sizes.pop() for name, sizes in by_name.items() if len(sizes) == 1}


def _written(read: OnnxFile, proto: onnx.ModelProto, target: Path) -> Path:
    target.write_bytes(proto.SerializeToString())
    for name, file in read.external.items():
        link_file(file, target.parent / name)
    return target


def noted_copy(source: Path, notes: Mapping[str, Mapping[str, str]], target: Path, *, digest: str) -> int:
    """Copy an ONNX file and add `notes`, by node name, to the metadata of its nodes; return the number of nodes with
    notes.

    External weights are copied too. Nothing is written if no node has a note. ModelError if the file does not have this
    `digest`, PackageError if the copy cannot be written.
    """
    with model_errors(source):
        read = read_onnx(source, Limits())
    if read.digest != digest:
        raise ModelError(f"{source} is not the file that was measured", hint="Name the measured file with --model.")
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
        with system_errors(PackageError, f"{target} cannot be written", hint="Check the folder and its space."):
            target.write_bytes(read.model.SerializeToString())
            for name, file in read.external.items():
                beside = target.parent / name
                beside.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, beside)
    return count
