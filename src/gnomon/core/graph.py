"""A model as placement sees it: operators, tensors, and who feeds whom."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gnomon.core.brief import brief


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A value that flows between operators, or a constant.

    `shape` has -1 for a dimension that the file does not fix, and is None where the rank is unknown.
    `dtype` is the numpy name ("float32", "int8", "bfloat16", "string", ..). `size_bytes` is None where the
    shape is not fixed.
    """

    name: str
    shape: tuple[int, ...] | None
    dtype: str
    size_bytes: int | None
    constant: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator of a model.

    `index` is its place in the file, which is also how runtimes number it. `name` is unique in the graph.
    `type` is the file format's own name of the operator ("Conv", "CONV_2D"). `inputs` and `outputs` are
    indices into `Graph.tensors`; absent optional inputs are left out. `macs` is the number of
    multiply-accumulates of one inference, 0 for operators that have none, None where the shapes are not fixed.
    """

    index: int
    name: str
    type: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    macs: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A tensor that one operator writes and another reads."""

    producer: int
    consumer: int
    tensor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A model: operators in execution order, and their tensors.

    `format` is "onnx", "tflite" or "circle"; `digest` is the SHA-256 of what was read; `inputs` and `outputs`
    are indices into `tensors`.
    """

    name: str
    format: str
    digest: str
    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    __repr__ = brief

    def edges(self) -> Iterator[Edge]:
        """Each (producer, consumer, tensor) once, in order of the consumer."""
        producer = {t: op.index for op in self.operators for t in op.outputs}
        for op in self.operators:
            for tensor in dict.fromkeys(op.inputs):
                if tensor in producer:
                    yield Edge(producer=producer[tensor], consumer=op.index, tensor=tensor)

    @property
    def macs(self) -> int | None:
        """Multiply-accumulates of one inference, or None where some operator's are unknown."""
        total = 0
        for op in self.operators:
            if op.macs is None:
                return None
            total += op.macs
        return total
