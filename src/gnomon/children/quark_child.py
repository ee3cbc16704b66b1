"""A program for AMD Quark's XINT8 quantisation, whose scales are powers of two, as DPUs require.

It may run in an interpreter other than gnomon's, and its packages may be in a separate folder. When it is first
imported, Quark compiles an extension, which needs g++ and ninja.
"""

from __future__ import annotations

import os
from typing import Any

from .frame import Job, Settings, Work, quantising, reader

NEEDED = ("quark", "onnx", "onnxruntime", "torch", "numpy", "joblib", "psutil", "rich", "tqdm", "setuptools")


def setup(settings: Settings) -> tuple[Work, dict[str, str]]:
    """Loads Quark, which compiles its extension the first time."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import torch

    torch.set_num_threads(1)
    import onnx
    import onnxruntime as ort
    import quark
    from quark.onnx import ModelQuantizer
    from quark.onnx.quantization.config import QConfig

    def quantise(job: Job, model: Any, arrays: list[Any]) -> Any:
        config = QConfig.get_default_config(settings["config"])
        # By default, Quark writes each activation of each image to a file, which takes most of the time.
        config.global_quant_config.extra_options["CalibOptimizeMem"] = not settings["in_memory"]
        quantizer = ModelQuantizer(config)
        quantizer.quantize_model(job["model"], job["output"], reader(model, arrays))
        return onnx.load(job["output"])

    versions = {"amd-quark": str(getattr(quark, "__version__", "unknown")), "onnx": onnx.__version__}
    return quantising(onnx, settings, quantise), {
        **versions,
        "onnxruntime": ort.__version__,
        "torch": torch.__version__,
    }
