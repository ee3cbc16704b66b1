"""Apache TVM on the device: a model is compiled in a process of its own, and measured with TVM's small runtime alone.

What is measured is what a program that uses the compiled library would load: the library, ``libtvm_runtime`` and its
interface (``tvm_ffi``), without the compiler, which takes 300 MB and two seconds to load.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ...arrays import Buffers
from ...driver import Refused
from .library import Library, compiled, linker
from .machine import TvmModel

#: Each version of apache-tvm with those of apache-tvm-ffi that were tried with it. Others crash without a word.
TRIED = {"0.27.0.post1": ("0.1.14.post0", "0.1.14.post1")}
_LIBRARIES = ("libtvm_runtime.so", "libtvm_runtime_extra.so")

_loaded: Any = None


def versions() -> tuple[str, str]:
    """The versions of apache-tvm and apache-tvm-ffi, known before either is loaded.

    ImportError where one is missing, Refused for a pair that was not tried: several crash in the middle of a job.
    """
    try:
        pair = version("apache-tvm"), version("apache-tvm-ffi")
    except PackageNotFoundError as error:
        raise ModuleNotFoundError(f"No module named 'tvm': the package {error.name} is not installed") from error
    if pair[1] not in TRIED.get(pair[0], ()):
        told = "; ".join(f"apache-tvm {a} with apache-tvm-ffi {' or '.join(b)}" for a, b in TRIED.items())
        raise Refused(
            f"apache-tvm {pair[0]} with apache-tvm-ffi {pair[1]} was never tried, and pairs that do not fit crash; "
            f"install {told}"
        )
    return pair


def _runtime(threads: int) -> Any:
    """The package tvm_ffi, with TVM's runtime library loaded and its thread pool made.

    Refused where the pool does not get as many threads as wanted: it is made once in a process.
    """
    global _loaded
    if _loaded is None:
        versions()
        os.environ["TVM_NUM_THREADS"] = str(threads)
        # Else TVM binds its threads to the first cores of the machine, whatever cores the process was given.
        os.environ.setdefault("TVM_BIND_THREADS", "0")
        with without_torch():
            import tvm_ffi
        found = importlib.util.find_spec("tvm")
        if found is None or found.origin is None:
            raise ModuleNotFoundError("No module named 'tvm'")
        for name in _LIBRARIES:
            ctypes.CDLL(os.path.join(os.path.dirname(found.origin), "lib", name), ctypes.RTLD_GLOBAL)
        _loaded = tvm_ffi
    _loaded.get_global_func("runtime.config_threadpool")(1, threads)
    has = int(_loaded.get_global_func("runtime.NumThreads")())
    if has != threads:
        raise Refused(f"TVM's thread pool has {has} threads in this process, not the {threads} that are wanted")
    return _loaded


@contextmanager
def without_torch() -> Iterator[None]:
    """Import without PyTorch: tvm_ffi would load it where it is installed, and may compile into the user's home."""
    absent = "torch" not in sys.modules
    if absent:
        sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if absent:
            del sys.modules["torch"]


def _library(segment: dict[str, Any], shapes: Mapping[str, Sequence[int]]) -> AbstractContextManager[Library]:
    """The model compiled for inputs of these shapes, by an earlier process of this visit or now."""
    records = segment.get("options", {}).get("records", "")
    return compiled(segment["model"], shapes=shapes, records=records, versions="/".join(versions()))


class TvmDriver:
    """TVM's part of the agent."""

    def probe(self) -> dict[str, Any]:
        """The version of both packages, and the one backend.

        Refused for versions that do not go together, and where there is no program that links.
        """
        own, ffi = versions()
        if importlib.util.find_spec("onnx") is None:
            raise ModuleNotFoundError("No module named 'onnx': TVM reads models with it")
        return {"version": own, "backends": ["llvm"], "apache_tvm_ffi": ffi, "linker": linker()}

    def load(self, segment: dict[str, Any], buffers: Buffers, *, profiled: bool) -> TvmModel:
        """Load a segment; options are threads and records."""
        ffi = _runtime(int(segment.get("options", {}).get("threads", 1)))
        shapes = {name: list(buffers[buffer].shape) for name, buffer in segment["inputs"]}
        with _library(segment, shapes) as library:
            return TvmModel(ffi, library, segment, buffers, profiled=profiled)

    def supports(self, segment: dict[str, Any]) -> dict[str, Any]:
        """Whether TVM compiles the whole model: ``{"whole": true, "functions": n, "scheduled": n}``, or Refused.

        `functions` is how many functions the model was compiled to, `scheduled` how many of them by a record.
        """
        with _library(segment, segment.get("options", {}).get("shapes", {})) as library:
            return {"whole": True, "functions": library.functions, "scheduled": library.scheduled}
