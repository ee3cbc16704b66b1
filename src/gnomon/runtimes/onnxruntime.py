"""ONNX Runtime, its CPU provider."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gnomon.runtimes.base import Configuration, Plain, Probe, Runtime, Wish, environment_variants
from gnomon.runtimes.tunings import THREADS, Tuning
from gnomon.runtimes.whole import TOLERANCE, WholeModelRuntime, labelled, refuse_other_backends


def _optimised(options: Mapping[str, Any], value: str) -> Mapping[str, Any]:
    return {**options, "optimise": value == "on"}


class OnnxRuntime(WholeModelRuntime):
    """The adapter of ONNX Runtime."""

    name = "onnxruntime"
    wheels: tuple[str, ...] = ("onnxruntime>=1.23",)
    tunings: tuple[Tuning, ...] = (
        THREADS,
        Tuning(name="optimise", values=("on", "off"), usual=("on", "off"), change=_optimised),
    )
    plain: tuple[Plain, ...] = (Plain(label="without optimisations", options={"optimise": False}),)

    def configurations(self, probe: Probe, wish: Wish) -> tuple[Configuration, ...]:
        """float32 on the CPU provider, an environment each."""
        refuse_other_backends(self.name, wish)
        return tuple(
            Configuration(
                runtime=self.name,
                name=labelled(self.name, label),
                backends=(self.name,),
                options={"threads": wish.threads, "provider": "CPUExecutionProvider"},
                environment=environment,
                tolerance=TOLERANCE["float32"],
                reported={"CPUExecutionProvider": self.name},
            )
            for label, environment in environment_variants(wish)
        )


if TYPE_CHECKING:
    _: Runtime = OnnxRuntime()
