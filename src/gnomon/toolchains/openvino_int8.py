"""Int8 for OpenVINO by NNCF's post-training quantisation of the ONNX model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from gnomon.installing import install_line
from gnomon.toolchains.base import ChildSettings, Toolchain, read_settings
from gnomon.toolchains.children import ChildToolchain, missing_packages

NAME = "openvino-int8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ChildSettings):
    """The settings of the toolchain."""

    preset: Annotated[
        Literal["performance", "mixed"],
        "performance: symmetric activations; mixed: asymmetric ones, for functions such as ELU and GELU",
    ] = "performance"
    fast_bias_correction: Annotated[bool, "correct biases by the faster method"] = True


def openvino_int8(settings: Mapping[str, object]) -> Toolchain:
    """The toolchain with these settings. UsageError for unknown settings."""
    values = read_settings(NAME, Settings, settings)
    return ChildToolchain(
        name=NAME,
        runtime="openvino",
        program=values.program("nncf_child", "images", "preset", "fast_bias_correction"),
        check=lambda: missing_packages(("nncf", "openvino", "onnx", "onnxruntime"), install_line("quantise")),
    )
