"""Models of files as jobs for this machine: what they are fed with, and what their segments are bound to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gnomon.core.graph import Graph
from gnomon.models.load import load
from gnomon.runtimes.base import PlacedModel
from gnomon.session.model import place_model


def placed_here(path: Path) -> PlacedModel:
    """The model of a file, on this machine."""
    model = load(path)
    return place_model(model, model.path, lambda local, name: str(local))


def bound(graph: Graph) -> dict[str, list[list[str]]]:
    """What a segment of the whole graph is bound to: each input and output to the tensor of its name."""
    ends = {"inputs": graph.inputs, "outputs": graph.outputs}
    return {end: [[graph.tensors[t].name] * 2 for t in tensors] for end, tensors in ends.items()}


def job_of(graph: Graph, *segments: Any, feeds: dict[str, Any] | None = None) -> dict[str, Any]:
    """A job from the inputs to the outputs of a graph."""
    tensors = [graph.tensors[t] for t in (*graph.inputs, *graph.outputs)]
    inputs = [graph.tensors[t].name for t in graph.inputs]
    return {
        "tensors": {t.name: {"shape": list(t.shape or ()), "dtype": t.dtype} for t in tensors},
        "feeds": {name: (feeds or {}).get(name, {}) for name in inputs},
        "outputs": [graph.tensors[t].name for t in graph.outputs],
        "seed": 0,
        "segments": list(segments),
    }
