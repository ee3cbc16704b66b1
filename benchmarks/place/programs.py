"""Whether the program in a package reproduces the time that the page tells, for each model and runtime.

Each model is placed with one runtime and one thread; then the package's `use.py` runs in fresh processes, and its CPU
time is compared with the page's: it agrees within the page's 95 % interval and 2 % more. The median of an odd number
of processes counts, as one of them may meet a slower moment of the machine.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import gnomon
from benchmarks.common import arguments, model_path, own_record, publish

MODELS = (
    "ppocr-cls.onnx",
    "ppocr-rec.onnx",
    "efficientnet-lite0.onnx",
    "minilm-layer.onnx",
    "efficientnet-lite0.tflite",
    "tests/models/golden/small.pt2",
)
RUNTIMES = {
    "onnx": ("onnxruntime", "openvino", "mnn", "ncnn"),
    "tflite": ("litert", "openvino"),
    "pt2": ("pytorch",),
}
PROCESSES = 5


def figures(model: Path, runtime: str, record: Path) -> dict[str, Any]:
    """One model in one runtime."""
    with tempfile.TemporaryDirectory() as folder:
        how: dict[str, Any] = {"runtimes": [runtime], "threads": 1, "fresh": True, "picture": False, "record": record}
        found = gnomon.place(model, out=Path(folder) / "out", **how)
        if found.program is None:
            return {"model": model.name, "choice": found.decision.chosen, "program": None}
        told_ms = []
        for _ in range(PROCESSES):
            run = [sys.executable, found.program]
            done = subprocess.run(run, cwd=Path(folder) / "out", capture_output=True, text=True, check=True)
            told = re.search(r"([0-9.]+) ms a call, ([0-9.]+) ms of CPU time", done.stdout)
            assert told is not None, done.stdout
            told_ms.append(float(told[2 if found.clock == "cpu" else 1]))
    chosen = found.chosen
    page = chosen.cpu if found.clock == "cpu" else chosen.measured
    assert page is not None, chosen.failure
    low_ms, high_ms = (1e3 * bound if bound else None for bound in (page.low_s, page.high_s))
    median_ms = statistics.median(told_ms)
    within = low_ms is not None and high_ms is not None and low_ms / 1.02 <= median_ms <= high_ms * 1.02
    return {
        "model": model.name,
        "choice": chosen.label,
        "clock": found.clock,
        "page_ms": [1e3 * page.median_s, low_ms, high_ms],
        "program_ms": told_ms,
        "ratio": median_ms / (1e3 * page.median_s),
        "within": within,
    }


def main() -> None:
    """All models in their runtimes."""
    given = arguments(__doc__, MODELS)
    with own_record() as record:
        paths = [model_path(name) for name in given.models]
        rows = [figures(path, name, record) for path in paths for name in RUNTIMES[path.suffix[1:]]]
    told = [row for row in rows if row.get("program", "") is not None]
    publish(
        {"benchmark": "programs", "within": sum(row["within"] for row in told), "of": len(told), "rows": rows}, given
    )


if __name__ == "__main__":
    main()
