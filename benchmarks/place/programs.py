"""Whether the program in a package reproduces the time on the page, for each model and runtime.

Each model is placed with one runtime and one thread. Then the package's `use.py` is measured as a command, alternately
with the runtime itself, so that other work of the machine affects both. The program agrees if its median lies within
the runtime's 95 % interval, extended by 2 %. Both are wall times: a command does not report its processor time in a
form that gnomon uses for decisions.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import gnomon
from benchmarks.common import arguments, model_path, own_record, publish
from gnomon.errors import GnomonError

MODELS = (
    "ppocr-cls.onnx",
    "ppocr-rec.onnx",
    "ppocr-det.onnx",
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


def figures(model: Path, runtime: str, record: Path) -> dict[str, Any]:
    """One model in one runtime."""
    how: dict[str, Any] = {"runtimes": [runtime], "threads": 1, "fresh": True, "record": record}
    with tempfile.TemporaryDirectory() as folder:
        placed = gnomon.place(model, out=Path(folder) / "out", quick=True, picture=False, **how)
        if placed.program is None:
            return {"model": model.name, "choice": placed.decision.chosen, "program": None}
        line = f"{sys.executable} {folder}/out/{placed.program} {{model}}"
        by_turns = gnomon.profile(model, commands=[line], read=[r"(?P<ms>[0-9.]+) ms a call"], **how)
    rows = {column.label: column.wall for column in by_turns.columns}
    page, program = rows[placed.decision.chosen], rows["use"]
    assert page.low_s is not None and page.high_s is not None
    within = page.low_s / 1.02 <= program.median_s <= page.high_s * 1.02
    return {
        "model": model.name,
        "choice": placed.decision.chosen,
        "page_ms": [1e3 * page.median_s, 1e3 * page.low_s, 1e3 * page.high_s],
        "program_ms": 1e3 * program.median_s,
        "ratio": program.median_s / page.median_s,
        "within": within,
    }


def _figures_or_failure(model: Path, runtime: str, record: Path) -> dict[str, Any]:
    """The figures, or why there are none: a runtime that refuses a model does not end the others."""
    try:
        return figures(model, runtime, record)
    except GnomonError as error:
        return {"model": model.name, "choice": runtime, "program": None, "failure": error.message}


def main() -> None:
    """Run all models in their runtimes."""
    given = arguments(__doc__, MODELS)
    with own_record() as record:
        paths = [model_path(name) for name in given.models]
        rows = [_figures_or_failure(path, name, record) for path in paths for name in RUNTIMES[path.suffix[1:]]]
    written = [row for row in rows if row.get("program", "") is not None]
    publish(
        {"benchmark": "programs", "within": sum(row["within"] for row in written), "of": len(written), "rows": rows},
        given,
    )


if __name__ == "__main__":
    main()
