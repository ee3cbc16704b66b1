"""Models made to misbehave, and a gnomon in a process of its own that can be interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import venv
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from circle_schema import circle as schema
from onnx import TensorProto, helper
from tests.models.modelkit import model, node, value
from tests.processkit import becomes, processes_with, words_of
from zoo.flat import ACTIVATION, OPERATOR, OPTIONS, FlatWriter, convolution

from gnomon.core.sample import Run
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
    made = model(nodes, [value("x", shape)], [value("y", shape)], constants)
    return bytes(made.SerializeToString())


def nan_onnx() -> bytes:
    """A model on which runtimes disagree: ONNX Runtime keeps the NaN of a negative root, OpenVINO makes it 0."""
    nodes = [("Neg", "x", "n"), ("Sqrt", "n", "root"), ("Relu", "root", "y")]
    return onnx_bytes([node(kind, [read], [made]) for kind, read, made in nodes], {})


def deaf_onnx() -> bytes:
    """A model whose output does not depend on its input."""
    return onnx_bytes(
        [node("Mul", ["x", "zero"], ["none"]), node("Add", ["none", "constant"], ["y"])],
        {"zero": np.zeros((1, 8), np.float32), "constant": np.arange(8, dtype=np.float32).reshape(1, 8)},
    )


def endless_onnx() -> bytes:
    """A valid model whose loop has 2^62 trips."""
    body = helper.make_graph(
        [node("Sin", ["carried"], ["next"]), node("Identity", ["going"], ["still"])],
        "body",
        [value("trip", [], TensorProto.INT64), value("going", [], TensorProto.BOOL), value("carried", [1, 8])],
        [value("still", [], TensorProto.BOOL), value("next", [1, 8])],
    )
    return onnx_bytes(
        [node("Loop", ["trips", "yes", "x"], ["y"], body=body)], {"trips": np.int64(2**62), "yes": np.bool_(True)}
    )


def model_in(folder: Path, data: bytes = b"") -> Path:
    """The model in a file; one of a layer that behaves well where none is given."""
    path = folder / "m.onnx"
    path.write_bytes(data or matmul_onnx(depth=1))
    return path


def matmul_onnx(width: int = 8, depth: int = 3) -> bytes:
    """A well-behaved model: layers of a matrix product and a tanh."""
    rng = np.random.default_rng(3)
    nodes, constants, last = [], {}, "x"
    for k in range(depth):
        constants[f"w{k}"] = (rng.standard_normal((width, width)) / np.sqrt(width)).astype(np.float32)
        out = "y" if k == depth - 1 else f"h{k}"
        nodes += [
            node("MatMul", [last, f"w{k}"], [f"m{k}"], f"product{k}"),
            node("Tanh", [f"m{k}"], [out], f"squash{k}"),
        ]
        last = out
    return onnx_bytes(nodes, constants, (1, width))


def python_with(folder: Path, packages: Sequence[str] = ()) -> Path:
    """A Python of its own that has only these of the packages that are installed here; skips where one is not."""
    venv.create(folder, symlinks=True)  # in this process, as one of its own takes longer than all else here
    for package in packages:
        home = next((Path(p) / package for p in sys.path if (Path(p) / package).is_dir()), None)
        if home is None:
            pytest.skip(f"{package} is not installed here")
        for entry in (home, home.with_name(f"{package}.libs")):
            if entry.exists():
                (site_of(folder) / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


def site_of(folder: Path) -> Path:
    """Where a virtual environment has its packages."""
    return next(folder.glob("lib/python3*/site-packages"))


_JOB = """
import json, sys
from pathlib import Path
from gnomon.devices.opening import resolve
from gnomon.session.request import ModelRequest
from gnomon.jobs.place.job import place, profile
from gnomon.measure.effort import Effort
from gnomon.session import judges
judges._MOST_TRIED = 0  # no second runtime confirms reference outputs
asked = json.loads(sys.argv[1])
request = ModelRequest(
    model=Path(asked["model"]),
    device=resolve(asked["device"]),
    record=Path(asked["record"]),
    effort=Effort(**asked["effort"]),
    runtimes=tuple(asked["runtimes"]),
)
shown = {
    "watch": lambda p: print("progress", p.stage, p.done, flush=True),
    "tell": lambda text: print("told", text, flush=True),
}
found = place(request, Path(asked["out"]), **shown) if "out" in asked else profile(request, **shown)
assert "out" not in asked or found.verified.ok
print("resumed" if found.resumed else "new", flush=True)
"""


def start_job(
    folder: Path,
    model: Path,
    effort: Effort,
    *,
    runtimes: Sequence[str] = ("onnxruntime",),
    device: str = "local",
    package: bool = False,
) -> subprocess.Popen[str]:
    """`profile`, or `place` where there shall be a package, in a process of its own with all that it makes in `folder`.

    The device is by its name or address.
    """
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    asked = {
        "model": str(model),
        "device": device,
        "record": str(folder / "record.sqlite"),
        "effort": asdict(effort),
        "runtimes": list(runtimes),
        **({"out": str(folder / "out")} if package else {}),
    }
    return subprocess.Popen(
        [sys.executable, "-c", _JOB, json.dumps(asked)],
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


Visits = Counter[tuple[str, str, int, int]]


def recorded(record: Path) -> Visits:
    """How often each visit was sampled: by campaign, candidate, process and block."""
    visits: Visits = Counter()
    with SqliteStore.open(record) as store:
        for campaign in store.query(CampaignQuery()):
            for run in store.query(RunQuery(campaign=campaign.id)):
                if run.samples is not None:
                    visits[campaign.id, run.candidate, run.process, run.block] += 1
    return visits


def campaigns_after(record: Path, before: Visits) -> set[str]:
    """The campaigns of a record, which still has all visits that it had before, and each once."""
    after = recorded(record)
    assert before.keys() <= after.keys()
    assert set(after.values()) == {1}
    return {campaign for campaign, *_ in after}


def runs_in(record: Path) -> list[Run]:
    """All runs of a record."""
    with SqliteStore.open(record) as store:
        return [r for c in store.query(CampaignQuery()) for r in store.query(RunQuery(campaign=c.id))]


def workers(temporary: Path) -> list[int]:
    """The processes that measure with this temporary folder."""
    return [pid for pid in processes_with("TMPDIR", str(temporary)) if b"work" in words_of(pid)]


def nothing_left(folder: Path) -> bool:
    """Whether all processes and private folders of `start_job` go away, waiting for it."""
    temporary = folder / "tmp"
    return becomes(lambda: not processes_with("TMPDIR", str(temporary)) and not list(temporary.glob("gnomon-*")))


def interrupt(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Signal the process and wait until it has ended."""
    process.send_signal(number)
    process.communicate(timeout=60)
