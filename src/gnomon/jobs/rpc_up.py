"""A tracker with servers on this machine, from their start until a signal: what `gnomon rpc up` runs."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from gnomon.errors import DeviceError, UsageError
from gnomon.tuning.device_settings import MOST_DEVICES, device_settings
from gnomon.tuning.rpc_address import LOOPBACK
from gnomon.tuning.servers import Arrangement, RpcServers, ServersRequest
from gnomon.tuning.tracker import Tracker

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TEND_S = 2.0

Document = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcRequest:
    """How many devices to make of this machine, and where the tracker listens (port 0: a free one)."""

    devices: int = 2
    port: int = 0
    bind: str = LOOPBACK


def rpc_up(request: RpcRequest, *, begun: Callable[[Document], None], tell: Callable[[str], None]) -> int:
    """Serve until SIGINT, SIGTERM or SIGHUP comes, and return its number; from the main thread. Nothing is left then.

    `begun` gets the document of what runs once all of it does, and again when a server that crashed was started anew;
    `tell` gets a line of each such event. Raises what entering `RpcServers` raises, and DeviceError if the tracker
    ends or a server cannot be started again.
    """
    if not 1 <= request.devices <= MOST_DEVICES:
        raise UsageError(f"{request.devices} devices cannot be made", hint=f"Give --devices 1 to {MOST_DEVICES}.")
    wanted = ServersRequest(devices=device_settings(request.devices), bind=request.bind, port=request.port)
    with _signals() as (stop, numbers):
        try:
            with RpcServers(wanted, stop) as servers:
                last = servers.arrangement
                begun(arrangement_document(last))
                while not stop.wait(_TEND_S):
                    servers.tend(tell)
                    if servers.arrangement != last:
                        last = servers.arrangement
                        begun(arrangement_document(last))
        except DeviceError:
            if not numbers:
                raise
        return numbers[0]


def arrangement_document(arrangement: Arrangement) -> Document:
    """What runs, for people and programs: addresses, devices, a warning to show, and the command to try."""
    return {
        "tracker": arrangement.tracker.address,
        "process": os.getpid(),
        "devices": [
            {
                "key": device.setting.key,
                "threads": device.setting.threads,
                "target": device.setting.target,
                "server": device.address,
            }
            for device in arrangement.devices
        ],
        "warning": arrangement.warning,
        "try": tune_command(arrangement),
    }


def tune_command(arrangement: Arrangement) -> str:
    """The command that tunes a model for the first device."""
    first = arrangement.devices[0].setting
    return f"gnomon tune MODEL.onnx --tracker {arrangement.tracker.address} --key {first.key} --target {first.target}"


def tracker_document(tracker: Tracker) -> Document:
    """The keys of a tracker, each with its servers and how many are free. DeviceError if it does not answer."""
    found = tracker.summary()
    return {
        "tracker": tracker.address,
        "keys": [
            {
                "key": key,
                "servers": [server.address for server in found.of(key)],
                "free": found.queue(key).free,
                "pending": found.queue(key).pending,
            }
            for key in found.keys
        ],
    }


@contextlib.contextmanager
def _signals() -> Iterator[tuple[threading.Event, list[int]]]:
    """An event that the signals set, and the numbers of those that came; the handlers are as before afterwards."""
    stop: threading.Event = threading.Event()
    numbers: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        numbers.append(number)
        stop.set()

    # One that is ignored stays so: nohup has it from whoever started this.
    before = {n: signal.getsignal(n) for n in _SIGNALS}
    for number, handler in before.items():
        if number != signal.SIGHUP or handler is not signal.SIG_IGN:
            signal.signal(number, end)
    try:
        yield stop, numbers
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
