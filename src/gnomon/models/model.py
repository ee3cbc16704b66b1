"""The records of the models room: a loaded model, its package, and the limits of reading."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gnomon.core.graph import Graph, Tensor
from gnomon.formats.config_cfg import ConfigCfg
from gnomon.formats.manifest import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a reader takes before it refuses a file.

    `max_bytes` bounds each file, `max_memory_bytes` what parsing one may allocate, `max_infer_s` the time of
    inferring an ONNX model's shapes.
    """

    max_bytes: int = 8 << 30
    max_memory_bytes: int = 8 << 30
    max_infer_s: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NnPackage:
    """An nnpackage folder: its manifest, its first config (the only one that onert reads), its model files.

    `config_name` is the config's file name in ``metadata/``, None where the manifest names none.
    """

    folder: Path
    manifest: Manifest
    config: ConfigCfg
    config_name: str | None
    models: tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model that was read. `path` is what was given; `kind` is "onnx", "tflite", "circle" or "nnpackage".

    `package` is set for an nnpackage, whose model file's format is `graph.format`. `size_bytes` is the size
    of the model's file, with its external data; `subgraphs` counts the graphs in a TFLite or Circle file, of
    which `graph` is the first.
    """

    path: Path
    graph: Graph
    kind: str
    package: NnPackage | None
    size_bytes: int
    subgraphs: int = 1


def is_known(tensor: Tensor) -> bool:
    """Whether a tensor's shape is."""
    return tensor.shape is not None and -1 not in tensor.shape


def all_known(graph: Graph) -> bool:
    """Whether the shape of every tensor is known that operators of the graph pass on."""
    return all(is_known(graph.tensors[index]) for operator in graph.operators for index in operator.outputs)


def dynamic_inputs(graph: Graph) -> tuple[Tensor, ...]:
    """The graph's inputs whose shape the file does not fix, in the graph's order."""
    inputs = (graph.tensors[index] for index in graph.inputs)
    return tuple(tensor for tensor in inputs if not is_known(tensor))
