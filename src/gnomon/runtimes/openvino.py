"""OpenVINO on the CPU: ONNX and TFLite models, in float32 unless a lower precision is wished."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnomon.errors import UsageError
from gnomon.runtimes.base import Configuration, Probe, Runtime, Wish, environment_variants
from gnomon.runtimes.tunings import THREADS, Tuning
from gnomon.runtimes.whole import TOLERANCE, WholeModelRuntime, labelled, refuse_other_backends

#: Precision -> (OpenVINO's hint, the capability that the processor must have).
_PRECISIONS = {"float32": ("f32", "FP32"), "bfloat16": ("bf16", "BF16"), "float16": ("f16", "FP16")}


class OpenVino(WholeModelRuntime):
    """The adapter of OpenVINO."""

    name = "openvino"
    formats = frozenset({"onnx", "tflite"})
    wheels: tuple[str, ...] = ("openvino>=2025.3",)
    tunings: tuple[Tuning, ...] = (THREADS,)

    def configurations(self, probe: Probe, wish: Wish) -> tuple[Configuration, ...]:
        """float32, and each wished precision that the processor has; a lower one is named as such."""
        refuse_other_backends(self.name, wish)
        made = []
        for precision in dict.fromkeys(("float32", *wish.precisions)):
            if precision not in _PRECISIONS:
                raise UsageError(
                    f"unknown precision {precision!r}", hint=f"Known are: {', '.join(sorted(_PRECISIONS))}."
                )
            hint, capability = _PRECISIONS[precision]
            if capability not in probe.details.get("precisions", ()):
                continue
            for label, environment in environment_variants(wish):
                short = "" if precision == "float32" else hint
                made.append(
                    Configuration(
                        runtime=self.name,
                        name=labelled(self.name, short, label),
                        backends=(self.name,),
                        options={"threads": wish.threads, "precision": hint},
                        environment=environment,
                        precision=precision,
                        tolerance=TOLERANCE[precision],
                        reported={"CPU": self.name},
                    )
                )
        return tuple(made)


if TYPE_CHECKING:
    _: Runtime = OpenVino()
