"""Convert an ONNX model to ncnn with the program pnnx.

pnnx reads and writes files in its own working folder only. It gets a private folder, no input, a clean environment, and
limits on time, memory and disk. Its wheel requires PyTorch, which the program itself does not need.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from gnomon.core.graph import Graph
from gnomon.errors import DeviceError, ModelError, PackageError, RuntimeMissingError
from gnomon.formats.ncnn_param import NcnnParam, parse_ncnn_param, write_ncnn_param
from gnomon.installing import pip_line
from gnomon.models.model import Limits, Model, dynamic_inputs, model_errors, open_regular, read_text
from gnomon.models.ncnn.model import load_ncnn, ncnn_graph, with_input_shapes
from gnomon.models.onnx.cut import with_weights
from gnomon.system.process import own_guard, run_process

CONVERSION_S = 180.0
"""The time limit of a conversion; the largest models of the zoo take two seconds."""

_MAX_RANK = 4
_NO_BATCH = 233  # pnnx writes this for "no axis is the batch"
_INPUT = re.compile(r'ex\.input\("in([0-9]{1,9})", ncnn\.Mat\(in[0-9]+\.numpy\(\)(?:, batch_index=([0-9]{1,9}))?\)')
# Limits must be set in the process that they apply to; this one becomes pnnx, whose output and errors form one stream.
_LIMITED = """
import os, resource, sys
os.dup2(1, 2)
memory, disk, seconds = map(int, sys.argv[1:4])
resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
resource.setrlimit(resource.RLIMIT_FSIZE, (disk, disk))
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
os.execv(sys.argv[4], sys.argv[4:])
"""


def convert_onnx(model: Model, source: Path, folder: Path, *, timeout_s: float = CONVERSION_S) -> Model:
    """Convert the ONNX model in the file `source` to an ncnn model in `folder`: a ``.param`` and a ``.bin`` file.

    All inputs of `model` must have fixed shapes, which are passed to pnnx even if the file leaves them open. The inputs
    and outputs of the ncnn model are in the ONNX model's order, without the batch axis, and the model keeps the digest
    of the user's file. Whether ncnn can load the result is not checked.

    Raises RuntimeMissingError if pnnx is not installed; ModelError for open shapes or a batch of more than one, and if
    pnnx refuses the model, crashes, takes longer than `timeout_s`, or does not write a model.
    """
    limits = Limits()
    program = find_pnnx()
    _check_inputs(model.graph)
    work = folder / "converting"
    name = f"{model.path.stem}.ncnn"
    with model_errors(source):
        try:
            work.mkdir(mode=0o700)
            with_weights(source, work / "model.onnx", limits)
            said = _run(program, work, _told_shapes(model.graph), limits, timeout_s)
            param = _written(work, model.graph, limits, said)
            shutil.move(work / "model.ncnn.bin", folder / f"{name}.bin")
            (folder / f"{name}.param").write_text(write_ncnn_param(param), encoding="utf-8")
        except PackageError as error:
            raise ModelError(error.message, hint=error.hint) from error
        finally:
            shutil.rmtree(work, ignore_errors=True)
        converted = load_ncnn(folder / f"{name}.param", limits)
    # The names of layers are pnnx's own; the user's file identifies the model.
    return replace(converted, graph=ncnn_graph(param, name=model.graph.name, digest=model.graph.digest))


def find_pnnx() -> Path:
    """The program pnnx, from the installed wheel or else from the PATH. Raises RuntimeMissingError.

    The script of the same name that the wheel puts next to the interpreter is not this program, and needs PyTorch.
    """
    programs: list[Path] = []
    try:
        files = distribution("pnnx").files or []
        programs = [Path(str(file.locate())) for file in files if file.name in {"pnnx", "pnnx.exe"}]
    except PackageNotFoundError:
        pass
    beside = Path(sys.executable).with_name("pnnx")
    on_path = shutil.which("pnnx")
    for path in (*programs, beside, *([Path(on_path)] if on_path else [])):
        if path.is_file() and os.access(path, os.X_OK) and not _is_script(path):
            return path
    raise RuntimeMissingError(
        "the program pnnx, which converts ONNX to ncnn, is not installed",
        hint=pip_line(["pnnx"], sys.executable, options=["--no-deps"]),
    )


def _is_script(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return True


def _check_inputs(graph: Graph) -> None:
    """Raise ModelError for open shapes, and for shapes that ncnn cannot hold in any case."""
    for tensor in dynamic_inputs(graph):
        raise ModelError(
            f"the shape of input {tensor.name!r} is {tensor.shape}, but pnnx needs every size",
            hint=f"Fix the shape, for example: --shape {shlex.quote(f'{tensor.name}=1,3,224,224')}",
        )
    for index in (*graph.inputs, *graph.outputs):
        tensor = graph.tensors[index]
        if tensor.shape is not None and len(tensor.shape) > _MAX_RANK + 1:
            raise ModelError(
                f"tensor {tensor.name!r} has {len(tensor.shape)} axes, but ncnn supports {_MAX_RANK} besides the batch",
                hint="Use another runtime for this model.",
            )


# The names that pnnx uses for the types of inputs.
_TYPES = {"float32": "f32", "float64": "f64", "float16": "f16", "int64": "i64", "int32": "i32", "int16": "i16"}
_TYPES |= {"int8": "i8", "uint8": "u8"}


def _told_shapes(graph: Graph) -> list[str]:
    """The argument that passes the inputs' shapes to pnnx; none if pnnx has no name for the type of an input."""
    inputs = [graph.tensors[index] for index in graph.inputs]
    if any(tensor.dtype not in _TYPES for tensor in inputs):
        return []
    shapes = (f"[{','.join(map(str, tensor.shape or ()))}]{_TYPES[tensor.dtype]}" for tensor in inputs)
    return [f"inputshape={','.join(shapes)}"]


def _run(program: Path, work: Path, shapes: Sequence[str], limits: Limits, timeout_s: float) -> str:
    """Run pnnx in its folder, and return the last line of its output. ModelError if it fails."""
    limited = (limits.max_memory_bytes + (4 << 30), limits.max_bytes, int(timeout_s) + 1)
    # Level 2 fuses activations into convolutions, so that gnomon places the layers that ncnn computes.
    arguments = [str(program.absolute()), "model.onnx", "fp16=0", "optlevel=2", *shapes]
    environment = {"PATH": os.defpath, "HOME": str(work), "TMPDIR": str(work), "OMP_NUM_THREADS": "1"}
    try:
        done = run_process(
            [sys.executable, "-I", "-S", "-c", _LIMITED, *map(str, limited), *arguments],
            env=environment,
            stdin=b"",
            timeout_s=timeout_s,
            on_line=None,
            cwd=work,
            guard=own_guard(),
        )
    except DeviceError as error:  # it concerns this machine, whichever device is measured
        raise ModelError(f"pnnx cannot be run: {error.message}", hint="Leave out ncnn with --runtime.") from error
    if done.timed_out:
        raise ModelError(
            f"pnnx did not convert the model within {timeout_s:g} s", hint="Leave out ncnn with --runtime."
        )
    lines = done.stdout.strip().splitlines()
    last = "".join(c for c in lines[-1].strip() if c.isprintable()) if lines else ""
    said = f": {last[:200]}" if last else ""
    if not done.ok:
        names = {int(s): s.name for s in signal.Signals}  # real-time signals have none
        number = done.signal
        how = f"failed with status {done.returncode}"
        if number is not None:
            how = f"crashed ({names.get(number, f'signal {number}')})"
        raise ModelError(f"pnnx {how} on the model{said}", hint="Leave out ncnn with --runtime, or try a newer pnnx.")
    return said


def _written(work: Path, graph: Graph, limits: Limits, said: str) -> NcnnParam:
    """The `.param` that pnnx wrote, with its inputs' shapes. ModelError if it does not match the ONNX model."""
    for name in ("model.ncnn.param", "model.ncnn.bin", "model_ncnn.py"):
        if not (work / name).is_file():
            raise ModelError(f"pnnx wrote no ncnn model{said}", hint="Leave out ncnn with --runtime.")
    with open_regular(work / "model.ncnn.bin", limits.max_bytes):
        pass  # a regular file that is not too large
    param = parse_ncnn_param(read_text(work / "model.ncnn.param", limits.max_bytes))
    built = ncnn_graph(param, name="", digest="")
    for kind, own, its in (("in", graph.inputs, built.inputs), ("out", graph.outputs, built.outputs)):
        names = [built.tensors[t].name for t in its]
        if names != [f"{kind}{k}" for k in range(len(own))]:
            raise ModelError(
                f"the ONNX model has {len(own)} {kind}puts, but the model from pnnx has {', '.join(names) or 'none'}",
                hint="Remove inputs that no node reads, or leave out ncnn with --runtime.",
            )
    axes = _batch_axes(read_text(work / "model_ncnn.py", limits.max_bytes))
    return with_input_shapes(param, _shapes(graph, axes))


def _batch_axes(script: str) -> Mapping[int, int]:
    """The batch axis of each input according to pnnx, from the example script that it writes next to the model."""
    return {int(number): int(axis or _NO_BATCH) for number, axis in _INPUT.findall(script)}


def _shapes(graph: Graph, axes: Mapping[int, int]) -> dict[str, tuple[int, ...]]:
    """The shapes of ncnn's inputs: those of the ONNX model, without the batch axis."""
    shapes: dict[str, tuple[int, ...]] = {}
    for number, index in enumerate(graph.inputs):
        tensor = graph.tensors[index]
        if number not in axes or tensor.shape is None:
            raise ModelError(
                f"pnnx does not say which axis of input {tensor.name!r} is the batch",
                hint="Install the version of pnnx that belongs to your version of ncnn.",
            )
        shapes[f"in{number}"] = _without(tensor.name, tensor.shape, axes[number])
    return shapes


def _without(name: str, shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """A shape without its batch axis; at least one axis must remain."""
    if axis < len(shape):
        if shape[axis] != 1:
            single = ",".join("1" if k == axis else str(n) for k, n in enumerate(shape))
            raise ModelError(
                f"input {name!r} has a batch of {shape[axis]} (axis {axis}), but ncnn computes one example at a time",
                hint=f"If the model leaves the batch open, fix it to one: --shape {shlex.quote(f'{name}={single}')}",
            )
        shape = [n for k, n in enumerate(shape) if k != axis]
    elif axis != _NO_BATCH:
        raise ModelError(f"pnnx names axis {axis} of {name!r} as batch, but no such axis exists", hint="Update pnnx.")
    if len(shape) > _MAX_RANK:
        raise ModelError(f"ncnn cannot hold input {name!r} of shape {tuple(shape)}", hint="Use another runtime.")
    return tuple(shape) or (1,)
