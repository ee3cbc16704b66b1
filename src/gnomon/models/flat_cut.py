"""Cutting a TFLite model into segments. See `gnomon.models.cut`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gnomon.core.graph import Graph
from gnomon.errors import ModelError
from gnomon.models.cut import Cutter
from gnomon.models.files import model_errors, read_regular
from gnomon.models.flat_graph import read_flat
from gnomon.models.flat_part import FlatSource
from gnomon.models.model import Limits
from gnomon.models.naming import unique_names


class FlatCutter(Cutter):
    """Cuts one TFLite model: weights are copied where they are read, with their quantisation.

    The names of `graph.tensors` are made unique, because a chain of segments knows its tensors by their names; those
    of the model's own inputs and outputs stay.
    """

    def __init__(self, path: Path | str, limits: Limits | None = None) -> None:
        """Reads the model. Raises ModelError, also where it has variables, control flow or further subgraphs."""
        limits = limits or Limits()
        with model_errors(path):
            data = read_regular(Path(path), limits.max_bytes)
            graph = read_flat(data, Path(path).stem).graph
            if graph.format != "tflite":
                raise ModelError(f"{graph.format} models cannot be cut", hint="ONNX and TFLite models can.")
            graph = _with_unique_names(graph)
            self._source = FlatSource(data, graph)
        super().__init__(graph)

    def write(self, nodes: Sequence[int], inputs: Sequence[int], outputs: Sequence[int], dest: Path) -> None:
        """Write the operators as a TFLite model; ModelError where the file has what gnomon cannot copy."""
        with model_errors(dest):
            made = self._source.part(nodes, inputs, outputs)
            temporary = dest.with_name(f".{dest.name}.{os.getpid()}")
            try:
                temporary.write_bytes(made)
                temporary.replace(dest)
            finally:
                temporary.unlink(missing_ok=True)


def _with_unique_names(graph: Graph) -> Graph:
    outer = list(dict.fromkeys((*graph.inputs, *graph.outputs)))
    own = [graph.tensors[t].name for t in outer]
    if len(set(own)) < len(own):
        raise ModelError(
            "the TFLite model cannot be cut: two of its inputs and outputs have one name",
            hint="name them apart when the model is exported",
        )
    order = [*outer, *(t for t in range(len(graph.tensors)) if t not in set(outer))]
    names = unique_names([graph.tensors[t].name for t in order], ["tensor"] * len(order))
    tensors = list(graph.tensors)
    for t, name in zip(order, names, strict=True):
        tensors[t] = replace(tensors[t], name=name)
    return replace(graph, tensors=tuple(tensors))
