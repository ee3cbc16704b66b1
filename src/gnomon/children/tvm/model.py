"""Reads networks into Relax, and lists their layers."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.analysis import estimate_tir_flops

from ..frame import Facts, Job, Refused, Work, refusing
from ..torch_program import load_program
from . import workload as tvm_workload
from .half import HALF, in_half
from .rewrites import rewritten

_PIP = f"{shlex.quote(sys.executable)} -m pip install"
_INNER = ("block", "body", "then_case", "else_case")
_MOST_BYTES = 2**31 - 2**20
"""The largest size of a protocol buffer."""


class Opened:
    """The network that this process has read: its fused module and its inputs."""

    def __init__(self) -> None:
        self.module: Any = None
        self.inputs: list[tuple[str, str, list[int]]] = []

    def ready(self) -> Any:
        """The module; Refused before a network has been read."""
        if self.module is None:
            raise Refused("no network was opened")
        return self.module


def jobs(opened: Opened) -> dict[str, Work]:
    """The jobs. `open` reads a network, `layers` lists its layers for a target, `module` writes the network to a file,
    `target` checks a target, and `lacking` lists the instructions of a target that another target lacks.
    """
    return {
        "open": lambda job: _open(opened, job),
        "layers": lambda job: _layers(opened, job),
        "module": lambda job: _module(opened, job),
        "target": lambda job: {"target": str(tvm_workload.target_of(job["target"]))},
        "lacking": lambda job: {"lacking": tvm_workload.lacking(job["target"], job["here"])},
    }


def _open(opened: Opened, job: Job) -> Facts:
    """Job: path and shapes {name: dims}, as checked by `gnomon.tuning.networks.Source`; dtype.

    Facts: inputs [[name, dtype, dims]].
    """
    path, dtype = Path(job["path"]), job.get("dtype", "float32")
    if dtype not in ("float32", HALF):
        raise Refused(f"networks are tuned in float32 or float16, not in {dtype!r}")
    module = rewritten(_READERS[path.suffix.lower()](path, job.get("shapes") or {}))
    if dtype == HALF:
        module = in_half(module)
    inputs = _inputs(module)
    with tvm.transform.PassContext(opt_level=3):
        module = relax.get_pipeline("zero")(module)
    opened.module, opened.inputs = module, inputs
    return {"inputs": [list(entry) for entry in inputs]}


def _onnx(path: Path, shapes: dict[str, list[int]]) -> Any:
    with refusing(f"reading an ONNX file needs the package onnx: {_PIP} 'onnx>=1.17'", ImportError):
        import onnx
    from .marking import imported

    model = onnx.load(str(path))
    weights = {tensor.name for tensor in model.graph.initializer}
    fixed = {
        value.name: shapes.get(value.name) or [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in model.graph.input
        if value.name not in weights
    }
    try:
        return imported(model, fixed)
    except Exception as error:
        if missing := _missing(model.graph):
            raise Refused(
                f"TVM's importer lacks {', '.join(missing)}; gnomon place measures the network on other runtimes"
            ) from error
        folded = _folded(model, fixed)
        if folded is None:
            raise
        try:
            return imported(folded, fixed)
        except Exception:
            raise error from None  # the error that the user's own file causes


def _missing(graph: Any) -> list[str]:
    """The ONNX operators of a graph that TVM's importer does not know, including those in subgraphs."""
    from tvm.relax.frontend.onnx import onnx_frontend

    supported = set(onnx_frontend._get_convert_map())
    missing: dict[str, None] = {}
    graphs = [graph]
    while graphs:
        for node in graphs.pop().node:
            if node.op_type not in supported and node.op_type != "Constant":
                missing[node.op_type] = None
            for attribute in node.attribute:
                graphs += [attribute.g] if attribute.HasField("g") else [*attribute.graphs]
    return list(missing)


def _folded(model: Any, fixed: dict[str, list[int]]) -> Any | None:
    """The model after ONNX Runtime has computed all constant values, because TVM's importer does not accept computed
    shapes. None if that is not possible here.
    """
    import onnx

    try:
        import onnxruntime as ort
    except ImportError:
        return None
    if model.ByteSize() > _MOST_BYTES:
        return None
    for value in model.graph.input:
        if value.name in fixed:
            shape = value.type.tensor_type.shape
            shape.ClearField("dim")
            for size in fixed[value.name]:
                shape.dim.add().dim_value = size
    with tempfile.TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(Path(folder) / "folded.onnx")
        options.log_severity_level = 4
        try:
            ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            return onnx.load(options.optimized_model_filepath)
        except Exception:  # not a valid model: TVM's own message is reported
            return None


def _exported(path: Path, shapes: dict[str, list[int]]) -> Any:
    with refusing(f"a PyTorch exported program needs PyTorch: {_PIP} 'torch>=2.4'", ImportError):
        program = load_program(str(path))
    from tvm.relax.frontend.torch import from_exported_program

    return from_exported_program(program, keep_params_as_input=False, unwrap_unit_return_tuple=True)


def _tflite(path: Path, shapes: dict[str, list[int]]) -> Any:
    with refusing(
        f"reading a TFLite file needs the package tflite: {_PIP} 'tflite>=2.10'; or convert it to ONNX", ImportError
    ):
        import tflite
        from tvm.relax.frontend.tflite import from_tflite
    return from_tflite(tflite.Model.GetRootAsModel(path.read_bytes(), 0))


_READERS = {".onnx": _onnx, ".pt2": _exported, ".tflite": _tflite}


def _inputs(module: Any) -> list[tuple[str, str, list[int]]]:
    """The name, data type and dimensions of each input. Refused for open dimensions and for unsupported types."""
    entries = []
    for parameter in module["main"].params:
        info = parameter.ty
        shape = getattr(info, "shape", None)
        dims = [] if shape is None else [getattr(d, "value", None) for d in shape.values]
        if shape is None or any(d is None for d in dims):
            raise Refused(
                f"the shape of input {parameter.name!r} is left open; give it with --shape, or export with fixed shapes"
            )
        if not hasattr(np, str(info.dtype)):
            raise Refused(f"input {parameter.name!r} is of type {info.dtype}, which numpy does not have")
        entries.append((str(parameter.name), str(info.dtype), [int(d) for d in dims if d is not None]))
    return entries


def _layers(opened: Opened, job: Job) -> Facts:
    """Job: target. Facts: layers as in the record file, each with `outputs`, the indices of the arguments that it
    writes.
    """
    tasks = ms.relax_integration.extract_tasks(opened.ready(), tvm_workload.target_of(job["target"]))
    layers: dict[str, Facts] = {}
    for task in tasks:
        mod = task.dispatched[0]
        digest, text = tvm_workload.as_json(mod)
        if digest in layers:
            layers[digest]["weight"] += int(task.weight)
            continue
        arguments, outputs = signature(mod)
        layers[digest] = {
            "layer": digest,
            "name": str(task.task_name),
            "weight": int(task.weight),
            "arguments": arguments,
            "outputs": outputs,
            "flops": _flops(mod),
            "workload": text,
        }
    return {"layers": list(layers.values())}


def _module(opened: Opened, job: Job) -> Facts:
    """Job: path, the file to write for `tvm.ir.load_json`. It gets the network, whose functions are the layers."""
    Path(job["path"]).write_text(str(tvm.ir.save_json(opened.ready())), encoding="utf-8")
    return {}


def signature(mod: Any) -> tuple[list[Any], list[int]]:
    """The data type and dimensions of each argument of a function, and the indices of the arguments that it writes."""
    function = next(f for f in mod.functions.values() if isinstance(f, tvm.tirx.PrimFunc))
    buffers = list(function.params)  # in this TVM a function's parameters are its buffers
    if not all(isinstance(dim, tvm.tirx.IntImm) for buffer in buffers for dim in buffer.shape):
        raise Refused("a tensor of a layer has an open shape")
    written = list(_written(function.body))
    outputs = [i for i, buffer in enumerate(buffers) if any(buffer.same_as(other) for other in written)]
    shapes = [[str(b.dtype), [int(d) for d in b.shape]] for b in buffers]
    return shapes, outputs or [len(buffers) - 1]


def _written(statement: Any) -> Iterator[Any]:
    """The buffers that the blocks of a statement declare as written."""
    waiting = [statement]
    while waiting:
        part = waiting.pop()
        for region in getattr(part, "writes", ()) or ():
            yield region.source
        waiting.extend(getattr(part, "seq", ()) or ())
        waiting.extend(inner for name in _INNER if (inner := getattr(part, name, None)) is not None)


def _flops(mod: Any) -> float | None:
    try:
        value = float(estimate_tir_flops(mod))
    except Exception:  # an operator that cannot be counted has no number; nothing depends on it
        return None
    return value if np.isfinite(value) and value > 0 else None
