"""onert on the device, through its C API: a backend for each operator, and onert's trace as proof of where operators
ran.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Buffers, output_array
from ..driver import Loaded, Refused, closed, undoing
from ..installed import installed
from ..said import lines_since, printed

if TYPE_CHECKING:
    from gnomon.wire import Answer, KernelTimes, Options, ProbeAnswer, RuntimeModel, Segment

#: Numpy's dtypes by NNFW_TYPE of nnfw.h (quantised types share the storage type; onert checks sizes).
_NAMES = ("float32", "int32", "uint8", "bool", "uint8", "int64", "int8", "int16")
#: The variables that a session reads from the environment when it is created; others are left alone.
_VARIABLES = (
    "BACKENDS",
    "OP_BACKEND_MAP",
    "OP_BACKEND_ALLOPS",
    "EXECUTOR",
    "CPU_MEMORY_PLANNER",
    "NUM_THREADS",
    "USE_MMAPED_DATA",
    "TRACING_MODE",
    "WORKSPACE_DIR",
)
#: onert's message if a backend has no kernel at all for a type of operator, so that trying single operators of the type
#: is useless.
_NO_KERNEL = re.compile(r"NYI for operation")
_EVENT = re.compile(r"^@(\d+) (\S+)$")
_PLACE = re.compile(r"^\$\d+ sess, \$(\d+) subg, (\S+)$")


class _TensorInfo(ctypes.Structure):
    _fields_ = (("dtype", ctypes.c_int), ("rank", ctypes.c_int32), ("dims", ctypes.c_int32 * 6))


def _native() -> Path:
    spec = importlib.util.find_spec("onert")
    if spec is None or spec.origin is None:
        raise ImportError("onert is not installed")
    return Path(spec.origin).parent / "native"


class _Session:
    """A session of the C API; every failed call raises Refused with the function's name."""

    def __init__(self, environment: dict[str, str]) -> None:
        # A session reads its options from the environment when it is created. No other way is early enough: the
        # package's own OP_BACKEND_MAP is read too late for a process's first session.
        for name in _VARIABLES:
            os.environ.pop(name, None)
        os.environ.update(environment)
        self._library = ctypes.CDLL(str(_native() / "libonert.so"))
        self.pointer = ctypes.c_void_p()
        self.call("nnfw_create_session", first=ctypes.byref(self.pointer))

    def call(self, name: str, *arguments: Any, first: Any = None) -> None:
        begun = printed()
        status = getattr(self._library, name)(self.pointer if first is None else first, *arguments)
        if status:
            # onert returns only a status, and prints the message.
            last = [line.strip()[-300:] for line in lines_since(begun) if line.strip()][-1:]
            raise Refused(": ".join([f"onert: {name} failed with status {status}", *last]))

    def load(self, path: str, shapes: Sequence[Sequence[int]]) -> None:
        """Load and prepare a model; its inputs get these shapes if the file leaves them open."""
        self.call("nnfw_load_model_from_file", os.fsencode(path))
        for index, shape in enumerate(shapes):
            dtype, own = self.tensor("input", index)
            if own != tuple(shape) and len(own) == len(shape):
                info = _TensorInfo(dtype=_NAMES.index(dtype), rank=len(shape), dims=(ctypes.c_int32 * 6)(*shape))
                self.call("nnfw_set_input_tensorinfo", ctypes.c_uint32(index), ctypes.byref(info))
        self.call("nnfw_prepare")

    def tensor(self, kind: str, index: int) -> tuple[str, tuple[int, ...]]:
        """The dtype and shape of an input or output."""
        info = _TensorInfo()
        self.call(f"nnfw_{kind}_tensorinfo", ctypes.c_uint32(index), ctypes.byref(info))
        if not 0 <= info.dtype < len(_NAMES):
            raise Refused(f"onert: {kind} {index} has a type that gnomon cannot feed ({info.dtype})")
        return _NAMES[info.dtype], tuple(info.dims[: info.rank])

    def count(self, kind: str) -> int:
        number = ctypes.c_uint32()
        self.call(f"nnfw_{kind}_size", ctypes.byref(number))
        return number.value

    def bind(self, kind: str, index: int, array: np.ndarray[Any, np.dtype[Any]]) -> None:
        """Let input or output `index` read or write `array`."""
        dtype, shape = self.tensor(kind, index)
        if array.nbytes != int(np.prod(shape)) * np.dtype(dtype).itemsize:
            raise Refused(f"onert: {kind} {index} is {dtype} {shape}, but bound to {array.dtype} {array.shape}")
        pointer = array.ctypes.data_as(ctypes.c_void_p)
        type_code = ctypes.c_int(_NAMES.index(dtype))
        self.call(f"nnfw_set_{kind}", ctypes.c_uint32(index), type_code, pointer, ctypes.c_size_t(array.nbytes))

    def close(self) -> None:
        if self.pointer:
            pointer, self.pointer = self.pointer, ctypes.c_void_p()
            self._library.nnfw_close_session(pointer)


def _environment(options: Options) -> dict[str, str]:
    if options.get("usual"):
        return {}
    variables = {"NUM_THREADS": str(options.get("threads", 1))}
    variables.update({str(k): str(v) for k, v in options.get("settings", {}).items()})
    return variables


def _prepared(model: str, environment: dict[str, str], shapes: Sequence[Sequence[int]]) -> _Session:
    """A session with the model at a path, ready to run; Refused if onert does not prepare it."""
    session = _Session(environment)
    with undoing(session.close):
        session.load(model, shapes)
    return session


def _trace_events(path: str) -> list[dict[str, Any]]:
    """The events of a Chrome trace, one per line.

    onert closes the file only when the process ends, so its last buffer (up to 8 KiB, about thirty events of the last
    call) is still missing. The last line may be incomplete and is then left out.
    """
    events = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            text = line.strip().rstrip(",")
            if text.startswith("{") and '"ts"' in text:
                with contextlib.suppress(ValueError):  # the last line may end anywhere, even after a brace
                    events.append(json.loads(text))
    return events


class OnertModel(Loaded):
    """A prepared onert session, bound to the caller's arrays. It reports places only in the trace of a profiled
    load.
    """

    def __init__(self, segment: Segment, buffers: Buffers, *, profiled: bool) -> None:
        environment = _environment(segment.get("options", {}))
        shapes = [buffers[name].shape for _, name in segment["inputs"]]
        if segment.get("options", {}).get("usual"):
            # A package's own config takes effect only from the second session of a process on, so a first one is opened
            # here.
            _prepared(segment["model"], {}, shapes).close()
        self._workspace = tempfile.mkdtemp(prefix="gnomon-onert-") if profiled else ""
        if profiled:
            environment.update(TRACING_MODE="1", WORKSPACE_DIR=self._workspace)
        with undoing(self.close):
            self._session = _prepared(segment["model"], environment, shapes)
            self._keep = buffers
            for kind, bound in (("input", segment["inputs"]), ("output", segment["outputs"])):
                if len(bound) != self._session.count(kind):
                    raise Refused(f"onert: {kind}s in the model: {self._session.count(kind)}, in the job: {len(bound)}")
                for index, (_, buffer) in enumerate(bound):
                    dtype, shape = self._session.tensor(kind, index)
                    self._session.bind(kind, index, output_array(buffers, buffer, shape, dtype))
        run = self._session._library.nnfw_run
        run.argtypes, run.restype = [ctypes.c_void_p], ctypes.c_int
        pointer = self._session.pointer.value

        def call() -> None:
            if run(pointer):
                raise Refused("onert: nnfw_run failed")

        self.call = call

    def operators(self, skip: int) -> list[KernelTimes]:
        """Times (in whole microseconds) and places of operators from the trace of subgraph 0."""
        self._close_session()
        events = _trace_events(os.path.join(self._workspace, "trace.chrome.json"))
        self.close()
        begun: dict[str, int] = {}
        rows: dict[tuple[int, str], KernelTimes] = {}
        for event in events:
            name, place = _EVENT.match(event.get("name", "")), _PLACE.match(event.get("tid", ""))
            if name is None or place is None or place[1] != "0":
                continue
            if event["ph"] == "B":
                begun[name[0]] = int(event["ts"])
                continue
            empty: KernelTimes = {"name": name[2], "sources": [int(name[1])], "backend": place[2], "wall_ns": []}
            row = rows.setdefault((int(name[1]), place[2]), empty)
            if name[0] in begun:
                row["wall_ns"].append((int(event["ts"]) - begun.pop(name[0])) * 1000)
        for row in rows.values():
            row["wall_ns"] = row["wall_ns"][skip:]
        return [rows[key] for key in sorted(rows)]

    def _close_session(self) -> None:
        session = getattr(self, "_session", None)
        if session is not None:
            session.close()

    def close(self) -> None:
        """Close the session and remove its workspace."""
        self.call = closed
        self._close_session()
        if self._workspace:
            shutil.rmtree(self._workspace, ignore_errors=True)


def settings_for(default: str, placed: Mapping[int, str]) -> dict[str, str]:
    """onert's own settings that place operators on backends other than the default."""
    settings = {"BACKENDS": ";".join((default, *sorted(set(placed.values()) - {default})))}
    if placed:
        settings["OP_BACKEND_MAP"] = "".join(f"{index}={backend};" for index, backend in sorted(placed.items()))
    return settings


def operators_taken(options: Options, refusal: Callable[[str, dict[int, str]], str]) -> Answer:
    """The operators that a backend takes, as described in `OnertDriver.supports`.

    `refusal` returns the reason why onert does not prepare the model with these operators on backends other than the
    default, or "".
    """
    backend, default = options["backend"], options["default"]
    moved = {index: other for other, indices in options.get("moved", {}).items() for index in indices}
    if backend == default:
        reason = refusal(default, moved)
        indices = [i for group in options["types"].values() for i in group if i not in moved]
        return {"operators": [] if reason else sorted(indices), "reason": reason}
    taken: list[int] = []
    for indices in options["types"].values():
        reason = refusal(default, {**moved, **dict.fromkeys(indices, backend)})
        if not reason:
            taken += indices
        elif len(indices) > 1 and not _NO_KERNEL.search(reason):
            taken += [i for i in indices if not refusal(default, {**moved, i: backend})]
    return {"operators": sorted(taken), "reason": ""}


class OnertDriver:
    """onert's part of the agent."""

    def probe(self) -> ProbeAnswer:
        """The version, and the backends that have an installed library."""
        folder = _native() / "nnfw" / "backend"
        names = sorted(path.stem.removeprefix("libbackend_") for path in folder.glob("libbackend_*.so"))
        return {"version": installed(["onert"]).get("onert", "unknown"), "backends": names}

    load = OnertModel
    """Prepare a segment; options are threads and settings (onert's own configuration keys), or only `usual`."""

    def supports(self, segment: RuntimeModel) -> Answer:
        """The operators that one backend prepares while all other operators stay on the default backend.

        The segment's options name `backend`, `default`, `types` (operator type -> indices) and `moved` (backend ->
        indices of operators that the default backend lacks, which every trial places on that other backend). All
        operators of a type are tried together, then one by one if there is a kernel, because support can depend on
        attributes. The default backend takes all operators that are not moved, or stops at the first operator that it
        lacks and names it. Returns ``{"operators": [indices], "reason": onert's message about the default backend's
        trial, or ""}``.
        """
        options = segment["options"]
        if options.get("usual"):
            shapes = list(options.get("shapes", {}).values())
            for _ in range(2):  # the second session applies a package's own config
                _prepared(segment["model"], {}, shapes).close()
            return {"whole": True}
        return operators_taken(options, partial(self._refusal, segment))

    def _refusal(self, segment: RuntimeModel, default: str, placed: dict[int, str]) -> str:
        """The reason why onert does not prepare the model with these operators on other backends; "" if it does."""
        options = {"threads": segment["options"].get("threads", 1), "settings": settings_for(default, placed)}
        try:
            shapes = list(segment["options"].get("shapes", {}).values())
            _prepared(segment["model"], _environment(options), shapes).close()
        except Refused as refusal:
            return str(refusal)
        return ""
