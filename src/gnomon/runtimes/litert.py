"""LiteRT: TFLite models, by XNNPACK, by its builtin kernels, or by its reference kernels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnomon.core.sample import Failure
from gnomon.errors import UsageError
from gnomon.models.copies import copy_model
from gnomon.models.model import Model, is_known
from gnomon.runtimes.base import (
    Ask,
    Assignment,
    Configuration,
    PlacedModel,
    Plain,
    Probe,
    Runtime,
    Support,
    Wish,
    environment_variants,
    whole_segment,
)
from gnomon.runtimes.tunings import THREADS, Tuning
from gnomon.runtimes.whole import TOLERANCE, labelled


class LiteRt:
    """The adapter of LiteRT. Each kind of kernels is a configuration with one backend, which takes a model whole."""

    name = "litert"
    formats = frozenset({"tflite"})
    wheels: tuple[str, ...] = ("ai-edge-litert>=2.1.6",)
    tunings: tuple[Tuning, ...] = (THREADS,)
    plain: tuple[Plain, ...] = (
        Plain(label="reference kernels", options={"kernels": "reference"}),
        Plain(label="builtin kernels", options={"kernels": "builtin", "interpreted": True}),
    )

    def configurations(self, probe: Probe, wish: Wish) -> tuple[Configuration, ...]:
        """A configuration for each kind of kernels, in an environment each; the clean ones first."""
        for name in wish.backends:
            if name not in (*probe.backends, self.name):
                raise UsageError(
                    f"litert {probe.version} on this device has no backend {name!r}",
                    hint=f"It has: {', '.join(probe.backends)}.",
                )
        everything = not wish.backends or self.name in wish.backends
        return tuple(
            Configuration(
                runtime=self.name,
                name=labelled(self.name, kernels, label),
                backends=(kernels,),
                options={"threads": wish.threads, "kernels": kernels},
                environment=environment,
                tolerance=TOLERANCE["float32"],
                # XNNPACK leaves what it lacks to the builtin kernels.
                reported={kernels: kernels, **({"builtin": kernels} if kernels == "xnnpack" else {})},
            )
            for label, environment in environment_variants(wish)
            for kernels in probe.backends
            if everything or kernels in wish.backends
        )

    def support(self, ask: Ask, model: PlacedModel, configuration: Configuration) -> Support:
        """The kernels load the whole model in a process of their own; XNNPACK must take at least one operator."""
        backend = configuration.backends[0]
        opened = not all(is_known(model.graph.tensors[index]) for index in model.graph.outputs)
        options = {**configuration.options, **({"interpreted": True} if opened else {})}
        segment = whole_segment(self.name, model, options)
        answer = ask({backend: {"do": "supports", "segment": segment}})[backend]
        if isinstance(answer, Failure):
            return Support(operators={}, failures={backend: answer})
        everything = frozenset(op.index for op in model.graph.operators)
        options = {"interpreted": True} if answer.get("interpreted") else {}
        return Support(operators={backend: everything}, options=options)

    def segment(self, model: PlacedModel, configuration: Configuration, assignment: Assignment) -> dict[str, Any]:
        """The whole model; there is nothing to assign."""
        return whole_segment(self.name, model, configuration.options)

    def package(
        self, model: Model, configuration: Configuration, assignment: Assignment, folder: Path
    ) -> dict[str, Any]:
        """A copy of the model file."""
        source = model.package.models[0] if model.package else model.path
        copy_model(source, folder / source.name)
        return {"runtime": self.name, "model": source.name, "options": dict(configuration.options)}


if TYPE_CHECKING:
    _: Runtime = LiteRt()
