"""LiteRT: TFLite models run by XNNPACK, by LiteRT's builtin or reference kernels, or on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gnomon.models.model import Model
from gnomon.runtimes.base import Assignment, Configuration, PlacedModel, Plain, Probe, RunSettings
from gnomon.runtimes.tunings import THREADS, Tuning
from gnomon.runtimes.whole import TOLERANCE, WholeModelRuntime, environment_configurations, usual_configuration
from gnomon.wire import Packaged

_GPU = "gpu"
_REPORTED = ("xnnpack", "builtin", "builtin in place of xnnpack")
"""Names reported by an interpreter that chose its kernels itself."""
#: Precisions of a GPU besides float32, with their names in configurations.
_LOWER = {"float16": "f16"}


class LiteRt(WholeModelRuntime):
    """The adapter of LiteRT. Each kind of kernels is a configuration of its own, whose only backend takes whole models.

    A GPU is a configuration too. The options name it, so that no other GPU is used in its place. A GPU that is a
    program on the CPU is used only if "gpu" is requested.
    """

    name = "litert"
    formats = frozenset({"tflite"})
    wheels: tuple[str, ...] = ("ai-edge-litert>=2.1.6",)
    resolution_s = 1e-6
    streams = True
    tunings: tuple[Tuning, ...] = (THREADS,)
    plain: tuple[Plain, ...] = (
        Plain(label="reference kernels", options={"kernels": "reference"}),
        Plain(label="builtin kernels", options={"kernels": "builtin", "interpreted": True}),
    )

    def configurations(self, probe: Probe, settings: RunSettings) -> tuple[Configuration, ...]:
        """A configuration for each kind of kernels, first in the clean environment and then in the others."""
        requested = probe.requested(self.name, settings)
        software = {a.backend for a in probe.accelerators if a.software}
        return tuple(
            configuration
            for kernels in requested
            if kernels in settings.backends or kernels not in software
            for configuration in self._of_kernels(probe, settings, kernels)
        )

    def usual(self, probe: Probe) -> Configuration:
        """The classic interpreter, which most programs use, with nothing set."""
        return usual_configuration(self.name, *_REPORTED)

    def _of_kernels(self, probe: Probe, settings: RunSettings, kernels: str) -> Iterator[Configuration]:
        """The configurations of a kind of kernels in each environment: in float32, and for a GPU also in each requested
        lower precision.
        """
        accelerators = tuple(a for a in probe.accelerators if a.backend == kernels)
        lower = [p for p in settings.precisions if p in _LOWER] if kernels == _GPU else []
        for precision in ("float32", *lower):
            options: dict[str, object] = {"threads": settings.threads, "kernels": kernels}
            if kernels == _GPU:
                options |= {"precision": precision, "adapter": accelerators[0].name}
            yield from environment_configurations(
                self.name,
                settings,
                (kernels,),
                kernels,
                _LOWER.get(precision, ""),
                options=options,
                precision=precision,
                tolerance=TOLERANCE[precision],
                # XNNPACK leaves operators that it lacks to the builtin kernels.
                reported={kernels: kernels, **({"builtin": kernels} if kernels == "xnnpack" else {})},
                accelerators=accelerators,
            )

    def program(self, model: PlacedModel, configuration: Configuration) -> list[str]:
        """Lines for the classic interpreter, which uses XNNPACK; none if another kind of kernels was measured."""
        if configuration.options.get("kernels", "xnnpack") != "xnnpack":
            return []
        threads = "" if configuration.usual else f", num_threads={configuration.options['threads']}"
        return [
            "from ai_edge_litert.interpreter import Interpreter",
            f"interpreter = Interpreter(file{threads})",
            "places = [detail['index'] for detail in interpreter.get_input_details()]",
            "[interpreter.resize_tensor_input(k, array.shape) for k, array in zip(places, inputs.values())]",
            "interpreter.allocate_tensors()",
            "[interpreter.set_tensor(k, array) for k, array in zip(places, inputs.values())]",
            "call = interpreter.invoke  # then interpreter.get_tensor(interpreter.get_output_details()[0]['index'])",
        ]

    def package(self, model: Model, configuration: Configuration, assignment: Assignment, folder: Path) -> Packaged:
        """A copy of the model file."""
        # On another device, the package runs on that device's GPU.
        options = {name: value for name, value in configuration.options.items() if name != "adapter"}
        return super().package(model, replace(configuration, options=options), assignment, folder)
