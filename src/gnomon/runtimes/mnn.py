"""MNN: an ONNX model, converted on the device, whole on the processor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnomon.runtimes.base import Configuration, Probe, Runtime, Wish, environment_variants
from gnomon.runtimes.tunings import THREADS, Tuning
from gnomon.runtimes.whole import WholeModelRuntime, labelled, usual_configuration


class Mnn(WholeModelRuntime):
    """The adapter of MNN. It computes in float32."""

    name = "mnn"
    wheels: tuple[str, ...] = ("MNN>=3.6",)
    float64 = False
    tunings: tuple[Tuning, ...] = (THREADS,)

    def configurations(self, probe: Probe, wish: Wish) -> tuple[Configuration, ...]:
        """One configuration an environment, with the one backend that there is."""
        backends = probe.wished(self.name, wish)
        return tuple(
            Configuration(
                runtime=self.name,
                name=labelled(self.name, label),
                backends=backends,
                options={"threads": wish.threads},
                environment=environment,
                reported={backend: backend for backend in backends},
            )
            for label, environment in environment_variants(wish)
        )

    def usual(self, probe: Probe) -> Configuration:
        """A session that sets nothing."""
        return usual_configuration(self.name, *probe.backends)


if TYPE_CHECKING:
    _: Runtime = Mnn()
