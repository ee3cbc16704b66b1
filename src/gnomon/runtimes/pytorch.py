"""PyTorch: its exported programs (.pt2), run eagerly, as most users do, or compiled by Inductor."""

from __future__ import annotations

from gnomon.runtimes.base import Configuration, PlacedModel, Plain, Probe, RunSettings
from gnomon.runtimes.tunings import THREADS, Tuning
from gnomon.runtimes.whole import WholeModelRuntime, environment_configurations, usual_configuration

_EAGER = "eager"


class PyTorch(WholeModelRuntime):
    """The adapter of PyTorch. Each mode is a configuration; the compiled mode is used only on request.

    Compiling takes up to a minute in the first process.
    """

    name = "pytorch"
    loads = "torch"
    formats = frozenset({"pt2"})
    wheels: tuple[str, ...] = ("torch>=2.6",)
    tunings: tuple[Tuning, ...] = (THREADS,)
    plain: tuple[Plain, ...] = (Plain(label="eager", options={"mode": _EAGER}),)

    def configurations(self, probe: Probe, settings: RunSettings) -> tuple[Configuration, ...]:
        """The requested modes, by default the eager one, each first in the clean environment and then in the others."""
        probe.requested(self.name, settings)
        modes = {_EAGER if name == self.name else name for name in settings.backends} or {_EAGER}
        return tuple(
            configuration
            for mode in probe.backends
            if mode in modes
            for configuration in environment_configurations(
                self.name,
                settings,
                (mode,),
                "" if mode == _EAGER else mode,
                options={"threads": settings.threads, "mode": mode},
                reported={mode: mode},
            )
        )

    def usual(self, probe: Probe) -> Configuration:
        """Eager mode, with as many threads as PyTorch chooses."""
        return usual_configuration(self.name, _EAGER)

    def program(self, model: PlacedModel, configuration: Configuration) -> list[str]:
        """Lines that run the exported program's module, eager or compiled."""
        mode = configuration.options.get("mode", _EAGER)
        return [
            "import torch",
            *([] if configuration.usual else [f"torch.set_num_threads({configuration.options['threads']})"]),
            "module = torch.export.load(file).module()",
            *([] if mode == _EAGER else [f"module = torch.compile(module, backend={mode!r}, fullgraph=True)"]),
            "tensors = [torch.from_numpy(array) for array in inputs.values()]",
            "def call():",
            "    with torch.inference_mode():",
            "        return module(*tensors)",
        ]
