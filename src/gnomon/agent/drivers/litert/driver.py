"""LiteRT on the device: TFLite models run by XNNPACK, by LiteRT's builtin or reference kernels, or on a GPU.

Two of the package's ways to run a model are used, because neither does everything. The C API of compiled models binds
the job's buffers in place and has a profiler. But (as of 2.3.0) it has no reference kernels and silently runs the
builtin kernels instead, gives these only one thread, and refuses models whose output shapes depend on input values. The
classic interpreter supports all of this but has no profiler, so a profiled load reports only the time of the whole
graph, not of operators. The same is true of a GPU, which the C API reaches through the package's accelerator for
WebGPU, and which takes only whole models. Even with a GPU, the job's buffers are in the CPU's memory, so a call copies
the inputs to the GPU, waits, and fetches the outputs.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from ...another import answer_of, run_function, tell
from ...arrays import Array, Buffers, make_buffers, output_array
from ...driver import Loaded, Refused, closed, undoing
from ...lifeline import die_with_parent
from .c_api import GPU, CompiledModel, check_fixed, check_tensor, load_library, version
from .kernels import DELEGATE_KERNEL, OPERATOR, Event, on_builtin, rows

if TYPE_CHECKING:
    from gnomon.wire import Answer, KernelTimes, Place, ProbeAnswer, RuntimeModel, Segment, Tensor


_NOTHING = "XNNPACK supports no operator of this model, so the whole model would run on the builtin kernels"
_TRIAL_S = 60.0
#: A TFLite model of one ReLU, used to learn the GPU's name: LiteRT reports it when compiling a model for the GPU.
_RELU = (
    "CAAAAFRGTDO+////FAAAACAAAAAsAAAA9AAAAAMAAAABAAAACAAAAAQABAAEAAAACgAAAGdub21vbiB6b28AAAEAAAAUAAAAAAAOABgAFAAQAAwACAAE"
    "AA4AAAAUAAAAHAAAAEgAAABMAAAAUAAAAAQAAABtYWluAAAAAAEAAAAQAAAAAAAKAAwAAAAIAAQACgAAAAgAAAAMAAAAAQAAAAEAAAABAAAAAAAAAAEA"
    "AAABAAAAAQAAAAAAAAACAAAAMAAAAAQAAADk////CAAAAAwAAAABAAAAYgAAAAEAAAABAAAADAAMAAgAAAAAAAQADAAAAAgAAAAMAAAAAQAAAGEAAAAB"
    "AAAAAQAAAAEAAAAQAAAADAAMAAsAAAAAAAQADAAAABMAAAAAAAAT"
)


class LiteRtModel:
    """A model compiled by LiteRT for XNNPACK, the builtin kernels or a GPU, bound to the caller's arrays."""

    def __init__(self, segment: Segment, buffers: Buffers, *, profiled: bool) -> None:
        self._path = segment["model"]
        self._mode, threads = kernels_of(segment), threads_of(segment)
        self._profiler = profiled and self._mode != GPU
        self._shapes = [buffers[name].shape for _, name in segment["inputs"]]
        self._model = _compiled(segment, self._shapes, threads=threads, profiled=self._profiler)
        self._keep = buffers
        with undoing(self.close):
            self._codes = self._model.operator_codes()
            types = zip(segment["outputs"], self._model.tensor_types("Output"), strict=True)
            outputs = [output_array(buffers, name, shape, dtype) for (_, name), (dtype, shape) in types]
            run = self._model.bind([buffers[name] for _, name in segment["inputs"]], outputs)
        self._wall_ns: list[int] = []
        self._elapsed_us: list[Array] = []
        self._events: list[Event] = []
        self.call: Callable[[], object] = self._recorded(run) if profiled else run

    def _recorded(self, run: Callable[[], None]) -> Callable[[], None]:
        clock = time.perf_counter_ns

        def call() -> None:
            if self._profiler:
                self._model.start_profiler()
            before = clock()
            run()
            self._wall_ns.append(clock() - before)
            recorded = self._model.events() if self._profiler else None
            if recorded is None:
                return
            events, elapsed_us = recorded
            # LiteRT's work around the kernels differs between calls (the first call plans memory).
            kept = [event.type in (OPERATOR, DELEGATE_KERNEL) for event in events]
            self._events = self._events or list(compress(events, kept))
            self._elapsed_us.append(elapsed_us[kept])

        return call

    def where(self) -> list[Place]:
        """The operators that XNNPACK took and those left to the builtin kernels, or the GPU that took all.

        For a GPU, the place also has its name and, if LiteRT reports it, the GPU memory that the model uses.
        """
        everything = list(range(len(self._codes)))
        if self._model.adapter is not None:
            place: Place = {"operators": everything, "backend": GPU, "device": self._model.adapter["name"]}
            with contextlib.suppress(Refused, AttributeError):  # an older LiteRT does not report it
                place["device_memory_bytes"] = self._model.device_memory_bytes()
            return [place]
        if self._mode == "builtin":
            return [{"operators": everything, "backend": "builtin"}]
        if self._model.fully_delegated():
            return [{"operators": everything, "backend": "xnnpack"}]
        # The answer comes from a separate process, because the profiler's memory must not count as the model's.
        left = _told_by_another_process("tell_left", self._path, json.dumps(self._shapes))
        if left is None:
            return [{"operators": everything, "backend": "unknown"}]
        if len(left) == len(everything):
            return [{"operators": everything, "backend": NOTHING_TAKEN}]
        taken = [i for i in everything if i not in left]
        return [{"operators": taken, "backend": "xnnpack"}, {"operators": sorted(left), "backend": "builtin"}]

    def operators(self, skip: int) -> list[KernelTimes]:
        """Times of each kernel (in whole microseconds), including XNNPACK's own kernels.

        There is a single row for the whole graph if the profiler's events cannot be matched to its operators.
        """
        calls = self._elapsed_us[skip:]
        alike = len(self._elapsed_us) == len(self._wall_ns) and {len(us) for us in calls} == {len(self._events)}
        by_kernel = rows(self._events, self._codes, np.asarray(calls)) if self._events and alike else None
        self.close()
        return whole_graph(self._mode, len(self._codes), self._wall_ns[skip:]) if by_kernel is None else by_kernel

    def close(self) -> None:
        """Destroy the model before the arrays that it reads."""
        self.call = closed
        self._model.close()


def _compiled(segment: RuntimeModel, shapes: Sequence[Sequence[int]], *, threads: int, profiled: bool) -> CompiledModel:
    """The segment's model, compiled for inputs of these shapes; Refused if it would run on a GPU other than the
    requested one.
    """
    options = segment.get("options", {})
    if options.get("interpreted"):
        raise Refused("LiteRT cannot run a model with an open output shape on a GPU")
    model = CompiledModel(
        segment["model"],
        kernels=kernels_of(segment),
        threads=threads,
        profiled=profiled,
        precision=str(options.get("precision", "float32")),
        shapes=shapes,
    )
    wanted = options.get("adapter")
    if model.adapter is not None and wanted not in (None, model.adapter["name"]):
        model.close()
        raise Refused(f"LiteRT computes on {model.adapter['name']} here instead of the requested {wanted}")
    return model


def _interpreted(segment: RuntimeModel) -> bool:
    """Return True if only the classic interpreter can run the model as the job asks: see the module's docstring.

    The job's options say whether the shape of an output is open.
    """
    if segment.get("options", {}).get("usual"):
        return True
    if kernels_of(segment) == GPU:
        return False
    several = kernels_of(segment) == "builtin" and threads_of(segment) > 1
    return several or kernels_of(segment) == "reference" or bool(segment.get("options", {}).get("interpreted"))


def _on_zeros(model: CompiledModel) -> Callable[[], None]:
    """A function that runs the model on zeros; Refused if the model leaves a shape open."""
    arrays = []
    for kind in ("Input", "Output"):
        types = model.tensor_types(kind)
        for number, (_, shape) in enumerate(types):
            check_fixed(f"{kind.lower()} {number}", shape)
        tensors: dict[str, Tensor] = {
            str(k): {"shape": shape, "dtype": dtype} for k, (dtype, shape) in enumerate(types)
        }
        arrays.append([*make_buffers(tensors).values()])
    return model.bind(arrays[0], arrays[1])


def _told_shapes(segment: RuntimeModel) -> list[list[int]]:
    """The option `shapes`: the shapes of the inputs, in order."""
    return list(segment.get("options", {}).get("shapes", {}).values())


def left_to_builtin(path: str, kernels: str, shapes: Sequence[Sequence[int]] = ()) -> tuple[frozenset[int] | None, int]:
    """The operators that builtin kernels run (None if unknown), and the number of all operators.

    They are found by a profiled run of the model at `path` on zeros, because LiteRT notices missing kernels only during
    a run.
    """
    model = CompiledModel(path, kernels=kernels, threads=1, profiled=True, shapes=shapes)
    try:
        count = len(model.operator_codes())
        run = _on_zeros(model)
        model.start_profiler()
        run()
        events = model.events()
        run()  # an output whose size is determined in the first call has no memory for the second
    finally:
        model.close()
    return (None if events is None else on_builtin(events[0], count)), count


def tell_left(path: str, shapes: str) -> None:
    """Print, as a line of JSON, the operators that XNNPACK leaves to builtin kernels. Runs in a process of its own."""
    die_with_parent()
    left, _ = left_to_builtin(path, "xnnpack", json.loads(shapes))
    tell(None if left is None else sorted(left))


def tell_adapter() -> None:
    """Print, as a line of JSON, the GPU that LiteRT computes on, or why it finds none. Runs in a process of its own."""
    die_with_parent()
    with tempfile.TemporaryFile() as log, tempfile.NamedTemporaryFile(suffix=".tflite") as file:
        os.dup2(log.fileno(), 2)  # LiteRT names the device only in its log, which is read from a file
        file.write(base64.b64decode(_RELU))
        file.flush()
        try:
            adapter = CompiledModel(file.name, kernels=GPU, threads=1, profiled=False).adapter
            answer: Any = adapter or {"why": "LiteRT does not report which GPU it uses"}
        except Refused as error:
            answer = {"why": str(error)}
    tell(answer)
    os._exit(0)  # a driver's exit handlers may crash or hang after the answer has been printed


def _adapter_here() -> Any:
    """The GPU's name and whether it is a program on the CPU, or the reason why no GPU was found.

    A separate process finds this out, because graphics drivers may crash, and LiteRT works on the CPU without them.
    """
    if sys.platform == "linux":
        try:
            ctypes.CDLL("libvulkan.so.1")
        except OSError:
            return {"why": "there is no Vulkan loader (libvulkan.so.1), which LiteRT needs to reach a GPU"}
    return _told_by_another_process("tell_adapter") or {"why": "LiteRT crashed or hung while it looked for a GPU"}


def _told_by_another_process(function: str, *arguments: str) -> Any:
    """The JSON that a function of this module prints in a fresh process; None if the process ends without an answer."""
    try:
        return answer_of(run_function(__name__, function, *arguments, timeout_s=_TRIAL_S))
    except (OSError, subprocess.TimeoutExpired):
        return None


def _by_interpreter(segment: RuntimeModel) -> Answer:
    """Run the model on zeros with the classic interpreter; Refused if it fails."""
    interpreter = open_interpreter(segment)
    asked = not segment.get("options", {}).get("usual")
    resized(interpreter, [tuple(shape) for shape in _told_shapes(segment)])
    if asked and kernels_of(segment) == "xnnpack" and not delegated(interpreter):
        raise Refused(_NOTHING)
    try:
        interpreter.invoke()
    except (ValueError, RuntimeError) as error:
        raise Refused(f"LiteRT: {error}") from error
    return {"whole": True}


class LiteRtDriver:
    """LiteRT's part of the agent."""

    def probe(self) -> ProbeAnswer:
        """The version, the kinds of kernels, and either the GPU (`devices`) or why it is missing (`lacking`)."""
        load_library()
        answer: ProbeAnswer = {"version": version(), "backends": list(MODES)}
        gpu = _adapter_here()
        if "why" in gpu:
            return {**answer, "lacking": {GPU: gpu["why"]}}
        return {**answer, "backends": [*MODES, GPU], "devices": [gpu]}

    def load(self, segment: Segment, buffers: Buffers, *, profiled: bool) -> Loaded:
        """Load a segment; options are threads, kernels (one of MODES, or "gpu") and interpreted (use the classic
        interpreter); for a GPU also precision and adapter (the name of the required device).
        """
        if _interpreted(segment):
            return LiteRtInterpreter(segment, buffers)
        return LiteRtModel(segment, buffers, profiled=profiled)

    def supports(self, segment: RuntimeModel) -> Answer:
        """Check that the kernels take the whole model: ``{"whole": true}``, or Refused with the reason.

        For XNNPACK, the answer also has `builtin`, the operators that it leaves to the builtin kernels (null if
        unknown); a model is refused if XNNPACK takes none of its operators. `options` has `interpreted` if only the
        classic interpreter runs the model.
        """
        mode = kernels_of(segment)
        if mode == GPU:
            model = _compiled(segment, _told_shapes(segment), threads=threads_of(segment), profiled=False)
            try:
                _on_zeros(model)()
            finally:
                model.close()
            return {"whole": True}
        if _interpreted(segment):
            needs = {"options": {"interpreted": True}} if segment.get("options", {}).get("interpreted") else {}
            return {**_by_interpreter(segment), **needs}
        try:
            left, count = left_to_builtin(segment["model"], mode, _told_shapes(segment))
        except Refused as error:  # a compiled model has no memory for outputs whose size is found only while computing
            return {**_by_interpreter(segment), "options": {"interpreted": True}, "compiled": str(error)}
        if mode == "builtin":
            return {"whole": True}
        if left is not None and len(left) == count:
            raise Refused(_NOTHING)
        return {"whole": True, "builtin": None if left is None else sorted(left)}


MODES = ("xnnpack", "builtin", "reference")
#: The backend that is reported if a model was loaded for XNNPACK but the delegate took no operator; no configuration
#: expects it.
NOTHING_TAKEN = "builtin in place of xnnpack"


class LiteRtInterpreter(Loaded):
    """A model loaded by the classic interpreter; the caller's arrays are copied."""

    def __init__(self, segment: Segment, buffers: Buffers) -> None:
        self._mode = kernels_of(segment)
        self._interpreter = open_interpreter(segment)
        # There is no public way to count the operators. A delegate is listed after the operators of the file.
        self._count = sum("DELEGATE" not in op["op_name"].upper() for op in self._interpreter._get_ops_details())
        self._wall_ns: list[int] = []
        given = {name: buffers[buffer].shape for name, buffer in segment["inputs"]}
        resized(self._interpreter, list(given.values()))
        inputs = self._bound("input", self._interpreter.get_input_details(), segment["inputs"], buffers)
        outputs = self._bound("output", self._interpreter.get_output_details(), segment["outputs"], buffers)
        unshaped = [
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
            for index, name in unshaped:
                buffers[name] = interpreter.get_tensor(index)
            self._wall_ns.append(clock() - before)

        self.call: Callable[[], object] = call

    @staticmethod
    def _bound(kind: str, details: Any, wanted: list[list[str]], buffers: Buffers) -> list[tuple[int, Array]]:
        if len(details) != len(wanted):
            raise Refused(f"LiteRT: {kind}s in the model: {len(details)}, in the job: {len(wanted)}")
        bound = []
        for number, (detail, (_, name)) in enumerate(zip(details, wanted, strict=True)):
            if name not in buffers:
                continue
            shape = tuple(int(n) for n in detail["shape"])
            check_tensor(f"{kind} {number}", buffers[name], np.dtype(detail["dtype"]).name, shape)
            bound.append((detail["index"], buffers[name]))
        return bound

    def where(self) -> list[Place]:
        """All operators on the chosen kind of kernels; with XNNPACK, operators that the delegate left to other kernels
        are not reported.
        """
        taken = self._mode != "xnnpack" or delegated(self._interpreter)
        return [{"operators": list(range(self._count)), "backend": self._mode if taken else NOTHING_TAKEN}]

    def operators(self, skip: int) -> list[KernelTimes]:
        """A single row for the whole graph, as the interpreter has no profiler."""
        rows = whole_graph(self._mode, self._count, self._wall_ns[skip:])
        self.close()
        return rows


def resized(interpreter: Any, shapes: Sequence[tuple[int, ...]]) -> None:
    """Set the inputs whose shapes the file leaves open to the shapes that they will get."""
    changed = False
    for detail, shape in zip(interpreter.get_input_details(), shapes, strict=False):
        if -1 in detail["shape_signature"] and tuple(int(n) for n in detail["shape"]) != shape:
            interpreter.resize_tensor_input(detail["index"], list(shape), strict=True)
            changed = True
    if changed:
        interpreter.allocate_tensors()


def delegated(interpreter: Any) -> bool:
    """Return True if a delegate took part of the graph."""
    return any("DELEGATE" in op["op_name"].upper() for op in interpreter._get_ops_details())


def whole_graph(backend: str, count: int, wall_ns: list[int]) -> list[KernelTimes]:
    """The single row of a graph whose operators cannot be timed separately."""
    return [{"name": "whole graph", "sources": list(range(count)), "backend": backend, "wall_ns": wall_ns}]


def kernels_of(segment: RuntimeModel) -> str:
    """The kind of kernels that a segment asks for; Refused for an unknown kind."""
    mode = str(segment.get("options", {}).get("kernels", "xnnpack"))
    if mode not in (*MODES, GPU):
        raise Refused(f"LiteRT has no {mode!r} kernels; it has {', '.join(MODES)} and {GPU}")
    return mode


def threads_of(segment: RuntimeModel) -> int:
    """The number of threads that a segment asks for."""
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
        opened = package.Interpreter(model_path=segment["model"], **({} if usual else chosen))
        opened.allocate_tensors()
    except (ValueError, RuntimeError) as error:
        raise Refused(f"LiteRT: {error}") from error
    return opened
