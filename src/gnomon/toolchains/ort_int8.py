"""Static int8 by ONNX Runtime's quantiser: QDQ form, unsigned activations, signed weights."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Literal

from gnomon.core.installing import install_line
from gnomon.system.children import Program
from gnomon.toolchains.base import COMMON, IMAGES, Setting, Toolchain, read_settings
from gnomon.toolchains.children import ChildToolchain, missing_packages

NAME = "onnxruntime-int8"
SETTINGS = (
    IMAGES,
    Setting(name="per_channel", type=bool, default=False, meaning="a scale a channel of a weight, not one a weight"),
    Setting(
        name="method",
        type=Literal["minmax", "entropy", "percentile"],
        default="minmax",
        meaning="how ranges are found: minmax, entropy or percentile",
    ),
    Setting(name="reduce_range", type=bool, default=False, meaning="7-bit weights, for processors without VNNI"),
    *COMMON,
)


def onnxruntime_int8(settings: Mapping[str, Any]) -> Toolchain:
    """The toolchain with these settings. UsageError for unknown ones."""
    found = read_settings(NAME, SETTINGS, settings)
    return ChildToolchain(
        name=NAME,
        runtime="onnxruntime",
        program=Program(
            name="ort_int8_child",
            settings={name: found[name] for name in ("images", "per_channel", "method", "reduce_range")},
            workers=found["workers"],
            job_timeout_s=found["timeout_s"],
            memory_bytes=found["memory_gib"] << 30,
        ),
        needs=lambda: missing_packages(("onnxruntime", "onnx"), install_line("onnxruntime", python=sys.executable)),
    )
