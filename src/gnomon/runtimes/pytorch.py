"""PyTorch: its exported programs (.pt2), run eagerly as users do, or compiled by Inductor. Other runtimes are compared
with it.
"""

from __future__ import annotations

from gnomon.runtimes.base import Configuration, PlacedModel, Plain, Probe, RunSettings, environment_variants
from gnomon.runtimes.tunings import THREADS, Tuning
from gnomon.runtimes.whole import WholeModelRuntime, labelled, usual_configuration

_EAGER = "eager"


class PyTorch(WholeModelRuntime):
    """The adapter of PyTorch. Each way to run is a configuration; the compiled one is used only on request.

    Compiling takes up to a minute in the first process.
    """

    name = "pytorch"
    loads = "torch"
    formats = frozenset({"pt2"})
    wheels: tuple[str, ...] = ("torch>=2.6",)
    tunings: tuple[Tuning, ...] = (THREADS,)
    plain: tuple[Plain, ...] = (Plain(label="eager", options={"mode": _EAGER}),)

    def configurations(self, probe: Probe, wish: RunSettings) -> tuple[Configuration, ...]:
        """The requested modes, or eager, in each environment; the clean environment first."""
        probe.wished(self.name, wish)
        modes = {_EAGER if name == self.name else name for name in wish.backends} or {_EAGER}
        return tuple(
            Configuration(
                runtime=self.name,
                name=labelled(self.name, "" if mode == _EAGER else mode, label),
                backends=(mode,),
                options={"threads": wish.threads, "mode": mode},
                environment=environment,
                reported={mode: mode},
            )
            for label, environment in environment_variants(wish)
            for mode in probe.backends
            if mode in modes
        )

    def usual(self, probe: Probe) -> Configuration:
        """Eager, with as many threads as PyTorch chooses."""
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
