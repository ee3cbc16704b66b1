"""A tracker of TVM's RPC protocol and servers of its own on this machine, as child programs that end with gnomon.

One of TVM's own server programs: started in a group of its own, its port read from its log, ended as a whole group.

`python -m tvm.exec.rpc_server` starts a second process that does the work and goes on after the first was ended, so
one is never ended without the other.

Where servers that have no authentication may listen: loopback, or an address that was asked for by name.

Really different devices made of one machine: servers that have other threads, and code for other vector units.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import ipaddress
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from gnomon.core.installing import install_line
from gnomon.core.strict_json import shown
from gnomon.errors import DeviceError, RuntimeMissingError, UsageError
from gnomon.system.children import Program, child_environment, tail
from gnomon.system.process import Guard
from gnomon.tuning.tracker import Tracker, address_of

_INSTALL = install_line("tvm", python=sys.executable)
_PACKAGES = ("tvm", "tvm_ffi", "tornado", "psutil", "cloudpickle")
_BOUND = re.compile(rb"bind to \S+:([0-9]{1,5})\s*$", re.ASCII | re.MULTILINE)
_LOG_HEAD_BYTES = 1 << 16
_TOLD_LINES = 4
_STUCK_S = 10.0
_PROGRAM_POLL_S = 0.01


def require_tvm() -> None:
    """RuntimeMissingError that names the missing packages if the server programs cannot run here."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeMissingError(f"TVM's servers are not installed here: no {', '.join(missing)}", hint=_INSTALL)


@dataclass(frozen=True, slots=True)
class Place:
    """Where programs run: a private folder for their files and logs, and the guard that ends them if gnomon dies."""

    folder: Path
    guard: Guard


class TvmProgram:
    """A started program of `tvm.exec`. Belongs to one thread. Ends with `end`, also what it has started itself."""

    def __init__(self, module: str, arguments: Sequence[str], environment: Mapping[str, str], place: Place) -> None:
        self._guard = place.guard
        self._module = module
        self._log = place.folder / f"{module}-{time.monotonic_ns()}.log"
        # Without the second variable, loading TVM beside an old PyTorch compiles a library first: the home is new.
        more = {"PYTHONSAFEPATH": "1", "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1", **environment}
        command = (sys.executable, "-m", f"tvm.exec.{module}", *arguments)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=child_environment(Program(name=module, settings={}, environment=more), place.folder),
                cwd=place.folder,
                start_new_session=True,
            )
        place.guard.add(self._process.pid)

    @property
    def group(self) -> int:
        """The number of its process group, which is that of its first process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether its first process runs."""
        # Not reaped here: the number of its group, by which it is ended, must stay its own.
        if self._process.returncode is not None:
            return False
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None

    def port(self) -> int | None:
        """The port that it says it listens on; None as long as it has not said it."""
        with self._log.open("rb") as log:
            found = _BOUND.search(log.read(_LOG_HEAD_BYTES))
        return int(found[1]) if found else None

    def error(self, what: str) -> DeviceError | RuntimeMissingError:
        """An error that `what` happened to it, with the last that it said."""
        said = [line.strip() for line in tail(self._log).splitlines() if line.strip()]
        text = "; ".join(said[-_TOLD_LINES:])
        if "ModuleNotFoundError" in text or "ImportError" in text:
            return RuntimeMissingError(f"TVM cannot be loaded: {text}", hint=_INSTALL)
        return DeviceError(
            f"TVM's {self._module} {what}{': ' + text if text else ''}",
            hint=f"Try it by itself: {sys.executable} -m tvm.exec.{self._module} --help; TVM is installed anew with "
            + _INSTALL,
            transient=True,
        )

    def end(self) -> None:
        """End it with all that it started, and see that nothing of it is left. Does nothing the second time.

        DeviceError if something does not end though it was killed.
        """
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STUCK_S)
            until_s = time.monotonic() + _STUCK_S
            while left := living(self._process.pid):
                if time.monotonic() > until_s:
                    raise DeviceError(
                        f"{self._module} does not end though it was killed: process {left[0]} hangs in a driver",
                        hint="Restart the machine.",
                    )
                time.sleep(_PROGRAM_POLL_S)
            self._guard.drop(self._process.pid)


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


LOOPBACK = "127.0.0.1"


def checked_bind(bind: str) -> tuple[str, str]:
    """The address of this machine to listen on, and a warning to show where others can reach it (else "").

    UsageError for what is no address, for that of another machine, and for the address that means all of them: servers
    tell the tracker by which address they are reached, and that is none.
    """
    try:
        address = ipaddress.ip_address(LOOPBACK if bind == "localhost" else bind)
    except ValueError:
        raise UsageError(f"{shown(bind)} is no address", hint="Give --bind an address such as 192.168.1.5.") from None
    if address.is_unspecified:
        raise UsageError(
            f"{bind} means every address of this machine, and servers must tell by which they are reached",
            hint="Give --bind the one address by which the others reach this machine, such as 192.168.1.5.",
        )
    free_port(str(address))
    if address.is_loopback:
        return str(address), ""
    return str(address), (
        f"Whoever reaches {address} can run any program on this machine as its user: the protocol of the tracker and "
        "the servers has no authentication and runs the code that is uploaded. Use it in a closed network only."
    )


def free_port(bind: str, port: int = 0) -> int:
    """A port that is free at this moment, or `port` if that is. UsageError if it is another's, or `bind` is no address
    of this machine.
    """
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As the servers do: connections that ended a moment ago do not hold a port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((bind, port))
            found: int = probe.getsockname()[1]
            return found
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UsageError(f"port {port} of {bind} is another's", hint="Give another --port, or 0.") from error
        if error.errno == errno.EACCES:
            raise UsageError(f"port {port} is the administrator's", hint="Give a --port above 1023, or 0.") from error
        raise UsageError(
            f"{bind} cannot be listened on: {error.strerror}", hint="Give --bind an address of this machine."
        ) from error


MOST_DEVICES = 64
_PLAINEST = {"x86_64": "x86-64", "aarch64": "generic"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSetting:
    """A device to make of this machine: its `key` at the tracker and the `threads` of its server.

    `target` is what is compiled for it, as `gnomon tune --target` takes it: "native" is this machine with all its
    vector units, else the name of a processor without most of them.
    """

    key: str
    threads: int
    target: str


def device_settings(count: int) -> tuple[DeviceSetting, ...]:
    """`wide` (all cores that this process may use, native), `narrow` (one thread, the plainest code), and so on.

    More than two alternate and are numbered: wide-2, narrow-2, wide-3. The order of schedules by their time differs
    between the two kinds, as it does between two machines; devices of one kind differ by noise alone.
    """
    wide = DeviceSetting(key="wide", threads=len(os.sched_getaffinity(0)), target="native")
    narrow = DeviceSetting(key="narrow", threads=1, target=_PLAINEST.get(platform.machine(), "generic"))
    made = []
    for k in range(count):
        kind, number = (wide, narrow)[k % 2], k // 2 + 1
        key = kind.key if number == 1 else f"{kind.key}-{number}"
        made.append(DeviceSetting(key=key, threads=kind.threads, target=kind.target))
    return tuple(made)


_PORTS = 64
_POLL_S = 0.05
_UNLISTED_S = 2.0
_MOST_FAILURES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedDevice:
    """A device that is served, and the port of its server."""

    setting: DeviceSetting
    host: str
    port: int

    @property
    def address(self) -> str:
        """HOST:PORT of its server."""
        return address_of(self.host, self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """A tracker that runs and the devices that it has. `warning` is to be shown where others can reach them."""

    tracker: Tracker
    devices: tuple[ServedDevice, ...]
    warning: str = ""


@dataclass(slots=True)
class _Served:
    """A server at work: since when the tracker has not listed it, and how often in a row it could not be started."""

    setting: DeviceSetting
    program: TvmProgram
    port: int = 0
    unlisted_s: float | None = None
    failures: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersRequest:
    """What to start: devices; the address to listen on; the tracker's port (0: a free one); seconds that a start may
    take.
    """

    devices: Sequence[DeviceSetting]
    bind: str = LOOPBACK
    port: int = 0
    start_s: float = 120.0


@dataclass(slots=True)
class RpcServers:
    """Started when the block is entered, and ended whole after it; also if gnomon is killed. Belongs to one thread.

    Entering raises UsageError for an address or port that cannot be had, RuntimeMissingError without TVM, DeviceError
    if a program does not start; `stop`, which another thread or a signal sets, makes it give up.
    """

    request: ServersRequest
    stop: threading.Event = field(default_factory=threading.Event)
    _arrangement: Arrangement | None = None
    _place: Place | None = None
    _tracker: TvmProgram | None = None
    _served: list[_Served] = field(default_factory=list)

    def __enter__(self) -> RpcServers:
        bind, warning = checked_bind(self.request.bind)
        free_port(bind, self.request.port)
        require_tvm()
        folder = Path(tempfile.mkdtemp(prefix="gnomon-rpc-"))
        self._place = Place(folder, Guard(folder))
        try:
            tracker = self._started_tracker(bind)
            self._arrangement = Arrangement(tracker=tracker, devices=(), warning=warning)
            self._served = [_Served(setting, self._server(setting)) for setting in self.request.devices]
            for served in self._served:
                self._ready(served)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def arrangement(self) -> Arrangement:
        """What runs at this moment; a server that was started anew has another port."""
        assert self._arrangement is not None  # noqa: S101 - there is one once the block is entered
        devices = (
            ServedDevice(setting=s.setting, host=self._arrangement.tracker.host, port=s.port) for s in self._served
        )
        return Arrangement(tracker=self._arrangement.tracker, devices=tuple(devices), warning=self._arrangement.warning)

    @property
    def groups(self) -> tuple[int, ...]:
        """The process groups: the tracker's, then those of the servers."""
        programs = ([] if self._tracker is None else [self._tracker]) + [served.program for served in self._served]
        return tuple(program.group for program in programs)

    def tend(self, tell: Callable[[str], None]) -> None:
        """Start anew each server that has ended or is no longer listed, and tell of it; to be called every few seconds.

        A session that crashes takes its server's only thread with it: the server is not listed any more, and does not
        come back, though its process goes on. DeviceError if the tracker has ended, or a server cannot be started for
        the third time in a row.
        """
        assert self._tracker is not None  # noqa: S101
        if not self._tracker.alive:
            raise self._tracker.error("has ended")
        listed = self._listed()
        now_s = time.monotonic()
        for served in self._served:
            if not served.program.alive:
                self._anew(served, "its program has ended", tell)
            elif listed is None or (served.setting.key, served.port) in listed:
                served.unlisted_s = None
            elif served.unlisted_s is None:
                served.unlisted_s = now_s
            elif now_s - served.unlisted_s > _UNLISTED_S:
                self._anew(served, "what it ran has crashed", tell)

    def end(self) -> None:
        """End all of it and remove its files. Does nothing the second time. DeviceError if a program does not end."""
        place, self._place = self._place, None
        if place is None:
            return
        programs = [served.program for served in self._served] + ([self._tracker] if self._tracker else [])
        with contextlib.ExitStack() as last:
            last.callback(place.guard.close)
            last.callback(shutil.rmtree, place.folder, ignore_errors=True)
            for program in programs:
                last.callback(program.end)

    def _started_tracker(self, bind: str) -> Tracker:
        assert self._place is not None  # noqa: S101
        first, last = _ports(bind, self.request.port)
        arguments = ("--host", bind, "--port", str(first), "--port-end", str(last))
        # It compiles and runs nothing: the runtime alone is loaded sooner.
        self._tracker = TvmProgram("rpc_tracker", arguments, {"TVM_USE_RUNTIME_LIB": "1"}, self._place)
        until_s = time.monotonic() + self.request.start_s
        tracker = Tracker(host=bind, port=self._port_of(self._tracker, until_s))
        tracker.summary()
        return tracker

    def _server(self, setting: DeviceSetting) -> TvmProgram:
        assert self._place is not None and self._arrangement is not None  # noqa: S101
        tracker = self._arrangement.tracker
        first, last = _ports(tracker.host, 0)
        listen = ("--host", tracker.host, "--port", str(first), "--port-end", str(last))
        # The program cuts at the last colon, and knows no brackets.
        known = ("--tracker", f"{tracker.host}:{tracker.port}", "--key", setting.key)
        return TvmProgram("rpc_server", (*listen, *known), {"TVM_NUM_THREADS": str(setting.threads)}, self._place)

    def _ready(self, served: _Served) -> None:
        """Until the tracker lists the server and has heard that it is free."""
        until_s = time.monotonic() + self.request.start_s
        served.port = self._port_of(served.program, until_s)
        while (served.setting.key, served.port) not in (self._listed(offered=True) or ()):
            self._pause(served.program, until_s, "is not listed by its tracker")
        served.unlisted_s = None

    def _port_of(self, program: TvmProgram, until_s: float) -> int:
        while (port := program.port()) is None:
            self._pause(program, until_s, "does not say where it listens")
        return port

    def _pause(self, program: TvmProgram, until_s: float, what: str) -> None:
        if not program.alive:
            raise program.error("has ended")
        if time.monotonic() > until_s:
            raise program.error(f"{what} after {self.request.start_s:g} s")
        if self.stop.wait(_POLL_S):
            raise DeviceError("ended before all servers were ready", hint="Start them again.", transient=True)

    def _listed(self, *, offered: bool = False) -> set[tuple[str, int]] | None:
        """Key and port of the tracker's servers, of those that were free before if `offered`; None if it is silent."""
        try:
            found = self.arrangement.tracker.summary()
        except DeviceError:
            return None
        return {(server.key, server.port) for server in found.servers if not offered or server.key in found.queues}

    def _anew(self, served: _Served, why: str, tell: Callable[[str], None]) -> None:
        served.program.end()
        tell(f"{served.setting.key}: {why}: it is started anew")
        served.program = self._server(served.setting)
        try:
            self._ready(served)
        except DeviceError as error:
            served.failures += 1
            if served.failures >= _MOST_FAILURES or self.stop.is_set():
                raise
            served.program.end()
            tell(f"{served.setting.key}: {error.message}")
            return
        served.failures = 0
        tell(f"{served.setting.key}: ready at {address_of(self.arrangement.tracker.host, served.port)}")


def _ports(bind: str, port: int) -> tuple[int, int]:
    """The first port to try, and the one after the last: several where it is free to choose, as others choose too."""
    if port:
        return port, port + 1
    first = free_port(bind)
    return first, min(first + _PORTS, 1 << 16)
