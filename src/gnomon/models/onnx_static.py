"""A copy of an ONNX model with fixed input shapes and a name for every node."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from gnomon.errors import UsageError
from gnomon.models.load import load
from gnomon.models.model import Limits, Model
from gnomon.models.onnx_file import read_onnx


def fixed_copy(
    model: Model, shapes: Mapping[str, tuple[int, ...]], stack: ExitStack, limits: Limits | None = None
) -> tuple[Model, Path]:
    """The model, and the file to load, with inputs of `shapes` and operators named as in the graph.

    Runtimes tell by name where an operator ran, so each must have one. Returns what was given where nothing needs
    to change; the copy lives until `stack` is closed. UsageError where a shape contradicts the file.
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
    for value in copy.graph.input:
        if value.name in shapes:
            _fix(value, shapes[value.name])
    if shapes:
        # Shapes that were inferred for open dimensions no longer hold.
        del copy.graph.value_info[:]
        for value in copy.graph.output:
            value.type.tensor_type.ClearField("shape")
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gnomon-model-")))
    target = folder / (model.path.stem + ".onnx")
    onnx.save(copy, target)
    for extra in getattr(read, "external", ()):
        link = folder / Path(extra).relative_to(model.path.parent)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(Path(extra).absolute())
    return load(target), target


def _fix(value: "onnx.ValueInfoProto", shape: tuple[int, ...]) -> None:  # type: ignore[name-defined]  # noqa: F821, UP037
    dims = value.type.tensor_type.shape.dim
    known = [d.dim_value or None for d in dims]
    clash = len(known) != len(shape) or any(k not in (None, s) for k, s in zip(known, shape, strict=True))
    if clash:
        shown = ", ".join("?" if k is None else str(k) for k in known)
        raise UsageError(
            f"--shape {value.name}={','.join(map(str, shape))} contradicts the model's own ({shown})",
            hint="Keep the dimensions that the model fixes.",
        )
    for dim, size in zip(dims, shape, strict=True):
        dim.dim_value = size
