"""The common part of runtimes that take whole models.

This module also writes `use.py` of a package: a few lines that call the model in the runtime's own API, as it was
measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnomon.core.sample import Failure
from gnomon.models.load import copy_model
from gnomon.models.model import Model
from gnomon.runtimes.base import (
    Ask,
    Assignment,
    Configuration,
    PlacedModel,
    RunSettings,
    Runtime,
    Support,
    driver_of,
    environment_variants,
    whole_segment,
)
from gnomon.wire import Options, Packaged, Segment


class WholeModelRuntime:
    """A runtime with a single backend, which takes all operators of a model or none; a base for other runtimes too."""

    name: str
    formats = frozenset({"onnx"})

    def support(self, ask: Ask, model: PlacedModel, configuration: Configuration) -> Support:
        """The whole model if the runtime loads it in a separate process, otherwise nothing.

        The driver's answer may contain the `options` that the model needs.
        """
        backend = configuration.backends[0]
        segment = self.segment(model, configuration, {})
        segment["options"] = {**segment["options"], "shapes": model.shapes}
        answer = ask({backend: {"do": "supports", "segment": segment}})[backend]
        if isinstance(answer, Failure):
            return Support(operators={}, failures={backend: answer})
        everything = frozenset(op.index for op in model.graph.operators)
        return Support(operators={backend: everything}, options=answer.get("options", {}))

    def segment(self, model: PlacedModel, configuration: Configuration, assignment: Assignment) -> Segment:
        """The whole model; there is nothing to assign."""
        return whole_segment(driver_of(self), model, configuration.options)

    def package(self, model: Model, configuration: Configuration, assignment: Assignment, folder: Path) -> Packaged:
        """A copy of the model's file and of the files that belong to it."""
        source = model.file
        copy_model(source, folder / source.name)
        return {"runtime": driver_of(self), "model": source.name, "options": dict(configuration.options)}


def environment_configurations(
    runtime: str, settings: RunSettings, backends: tuple[str, ...], *labels: str, **own: Any
) -> Iterator[Configuration]:
    """The configuration with these backends in each environment, the clean environment first.

    `own` are further fields; without options among them, the only option is the number of threads.
    """
    own.setdefault("options", {"threads": settings.threads})
    for label, environment in environment_variants(settings):
        name = labelled(runtime, *labels, label)
        yield Configuration(runtime=runtime, name=name, backends=backends, environment=environment, **own)


def chooser(placed: Configuration, name: str, options: Options) -> Configuration:
    """The configuration in which a runtime itself chooses among the devices of the configuration `placed`."""
    own = {"threads": placed.options["threads"], **options}
    return replace(placed, name=labelled(placed.runtime, name), backends=(name,), options=own, transfers=False)


def usual_configuration(runtime: str, *reported: str, precision: str = "float32") -> Configuration:
    """The configuration of a runtime that sets nothing; `precision` is the precision that the runtime then uses.

    `reported` are the loaded runtime's own names of its backends, as in `Configuration.reported`. The backend is not
    named after the runtime, so that its support of a model is determined separately.
    """
    return Configuration(
        runtime=runtime,
        name=labelled(runtime, "default"),
        backends=("default",),
        options={"usual": True},
        precision=precision,
        tolerance=TOLERANCE[precision],
        reported=dict.fromkeys(reported, "default"),
    )


def labelled(name: str, *labels: str) -> str:
    """A configuration's name: the runtime's name, with settings other than the defaults in brackets."""
    parts = [label for label in labels if label]
    return f"{name}[{','.join(parts)}]" if parts else name


TOLERANCE: Mapping[str, float] = {"float64": 1e-9, "float32": 1e-3, "float16": 2e-2, "bfloat16": 5e-2}
"""The largest allowed difference, relative to the reference's largest magnitude, for each precision.

If a million float64 numbers are added in another order, their sum is off by about 1e-10 at worst.
"""


_PROGRAM = '''"""{name} in its own API, as gnomon measured it: put your own arrays into `inputs`, and use `call`."""

import pathlib
import statistics
import time

import numpy

file = str(pathlib.Path(__file__).with_name({file!r}))
inputs = {{{inputs}}}
{lines}

calls = []
for _ in range(100):
    before = time.perf_counter(), time.process_time()
    call()
    calls.append((time.perf_counter() - before[0], time.process_time() - before[1]))
wall, cpu = (1e3 * statistics.median(times) for times in zip(*calls[10:]))
print(f"{{wall:.3f}} ms a call, {{cpu:.3f}} ms of CPU time")
'''
_DRAWN = frozenset({"float16", "float32", "float64"})
_KNOWN = _DRAWN | {"bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}


def program_of(
    runtime: Runtime, model: PlacedModel, configuration: Configuration, file: str, feeds: Mapping[str, Path]
) -> str | None:
    """The program for a model that runs whole in one configuration; None if its runtime has no program for this case.

    `file` is the model, which lies next to the program; `feeds` are files for inputs; other inputs are random.
    """
    written: Callable[[PlacedModel, Configuration], Sequence[str]] | None = getattr(runtime, "program", None)
    tensors = [model.graph.tensors[index] for index in (*model.graph.inputs, *model.graph.outputs)]
    if written is None or any(t.dtype not in _KNOWN or t.shape is None for t in tensors):
        return None
    arrays = {
        name: _array(t.shape or (), t.dtype, feeds.get(name)) for name, t in zip(model.inputs, tensors, strict=False)
    }
    inputs = ", ".join(f"{name!r}: {array}" for name, array in arrays.items())
    lines = "\n".join(written(model, configuration))
    return _PROGRAM.format(name=configuration.name, file=file, inputs=inputs, lines=lines) if lines else None


def _array(shape: tuple[int, ...], dtype: str, feed: Path | None) -> str:
    if feed is not None:
        return f"numpy.load({str(feed.absolute())!r})"
    if dtype in _DRAWN:
        return f"numpy.random.default_rng(0).standard_normal({shape}).astype({dtype!r})"
    return f"numpy.zeros({shape}, {dtype!r})"
