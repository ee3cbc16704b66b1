"""A program: AMD Quark's XINT8 quantisation, whose scales are powers of two as DPUs want them.

Its interpreter may be another one than gnomon's, and its packages may stand in a folder of their own. Quark compiles
an extension at its first import, for which it needs g++ and ninja.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from typing import Any

from .frame import Job, Work, calibration_arrays, finish, one_input, serve

_NEEDED = ("quark", "onnx", "onnxruntime", "torch", "numpy", "joblib", "psutil", "rich", "tqdm", "setuptools")


def setup(settings: dict[str, Any]) -> tuple[Work, dict[str, str]]:
    """Loads Quark; the first time this takes as long as compiling its extension does."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import torch

    torch.set_num_threads(1)
    import onnx
    import onnxruntime as ort
    import quark
    from quark.onnx import ModelQuantizer
    from quark.onnx.quantization.config import QConfig

    def work(job: Job) -> dict[str, Any]:
        model = onnx.load(job["model"], load_external_data=False)
        name, shape = one_input(model)
        arrays = calibration_arrays(job, settings["images"], shape)
        config = QConfig.get_default_config(settings["config"])
        # Its own default writes each activation of each image to a file, which takes most of the time.
        config.global_quant_config.extra_options["CalibOptimizeMem"] = not settings["in_memory"]
        quantizer = ModelQuantizer(config)
        quantizer.quantize_model(job["model"], job["output"], _reader(name, arrays))
        finish(onnx, onnx.load(job["output"]), job["output"])
        return {"images": sum(len(array) for array in arrays)}

    versions = {"amd-quark": str(getattr(quark, "__version__", "unknown")), "onnx": onnx.__version__}
    return work, {**versions, "onnxruntime": ort.__version__, "torch": torch.__version__}


def _reader(name: str, arrays: list[Any]) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.rewind()

        def __len__(self) -> int:
            return len(arrays)

        def get_next(self) -> dict[str, Any] | None:
            array = next(self._left, None)
            return None if array is None else {name: array}

        def rewind(self) -> None:
            self._left = iter(arrays)

    return Reader()


def main() -> None:
    """Answers jobs; with GNOMON_CHILD_NEEDS in the environment it only lists the packages that are missing."""
    if os.environ.get("GNOMON_CHILD_NEEDS"):
        sys.stdout.write(json.dumps([name for name in _NEEDED if importlib.util.find_spec(name) is None]) + "\n")
        return
    serve(setup)
