"""LiteRT through its C API (``libLiteRt.so`` in the package ai-edge-litert): zero-copy buffers and the profiler.

The package's Python classes offer neither, and they also load an accelerator for WebGPU into the process. The functions
are those declared in ``litert/c/*.h`` in https://github.com/google-ai-edge/LiteRT, versions 2.1.6 to 2.3.0; earlier
versions expect settings in another format.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arrays import Array
from ...driver import Refused, undoing
from ...installed import installed
from ...said import lines_since, printed
from .kernels import Event

if TYPE_CHECKING:
    from gnomon.wire import DeviceFound

_OLDEST = (2, 1, 6)
_STATUS = {
    1: "invalid argument",
    2: "out of memory",
    3: "runtime failure",
    5: "not supported",
    6: "not found",
    8: "wrong version",
    500: "file error",
    501: "invalid model file",
    504: "compilation failed",
}
#: The numpy dtype of each LiteRtElementType.
_DTYPES = {
    1: "float32",
    2: "int32",
    3: "uint8",
    4: "int64",
    6: "bool",
    7: "int16",
    8: "complex64",
    9: "int8",
    10: "float16",
    11: "float64",
    13: "uint64",
    16: "uint32",
    17: "uint16",
}
_CPU, _GPU = 1, 2  # kLiteRtHwAcceleratorCpu, kLiteRtHwAcceleratorGpu
_LIBRARY_FOLDER, _STRING = 22, 8  # kLiteRtEnvOptionTagRuntimeLibraryDir, kLiteRtAnyTypeString
_PRECISIONS = {"float16": 1, "float32": 2}  # LiteRtDelegatePrecision
_STDERR = 1  # kLiteRtErrorReporterModeStderr

#: ProfiledEventData of litert_profiler_event.h; the memory use comes between the times and the metadata.
EVENT = np.dtype(
    {
        "names": ["tag", "type", "elapsed_us", "index", "subgraph"],
        "formats": ["u8", "i4", "u8", "i8", "i8"],
        "offsets": [0, 8, 24, 80, 88],
        "itemsize": 104,
    }
)


class _Layout(ctypes.Structure):
    _fields_ = (("rank", ctypes.c_uint32), ("dims", ctypes.c_int32 * 8), ("strides", ctypes.c_uint32 * 8))


def _dims(layout: _Layout) -> tuple[int, ...]:
    rank = layout.rank & 0x7F  # the highest bit of the byte says whether there are strides
    return tuple(layout.dims[:rank])


class _TensorType(ctypes.Structure):
    _fields_ = (("element", ctypes.c_int), ("layout", _Layout))


class _Text(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("value", ctypes.c_char_p))


class _EnvironmentOption(ctypes.Structure):
    _fields_ = (("tag", ctypes.c_int), ("value", _Text))


class _Metric(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("type", ctypes.c_int), ("value", ctypes.c_int64))


GPU = "gpu"
#: The beginnings of log lines that do not continue the previous line.
_NEXT = re.compile(r"[A-Z]+: |[IWEF]\d{4} |=== |error: ")
_SELECTED = re.compile(r"Selected adapter: (?P<name>.*?), arch=.*adapterType=(?P<type>.*)")


def package_folder() -> Path:
    """The folder of the package ai_edge_litert; ImportError if it is not installed."""
    spec = importlib.util.find_spec("ai_edge_litert")
    if spec is None or spec.origin is None:
        raise ImportError("ai-edge-litert is not installed")
    return Path(spec.origin).parent


def version() -> str:
    """The installed version; "unknown" if the package does not report it."""
    return installed(["ai-edge-litert"]).get("ai-edge-litert", "unknown")


def load_library() -> ctypes.CDLL:
    """The C library; Refused if the package lacks it or is so old that it would misread the settings."""
    path, own = package_folder() / "libLiteRt.so", version()
    numbers = tuple(int(n) for n in re.findall(r"\d+", own)[:3])
    if not path.exists() or (numbers and numbers < _OLDEST):
        wanted = ".".join(map(str, _OLDEST))
        raise Refused(f"ai-edge-litert {own} is too old for gnomon, which needs {wanted} or later")
    return ctypes.CDLL(str(path))


class CompiledModel:
    """A compiled TFLite model; `kernels` is "xnnpack" (the delegate, with builtin kernels for the rest), "builtin", or
    "gpu".

    On the GPU, LiteRT runs all operators or none: nothing is silently left to the CPU. In that case, `adapter` is the
    GPU, which computes in `precision`, float32 or float16. The profiler is not used on a GPU, because it fails on
    devices without a suitable clock. Only the first subgraph is run. Inputs get `shapes`, in order, if the file has
    other shapes. Every failed call raises Refused with LiteRT's output about the failure.
    """

    def __init__(
        self,
        path: str,
        *,
        kernels: str,
        threads: int,
        profiled: bool,
        precision: str = "float32",
        shapes: Sequence[Sequence[int]] = (),
    ) -> None:
        self._library = load_library()
        self._handles: list[tuple[str, ctypes.c_void_p]] = []
        self._used: list[Array] = []  # arrays whose memory LiteRT reads and writes
        self._sizes: dict[str, list[tuple[int, ...]]] = {}  # shapes of inputs and outputs that differ from the file's
        self.adapter: DeviceFound | None = None
        begun, on_gpu = printed(), kernels == GPU
        with undoing(self.close):
            environment = self._make("Environment", *_environment_options(on_gpu=on_gpu))
            self._model = self._make("ModelFromFile", environment, os.fsencode(path), destroy="Model")
            self._subgraph = self._out("LiteRtGetModelSubgraph", self._model, ctypes.c_size_t(0))
            options = self._make("Options")
            self._call("LiteRtSetOptionsHardwareAccelerators", options, ctypes.c_int(_GPU if on_gpu else _CPU))
            if on_gpu:
                self._option(options, b"gpu_options", f"precision = {_PRECISIONS[precision]}\n")
            else:
                self._option(options, b"xnnpack", f'kernel_mode = "{kernels}"\nnum_threads = {threads}\n')
            profiling = f"enable_profiling = {str(profiled).lower()}\nerror_reporter_mode = {_STDERR}\n"
            self._option(options, b"runtime_options_string", profiling)
            self._compiled = self._make("CompiledModel", environment, self._model, options)
            if on_gpu:
                self.adapter = self._adapter(begun)
            self._signature = self._main_signature()
            self._resize(shapes)

    def _call(self, name: str, *arguments: Any) -> None:
        begun = printed()
        status = getattr(self._library, name)(*arguments)
        if status:
            last = _last_error_since(begun)
            why = _STATUS.get(status, f"status {status}")
            raise Refused(f"LiteRT: {name} failed: {why}" + (f" ({last})" if last else ""))

    def _out(self, name: str, *arguments: Any, kind: Any = ctypes.c_void_p) -> Any:
        """Call a function that writes its result through its last argument."""
        result = kind()
        self._call(name, *arguments, ctypes.byref(result))
        return result

    def _make(self, kind: str, *arguments: Any, destroy: str = "") -> ctypes.c_void_p:
        handle: ctypes.c_void_p = self._out(f"LiteRtCreate{kind}", *arguments)
        self._handles.append((f"LiteRtDestroy{destroy or kind}", handle))
        return handle

    def _option(self, options: ctypes.c_void_p, name: bytes, text: str) -> None:
        """Pass settings as lines of TOML under a name; LiteRT frees them."""
        libc = ctypes.CDLL(None)
        libc.strdup.restype, libc.strdup.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
        payload = ctypes.c_void_p(libc.strdup(text.encode()))
        opaque = self._out("LiteRtCreateOpaqueOptions", name, payload, ctypes.cast(libc.free, ctypes.c_void_p))
        self._call("LiteRtAddOpaqueOptions", options, opaque)

    def _main_signature(self) -> int:
        count = self._out("LiteRtGetNumModelSignatures", self._model, kind=ctypes.c_size_t).value
        for index in range(count):
            signature = self._out("LiteRtGetModelSignature", self._model, ctypes.c_size_t(index))
            if self._out("LiteRtGetSignatureSubgraph", signature).value == self._subgraph.value:
                return index
        raise Refused("LiteRT: no signature of the model runs its first subgraph")

    def _resize(self, shapes: Sequence[Sequence[int]]) -> None:
        """Give the inputs these shapes if the file has other shapes."""
        wanted = [tuple(shape) for shape in shapes]
        signature, changed = ctypes.c_size_t(self._signature), False
        for index, ((_, own), shape) in enumerate(zip(self.tensor_types("Input"), wanted, strict=False)):
            if own != shape:
                dims = (ctypes.c_int * len(shape))(*shape)
                place, rank = ctypes.c_size_t(index), ctypes.c_size_t(len(shape))
                try:
                    self._call("LiteRtCompiledModelResizeInputTensor", self._compiled, signature, place, dims, rank)
                except Refused as error:
                    raise Refused(f"LiteRT: input {index} is {own}, but bound to {shape}: {error}") from error
                changed = True
        if changed:
            layouts = (_Layout * len(self.tensor_types("Output")))()
            count, planned = ctypes.c_size_t(len(layouts)), ctypes.c_bool(True)
            self._call("LiteRtGetCompiledModelOutputTensorLayouts", self._compiled, signature, count, layouts, planned)
            self._sizes = {"Input": wanted, "Output": [_dims(layout) for layout in layouts]}

    def _adapter(self, begun: int | None) -> DeviceFound:
        """The device that LiteRT reports having chosen; the report proves that LiteRT computes on it.

        `IsFullyAccelerated` proves nothing: it is also true for XNNPACK. LiteRT 2.3.0 and later have a function that
        considers only processors other than the CPU; it is called if it exists.
        """
        match = _SELECTED.search("\n".join(lines_since(begun)))
        if match is None:
            raise Refused("LiteRT does not report on which GPU it computes")
        name = "LiteRtCompiledModelIsNonCpuFullyAccelerated"
        if hasattr(self._library, name) and not self._out(name, self._compiled, kind=ctypes.c_bool).value:
            raise Refused("LiteRT left operators of the model on the CPU")
        return {"backend": GPU, "name": match["name"], "software": match["type"].startswith("CPU")}

    def device_memory_bytes(self) -> int | None:
        """The GPU memory that LiteRT reports for the model's weights and for the tensors between operators; None if it
        reports nothing.
        """
        self._call("LiteRtCompiledModelStartMetricsCollection", self._compiled, ctypes.c_int(1))
        metrics = self._make("Metrics")
        self._call("LiteRtCompiledModelStopMetricsCollection", self._compiled, metrics)
        sizes: dict[bytes, int] = {}
        for index in range(self._out("LiteRtGetNumMetrics", metrics, kind=ctypes.c_int).value):
            metric = self._out("LiteRtGetMetric", metrics, ctypes.c_int(index), kind=_Metric)
            if metric.name.startswith(b"gpu_") and metric.name.endswith(b"_memory_bytes"):
                sizes[metric.name] = int(metric.value)
        return sum(sizes.values()) if sizes else None

    def operator_codes(self) -> tuple[int, ...]:
        """The builtin operator code of each operator of the first subgraph, in the file's order."""
        codes = []
        for index in range(self._out("LiteRtGetNumSubgraphOps", self._subgraph, kind=ctypes.c_size_t).value):
            operator = self._out("LiteRtGetSubgraphOp", self._subgraph, ctypes.c_size_t(index))
            codes.append(int(self._out("LiteRtGetOpCode", operator, kind=ctypes.c_int).value))
        return tuple(codes)

    def fully_delegated(self) -> bool:
        """Return True if the delegate takes all operators, leaving none to the builtin kernels."""
        return bool(self._out("LiteRtCompiledModelIsFullyAccelerated", self._compiled, kind=ctypes.c_bool).value)

    def tensor_types(self, kind: str) -> list[tuple[str, tuple[int, ...]]]:
        """The dtype and shape of each "Input" or "Output"; a dimension that the model leaves open is -1."""
        types = []
        for index in range(self._out(f"LiteRtGetNumSubgraph{kind}s", self._subgraph, kind=ctypes.c_size_t).value):
            tensor = self._out(f"LiteRtGetSubgraph{kind}", self._subgraph, ctypes.c_size_t(index))
            ranked = self._out("LiteRtGetRankedTensorType", tensor, kind=_TensorType)
            shape = self._sizes[kind][index] if kind in self._sizes else _dims(ranked.layout)
            types.append((_DTYPES.get(ranked.element, f"type {ranked.element}"), shape))
        return types

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Callable[[], None]:
        """A function that runs the model on the arrays, which LiteRT uses in place until the model is closed.

        The arrays come from `gnomon.agent.arrays.make_buffers`: they are aligned, with spare room that XNNPACK may
        read.
        """
        handles = []
        for kind, arrays in (("Input", inputs), ("Output", outputs)):
            types = self.tensor_types(kind)
            if len(types) != len(arrays):
                raise Refused(f"LiteRT: {kind.lower()}s in the model: {len(types)}, in the job: {len(arrays)}")
            for index, (array, (dtype, shape)) in enumerate(zip(arrays, types, strict=True)):
                check_tensor(f"{kind.lower()} {index}", array, dtype, shape)
            self._used += arrays
            handles.append((ctypes.c_void_p * len(arrays))(*map(self._buffer, arrays)))
        run = self._library.LiteRtRunCompiledModel
        size, pointer = ctypes.c_size_t, ctypes.c_void_p
        run.argtypes = [pointer, size, size, pointer, size, pointer]
        arguments = self._compiled.value, self._signature, len(inputs), handles[0], len(outputs), handles[1]

        def call() -> None:
            if run(*arguments):
                last = _last_error_since(0)
                raise Refused("LiteRT: LiteRtRunCompiledModel failed" + (f" ({last})" if last else ""))

        return call

    def _buffer(self, array: Array) -> int | None:
        element = next(code for code, name in _DTYPES.items() if np.dtype(name) == array.dtype)
        layout = _Layout(rank=array.ndim, dims=(ctypes.c_int32 * 8)(*array.shape))
        buffer = self._make(
            "TensorBufferFromHostMemory",
            ctypes.byref(_TensorType(element=element, layout=layout)),
            ctypes.c_void_p(array.ctypes.data),
            ctypes.c_size_t(array.nbytes),
            None,
            destroy="TensorBuffer",
        )
        return buffer.value

    def start_profiler(self) -> None:
        """Discard the events so far and record the events of the next call."""
        self._call("LiteRtStartProfiler", self._out("LiteRtCompiledModelGetProfiler", self._compiled))

    def events(self) -> tuple[list[Event], Array] | None:
        """The events since the profiler started, and their microseconds; None if LiteRT's layout of events differs from
        `EVENT`.
        """
        profiler = self._out("LiteRtCompiledModelGetProfiler", self._compiled)
        count = self._out("LiteRtGetNumProfilerEvents", profiler, kind=ctypes.c_int).value
        # The layout is not a fixed part of the interface, so the written size is checked before reading.
        raw = np.full(count * 4 * EVENT.itemsize, 0xA5, np.uint8)
        self._call("LiteRtGetProfilerEvents", profiler, ctypes.c_int(count), ctypes.c_void_p(raw.ctypes.data))
        written = np.flatnonzero(raw != 0xA5)
        end = int(written[-1]) + 1 if written.size else 0
        if not (count - 1) * EVENT.itemsize + 88 < end <= count * EVENT.itemsize:
            return None
        rows = raw[: count * EVENT.itemsize].view(EVENT)
        names = (ctypes.string_at(int(tag)).decode("utf-8", "replace") for tag in rows["tag"])
        fields = (map(int, rows[field]) for field in ("type", "index", "subgraph"))
        return list(map(Event, names, *fields)), rows["elapsed_us"]

    def close(self) -> None:
        """Destroy all handles, the last one first; may be called twice."""
        while self._handles:
            name, handle = self._handles.pop()
            destroy = getattr(self._library, name)
            destroy.restype = None
            destroy(handle)
        self._used.clear()


def check_tensor(label: str, array: Array, dtype: str, shape: tuple[int, ...]) -> None:
    """Raise Refused unless the array has the dtype and shape that the model expects."""
    check_fixed(label, shape)
    if str(array.dtype) != dtype or array.shape != shape:
        raise Refused(f"LiteRT: {label} is {dtype} {shape}, but bound to {array.dtype} {array.shape}")


def check_fixed(label: str, shape: tuple[int, ...]) -> None:
    """Raise Refused if the model leaves a dimension open."""
    if -1 in shape:
        raise Refused(f"LiteRT: the model leaves the shape of {label} open ({shape}); export it with fixed shapes")


def _last_error_since(begun: int | None) -> str:
    """The last error printed since `begun`: the C API returns only a status and prints the message."""
    lines = lines_since(begun)
    errors = [number for number, line in enumerate(lines) if line.startswith("ERROR:")]
    if not errors:
        return ""
    first, *more = lines[errors[-1] :]
    message = [first.partition(":")[2], *takewhile(lambda line: not _NEXT.match(line), more)]
    return " ".join(line.strip() for line in message)[-300:]


def _environment_options(*, on_gpu: bool) -> tuple[ctypes.c_int, Any]:
    """An environment's options: the folder of the GPU accelerator, if a GPU is wanted."""
    if not on_gpu:
        return ctypes.c_int(0), None
    folder = _Text(type=_STRING, value=os.fsencode(package_folder()))
    return ctypes.c_int(1), (_EnvironmentOption * 1)(_EnvironmentOption(tag=_LIBRARY_FOLDER, value=folder))
