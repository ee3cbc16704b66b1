"""A real tracker with two really different servers on this machine, started once for all tests of a run.

`rpc_devices` is the fixture: import it into a test module by name. `arrangement()` is the same as a context manager.
"""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections.abc import Iterator

import pytest

from gnomon.tuning.servers import Arrangement, RpcServers, ServersRequest, device_settings

_MISSING = [
    name for name in ("tvm", "tvm_ffi", "tornado", "psutil", "cloudpickle") if importlib.util.find_spec(name) is None
]
MISSING = f"TVM and its servers are not installed: no {', '.join(_MISSING)}" if _MISSING else None

needs_tvm = pytest.mark.skipif(MISSING is not None, reason=MISSING or "TVM is there")

_START_S = 90.0


@contextlib.contextmanager
def servers(count: int = 2) -> Iterator[RpcServers]:
    """A tracker with so many servers of its own, on free ports of loopback; ended whole after the block."""
    if MISSING:
        pytest.skip(MISSING)
    with RpcServers(ServersRequest(devices=device_settings(count), start_s=_START_S)) as running:
        yield running


@contextlib.contextmanager
def arrangement(count: int = 2) -> Iterator[Arrangement]:
    """As `servers`, for who wants to know only where they are. They are not tended: one that is crashed is gone."""
    with servers(count) as running:
        yield running.arrangement


class _Shared:
    """Modules that import a session's fixture each have one of their own: all of these share one arrangement."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._running: RpcServers | None = None
        self._users = 0

    def open(self) -> RpcServers:
        if self._running is None:
            self._running = self._stack.enter_context(servers())
        self._users += 1
        return self._running

    @property
    def running(self) -> RpcServers:
        assert self._running is not None, "only while a test has the fixture"
        return self._running

    def close(self) -> None:
        self._users -= 1
        if self._users == 0:
            self._running = None
            self._stack.close()


_SHARED = _Shared()


@pytest.fixture(scope="session")
def rpc_servers() -> Iterator[RpcServers]:
    """The shared tracker with its servers `wide` and `narrow`, as what runs them."""
    running = _SHARED.open()
    try:
        yield running
    finally:
        _SHARED.close()


@pytest.fixture(scope="session")
def rpc_devices() -> Iterator[Arrangement]:
    """The shared tracker with `wide` and `narrow`. A test that crashes one calls `revive` at its end."""
    running = _SHARED.open()
    try:
        yield running.arrangement
    finally:
        _SHARED.close()


def revive(running: RpcServers | None = None, *, timeout_s: float = 40.0) -> None:
    """Until all servers (of the shared arrangement) are listed again; crashed ones are started anew."""
    running = running or _SHARED.running
    until_s = time.monotonic() + timeout_s
    wanted = {served.setting.key for served in running.arrangement.devices}
    while True:
        running.tend(lambda line: None)
        if set(running.arrangement.tracker.summary().keys) == wanted:
            return
        assert time.monotonic() < until_s, "the servers did not come back"
        time.sleep(0.2)
