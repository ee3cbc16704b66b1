"""A program of a few lines that calls a model in its runtime's own API, as it was measured: `use.py` of a package."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gnomon.runtimes.base import Configuration, PlacedModel, Runtime

_PROGRAM = '''"""{name} in its own API, as gnomon measured it: put your own arrays into `inputs`, and use `call`."""

import statistics
import time

import numpy

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
    """The program for a model that runs whole in one configuration; None where its runtime has none for that.

    `file` is the model beside the program; `feeds` are files of inputs, others are drawn.
    """
    written: Callable[[PlacedModel, Configuration, str], Sequence[str]] | None = getattr(runtime, "program", None)
    tensors = [model.graph.tensors[index] for index in (*model.graph.inputs, *model.graph.outputs)]
    if written is None or any(t.dtype not in _KNOWN or t.shape is None for t in tensors):
        return None
    arrays = {
        name: _array(t.shape or (), t.dtype, feeds.get(name)) for name, t in zip(model.inputs, tensors, strict=False)
    }
    inputs = ", ".join(f"{name!r}: {array}" for name, array in arrays.items())
    lines = written(model, configuration, file)
    return _PROGRAM.format(name=configuration.name, inputs=inputs, lines="\n".join(lines)) if lines else None


def _array(shape: tuple[int, ...], dtype: str, feed: Path | None) -> str:
    if feed is not None:
        return f"numpy.load({str(feed.absolute())!r})"
    if dtype in _DRAWN:
        return f"numpy.random.default_rng(0).standard_normal({shape}).astype({dtype!r})"
    return f"numpy.zeros({shape}, {dtype!r})"
