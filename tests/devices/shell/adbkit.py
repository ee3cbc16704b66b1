"""Phones of the stand-in for adbd (tests/standins/adbd), reached by the real `adb` and a server of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.devices.shell import plainkit
from tests.devices.shell.sshkit import free_port
from tests.processkit import becomes, processes_with

from gnomon.devices.shell.adb import ADB
from gnomon.devices.shell.bridge import BridgeDevice
from gnomon.devices.shell.bridge_link import BridgeSettings

STAND_IN = Path(__file__).parents[2] / "standins" / "adbd"
_UNTIL_S = 30.0


def missing() -> str | None:
    """What this machine lacks for these tests, if anything."""
    return None if shutil.which("adb") else "not installed: adb (Debian: adb)"


class Phone:
    """A phone of the stand-in; `start` lets it answer."""

    def __init__(self, folder: Path, *, path: Path | None = None, features: str = "shell_v2") -> None:
        self.folder = folder
        for name in ("home", "tmp"):
            (folder / name).mkdir(parents=True)
        self.leases = folder / "leases"
        self.say("environment", f"GNOMON_LEASES={self.leases}\n")
        self.say("features", features)
        if path is not None:
            self.say("path", str(path))
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def serial(self) -> str:
        return f"127.0.0.1:{self.port}"

    def say(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def start(self) -> None:
        """Answer, at the same port as before."""
        (self.folder / "port").unlink(missing_ok=True)
        argv = [sys.executable, "-I", "-S", str(STAND_IN), str(self.folder), str(self.port)]
        self._process = process = subprocess.Popen(argv, start_new_session=True)
        assert becomes(lambda: (self.folder / "port").exists() or process.poll() is not None)
        self.port = int((self.folder / "port").read_text())

    def leave(self) -> None:
        """Go away as a phone does whose cable is pulled: nothing says good-bye, and its processes live on."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def settings(self, **changes: Any) -> BridgeSettings:
        """How to reach it."""
        return BridgeSettings(**{"bridge": ADB, "name": "phone", "serial": self.serial, **changes})

    def device(self, *, on_wait: Callable[[str], None] | None = None, **changes: Any) -> BridgeDevice:
        """It as a device."""
        return BridgeDevice(self.settings(**changes), on_wait=on_wait)

    def private_folders(self) -> list[Path]:
        return list((self.folder / "tmp").glob("gnomon-*"))

    def processes(self) -> list[int]:
        """What still runs on the phone."""
        return processes_with("TMPDIR", str(self.folder / "tmp"))


def adb(*words: str) -> str:
    """What adb prints."""
    done = subprocess.run(["adb", *words], capture_output=True, text=True, timeout=_UNTIL_S, check=False)
    return done.stdout + done.stderr


@contextlib.contextmanager
def adb_server() -> Iterator[None]:
    """A server of adb's own port and home, which ends with the block."""
    if what := missing():
        pytest.skip(what)
    with tempfile.TemporaryDirectory(prefix="gnomon-adb-") as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANDROID_ADB_SERVER_PORT", str(free_port()))
        patch.setenv("ADB_LOCAL_TRANSPORT_MAX_PORT", "5553")  # it looks for no emulators
        patch.setenv("HOME", home)
        for name in ("ANDROID_SERIAL", "ADB_VENDOR_KEYS", "ANDROID_ADB_SERVER_ADDRESS"):
            patch.delenv(name, raising=False)
        try:
            adb("start-server")
            yield
        finally:
            adb("kill-server")


@contextlib.contextmanager
def phone(folder: Path, *, poor: bool = False, features: str = "shell_v2") -> Iterator[Phone]:
    """One phone that answers; `poor` has a shell and small programs alone.

    The adb server is the caller's.
    """
    path = None
    if poor:
        if what := plainkit.missing():
            pytest.skip(what)
        path = plainkit.programs(folder.with_name(f"{folder.name}-bin"), helpful=False)
        (path / "tail").symlink_to(os.path.realpath(str(shutil.which("tail"))))
    found = Phone(folder, path=path, features=features)
    found.start()
    try:
        yield found
    finally:
        found.leave()
        adb("disconnect", found.serial)
