"""A package that gnomon wrote, measured as it runs: it counts both as a model with a single operator and as that
model's runtime.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from gnomon.agent.plan import PlanRefused, checked_plan
from gnomon.core.graph import Graph, Operator, Tensor
from gnomon.errors import ModelError
from gnomon.models.model import PACKAGE, PLAN, Model
from gnomon.runtimes.base import Ask, Configuration, PlacedModel, Probe, RunSettings, Support
from gnomon.runtimes.whole import WholeModelRuntime, labelled
from gnomon.system.files import file_digest
from gnomon.wire import PlanJob, Segment
from gnomon.wire import Tensor as TensorSpec

MIX = "mix"
_PRECISIONS = {"bf16": "bfloat16", "f16": "float16"}
"""The precisions below float32, by their labels in the names of configurations."""


class PackageRuntime(WholeModelRuntime):
    """The adapter of one package, named after the first runtime of its plan.

    `label` is the name of its configuration. By default, it is the name that a model's configuration with these
    settings has, without the number of threads, or `MIX` if the package uses several configurations. ModelError if the
    folder is not a package, was changed, or has a launcher that asks for consent to its settings or commands.
    """

    formats = frozenset({PACKAGE})

    def __init__(self, folder: Path, label: str = "") -> None:
        with _package_errors(folder):
            plan = checked_plan(str(folder / PLAN))
            self.folder, self.job = folder.absolute(), plan["job"]
            first, *others = self.job["segments"]
            self.driver = first["runtime"]
            self.name = next(iter(plan["proved_with"].get("runtimes", ())), self.driver)
            self.wheels = tuple(wheel for wheel in plan["requirements"] if not wheel.startswith("numpy"))
            self.threads = max(int(segment["options"].get("threads", 1)) for segment in self.job["segments"])
            backend, *more = {str(operator["backend"]) for operator in plan["operators"]}
            self.model = _model_of(folder, self.job)
        runtime, _, labels = backend.removesuffix("]").partition("[")
        kept = [text for text in labels.split(",") if not text.startswith("threads=")]
        self.precision = next((_PRECISIONS[text] for text in kept if text in _PRECISIONS), "float32")
        self.label = label or (MIX if others or more else labelled(runtime, *kept))
        # Libraries are loaded only if the user allows it, and nobody can be asked here: a plan with libraries has been
        # refused.
        self.options = {name: value for name, value in first["options"].items() if name != "libraries"}

    def configurations(self, probe: Probe, settings: RunSettings) -> tuple[Configuration, ...]:
        """The package's own configuration."""
        configuration = Configuration(
            runtime=self.name,
            name=self.label,
            backends=(self.name,),
            options=self.options,
            environment=self.job["environment"],
            precision=self.precision,
        )
        return (configuration,)

    def support(self, ask: Ask, model: PlacedModel, configuration: Configuration) -> Support:
        """Support for the whole package: the device is not asked, because the package was proved when it was
        written.
        """
        return Support(operators={self.name: frozenset({0})})

    def chain(self, model: PlacedModel) -> tuple[list[Segment], Mapping[str, TensorSpec]]:
        """The plan's segments, at the package's place on the device, and the tensors that they read and write."""
        there, segments = PurePosixPath(model.path), self.job["segments"]
        models = (str(there / os.path.relpath(segment["model"], self.folder)) for segment in segments)
        return [{**segment, "model": path} for segment, path in zip(segments, models, strict=True)], self.job["tensors"]


@contextmanager
def _package_errors(folder: Path) -> Iterator[None]:
    """Raise ModelError for any error in a package."""
    try:
        yield
    except PlanRefused as refused:
        message, _, consent = str(refused).partition(": if you trust")
        hint = "Measure its launcher, which accepts --allow, as a --command." if consent else "Write the package again."
        raise ModelError(message, hint=hint) from refused
    except (OSError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise ModelError(f"{folder} has no valid plan: {error!r:.200}", hint="Write the package again.") from error


def _model_of(folder: Path, job: PlanJob) -> Model:
    """The package as a model: its inputs and outputs are those of its job."""
    specs = {name: job["tensors"][name] for name in (*job["feeds"], *job["outputs"])}
    shapes = (None if spec["shape"] is None else tuple(spec["shape"]) for spec in specs.values())
    tensors = tuple(
        Tensor(name=name, shape=shape, dtype=str(specs[name]["dtype"]), size_bytes=None)
        for name, shape in zip(specs, shapes, strict=True)
    )
    fed, every = len(job["feeds"]), tuple(range(len(tensors)))
    whole = Operator(index=0, name=PACKAGE, type=PACKAGE, inputs=every[:fed], outputs=every[fed:], macs=None)
    ends = {"inputs": whole.inputs, "outputs": whole.outputs}
    digest, size = file_digest(folder / PLAN), sum(file.stat().st_size for file in folder.rglob("*"))
    graph = Graph(name=folder.name, format=PACKAGE, digest=digest, tensors=tensors, operators=(whole,), **ends)
    return Model(path=folder, graph=graph, kind=PACKAGE, package=None, size_bytes=size, feeds=job["feeds"])
