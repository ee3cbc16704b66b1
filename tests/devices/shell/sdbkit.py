"""Devices of the stand-in for `sdb` (tests/standins/sdb)."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.devices.shell import plainkit
from tests.processkit import processes_with

from gnomon.devices.shell.bridge import BridgeDevice
from gnomon.devices.shell.bridge_link import BridgeSettings
from gnomon.devices.shell.sdb import SDB

STAND_IN = Path(__file__).parents[2] / "standins" / "sdb"
SERIAL = "emulator-26101"


def stand_in(folder: Path) -> Path:
    """A copy of the stand-in that starts at once: no launcher of Pythons in between, no site packages."""
    copy = folder / "program" / "sdb"
    if not copy.exists():
        copy.parent.mkdir(parents=True)
        _, _, source = STAND_IN.read_text().partition("\n")
        copy.write_text(f"#!{os.path.realpath(sys.executable)} -IS\n{source}")
        copy.chmod(0o755)
    return copy


class Board:
    """A device of the stand-in."""

    def __init__(self, root: Path, serial: str = SERIAL, *, path: Path | None = None) -> None:
        self.root, self.folder = root, root / serial
        self.program = stand_in(root.parent)
        for name in ("home", "tmp"):
            (self.folder / name).mkdir(parents=True)
        self.leases = self.folder / "leases"
        self.say("environment", f"GNOMON_LEASES={self.leases}\n")
        if path is not None:
            self.say("path", str(path))

    def say(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def settings(self, **changes: Any) -> BridgeSettings:
        """How to reach it."""
        return BridgeSettings(**{"bridge": SDB, "name": "board", "program": str(self.program), **changes})

    def device(self, *, on_wait: Callable[[str], None] | None = None, **changes: Any) -> BridgeDevice:
        """It as a device."""
        return BridgeDevice(self.settings(**changes), on_wait=on_wait)

    def private_folders(self) -> list[Path]:
        return list((self.folder / "tmp").glob("gnomon-*"))

    def processes(self) -> list[int]:
        """What still runs on the device."""
        return processes_with("TMPDIR", str(self.folder / "tmp"))

    def end(self) -> None:
        server = self.root / ".server"
        if server.exists():
            with contextlib.suppress(ProcessLookupError):  # it ends by itself after a while
                os.kill(int(server.read_text()), signal.SIGKILL)
            server.unlink()


def boards(root: Path, *, poor: bool) -> Iterator[Board]:
    """One device of a root of its own, on the path as long as this is asked; `poor` has a shell and small programs."""
    path = None
    if poor:
        if what := plainkit.missing():
            pytest.skip(what)
        path = plainkit.programs(root / "bin", helpful=False)
        (path / "tail").symlink_to(str(shutil.which("tail")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SDB_STANDIN", str(root / "devices"))
        found = Board(root / "devices", path=path)
        yield found
        found.end()
