"""What runtimes have in common that take a model whole."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnomon.core.sample import Failure
from gnomon.errors import UsageError
from gnomon.models.load import copy_model
from gnomon.models.model import Model
from gnomon.runtimes.base import Ask, Assignment, Configuration, PlacedModel, Support, Wish, driver_of, whole_segment


class WholeModelRuntime:
    """A runtime with one backend, itself: it takes all operators of a model, or none."""

    name: str
    formats = frozenset({"onnx"})

    def support(self, ask: Ask, model: PlacedModel, configuration: Configuration) -> Support:
        """The runtime loads the whole model in a process of its own."""
        backend = configuration.backends[0]
        segment = self.segment(model, configuration, {})
        segment["options"]["shapes"] = model.shapes
        answer = ask({backend: {"do": "supports", "segment": segment}})[backend]
        if isinstance(answer, Failure):
            return Support(operators={}, failures={backend: answer})
        return Support(operators={backend: frozenset(op.index for op in model.graph.operators)})

    def segment(self, model: PlacedModel, configuration: Configuration, assignment: Assignment) -> dict[str, Any]:
        """The whole model; there is nothing to assign."""
        return whole_segment(driver_of(self), model, configuration.options)

    def package(
        self, model: Model, configuration: Configuration, assignment: Assignment, folder: Path
    ) -> dict[str, Any]:
        """A copy of the model's file, and of those that lie beside it."""
        source = model.package.models[0] if model.package else model.path
        copy_model(source, folder / source.name)
        return {"runtime": driver_of(self), "model": source.name, "options": dict(configuration.options)}


def refuse_other_backends(runtime: str, wish: Wish) -> None:
    """UsageError if a backend is wished that is not the runtime itself."""
    for name in wish.backends:
        if name != runtime:
            raise UsageError(
                f"{runtime} has no backend {name!r}", hint="Leave out --backend, or name the runtime itself."
            )


def labelled(name: str, *labels: str) -> str:
    """A configuration's name: the runtime's, with what is not its default in brackets."""
    told = [label for label in labels if label]
    return f"{name}[{','.join(told)}]" if told else name


TOLERANCE: Mapping[str, float] = {"float32": 1e-3, "float16": 2e-2, "bfloat16": 5e-2}
"""Largest difference, relative to the reference's largest magnitude, by the precision computed in."""
