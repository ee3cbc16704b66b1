"""A program for static int8 quantisation by ONNX Runtime's own tool, in the QDQ format.

ONNX Runtime's basic optimisation first folds batch normalisations. The symbolic shape inference of `quant_pre_process`
is for models with free dimensions; it is left out if all dimensions are fixed, which saves importing it.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from .frame import Job, Refused, Settings, Work, one_input, one_thread, quantising, reader

_PER_CHANNEL_OPSET = 13


def setup(settings: Settings) -> tuple[Work, dict[str, str]]:
    """Loads ONNX Runtime with its telemetry switched off."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnx
    import onnxruntime as ort
    from onnxruntime import quantization

    one_thread(ort)
    methods = quantization.CalibrationMethod
    method = {"minmax": methods.MinMax, "entropy": methods.Entropy, "percentile": methods.Percentile}

    def quantise(job: Job, model: Any, arrays: list[Any]) -> Any:
        opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
        if settings["per_channel"] and opset < _PER_CHANNEL_OPSET:
            raise Refused(f"scales per channel need opset {_PER_CHANNEL_OPSET} or later; the model has opset {opset}")
        fixed = all(isinstance(size, int) and size > 0 for size in one_input(model)[1])
        with tempfile.TemporaryDirectory() as folder:
            simple = str(Path(folder) / "simple.onnx")
            quantization.quant_pre_process(job["model"], simple, skip_symbolic_shape=fixed)
            quantization.quantize_static(
                simple,
                job["output"],
                reader(model, arrays),
                quant_format=quantization.QuantFormat.QDQ,
                activation_type=quantization.QuantType.QUInt8,
                weight_type=quantization.QuantType.QInt8,
                per_channel=settings["per_channel"],
                reduce_range=settings["reduce_range"],
                calibrate_method=method[settings["method"]],
            )
        return onnx.load(job["output"])

    return quantising(onnx, settings, quantise), {"onnxruntime": ort.__version__, "onnx": onnx.__version__}
