"""Models made to misbehave, and a gnomon in a process of its own that can be interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from circle_schema import circle as schema
from onnx import TensorProto, helper, numpy_helper
from zoo.flat import ACTIVATION, OPERATOR, OPTIONS, FlatWriter, convolution

from gnomon.measure.effort import Effort
from gnomon.store.base import CampaignQuery, RunQuery
from gnomon.store.sqlite import SqliteStore


def circle_with(code: int, kind: int, options: Any, constants: Sequence[np.ndarray[Any, Any]]) -> bytes:
    """A circle model of a convolution, an operator of one's choice, and a convolution."""
    writer = FlatWriter()

    def convolve(x: int, name: str) -> int:
        weights = np.random.default_rng(1).standard_normal((8, 1, 1, 8)).astype(np.float32)
        w, b = writer.constant(f"{name}/w", weights), writer.constant(f"{name}/b", np.zeros(8, np.float32))
        y = writer.value(name, (1, 4, 4, 8))
        operator, options_kind, made = convolution(1, ACTIVATION.RELU, depthwise=False)
        writer.operator(operator, [x, w, b], [y], options_kind, made)
        return y

    source = writer.value("input", (1, 4, 4, 8))
    first = convolve(source, "first")
    further = [writer.constant(f"constant{k}", value) for k, value in enumerate(constants)]
    middle = writer.value("middle", (1, 4, 4, 8))
    writer.operator(code, [first, *further], [middle], kind, options)
    return writer.pack([source], [convolve(middle, "last")], b"CIR0")


def prelu_circle() -> bytes:
    """A circle model with an operator that no backend of onert has on a CPU."""
    return circle_with(OPERATOR.PRELU, 0, None, [np.full((1, 1, 8), 0.2, np.float32)])


def add_circle() -> bytes:
    """A circle model of three operators that the cpu backend takes; ruy does not take the addition."""
    options = schema.AddOptions.AddOptionsT()
    return circle_with(OPERATOR.ADD, OPTIONS.AddOptions, options, [np.full((1, 1, 1, 8), 0.5, np.float32)])


def onnx_bytes(nodes: Sequence[Any], constants: dict[str, Any], shape: Sequence[int] = (1, 8)) -> bytes:
    """An ONNX model from x to y, both float32 of one shape."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
    held = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(list(nodes), "g", [x], [y], held)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def nan_onnx() -> bytes:
    """A model on which runtimes disagree: ONNX Runtime keeps the NaN of a negative root, OpenVINO makes it 0."""
    nodes = [("Neg", "x", "n"), ("Sqrt", "n", "root"), ("Relu", "root", "y")]
    return onnx_bytes([helper.make_node(kind, [read], [made]) for kind, read, made in nodes], {})


def deaf_onnx() -> bytes:
    """A model whose output does not depend on its input."""
    return onnx_bytes(
        [helper.make_node("Mul", ["x", "zero"], ["none"]), helper.make_node("Add", ["none", "constant"], ["y"])],
        {"zero": np.zeros((1, 8), np.float32), "constant": np.arange(8, dtype=np.float32).reshape(1, 8)},
    )


def endless_onnx() -> bytes:
    """A valid model whose loop has 2^62 trips."""
    body = helper.make_graph(
        [
            helper.make_node("Sin", ["carried"], ["next"]),
            helper.make_node("Identity", ["going"], ["still"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("trip", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("carried", TensorProto.FLOAT, [1, 8]),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, [1, 8]),
        ],
    )
    loop = onnx.helper.make_node("Loop", ["trips", "yes", "x"], ["y"], body=body)
    return onnx_bytes([loop], {"trips": np.int64(2**62), "yes": np.bool_(True)})


def matmul_onnx(width: int = 8, depth: int = 3) -> bytes:
    """A well-behaved model: layers of a matrix product and a tanh."""
    rng = np.random.default_rng(3)
    nodes, constants, last = [], {}, "x"
    for k in range(depth):
        constants[f"w{k}"] = (rng.standard_normal((width, width)) / np.sqrt(width)).astype(np.float32)
        out = "y" if k == depth - 1 else f"h{k}"
        nodes += [
            helper.make_node("MatMul", [last, f"w{k}"], [f"m{k}"], f"product{k}"),
            helper.make_node("Tanh", [f"m{k}"], [out], f"squash{k}"),
        ]
        last = out
    return onnx_bytes(nodes, constants, (1, width))


_PLACE = """
import json, sys
from pathlib import Path
from gnomon.session.request import ModelRequest
from gnomon.jobs.place.job import place
from gnomon.measure.effort import Effort
asked = json.loads(sys.argv[1])
request = ModelRequest(
    model=Path(asked["model"]),
    record=Path(asked["record"]),
    effort=Effort(**asked["effort"]),
    runtimes=tuple(asked["runtimes"]),
)
found = place(
    request, Path(asked["out"]), overwrite=True,
    watch=lambda p: print("progress", p.stage, p.done, flush=True),
    tell=lambda text: print("told", text, flush=True),
)
print("resumed" if found.resumed else "new", found.verified.ok, flush=True)
"""


def start_place(
    folder: Path, model: Path, effort: Effort, out: str = "out", runtimes: Sequence[str] = ()
) -> subprocess.Popen[str]:
    """`place` in a process of its own, with all that it makes below `folder`."""
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    asked = {
        "model": str(model),
        "record": str(folder / "record.sqlite"),
        "out": str(folder / out),
        "effort": asdict(effort),
        "runtimes": list(runtimes),
    }
    return subprocess.Popen(
        [sys.executable, "-c", _PLACE, json.dumps(asked)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
        start_new_session=True,
    )


def wait_for_line(process: subprocess.Popen[str], beginning: str) -> str:
    """Read the process's output until a line begins so."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(beginning):
            return line.strip()
    assert process.stderr is not None
    raise AssertionError(f"no line {beginning!r}: {process.stderr.read()}")


def recorded(record: Path) -> Counter[tuple[str, str, int, int]]:
    """How often each visit was sampled: by campaign, candidate, process and block."""
    found: Counter[tuple[str, str, int, int]] = Counter()
    with SqliteStore.open(record) as store:
        for campaign in store.query(CampaignQuery()):
            for run in store.query(RunQuery(campaign=campaign.id)):
                if run.samples is not None:
                    found[campaign.id, run.candidate, run.process, run.block] += 1
    return found


def processes_in(folder: Path) -> list[int]:
    """Processes whose temporary folder is below `folder`, by their environment."""
    wanted = f"TMPDIR={folder / 'tmp'}".encode()  # of gnomon itself; its workers' is below that
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            if any(v == wanted or v.startswith(wanted + b"/") for v in variables):
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                found += [] if state in "ZX" else [int(entry.name)]
        except OSError:
            continue
    return found


def nothing_left(folder: Path) -> bool:
    """Whether all processes and private folders go away, waiting for it."""
    for _ in range(9000):
        if not processes_in(folder) and not list((folder / "tmp").glob("gnomon-*")):
            return True
        time.sleep(0.02)
    return False


def interrupt(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Signal the process and wait until it has ended."""
    process.send_signal(number)
    process.communicate(timeout=60)
