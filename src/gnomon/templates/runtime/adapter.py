"""The runtime's adapter for gnomon. It never imports the runtime itself."""

from __future__ import annotations

from gnomon.runtimes.base import Configuration, Probe, RunSettings
from gnomon.runtimes.whole import WholeModelRuntime, environment_configurations


class Yours(WholeModelRuntime):
    """A runtime that takes whole models, in the ONNX format unless `formats` says otherwise."""

    name = "yours"
    driver = "yours.driver:YoursDriver"
    wheels: tuple[str, ...] = (
        "yours>=0.1",
    )  # gnomon also installs this package on devices, because the driver is in it

    def configurations(self, probe: Probe, settings: RunSettings) -> tuple[Configuration, ...]:
        """The configurations in which a model is measured: here one for each environment."""
        backends = probe.requested(self.name, settings)
        reported = {backend: backend for backend in backends}
        return tuple(environment_configurations(self.name, settings, backends, reported=reported))
