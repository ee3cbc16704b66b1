"""What gnomon knows of the runtime. It never imports the runtime itself."""

from __future__ import annotations

from gnomon.runtimes.base import Configuration, Probe, Wish, environment_variants
from gnomon.runtimes.whole import WholeModelRuntime, labelled, refuse_other_backends


class Yours(WholeModelRuntime):
    """A runtime that takes whole models, of ONNX unless `formats` says otherwise."""

    name = "yours"
    driver = "yours.driver:YoursDriver"
    wheels: tuple[str, ...] = ("yours>=0.1",)  # a device is brought this package too, as the driver is in it

    def configurations(self, probe: Probe, wish: Wish) -> tuple[Configuration, ...]:
        """The ways in which a model is measured: here one an environment."""
        refuse_other_backends(self.name, wish)
        return tuple(
            Configuration(
                runtime=self.name,
                name=labelled(self.name, label),
                backends=probe.backends,
                options={"threads": wish.threads},
                environment=environment,
                reported={backend: backend for backend in probe.backends},
            )
            for label, environment in environment_variants(wish)
        )
