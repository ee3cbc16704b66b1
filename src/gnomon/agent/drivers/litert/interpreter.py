"""TFLite models by the classic interpreter of the package ai-edge-litert, which has no profiler."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arrays import Array, Buffers
from ...driver import Refused, closed
from .c_api import GPU, check_tensor

if TYPE_CHECKING:
    from gnomon.wire import KernelTimes, Place, RuntimeModel, Segment

MODES = ("xnnpack", "builtin", "reference")
#: What a load by XNNPACK reports where the delegate took no operator; no configuration expects it.
NOTHING_TAKEN = "builtin in place of xnnpack"


class LiteRtInterpreter:
    """A model loaded by the classic interpreter; the caller's arrays are copied."""

    def __init__(self, segment: Segment, buffers: Buffers) -> None:
        self._mode = kernels_of(segment)
        self._interpreter = open_interpreter(segment)
        # There is no public way. A delegate is listed behind the operators of the file that it takes.
        self._count = sum("DELEGATE" not in op["op_name"].upper() for op in self._interpreter._get_ops_details())
        self._wall_ns: list[int] = []
        given = {name: buffers[buffer].shape for name, buffer in segment["inputs"]}
        resized(self._interpreter, list(given.values()))
        inputs = self._bound("input", self._interpreter.get_input_details(), segment["inputs"], buffers)
        outputs = self._bound("output", self._interpreter.get_output_details(), segment["outputs"], buffers)
        made = [
            (detail["index"], buffer)
            for detail, (_, buffer) in zip(self._interpreter.get_output_details(), segment["outputs"], strict=True)
            if buffer not in buffers
        ]
        interpreter, copy, clock = self._interpreter, np.copyto, time.perf_counter_ns

        def call() -> None:
            before = clock()
            for index, array in inputs:
                copy(interpreter.tensor(index)(), array)
            interpreter.invoke()
            for index, array in outputs:
                copy(array, interpreter.tensor(index)())
            for index, name in made:
                buffers[name] = interpreter.get_tensor(index)
            self._wall_ns.append(clock() - before)

        self.call: Callable[[], object] = call

    @staticmethod
    def _bound(kind: str, details: Any, wanted: list[list[str]], buffers: Buffers) -> list[tuple[int, Array]]:
        if len(details) != len(wanted):
            raise Refused(f"LiteRT: the model has {len(details)} {kind}s, the job {len(wanted)}")
        found = []
        for number, (detail, (_, name)) in enumerate(zip(details, wanted, strict=True)):
            if name not in buffers:
                continue
            shape = tuple(int(n) for n in detail["shape"])
            check_tensor(f"{kind} {number}", buffers[name], np.dtype(detail["dtype"]).name, shape)
            found.append((detail["index"], buffers[name]))
        return found

    def where(self) -> list[Place]:
        """All of it on the one kind of kernels; with XNNPACK, what the delegate left is not reported."""
        taken = self._mode != "xnnpack" or delegated(self._interpreter)
        return [{"operators": list(range(self._count)), "backend": self._mode if taken else NOTHING_TAKEN}]

    def operators(self, skip: int) -> list[KernelTimes]:
        """One row of the whole graph: the interpreter has no profiler."""
        self.close()
        return whole_graph(self._mode, self._count, self._wall_ns[skip:])

    def close(self) -> None:
        """Drop the interpreter."""
        self.call = closed
        self._interpreter = None


def resized(interpreter: Any, shapes: Sequence[tuple[int, ...]]) -> None:
    """Fix the inputs that the file leaves open to the shapes that they will be fed with."""
    changed = False
    for detail, shape in zip(interpreter.get_input_details(), shapes, strict=False):
        if -1 in detail["shape_signature"] and tuple(int(n) for n in detail["shape"]) != shape:
            interpreter.resize_tensor_input(detail["index"], list(shape), strict=True)
            changed = True
    if changed:
        interpreter.allocate_tensors()


def delegated(interpreter: Any) -> bool:
    """Whether a delegate took a part of the graph."""
    return any("DELEGATE" in op["op_name"].upper() for op in interpreter._get_ops_details())


def whole_graph(backend: str, count: int, wall_ns: list[int]) -> list[KernelTimes]:
    """The one row of a graph whose operators cannot be told apart."""
    return [{"name": "whole graph", "sources": list(range(count)), "backend": backend, "wall_ns": wall_ns}]


def kernels_of(segment: RuntimeModel) -> str:
    """The kind of kernels that a segment asks for; Refused where there is none such."""
    mode = str(segment.get("options", {}).get("kernels", "xnnpack"))
    if mode not in (*MODES, GPU):
        raise Refused(f"LiteRT has no kernels {mode!r}; it has {', '.join(MODES)} and {GPU}")
    return mode


def threads_of(segment: RuntimeModel) -> int:
    """How many threads a segment asks for."""
    return int(segment.get("options", {}).get("threads", 1))


def open_interpreter(segment: RuntimeModel) -> Any:
    """The classic interpreter, ready to run."""
    from ai_edge_litert import interpreter as package

    kinds = package.OpResolverType
    kernels = {
        "xnnpack": kinds.BUILTIN,
        "builtin": kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        "reference": kinds.BUILTIN_REF,
    }
    usual = segment.get("options", {}).get("usual")
    chosen = {"num_threads": threads_of(segment), "experimental_op_resolver_type": kernels[kernels_of(segment)]}
    try:
        made = package.Interpreter(model_path=segment["model"], **({} if usual else chosen))
        made.allocate_tensors()
    except (ValueError, RuntimeError) as error:
        raise Refused(f"LiteRT: {error}") from error
    return made
