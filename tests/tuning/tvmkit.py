"""A real tracker with two really different servers on this machine, started once for all tests of a run.

`rpc_devices` is the fixture: import it into a test module by name.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gnomon.system.process import Guard
from gnomon.tuning.tracker import Tracker

_MISSING = [
    name for name in ("tvm", "tvm_ffi", "tornado", "psutil", "cloudpickle") if importlib.util.find_spec(name) is None
]
MISSING = f"TVM and its servers are not installed: no {', '.join(_MISSING)}" if _MISSING else None

needs_tvm = pytest.mark.skipif(MISSING is not None, reason=MISSING or "TVM is there")

LOOPBACK = "127.0.0.1"
_START_S = 90.0
_BOUND = re.compile(rb"bind to \S+:([0-9]{1,5})\s*$", re.ASCII | re.MULTILINE)


def living(group: int) -> list[int]:
    """The processes of a group that run; one that has ended and waits to be asked how is none."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                state, _, owner = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:3]
                if int(owner) == group and state not in "ZX":
                    found.append(int(folder.name))
    return found


@dataclass(kw_only=True)
class Server:
    """A server of the tracker: its key, threads, what is compiled for it, its process group and its port."""

    key: str
    threads: int
    target: str
    group: int = 0
    port: int = 0

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"{LOOPBACK}:{self.port}"


class Tracked:
    """A tracker with its servers, started by `python -m tvm.exec`. Ended whole, also if these tests are killed."""

    def __init__(self, servers: list[Server]) -> None:
        self.servers = servers
        self._guard = Guard()
        self.folder = self._guard.folder("gnomon-test-rpc-")
        # TVM imports PyTorch where it can, for two thirds of the start of each of its processes.
        (self.folder / "without").mkdir()
        (self.folder / "without" / "torch.py").write_text("raise ImportError('there is no PyTorch for TVM')\n")
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        group, port = self._program("rpc_tracker", {"TVM_USE_RUNTIME_LIB": "1"})
        self.tracker_group, self.tracker = group, Tracker(host=LOOPBACK, port=port)
        for server in servers:
            self.start(server)

    def address(self, key: str) -> str:
        """The address of the device with that key."""
        return f"tvm://{self.tracker.address}/{key}"

    def of(self, key: str) -> Server:
        """The server with that key."""
        return next(server for server in self.servers if server.key == key)

    def start(self, server: Server) -> None:
        """Start a server, until the tracker lists it as free."""
        known = ("--tracker", self.tracker.address, "--key", server.key)
        server.group, server.port = self._program("rpc_server", {"TVM_NUM_THREADS": str(server.threads)}, *known)
        until_s = time.monotonic() + _START_S
        while True:
            found = self.tracker.summary()
            if server.key in found.queue_info and server.port in {one.addr[1] for one in found.of(server.key)}:
                return
            assert time.monotonic() < until_s, f"{server.key} is not listed"
            time.sleep(0.05)

    def revive(self) -> None:
        """Until all servers are listed; those that were lost are started again."""
        for server in self.servers:
            until_s = time.monotonic() + 2.0
            while server.port not in {one.addr[1] for one in self.tracker.summary().of(server.key)}:
                if not living(server.group) or time.monotonic() > until_s:
                    self.kill(server.group)
                    self.start(server)
                    break
                time.sleep(0.1)

    def kill(self, group: int) -> None:
        """End a program with all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
        self._processes.pop(group).wait(timeout=20)
        self._guard.drop(group)

    def close(self) -> None:
        """End all of it."""
        for group in list(self._processes):
            self.kill(group)
        self._guard.close()

    def _program(self, module: str, more: dict[str, str], *words: str) -> tuple[int, int]:
        first = 20_000 + 500 * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 20)
        log = self.folder / f"{module}-{time.monotonic_ns()}.log"
        with log.open("wb") as file:
            process = self._guard.start(
                [
                    *(sys.executable, "-P", "-m", f"tvm.exec.{module}", "--host", LOOPBACK),
                    *("--port", str(first), "--port-end", str(first + 500), *words),
                ],
                stdin=subprocess.DEVNULL,
                stdout=file.fileno(),
                stderr=file,
                env={
                    **os.environ,
                    "TMPDIR": str(self.folder),
                    "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1",
                    "PYTHONPATH": str(self.folder / "without"),
                    **more,
                },
                cwd=self.folder,
            )
        self._processes[process.pid] = process
        until_s = time.monotonic() + _START_S
        while (found := _BOUND.search(log.read_bytes())) is None:
            assert process.poll() is None and time.monotonic() < until_s, log.read_text(errors="replace")
            time.sleep(0.05)
        return process.pid, int(found[1])


def wide_and_narrow() -> list[Server]:
    """Two really different devices of this machine: all cores and its own processor, one thread and the plainest code.

    The order of schedules by their time differs between them, as it does between two machines.
    """
    plainest = {"x86_64": "x86-64", "aarch64": "generic"}.get(platform.machine(), "generic")
    return [
        Server(key="wide", threads=len(os.sched_getaffinity(0)), target="native"),
        Server(key="narrow", threads=1, target=plainest),
    ]


@contextlib.contextmanager
def tracked(servers: list[Server]) -> Iterator[Tracked]:
    """A tracker with these servers, for as long as the block lasts."""
    if MISSING:
        pytest.skip(MISSING)
    running = Tracked(servers)
    try:
        yield running
    finally:
        running.close()


class _Shared:
    """Modules that import a session's fixture each have one of their own: all of these share one tracker."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._running: Tracked | None = None
        self._users = 0

    def open(self) -> Tracked:
        if self._running is None:
            self._running = self._stack.enter_context(tracked(wide_and_narrow()))
        self._users += 1
        return self._running

    def close(self) -> None:
        self._users -= 1
        if self._users == 0:
            self._running = None
            self._stack.close()


_SHARED = _Shared()


@pytest.fixture(scope="session")
def rpc_devices() -> Iterator[Tracked]:
    """The shared tracker with `wide` and `narrow`. A test that crashes one calls its `revive` at the end."""
    running = _SHARED.open()
    try:
        yield running
    finally:
        _SHARED.close()
