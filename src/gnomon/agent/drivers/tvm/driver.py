"""Apache TVM on the device: a model is compiled in a separate process and measured with only TVM's small runtime.

The measured process loads what any program that uses the compiled library loads: the library, ``libtvm_runtime`` and
its interface (``tvm_ffi``), but not the compiler, which takes 300 MB and two seconds to load.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arrays import Buffers, output_array
from ...driver import Loaded, Refused, entry_of
from .library import Library, compiled, linker

if TYPE_CHECKING:
    from gnomon.wire import Answer, KernelTimes, Place, ProbeAnswer, RuntimeModel, Segment


#: For each version of apache-tvm, the versions of apache-tvm-ffi that have been tried with it. Other pairs may crash
#: silently.
TRIED = {"0.27.0.post1": ("0.1.14.post0", "0.1.14.post1")}
_LIBRARIES = ("libtvm_runtime.so", "libtvm_runtime_extra.so")

_loaded: Any = None


def versions() -> tuple[str, str]:
    """The versions of apache-tvm and apache-tvm-ffi, read without loading either package.

    ImportError if a package is missing. Refused for a pair that has not been tried, because several pairs crash during
    a job.
    """
    try:
        pair = version("apache-tvm"), version("apache-tvm-ffi")
    except PackageNotFoundError as error:
        raise ModuleNotFoundError(f"No module named 'tvm': the package {error.name} is not installed") from error
    if pair[1] not in TRIED.get(pair[0], ()):
        tried = "; ".join(f"apache-tvm {a} with apache-tvm-ffi {' or '.join(b)}" for a, b in TRIED.items())
        raise Refused(
            f"apache-tvm {pair[0]} was not tested with apache-tvm-ffi {pair[1]}, and incompatible pairs crash; "
            f"install {tried}"
        )
    return pair


def _runtime(threads: int) -> Any:
    """The package tvm_ffi, with TVM's runtime library loaded and its thread pool created.

    Refused if the pool has a different number of threads: the pool is created only once in a process.
    """
    global _loaded
    if _loaded is None:
        versions()
        os.environ["TVM_NUM_THREADS"] = str(threads)
        # Otherwise TVM binds its threads to the first cores of the machine, even if the process may not use them.
        os.environ.setdefault("TVM_BIND_THREADS", "0")
        with without_torch():
            import tvm_ffi
        spec = importlib.util.find_spec("tvm")
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError("No module named 'tvm'")
        for name in _LIBRARIES:
            ctypes.CDLL(os.path.join(os.path.dirname(spec.origin), "lib", name), ctypes.RTLD_GLOBAL)
        _loaded = tvm_ffi
    _loaded.get_global_func("runtime.config_threadpool")(1, threads)
    has = int(_loaded.get_global_func("runtime.NumThreads")())
    if has != threads:
        raise Refused(f"TVM's thread pool has {has} instead of {threads} threads in this process")
    return _loaded


@contextmanager
def without_torch() -> Iterator[None]:
    """Import without PyTorch: tvm_ffi would load an installed PyTorch, and might compile code into the user's home."""
    absent = "torch" not in sys.modules
    if absent:
        sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if absent:
            del sys.modules["torch"]


def _library(segment: RuntimeModel, shapes: Mapping[str, Sequence[int]]) -> AbstractContextManager[Library]:
    """The model compiled for inputs of these shapes, by an earlier process or now."""
    records = segment.get("options", {}).get("records", "")
    return compiled(segment["model"], shapes=shapes, records=records, versions="/".join(versions()))


class TvmDriver:
    """TVM's part of the agent."""

    def probe(self) -> ProbeAnswer:
        """The versions of both packages, and the only backend.

        Refused for versions that do not fit together, or if there is no linker.
        """
        own, ffi = versions()
        if importlib.util.find_spec("onnx") is None:
            raise ModuleNotFoundError("No module named 'onnx': TVM needs it to read models")
        return {"version": own, "backends": ["llvm"], "apache_tvm_ffi": ffi, "linker": linker()}

    def load(self, segment: Segment, buffers: Buffers, *, profiled: bool) -> TvmModel:
        """Load a segment; options are threads and records."""
        ffi = _runtime(int(segment.get("options", {}).get("threads", 1)))
        shapes = {name: list(buffers[buffer].shape) for name, buffer in segment["inputs"]}
        with _library(segment, shapes) as library:
            return TvmModel(ffi, library, segment, buffers, profiled=profiled)

    def supports(self, segment: RuntimeModel) -> Answer:
        """Check that TVM compiles the whole model: ``{"whole": true, "functions": n, "scheduled": n}``, or Refused.

        `functions` is the number of the compiled model's functions, and `scheduled` is how many of them a record
        schedules.
        """
        with _library(segment, segment.get("options", {}).get("shapes", {})) as library:
            return {"whole": True, "functions": library.functions, "scheduled": library.scheduled}


_BACKEND = "llvm"
_CPU, _POOLED = 1, 2
_OWN = "vm.builtin."
#: The only instruction of the virtual machine itself that may replace a function.
_RESHAPE = "vm.builtin.reshape"


class TvmModel(Loaded):
    """A compiled model, bound to the caller's arrays: inputs are read in place, each output is copied once per call.

    The virtual machine itself allocates the outputs, from its pool.
    """

    def __init__(self, ffi: Any, library: Library, segment: Segment, buffers: Buffers, *, profiled: bool) -> None:
        self._ffi, self._calls, self._extern = ffi, library.calls, library.extern
        machine = ffi.load_module(library.path)["vm_load_executable"]()
        machine["vm_initialization"](_CPU, 0, _POOLED)
        bound = dict(segment["inputs"])
        inputs = []
        for name in library.inputs:
            if name not in bound:
                raise Refused(f"TVM: nothing is bound to the input {name!r}; the job binds {', '.join(bound)}")
            inputs.append(ffi.from_dlpack(buffers[bound[name]]))  # aligned, as compiled code requires
        function = machine["main"]
        fetch = self._fetcher(library, segment, buffers)
        self._machine, self._keep = machine, (buffers, inputs)
        self._taken: list[list[tuple[str, int]]] = []

        def call() -> None:
            fetch(function(*inputs))

        self.call: Callable[[], object] = self._profiled(call) if profiled else call

    def _fetcher(self, library: Library, segment: Segment, buffers: Buffers) -> Callable[[Any], None]:
        """A function that copies the result of a call (a tensor or a sequence of tensors) into the bound arrays."""
        places = {name: k for k, name in enumerate(library.outputs)}
        wanted = [(entry_of(places, name, "TVM: the model"), name, buffer) for name, buffer in segment["outputs"]]
        several = len(library.outputs) > 1

        def fetch(returned: Any) -> None:
            for place, name, buffer in wanted:
                value = np.from_dlpack(returned[place] if several else returned)
                array = output_array(buffers, buffer, value.shape, value.dtype.name)
                if value.shape != array.shape:
                    raise Refused(f"TVM: output {name!r} has the shape {value.shape} instead of {array.shape}")
                np.copyto(array, value, casting="unsafe")

        return fetch

    def _profiled(self, call: Callable[[], None]) -> Callable[[], None]:
        """The call with a clock around each instruction of the virtual machine."""
        clock = time.perf_counter_ns
        now: list[tuple[str, int]] = []
        begun = 0

        def around(function: Any, name: str, before: bool, returned: Any, *arguments: Any) -> int:
            nonlocal begun
            if before:
                begun = clock()
            else:
                now.append((name, clock() - begun))
            return 0

        self._instrument = self._ffi.convert(around)
        self._machine["set_instrument"](self._instrument)

        def timed() -> None:
            now.clear()
            call()
            self._taken.append(list(now))

        return timed

    def where(self) -> list[Place]:
        """The nodes that compiled code computes; functions of TVM's own library that this code calls are listed as
        "extern".
        """
        nodes = sorted({node for _, own in self._calls for node in own or ()})
        rows: list[Place] = [{"operators": nodes, "backend": _BACKEND}]
        if self._extern:
            rows.append({"operators": [], "backend": "extern", "functions": self._extern})
        return rows

    def operators(self, skip: int) -> list[KernelTimes]:
        """Times of each function call, in order, with the nodes that it computes.

        There are no nodes if the calls did not run in the order that the compiler planned. The virtual machine's own
        instructions, which allocate memory, have no row, because their measured time is mostly that of reading the
        clock.
        """
        taken, calls = self._taken[skip:], self._calls
        self.close()
        if not taken:
            return []
        names = [name for name, _ in taken[0]]
        if any([name for name, _ in call] != names for call in taken):  # with control flow, calls differ
            wall_ns = [sum(ns for _, ns in call) for call in taken]
            return [{"name": "main", "sources": [], "backend": _BACKEND, "wall_ns": wall_ns}]
        places = [k for k, name in enumerate(names) if name == _RESHAPE or not name.startswith(_OWN)]
        called = [names[k] for k in places]
        if len(calls) != len(called) or any(a not in (b, _RESHAPE) for a, (b, _) in zip(called, calls, strict=True)):
            calls = [(name, None) for name in called]
        return [
            {"name": name, "sources": nodes or [], "backend": _BACKEND, "wall_ns": [call[k][1] for call in taken]}
            for k, (name, nodes) in zip(places, calls, strict=True)
        ]
