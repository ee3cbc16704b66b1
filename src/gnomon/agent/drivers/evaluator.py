"""ONNX's own reference evaluator: it decides between runtimes that disagree, slowly, and is never measured."""

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
"""Address space of the process: what a model takes beyond it is refused."""
_OPSET = 13
_CHANGED = {"Softmax": 13, "LogSoftmax": 13, "Hardmax": 13, "Resize": 11}
"""The opset since which the evaluator's only implementation of an operator is right: before, softmax was of all axes
from its own on, flattened."""
_CONVERTED = {"Softmax", "LogSoftmax"}
"""Those of them that onnx converts rightly."""


class Evaluated(Loaded):
    """A model that the evaluator holds, bound to the caller's arrays. It is Python, and not profiled."""

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
    """The model; where an operator of it meant something else once, in an opset that the evaluator knows.

    Refused where that cannot be made.
    """
    import onnx

    model = onnx.load(path)
    changed = _changed(model.graph, model.opset_import)
    unknown = changed - _CONVERTED
    for function in model.functions:  # which onnx does not convert
        unknown |= _changed(function, function.opset_import)
    if unknown:
        raise Refused(f"the evaluator does not know {' and '.join(sorted(unknown))} of so old an opset")
    return onnx.version_converter.convert_version(model, _OPSET) if changed else model


def _changed(graph: GraphProto | FunctionProto, opsets: Iterable[OperatorSetIdProto]) -> set[str]:
    """The operators that meant something else in this opset."""
    version = next((opset.version for opset in opsets if opset.domain in ("", "ai.onnx")), _OPSET)
    return {name for name in _operators(graph) if version < _CHANGED.get(name, 0)}


def _operators(graph: GraphProto | FunctionProto) -> Iterator[str]:
    for node in graph.node:
        yield node.op_type
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _operators(inner)


class EvaluatorDriver:
    """The evaluator of the package onnx. It loads a model: nobody asks what it has, or places anything on it."""

    def load(self, segment: Segment, buffers: Buffers, *, profiled: bool) -> Loaded:
        """Load a model, with a limit on the memory of this process."""
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        most = _MOST_BYTES if hard == resource.RLIM_INFINITY else min(hard, _MOST_BYTES)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
        return Evaluated(segment, buffers)
