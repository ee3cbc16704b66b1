"""Compiles layers in child processes, and measures layers and networks on a device, through a server or in a process on
this machine.

A session is a fresh process on the device. A failed call is a result, not an error. If the device is lost, the call is
repeated once; if the device is lost again, the call has failed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from gnomon.agent.snapshot import snapshot
from gnomon.core.codec import Above0, Counted, Whole, fields_of
from gnomon.core.overlay.records import TunedDevice, TuningLayer, configuration_id, sound_times
from gnomon.core.sample import Failure
from gnomon.errors import DeviceError
from gnomon.tuning.tracker import FreeServer
from gnomon.tuning.tvm import TvmPool, TvmWorker
from gnomon.wire import Environment

T = TypeVar("T")
_CONNECT_S = 30.0
_LEAVE_S = 10.0
_CALL_S = 60.0
_MARGIN_S = 15.0
_MOST_BUILDERS = 4
_WAITS = 10.0
"""A build's time limit, as a multiple of its limit on processor time, because builds have to wait on a busy machine."""

_OVERTIME = signal.Signals.SIGPROF.name
"""The signal with which the kernel ends a build that has used up its processor time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCall:
    """A compiled layer to call: the data type and shape of each argument, the indices of the arguments that it writes,
    and its name in the library.

    `reference` is the file of outputs to compare with (None: no comparison), and `keep` is the path at which to store
    the outputs (None: they are not stored).
    """

    library: Path
    arguments: tuple[tuple[str, tuple[int, ...]], ...]
    outputs: tuple[int, ...]
    function: str = "main"
    reference: Path | None = None
    keep: Path | None = None

    def job(self) -> dict[str, Any]:
        """The call as a job for the child."""
        return {
            "do": "measure",
            "function": self.function,
            "arguments": [[dtype, list(shape)] for dtype, shape in self.arguments],
            "outputs": list(self.outputs),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkCall:
    """A compiled network to call with the inputs in a file; `reference` and `keep` are as for a layer."""

    library: Path
    inputs: Path
    reference: Path | None = None
    keep: Path | None = None

    def job(self) -> dict[str, Any]:
        """The call as a job for the child."""
        return {"do": "run", "inputs": _path(self.inputs)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """How a call is timed on the device: `repeat` samples, each of at least one call and at least `min_repeat_ms`.

    `tolerance` is the largest acceptable difference of outputs, relative to the reference's largest magnitude. A call
    that has not returned after `timeout_s` is ended.
    """

    repeat: Counted = 3
    min_repeat_ms: int = 10
    tolerance: float = 1e-3
    seed: Whole = 0
    timeout_s: Above0 = 60.0


def _path(path: Path | None) -> str:
    """The absolute path, because a child works in its own folder; "" for None."""
    return "" if path is None else str(path.absolute())


def once(loop: Loop) -> Loop:
    """A loop like `loop` for a call that is needed only for its outputs: one sample, however short."""
    return replace(loop, repeat=1, min_repeat_ms=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """The samples of a call in seconds per call, its outputs' `error` (None: not compared), and the server.

    `times_s` are wall times; `cpu_s` are the CPU times of the same calls, if one thread computes on a device that
    reports them.
    """

    times_s: tuple[float, ...]
    cpu_s: tuple[float, ...] = ()
    error: float | None
    server: str


class Servers(Protocol):
    """The servers of a device, on which its sessions begin."""

    def free(self, wait_s: float, *, again: bool = False) -> FreeServer:
        """Wait for a server that accepts a session. DeviceError if no server does in time.

        `again` is True if the last server did not answer.
        """


class Bench:
    """A device to measure on. The object belongs to one thread; processes that it started end with its pool.

    Without `servers` the device is this machine (`is_here`): calls run in a child process with this `environment`, only
    on the cores `pin` (none: all). `environments` are this machine's snapshots before and after `watched` blocks.
    """

    def __init__(
        self,
        pool: TvmPool,
        device: TunedDevice,
        servers: Servers | None,
        *,
        wait_s: float = 60.0,
        environment: Mapping[str, str] | None = None,
        pin: Sequence[int] = (),
    ) -> None:
        self.device, self._servers, self._wait_s = device, servers, wait_s
        self.is_here = servers is None
        if self.is_here:
            self._worker = pool.worker(threads=device.threads, environment=environment, pin=pin)
        else:
            self._worker = pool.worker(threads=1)
        self.server = ""
        self.threads = 0
        self.environments: list[Environment] = []
        self._open = False
        self._lost_in_turn = 0
        self._ends_s = 0.0

    def here(self) -> Mapping[str, Any]:
        """This machine's processor: mcpu and triple. DeviceError if they cannot be determined."""
        said = self._worker.ask("probe", {"do": "here"})
        if isinstance(said, Failure):
            raise DeviceError(f"this machine's processor is unknown: {said.message}", hint="Give --target.")
        return said

    def fresh(self) -> None:
        """End the session, so that the next call runs in a fresh process on the device."""
        if self._servers is None:
            self._worker.close()
        elif self._open and self._worker.alive:
            said = self._worker.ask("run", {"do": "leave"}, timeout_s=_LEAVE_S)
            self._ends_s = self._ends_s if isinstance(said, Failure) else 0.0
        self._open = False

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Record this machine's state before and after the block, which begins and ends without a session.

        The state of other devices is not recorded, because TVM's servers do not report it.
        """
        if self._servers is not None:
            yield
            return
        self.fresh()  # the time of a process counts as gnomon's own once it has ended
        before = snapshot()
        try:
            yield
        finally:
            self.fresh()
            self.environments.append({"before": before, "after": snapshot()})

    def connect(self, call_s: float = _CALL_S) -> None:
        """Begin a session in which a call may take `call_s` seconds, unless such a session is open.

        DeviceError, with the tracker's answer, if the device is unavailable.
        """
        ends = self._servers is not None and time.monotonic() + call_s > self._ends_s
        if self._open and (ends or not self._worker.alive):  # the session was lost with its child
            self.fresh()
        session_s = 2 * call_s + _MARGIN_S
        while not self._open:
            self._worker.start()  # before a server is assigned, because an assignment lasts only seconds
            free = self._free()
            job = {
                "do": "connect",
                "server": None if free is None else [free.host, free.port, free.matchkey],
                "threads": self.device.threads,
                "timeout_s": session_s,
            }
            began_s = time.monotonic()
            said = self._worker.ask("load", job, timeout_s=_CONNECT_S)
            if not isinstance(said, Failure):
                self._open, self._lost_in_turn = True, 0
                self._ends_s = began_s + session_s
                self.threads = int(said["threads"])
                self.server = "" if free is None else free.name
                return
            self._lost_in_turn += 1
            if self._lost_in_turn >= 3:
                where = "this machine" if free is None else f"TVM's server on {self.device.key!r}"
                raise DeviceError(
                    f"{where} does not answer: {said.message}",
                    hint="Check whether it runs, and whether its port can be reached (ssh: AllowTcpForwarding in "
                    "sshd_config). To continue with the finished measurements, repeat the command.",
                    transient=True,
                )

    def _free(self) -> FreeServer | None:
        """A server of the device; None if the device is this machine.

        A function that has not returned occupies its server until the session's time limit, so this may wait that long.
        """
        if self._servers is None:
            return None
        left_s = self._ends_s - time.monotonic()
        return self._servers.free(max(self._wait_s, left_s + _MARGIN_S), again=self._lost_in_turn > 0)

    def call(self, what: LayerCall | NetworkCall, loop: Loop) -> Timed | Failure:
        """Call a layer or a network once to compare its outputs, then time it.

        DeviceError only if the device is unavailable.
        """
        said = self._asked(what, loop)
        if isinstance(said, Failure) and said.kind in ("vanished", "crash"):
            try:
                again = self._asked(what, loop)
            except DeviceError as error:
                # The failure is recorded, and the next call raises the error. Otherwise this candidate would end every
                # run.
                message = f"{said.message}; the device did not come back: {error.message}"
                return Failure(stage="run", kind="crash", transient=True, message=message, log_tail=said.log_tail)
            if isinstance(again, Failure) and again.kind in ("vanished", "crash"):
                message = f"the call ended its process on the device twice: {again.message}"
                return Failure(stage="run", kind="crash", transient=False, message=message, log_tail=again.log_tail)
            said = again
        return said if isinstance(said, Failure) else self._judged(said, loop)

    def _asked(self, what: LayerCall | NetworkCall, loop: Loop) -> Mapping[str, Any] | Failure:
        self.connect(loop.timeout_s)
        job = {
            **what.job(),
            "library": _path(what.library),
            "reference": _path(what.reference),
            "keep": _path(what.keep),
            **fields_of(Loop, loop),
        }
        said = self._worker.ask("run", job, timeout_s=loop.timeout_s)
        if isinstance(said, Failure) and said.kind != "refused":
            self.fresh()
        return said

    def _judged(self, said: Mapping[str, Any], loop: Loop) -> Timed | Failure:
        """The samples that the device reported, or a failure for wrong outputs or impossible times."""
        error = said["error"]
        if error is not None and not error <= loop.tolerance:
            message = f"outputs differ by {error:.2g} of their largest magnitude, more than {loop.tolerance:g}"
            return Failure(stage="check", kind="wrong-output", transient=False, message=message)
        times, cpu = (tuple(float(t) for t in said[name]) for name in ("times_s", "cpu_s"))
        if not sound_times(times + cpu):
            message = f"the device reported invalid times: {[*times, *cpu][:5]}"
            return Failure(stage="run", kind="wrong-output", transient=True, message=message)
        return Timed(times_s=times, cpu_s=cpu, error=error, server=self.server)


class Builders:
    """Child programs that compile for a device; as many as this machine has processors, but at most four.

    A build is ended after `timeout_s` seconds of processor time.
    """

    def __init__(self, pool: TvmPool, device: TunedDevice, *, timeout_s: float) -> None:
        self._device, self._folder, self._numbers = device, pool.folder, itertools.count()
        self._timeout_s = timeout_s
        self._workers: queue.SimpleQueue[TvmWorker] = queue.SimpleQueue()
        self.count = max(1, min(_MOST_BUILDERS, len(os.sched_getaffinity(0))))
        for _ in range(self.count):
            self._workers.put(pool.worker(job_timeout_s=_WAITS * timeout_s))

    def build(self, wanted: Sequence[tuple[TuningLayer, Any]]) -> tuple[LayerCall | Failure, ...]:
        """For each layer, in order, the call of the layer compiled with the configuration (None: untuned), or the
        failure.
        """
        with ThreadPoolExecutor(self.count, thread_name_prefix="build") as pool:
            return tuple(pool.map(self._built, wanted))

    def _built(self, wanted: tuple[TuningLayer, Any]) -> LayerCall | Failure:
        layer, trace = wanted
        library = self._folder / f"{configuration_id(layer.layer, trace)}-{next(self._numbers)}.so"
        job = {
            "do": "build",
            "layer": layer.layer,
            "workload": layer.workload,
            "trace": trace,
            "target": dict(self._device.target),
            "linker": self._device.linker,
            "library": _path(library),
            "cpu_s": self._timeout_s,
        }
        worker = self._workers.get()
        try:
            said = worker.ask("build", job)
        finally:
            self._workers.put(worker)
        if isinstance(said, Failure) and said.message.endswith(_OVERTIME):
            message = f"the build took longer than {self._timeout_s:g} s of processor time"
            return replace(said, kind="hang", message=message)
        if isinstance(said, Failure):
            return said
        return LayerCall(library=library, arguments=layer.arguments, outputs=tuple(int(i) for i in said["outputs"]))


def discard(*built: LayerCall | Failure) -> None:
    """Remove the libraries of built layers."""
    for call in built:
        if isinstance(call, LayerCall):
            call.library.unlink(missing_ok=True)


def visits(
    bench: Bench, keys: Iterable[T], processes: int, seed: int, wanted: Callable[[T, int], object], *, rounds: int = 1
) -> Iterator[tuple[T, int]]:
    """Keys in random order, in each of several fresh processes on the device, with several rounds in each process.

    Yields a key and the number of a round if `wanted` returns True for the two; a key that is not wanted in a round is
    left out of that process's later rounds.
    """
    rng, every = random.Random(seed), list(keys)  # noqa: S311 - an order, not a secret
    for _ in range(processes):
        left = every
        for number in range(rounds):
            left = [key for key in left if wanted(key, number)]
            rng.shuffle(left)
            if left and not number:
                bench.fresh()
            yield from ((key, number) for key in left)
