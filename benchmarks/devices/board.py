"""A loopback SSH server with a home, a temporary folder and a bare Python of its own, standing for a board."""

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
    """How it is reached, and where its cache of pushed files is."""

    config: DeviceConfig
    home: Path

    def forget(self) -> None:
        """Remove all that was pushed before."""
        shutil.rmtree(self.home / ".cache", ignore_errors=True)


@contextmanager
def board(name: str = "board") -> Iterator[Board]:
    """A running board: the standard library is all that its Python has. RuntimeError where there is no SSH server."""
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
