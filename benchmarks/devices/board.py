"""A stand-in for a board: a loopback SSH server with its own home, temporary folder and bare Python."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gnomon.devices.address import Address
from gnomon.devices.config import DeviceConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """The address of a board, and the place of its cache of pushed files."""

    config: DeviceConfig
    home: Path

    def forget(self) -> None:
        """Remove all pushed files."""
        shutil.rmtree(self.home / ".cache", ignore_errors=True)


@contextmanager
def board(name: str = "board") -> Iterator[Board]:
    """A running board whose Python has only the standard library. RuntimeError if there is no SSH server."""
    from tests.devices.shell.sshkit import missing, ssh_server, user

    if what := missing():
        raise RuntimeError(what)
    with tempfile.TemporaryDirectory(prefix="gnomon-board-") as folder:
        root = Path(folder) / "server"
        with ssh_server(root) as server:
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(root / "venv")], check=True)
            options = (
                f"IdentityFile={root}/user_key",
                "IdentitiesOnly=yes",
                f"UserKnownHostsFile={root}/known_hosts",
                "StrictHostKeyChecking=yes",
            )
            address = Address(kind="ssh", user=user(), host=server.address, port=server.port)
            python = str(root / "venv" / "bin" / "python3")
            yield Board(
                config=DeviceConfig(name=name, address=address, python=python, ssh_options=options), home=server.home
            )
