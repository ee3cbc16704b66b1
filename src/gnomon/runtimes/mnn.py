"""MNN: an ONNX model, converted on the device, whole on the processor."""

from __future__ import annotations

from dataclasses import replace

from gnomon.runtimes.base import Configuration, Probe, Wish
from gnomon.runtimes.tunings import THREADS, Tuning
from gnomon.runtimes.whole import WholeModelRuntime, environment_configurations, usual_configuration


class Mnn(WholeModelRuntime):
    """The adapter of MNN. It computes in float32."""

    name = "mnn"
    wheels: tuple[str, ...] = ("MNN>=3.6",)
    float64 = False
    tunings: tuple[Tuning, ...] = (THREADS,)

    def configurations(self, probe: Probe, wish: Wish) -> tuple[Configuration, ...]:
        """One configuration an environment, with the one backend that there is."""
        backends = probe.wished(self.name, wish)
        reported = {backend: backend for backend in backends}
        return tuple(replace(one, reported=reported) for one in environment_configurations(self.name, wish, backends))

    def usual(self, probe: Probe) -> Configuration:
        """A session that sets nothing."""
        return usual_configuration(self.name, *probe.backends)
