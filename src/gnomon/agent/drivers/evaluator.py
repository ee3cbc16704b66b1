"""ONNX's own reference evaluator: it decides between runtimes that disagree. It is slow and never measured."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..arrays import Buffers, as_array, output_array
from ..driver import Loaded, Refused

if TYPE_CHECKING:
    from onnx import FunctionProto, GraphProto, ModelProto, OperatorSetIdProto

    from gnomon.wire import Segment

_MOST_BYTES = 4 << 30
"""The limit on the process's address space: a model that needs more is refused."""
_OPSET = 13
_CHANGED = {"Softmax": 13, "LogSoftmax": 13, "Hardmax": 13, "Resize": 11}
"""The first opset for which the evaluator's only implementation of each operator is correct. In earlier opsets, a
softmax covered all axes from its own axis on, flattened.
"""
_CONVERTED = {"Softmax", "LogSoftmax"}
"""The operators in `_CHANGED` that onnx converts correctly."""


class Evaluated(Loaded):
    """A model loaded by the evaluator, bound to the caller's arrays. It runs in Python and is not profiled."""

    def __init__(self, segment: Segment, buffers: Buffers) -> None:
        from onnx.reference import ReferenceEvaluator

        evaluator = ReferenceEvaluator(_as_evaluated(segment["model"]))
        names = [name for name, _ in segment["outputs"]]

        def call() -> None:
            values = evaluator.run(names, {name: buffers[tensor] for name, tensor in segment["inputs"]})
            for (_, tensor), value in zip(segment["outputs"], values, strict=True):
                array = as_array(value)
                np.copyto(output_array(buffers, tensor, array.shape, array.dtype.name), array)

        self.call: Callable[[], object] = call


def _as_evaluated(path: str) -> ModelProto:
    """The model; if the meaning of an operator has changed since its opset, the model is converted to an opset that the
    evaluator knows.

    Refused if the conversion is not possible.
    """
    import onnx

    model = onnx.load(path)
    changed = _changed(model.graph, model.opset_import)
    unknown = changed - _CONVERTED
    for function in model.functions:  # onnx does not convert functions
        unknown |= _changed(function, function.opset_import)
    if unknown:
        raise Refused(f"ONNX's reference evaluator cannot run {' and '.join(sorted(unknown))} in an opset this old")
    return onnx.version_converter.convert_version(model, _OPSET) if changed else model


def _changed(graph: GraphProto | FunctionProto, opsets: Iterable[OperatorSetIdProto]) -> set[str]:
    """The operators whose meaning in a graph's opset differs from the one that the evaluator implements."""
    version = next((opset.version for opset in opsets if opset.domain in ("", "ai.onnx")), _OPSET)
    return {name for name in _operators(graph) if version < _CHANGED.get(name, 0)}


def _operators(graph: GraphProto | FunctionProto) -> Iterator[str]:
    for node in graph.node:
        yield node.op_type
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _operators(inner)


class EvaluatorDriver:
    """The onnx package's evaluator. It only loads models: it is not probed, and nothing is placed on it."""

    def load(self, segment: Segment, buffers: Buffers, *, profiled: bool) -> Loaded:
        """Load a model, with a limit on the memory of this process."""
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        most = _MOST_BYTES if hard == resource.RLIM_INFINITY else min(hard, _MOST_BYTES)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
        return Evaluated(segment, buffers)
