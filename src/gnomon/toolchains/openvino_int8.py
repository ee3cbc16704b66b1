"""Int8 for OpenVINO by NNCF's post-training quantisation of the ONNX model."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Literal

from gnomon.core.installing import install_line
from gnomon.system.children import Program
from gnomon.toolchains.base import COMMON, IMAGES, Setting, Toolchain, read_settings
from gnomon.toolchains.children import ChildToolchain, missing_packages

NAME = "openvino-int8"
SETTINGS = (
    IMAGES,
    Setting(
        name="preset",
        type=Literal["performance", "mixed"],
        default="performance",
        meaning="performance: symmetric activations; mixed: asymmetric ones, for functions such as ELU and GELU",
    ),
    Setting(name="fast_bias_correction", type=bool, default=True, meaning="the fast way to correct biases"),
    *COMMON,
)


def openvino_int8(settings: Mapping[str, Any]) -> Toolchain:
    """The toolchain with these settings. UsageError for unknown ones."""
    found = read_settings(NAME, SETTINGS, settings)
    return ChildToolchain(
        name=NAME,
        runtime="openvino",
        program=Program(
            name="nncf_child",
            settings={name: found[name] for name in ("images", "preset", "fast_bias_correction")},
            workers=found["workers"],
            job_timeout_s=found["timeout_s"],
            memory_bytes=found["memory_gib"] << 30,
        ),
        needs=lambda: missing_packages(
            ("nncf", "openvino", "onnx", "onnxruntime"), install_line("quantise", python=sys.executable)
        ),
    )
