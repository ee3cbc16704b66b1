"""Measures compiled layers and networks in a session with a server, or in this process.

The host has requested the server from the tracker, so it knows which server that is. Samples come from TVM's own loop
on the device and do not include the time for communication. Outputs are compared before anything is timed. If one
thread computes in a process that gnomon started, its CPU time is reported too: TVM's loop notes it before each sample.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax, rpc

from ..frame import MEMORY_WORDS, Arrays, Facts, Job, Refused, Work, refusing
from .serve import NOTE_CPU, NOTED_CPU, offer_cpu_time

_HALF = 200
_SLOW_S = 0.5
"""A call that takes longer than this is timed only once."""

_WAITS = 10
"""The largest factor by which a sample's calls are multiplied if other processes used most of its time."""


class _Place:
    """The place where calls are measured: a session and its loaded libraries."""

    def __init__(self) -> None:
        self.session: Any = None
        self.loaded: dict[str, object] = {}
        self._noted: Callable[[], str] | None = None

    def connect(self, job: Job) -> Facts:
        """Job: server [host, port, key] or null for this process, threads (0: unchanged), timeout_s."""
        self.leave()
        try:
            if job["server"] is None:
                self.session = rpc.LocalSession()
            else:
                host, port, key = job["server"]
                self.session = rpc.connect(host, int(port), key, session_timeout=float(job["timeout_s"]))
            if job["threads"]:
                self.session.get_function("runtime.config_threadpool")(0, int(job["threads"]))
            threads = int(self.session.get_function("runtime.NumThreads")())
            if threads == 1:
                with contextlib.suppress(Exception):  # a server that gnomon did not start
                    self._noted = self.session.get_function(NOTED_CPU)
            return {"threads": threads}
        except Exception as error:
            self.leave()
            raise Refused(f"no session with the server can be opened: {_line(error)}", kind="vanished") from error

    def leave(self) -> Facts:
        """End the session; no facts."""
        self.loaded.clear()
        self.session = self._noted = None
        gc.collect()  # the session ends with its last reference, and some of TVM's objects refer to each other
        return {}

    def library(self, path: str) -> Any:
        """A library on the device, loaded once per session as long as its file does not change."""
        if self.session is None:
            raise Refused("no session was opened")
        name = _upload_name(path)
        if name not in self.loaded:
            try:
                self.session.upload(path, name)
                try:
                    self.loaded[name] = self.session.load_module(name)
                finally:
                    with contextlib.suppress(Exception):  # a loaded library is held open; a lost session has removed it
                        self.session.remove(name)
            except Exception as error:
                raise self.failed("the library cannot be loaded on the device", error) from error
        return self.loaded[name]

    def samples(self, job: Job, evaluator: Callable[..., Any], name: str, given: list[Any]) -> Facts:
        """Facts: times_s, and cpu_s of the same calls (none if it is not reported).

        `evaluator` creates TVM's loop for a function. A job whose samples have no minimum time only needs a call's
        outputs, and gets no CPU time.
        """

        def evaluate(**loop: Any) -> list[float]:
            return list(evaluator(name, self.session.cpu(0), **loop)(*given).results)

        repeat, least_ms, noted = job["repeat"], job["min_repeat_ms"], self._noted
        if noted is None or not least_ms:
            return {"times_s": evaluate(number=1, repeat=repeat, min_repeat_ms=least_ms), "cpu_s": []}

        def timed(calls: int, count: int) -> tuple[list[float], list[float]]:
            noted()
            # The CPU time of a sample is noted at the beginning of the next one, so one extra sample is taken.
            times_s = evaluate(number=calls, repeat=1 + count, f_preproc=NOTE_CPU)
            noted_ns = json.loads(noted())
            return times_s[:-1], [(end - begin) / calls * 1e-9 for begin, end in itertools.pairwise(noted_ns)]

        (first_s,) = evaluate(number=1, repeat=1, min_repeat_ms=least_ms)
        calls = max(1, math.ceil(least_ms / 1e3 / first_s))
        times_s, cpu_s = timed(calls, repeat if first_s < _SLOW_S else 1)
        if 0 < calls * min(cpu_s) < least_ms / 2e3:  # the machine is busy: other processes used most of the time
            times_s, cpu_s = timed(min(_WAITS * calls, math.ceil(least_ms / 1e3 / min(cpu_s))), repeat)
        return {"times_s": times_s, "cpu_s": cpu_s}

    def drop(self, path: str) -> None:
        """Forget a library."""
        with contextlib.suppress(Refused):
            self.loaded.pop(_upload_name(path), None)

    def failed(self, what: str, error: Exception) -> Refused:
        """Classify an error: too little memory, a device that is gone, or a device that answers but refused the
        call.
        """
        words = f"{what}: {_line(error)}"
        if isinstance(error, MemoryError) or any(word in str(error) for word in MEMORY_WORDS):
            return Refused(words, kind="memory")
        try:
            self.session.get_function("runtime.NumThreads")()
        except Exception:
            return Refused(words, kind="vanished")
        return Refused(words)


def _upload_name(path: str) -> str:
    with refusing(f"there is no library {path}", OSError):
        status = Path(path).stat()
    return f"{status.st_dev:x}-{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}.so"


def jobs() -> dict[str, Work]:
    """The jobs: `connect`, `leave`, `measure` (a layer) and `run` (a network)."""
    offer_cpu_time()
    place = _Place()

    def measure(job: Job) -> Facts:
        try:
            return _measure(place, job)
        finally:
            if job["function"] == "main":  # a library of one candidate, which is not needed again
                place.drop(job["library"])

    return {
        "connect": place.connect,
        "leave": lambda job: place.leave(),
        "measure": measure,
        "run": lambda job: _run(place, job),
    }


def here() -> Facts:
    """The processor that this process runs on, as a target."""
    codegen = tvm.target.codegen
    return {"mcpu": str(codegen.llvm_get_system_cpu()), "mtriple": str(codegen.llvm_get_system_triple())}


def _measure(place: _Place, job: Job) -> Facts:
    """Job: library, function, arguments, outputs, seed, reference and keep (paths or ""), repeat, min_repeat_ms.

    Facts: times_s, cpu_s (none if it is not reported), error (null: nothing to compare with).
    """
    function = _function(place.library(job["library"]), job["function"])
    device = place.session.cpu(0)
    stored = _stored(job["reference"])
    positive = bool(stored["positive"]) if stored is not None and "positive" in stored else False

    def called() -> tuple[list[Any], list[Any]]:
        given = [tvm.runtime.tensor(a, device) for a in _arrays(job, positive)]
        function(*given)
        return given, [given[i].numpy() for i in job["outputs"]]

    try:
        given, outputs = called()
        if stored is None and not positive and not all(np.isfinite(o.astype("float64")).all() for o in outputs):
            positive = True  # roots and logarithms: only numbers above 0 give results that can be compared
            given, outputs = called()
        evaluator = place.library(job["library"]).time_evaluator
        samples = functools.partial(place.samples, job, evaluator, job["function"], given)
        return _timed(job, stored, outputs, samples, positive=np.array(positive))
    except Refused:
        raise
    except Exception as error:
        raise place.failed("the call failed on the device", error) from error


def _run(place: _Place, job: Job) -> Facts:
    """Job: library, inputs, reference and keep (paths or ""), repeat, min_repeat_ms, tolerance.

    The facts are the same as for a layer.
    """
    library, device = place.library(job["library"]), place.session.cpu(0)
    stored = _stored(job["reference"])
    try:
        with np.load(job["inputs"], allow_pickle=False) as given:
            names = json.loads(str(given["names"]))
            arrays = [given[f"in_{i}"] for i in range(len(names))]
        machine = relax.VirtualMachine(library, device)
        machine.set_input("main", *[tvm.runtime.tensor(a, device) for a in arrays])
        machine.invoke_stateful("main")
        samples = functools.partial(place.samples, job, machine.time_evaluator, "invoke_stateful", ["main"])
        return _timed(job, stored, _flat(machine.get_outputs("main")), samples)
    except Exception as error:
        raise place.failed("the call failed on the device", error) from error


def _timed(job: Job, stored: Arrays | None, outputs: list[Any], samples: Callable[[], Facts], **more: Any) -> Facts:
    """Compare a call's outputs, keep them if requested, and time the call if they are right."""
    error = None if stored is None else _difference(_wanted(stored), outputs)
    if job["keep"]:
        keep_outputs(job["keep"], outputs, **more)
    if error is not None and not error <= job["tolerance"]:
        return {"times_s": [], "cpu_s": [], "error": error}
    return {**samples(), "error": error}


def _function(library: Any, name: str) -> Any:
    with refusing(f"the library has no function {name!r}"):
        return library.get_function(name, True) if name != "main" else library["main"]


def _arrays(job: Job, positive: bool) -> list[Any]:
    """Arguments from a seed: normally distributed or positive floats, bytes from 0 to 99, and 0 for other integers,
    because 0 is valid for any index.

    Refused for data types that numpy does not have.
    """
    if strange := [dtype for dtype, _ in job["arguments"] if not hasattr(np, dtype)]:
        raise Refused(f"numpy has no type {strange[0]} for an argument")
    rng = np.random.default_rng(job["seed"])
    arrays = []
    for place, (dtype, dims) in enumerate(job["arguments"]):
        if place in job["outputs"] or not dtype.startswith("float"):
            small = dtype in ("int8", "uint8")
            if place in job["outputs"]:  # values that a function leaves unchanged must not look like results
                arrays.append(np.full(dims, np.nan if dtype.startswith("float") else 77, dtype))
            else:
                arrays.append(rng.integers(0, 100, dims).astype(dtype) if small else np.zeros(dims, dtype))
        elif positive:
            arrays.append(rng.uniform(0.1, 1.0, dims).astype(dtype))
        else:
            arrays.append(rng.standard_normal(dims).astype(dtype))
    return arrays


def _difference(wanted: list[Any], outputs: list[Any]) -> float:
    """The largest difference relative to the largest magnitude; infinity if the number of outputs, their shapes, or the
    positions of finite values differ.
    """
    worst = 0.0
    if len(wanted) != len(outputs):
        return float("inf")
    for a, b in zip(wanted, outputs, strict=True):
        if a.shape != b.shape:
            return float("inf")
        a, b = a.astype("float64"), b.astype("float64")
        same = np.isfinite(a) == np.isfinite(b)
        if not same.all():
            return float("inf")
        finite = np.isfinite(a)
        if finite.any():
            scale = float(np.abs(a[finite]).max()) or 1.0
            worst = max(worst, float(np.abs(a[finite] - b[finite]).max()) / scale)
    return worst


def _stored(path: str) -> Arrays | None:
    if not path:
        return None
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _wanted(stored: Arrays) -> list[Any]:
    return [stored[f"out_{i}"] for i in range(sum(1 for name in stored if name.startswith("out_")))]


def keep_outputs(path: str, outputs: list[Any], **more: Any) -> None:
    """Write outputs to a file."""
    write_arrays(path, {f"out_{i}": np.asarray(o) for i, o in enumerate(outputs)} | more)


def write_arrays(path: str, arrays: Arrays) -> None:
    """Write arrays to a file, either completely or not at all."""
    part = path + ".part.npz"
    np.savez(part, **arrays)
    Path(part).replace(path)


def _flat(outputs: Any) -> list[Any]:
    if hasattr(outputs, "numpy"):
        return [outputs.numpy()]
    return [array for output in outputs for array in _flat(output)]


def _line(error: Exception) -> str:
    """An error in one line; a long text keeps only its beginning and end."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 2 * _HALF else f"{text[:_HALF]} .. {text[-_HALF:]}"
