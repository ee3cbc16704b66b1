"""TVM's server on a device, started through the Device protocol and reached through a forwarded port.

A thread holds the device while the server runs, because the device's methods belong to one thread. `Device.run` ends
the processes that it started, however the call ends, even if gnomon is killed.
"""

from __future__ import annotations

import contextlib
import json
import math
import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from gnomon.devices.base import Device
from gnomon.devices.config import DeviceConfig
from gnomon.devices.forward import forwarded
from gnomon.devices.opening import opened
from gnomon.errors import DeviceError, RuntimeMissingError, UsageError
from gnomon.installing import extras
from gnomon.system.children import CHILDREN
from gnomon.system.files import user_folder
from gnomon.system.process import Guard
from gnomon.system.stopping import Stopped, stop_at
from gnomon.tuning.tracker import FreeServer

_PROGRAM = CHILDREN / "tvm" / "serve.py"
_NEEDED = ("apache-tvm", "apache-tvm-ffi", "cloudpickle", "psutil")
_LONG_S = 30 * 86400.0
_POLL_S = 1.0
_HELLO_S = 300.0
_JOIN_S = 60.0

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """A server's first message: its port on the device and the processor that it runs on."""

    port: int
    mcpu: str
    mtriple: str


def check_own(config: DeviceConfig) -> None:
    """Raise UsageError for a device on which gnomon cannot start a server."""
    if config.address.kind != "ssh":
        raise UsageError(
            f"gnomon cannot start TVM's server on {config.name}, a device of the kind {config.address.kind!r}",
            hint="Start a server that registers with a tracker (Android: TVM's RPC app), and give tvm://HOST:PORT/KEY.",
        )


class OwnServer:
    """A context manager for TVM's server on a device reached by ssh; the device is held meanwhile.

    Entering raises GnomonError if the device cannot be reached, or if it has no TVM and gnomon cannot install TVM.
    `guard` ends the local processes if gnomon is killed; `tell` receives a sentence when gnomon waits or copies files.
    """

    def __init__(self, config: DeviceConfig, guard: Guard, tell: Tell) -> None:
        check_own(config)
        self._config, self._guard, self._tell = config, guard, tell
        self._key = secrets.token_hex(16)
        self._run: _Run | None = None
        self._forward = contextlib.ExitStack()
        self._place = ("", 0)
        self.info = ServerInfo(port=0, mcpu="", mtriple="")

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._end()

    def free(self, wait_s: float, *, again: bool = False) -> FreeServer:
        """The server's address. A server that was lost, or that does not answer (`again`), is restarted.

        DeviceError if that takes longer than `wait_s`.
        """
        until_s = time.monotonic() + wait_s
        if again:
            self._end()
        while self._run is None or not self._run.thread.is_alive():
            self._end()
            try:
                self._start()
            except DeviceError as error:
                if not error.transient or time.monotonic() > until_s:
                    raise
                time.sleep(_POLL_S)
        host, port = self._place
        return FreeServer(host=host, port=port, matchkey=self._key, name=str(self._config.address))

    def _start(self) -> None:
        self._run = _Run(self._config, self._key, self._tell)
        try:
            self.info = self._run.info()
            self._place = self._forward.enter_context(forwarded(self._config, self.info.port, self._guard))
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        self._forward.close()
        if self._run is not None:
            self._run.end()
            self._run = None


class _Run:
    """One run of the server, in a thread that holds the device."""

    def __init__(self, config: DeviceConfig, key: str, tell: Tell) -> None:
        self._config, self._key, self._tell = config, key, tell
        self._stop = threading.Event()
        self._said: queue.SimpleQueue[ServerInfo | BaseException] = queue.SimpleQueue()
        self._began_s = math.inf
        self.thread = threading.Thread(target=self._serve, name="gnomon-tvm-server", daemon=True)
        self.thread.start()

    def info(self) -> ServerInfo:
        """The server's first message. Raises the error that prevented its start, or DeviceError if no message arrives
        in time.
        """
        while time.monotonic() < self._began_s + _HELLO_S:
            with contextlib.suppress(queue.Empty):
                said = self._said.get(timeout=_POLL_S)
                if isinstance(said, ServerInfo):
                    return said
                raise said
        raise DeviceError(
            f"TVM's server on {self._config.name} did not start within {_HELLO_S:g} s",
            hint="Check whether this command finishes on the device: python3 -c 'import tvm'",
            transient=True,
        )

    def end(self) -> None:
        self._stop.set()
        self.thread.join(_JOIN_S)

    def _serve(self) -> None:
        stop_at(self._stop)
        try:
            with opened(self._config, on_wait=self._tell) as device:
                self._said.put(self._started(device))
        except Stopped:
            pass
        except BaseException as error:
            self._said.put(error)

    def _started(self, device: Device) -> DeviceError:
        """Run the server, copying TVM to the device if it has none; returns the reason why the server ended."""
        info = device.describe()
        if not info.python:
            return DeviceError(f"{self._config.name} has no Python for TVM's server", hint="Install Python there.")
        paths = [path for path in self._config.environment.get("PYTHONPATH", "").split(":") if path]
        missing, last = self._once(device, info.python, paths)
        if missing:
            folder = self._brought(info.fingerprint, missing)
            missing, last = self._once(device, info.python, [device.push(folder, "tvm"), *paths])
        if missing:
            return DeviceError(
                f"TVM cannot be loaded on {self._config.name}: {missing}",
                hint="Install TVM on the device, in the versions of gnomon's extra tvm.",
            )
        return DeviceError(
            f"TVM's server on {self._config.name} ended{': ' + last if last else ''}",
            hint="To continue, repeat the command.",
            transient=True,
        )

    def _once(self, device: Device, python: str, paths: list[str]) -> tuple[str, str]:
        """Run the server until it ends; returns the reason why TVM is missing (or "") and the last error line."""
        missing = ""

        def heard(line: str) -> None:
            nonlocal missing
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                facts: Mapping[str, Any] = json.loads(line)
                missing = str(facts.get("missing", ""))
                if not missing:
                    info = ServerInfo(port=int(facts["port"]), mcpu=str(facts["mcpu"]), mtriple=str(facts["mtriple"]))
                    self._said.put(info)

        # The program contains a secret key, so it is sent through standard input: all users can see a process's
        # arguments.
        call = f"\nmain({self._key!r}, {list(self._config.pin)!r})\n"
        self._began_s = time.monotonic()
        done = device.run(
            [python, "-"],
            env={
                "PYTHONSAFEPATH": "1",
                "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1",
                **({"TVM_BIND_THREADS": "0"} if self._config.pin else {}),
                **self._config.environment,
                **({"PYTHONPATH": ":".join(paths)} if paths else {}),
            },
            stdin=(_PROGRAM.read_text(encoding="utf-8") + call).encode(),
            timeout_s=_LONG_S,
            on_line=heard,
        )
        self._began_s = math.inf  # steps before the next try, such as copying TVM, have their own time limits
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        return missing, lines[-1][:300] if lines else ""

    def _brought(self, fingerprint: Mapping[str, Any], missing: str) -> Any:
        from gnomon.devices.packages.provide import provide

        try:
            needed = ("numpy", *(extras()["tvm"][package] for package in _NEEDED))
            return provide(needed, fingerprint, home=user_folder(), fetch=self._config.fetch, tell=self._tell)
        except RuntimeMissingError as error:
            raise RuntimeMissingError(
                f"{self._config.name} has no working TVM ({missing}), and gnomon cannot install it: {error.message}",
                hint=error.hint,
            ) from error
