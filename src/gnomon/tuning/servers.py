"""A tracker of TVM's RPC protocol and servers of its own on this machine, as child programs that end with gnomon."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from gnomon.devices.guard import Guard
from gnomon.errors import DeviceError
from gnomon.tuning.device_settings import DeviceSetting
from gnomon.tuning.rpc_address import LOOPBACK, checked_bind, free_port
from gnomon.tuning.tracker import Tracker
from gnomon.tuning.tracker_reply import address_of
from gnomon.tuning.tvm_program import Place, TvmProgram, require_tvm

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
