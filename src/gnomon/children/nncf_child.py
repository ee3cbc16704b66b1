"""A program for NNCF's post-training quantisation of an ONNX model; the result is an ONNX model too.

OpenVINO runs the result in int8 (according to its own report of each kernel's precision; see the tests).
"""

from __future__ import annotations

import os
import sys
from typing import Any

from .frame import Job, Settings, Work, one_input, one_thread, quantising


def setup(settings: Settings) -> tuple[Work, dict[str, str]]:
    """Loads NNCF, with telemetry switched off in NNCF and in the packages that it loads."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    # Without this package both nncf and openvino use a stub; with it, they contact their maker's servers.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import nncf
    import onnx
    import onnxruntime as ort

    one_thread(ort)
    preset = {"performance": nncf.QuantizationPreset.PERFORMANCE, "mixed": nncf.QuantizationPreset.MIXED}

    def quantise(job: Job, model: Any, arrays: list[Any]) -> Any:
        name, _ = one_input(model)
        return nncf.quantize(
            onnx.load(job["model"]),
            nncf.Dataset(arrays, lambda array: {name: array}),
            preset=preset[settings["preset"]],
            subset_size=len(arrays),
            fast_bias_correction=settings["fast_bias_correction"],
        )

    return quantising(onnx, settings, quantise), {
        "nncf": nncf.__version__,
        "onnx": onnx.__version__,
        "onnxruntime": ort.__version__,
    }
