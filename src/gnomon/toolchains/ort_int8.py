"""Static int8 by ONNX Runtime's quantiser: QDQ format, unsigned activations, signed weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from gnomon.installing import install_line
from gnomon.toolchains.base import ChildSettings, Toolchain, read_settings
from gnomon.toolchains.children import ChildToolchain, missing_packages

NAME = "onnxruntime-int8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ChildSettings):
    """The settings of the toolchain."""

    per_channel: Annotated[bool, "one scale for each channel of a weight, not one for the whole weight"] = False
    method: Annotated[
        Literal["minmax", "entropy", "percentile"], "how ranges are found: minmax, entropy or percentile"
    ] = "minmax"
    reduce_range: Annotated[bool, "7-bit weights, for processors without VNNI"] = False


def onnxruntime_int8(settings: Mapping[str, object]) -> Toolchain:
    """The toolchain with these settings. UsageError for unknown settings."""
    values = read_settings(NAME, Settings, settings)
    return ChildToolchain(
        name=NAME,
        runtime="onnxruntime",
        program=values.program("ort_int8_child", "images", "per_channel", "method", "reduce_range"),
        check=lambda: missing_packages(("onnxruntime", "onnx"), install_line("onnxruntime")),
    )
