"""A program that runs model files on labelled images with ONNX Runtime or OpenVINO, and writes the class of each image.

The images are read only once, for the models of all jobs. A model with a fixed batch gets the images in groups of that
size.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .frame import Facts, Job, Refused, Settings, Work, fitted, one_thread

_FREE_BATCH = 100


def setup(settings: Settings) -> tuple[Work, dict[str, str]]:
    """Loads the runtime and the images; images stored as bytes become (x - mean) / std, with a mean and std per
    channel.
    """
    import numpy as np

    with np.load(settings["images"], allow_pickle=False) as stored:
        images = stored["x"]
    if images.dtype == np.uint8:
        shape = (1, -1) + (1,) * (images.ndim - 2)
        mean, std = (np.asarray(settings[part], np.float32).reshape(shape) for part in ("mean", "std"))
        images = (images - mean) / std
    images = np.ascontiguousarray(images, dtype=np.float32)
    opened, versions = (_openvino if settings["runtime"] == "openvino" else _onnxruntime)(settings)

    def work(job: Job) -> Facts:
        shape, call = opened(job["model"])
        sized = fitted("images", images, shape)
        batch = shape[0] if shape[0] > 0 else _FREE_BATCH
        classes = []
        for start in range(0, len(sized), batch):
            part = sized[start : start + batch]
            short = batch - len(part) if shape[0] > 0 else 0
            result = call(np.concatenate([part, np.repeat(part[-1:], short, axis=0)]) if short else part)
            if len(result) != batch and shape[0] > 0:
                raise Refused(f"the model returns outputs of shape {list(result.shape)} for a batch of {batch}")
            result = result[: len(part)].reshape(len(part), -1)
            # A result that is not finite has no class and counts as wrong, whatever the label.
            classes.append(np.where(np.isfinite(result).all(axis=1), result.argmax(axis=1), -1))
        np.save(job["output"], np.concatenate(classes).astype(np.int64), allow_pickle=False)
        return {}

    return work, versions


Opened = tuple[list[int], Callable[[Any], Any]]
"""The input's shape (-1: free), and a function that runs a batch."""


def _onnxruntime(settings: Settings) -> tuple[Callable[[str], Opened], dict[str, str]]:
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime as ort

    one_thread(ort)

    def opened(path: str) -> Opened:
        session = ort.InferenceSession(path, ort.SessionOptions(), providers=["CPUExecutionProvider"])
        (source,) = session.get_inputs()
        shape = [size if isinstance(size, int) else -1 for size in source.shape]
        return shape, lambda batch: session.run(None, {source.name: batch})[0]

    return opened, {"onnxruntime": ort.__version__}


def _openvino(settings: Settings) -> tuple[Callable[[str], Opened], dict[str, str]]:
    # Without this package openvino uses a stub; with it, openvino creates an identity file in the user's home.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino as ov

    core = ov.Core()
    options = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}

    def opened(path: str) -> Opened:
        compiled = core.compile_model(core.read_model(Path(path)), "CPU", options)
        (source,) = compiled.inputs
        shape = [size.get_length() if size.is_static else -1 for size in source.partial_shape]
        return shape, lambda batch: compiled([batch])[0]

    return opened, {"openvino": ov.__version__.partition("-")[0]}
