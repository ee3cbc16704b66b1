"""Compares `gnomon where` with the reports of the runtimes' profilers, through the public API. Prints one JSON
document.

`where` is called for each model with each runtime alone, and timed including all loading; then the model is profiled by
`gnomon profile`. A row is equal if every operator with a kernel in the profile is where `where` said. With `--device`,
a device from the file of devices has the plugins of ONNX Runtime, some of which `--backend` names. Small models are
those of the tests.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.agent.drivers.litertkit import tflite
from tests.bad_days.livekit import add_circle, matmul_onnx
from tests.runtimes import openvinokit, providerskit

import gnomon
from benchmarks.common import model_path, parser, publish
from gnomon.errors import GnomonError

ONNX, FLAT = ("onnxruntime", "openvino", "mnn", "ncnn"), ("litert", "onert", "openvino")
ZOO = {
    "efficientnet-lite0.onnx": ONNX,
    "efficientnet-lite0.tflite": FLAT,
    "efficientnet-lite0.circle": ("onert",),
    "minilm-layer.onnx": ONNX,
    "mix.circle": ("onert",),
    "ppocr-cls.onnx": ONNX,
    "ppocr-det.onnx": ONNX,
    "ppocr-rec.onnx": ONNX,
}
SHAPES = {"ppocr-cls": (1, 3, 48, 192), "ppocr-det": (1, 3, 480, 480), "ppocr-rec": (1, 3, 48, 320)}
PROVIDERS = {"CPUExecutionProvider": "cpu", "WebGpuExecutionProvider": "webgpu", "onnxruntime": "cpu"}
"""ONNX Runtime's names for its providers in a profile, and its configuration on the CPU alone."""


def arguments() -> argparse.Namespace:
    """The command line."""
    made = parser(__doc__)
    made.add_argument("--device", default="local")
    made.add_argument("--backend", action="append", default=[], help="of ONNX Runtime's plugins there")
    return made.parse_args()


def models(folder: Path) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """The files, each with its runtimes."""
    for name, runtimes in ZOO.items():
        yield model_path(name), runtimes
    yield providerskit.net(folder), ("onnxruntime", "openvino", "mnn")
    yield openvinokit.net(folder / "fused.onnx"), ONNX
    small: dict[str, tuple[bytes, tuple[str, ...]]] = {
        "products.onnx": (matmul_onnx(), ONNX),
        "add.circle": (add_circle(), ("onert",)),
        "taken.tflite": (tflite("conv", "softmax", "conv"), FLAT),
        "left.tflite": (tflite("conv", "floor_mod", "conv"), FLAT),
        "ends.tflite": (tflite("floor_mod", "conv", "floor_mod"), FLAT),
        "open.tflite": (tflite("conv", "softmax", signature=(1, -1, 4, 8)), ("litert", "openvino")),
        "gpu.tflite": (tflite("conv", "log_softmax", "conv"), FLAT),
    }
    for name, (data, runtimes) in small.items():
        (folder / name).write_bytes(data)
        yield folder / name, runtimes


def row(path: Path, runtime: str, backends: list[str], device: str, record: Path) -> dict[str, Any]:
    """The answers of both for a model in a runtime, and what `where` took."""
    made: dict[str, Any] = {"model": path.name, "runtime": runtime, "backends": backends}
    shapes = {"x": SHAPES[path.stem]} if path.stem in SHAPES else {"input": (1, 4, 4, 8)} if "open" in path.stem else {}
    asked: dict[str, Any] = {"runtimes": [runtime], "backends": backends, "device": device, "shapes": shapes}
    began_s, began_cpu_s = time.monotonic(), _cpu_s()
    try:
        (part, *_) = gnomon.where(path, **asked).loaded
    except GnomonError as error:
        return {**made, "wall_s": time.monotonic() - began_s, "error": error.message}
    made |= {"wall_s": time.monotonic() - began_s, "cpu_s": _cpu_s() - began_cpu_s, "configuration": part.name}
    made |= {"share": part.share, "crossings": part.crossings, "nodes": {b: len(n) for b, n in part.backends.items()}}
    asked |= {"backends": ["cpu", *backends] if backends else [], "processes": 1, "budget_s": 1.0, "record": record}
    asked |= {} if part.name.endswith("[default]") else {"threads": 1}
    try:
        found = gnomon.profile(path, **asked)
    except GnomonError as error:  # wrong outputs are not in any profile
        return {**made, "error": error.message}
    column = next(column for column in found.columns if column.label == part.name)
    lies = [_place(runtime, node.backend) for node in part.nodes]
    told = {i: _place(runtime, kernel.backend) for kernel in column.kernels for i in kernel.operators}
    return {**made, "told": len(told), "other": [[i, lies[i], on] for i, on in told.items() if lies[i] != on]}


def _place(runtime: str, told: str) -> str:
    """A single name for a place; OpenVINO's profile has the CPU plugin's own names of kernels."""
    return "cpu" if runtime == "openvino" else PROVIDERS.get(told, told)


def _cpu_s() -> float:
    """The processor time of this process and its ended children."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def main() -> None:
    """Call `where`, profile, and compare."""
    given = arguments()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="gnomon-where-") as folder:
        for path, runtimes in models(Path(folder)):
            if given.models and path.name not in given.models:
                continue
            for runtime in runtimes:
                named = given.backend if runtime == "onnxruntime" else []
                rows.append(row(path, runtime, named, given.device, Path(folder) / "record.sqlite"))
    known = [one for one in rows if "error" not in one]
    by_model: dict[str, list[dict[str, Any]]] = {}
    for one in known:
        by_model.setdefault(one["model"], []).append(one)
    document = {
        "models": len(by_model),
        "models_equal": sum(not any(one["other"] for one in own) for own in by_model.values()),
        "pairs": len(known),
        "pairs_equal": sum(not one["other"] for one in known),
        "slowest_wall_s": max(one["wall_s"] for one in known),
        "slowest_cpu_s": max(one["cpu_s"] for one in known),
        "rows": rows,
    }
    publish(document, given)


if __name__ == "__main__":
    main()
