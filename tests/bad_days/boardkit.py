"""A board behind SSH for jobs: its configuration as a user would write it, Pythons with little in them, sudden deaths.

The board is a real SSH server on this machine (`tests.devices.shell.sshkit`) with a home, leases and temporary files
of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.bad_days.livekit import python_with, site_of
from tests.devices.shell.sshkit import SshServer, becomes, missing, ssh_server, user

from gnomon.devices.address import Address
from gnomon.devices.config import DeviceConfig
from gnomon.measure.progress import Progress

__all__ = ["python_with", "site_of"]


@dataclass(frozen=True, kw_only=True)
class Board:
    """A running server and the Python there that measures."""

    server: SshServer
    python: Path

    @property
    def root(self) -> Path:
        """Where all lies that the board has of its own."""
        return self.server.root

    @property
    def cache(self) -> Path:
        """Where pushed things stay between visits."""
        return self.server.home / ".cache" / "gnomon" / "pushed"

    def config(self, **changes: Any) -> DeviceConfig:
        """The board as the user's file of devices would describe it."""
        known: dict[str, Any] = {
            "name": "board",
            "address": Address(kind="ssh", user=user(), host=self.server.address, port=self.server.port),
            "python": str(self.python),
            "ssh_options": (
                f"IdentityFile={self.root}/user_key",
                "IdentitiesOnly=yes",
                "IdentityAgent=none",
                "StrictHostKeyChecking=yes",
                f"UserKnownHostsFile={self.root}/known_hosts",
            ),
        }
        return DeviceConfig(**{**known, **changes})

    def clean(self) -> bool:
        """Whether no process and no private folder of gnomon's is there, waiting for it."""
        return becomes(lambda: not self.processes() and not self.server.private_folders())

    def processes(self) -> list[int]:
        """The processes that run on the board."""
        return self.server.processes()


def give_version(folder: Path, package: str, version: str, more: str = "") -> None:
    """Let a package of a virtual environment, linked there by `python_with`, say that it is of another version.

    `more` is what else it does when it is imported, before anything of its own.
    """
    place = site_of(folder) / package
    true = place.resolve()
    place.unlink()
    place.mkdir()
    for entry in true.iterdir():
        if entry.name not in ("__init__.py", "__pycache__"):
            (place / entry.name).symlink_to(entry)
    text = (true / "__init__.py").read_text(encoding="utf-8")
    (place / "__init__.py").write_text(f"{more}\n{text}\n__version__ = {version!r}\n", encoding="utf-8")


@contextlib.contextmanager
def running_board(
    folder: Path, packages: Sequence[str] = (), *, environment: Mapping[str, str] | None = None
) -> Iterator[Board]:
    """A board below a new folder, whose Python has these packages of this machine."""
    if what := missing():
        pytest.skip(what)
    folder.mkdir(parents=True, exist_ok=True)
    python = python_with(folder / "python", packages)
    with ssh_server(folder / "server", environment=dict(environment or {})) as server:
        yield Board(server=server, python=python)


def switch_off(board: Board) -> None:
    """End the server and all connections at once, as a loss of power would."""
    board.server.kill_sessions()
    board.server.process.kill()
    board.server.process.wait(timeout=20)
    board.server.kill_sessions()


def switch_on(board: Board) -> None:
    """Start the server again on the same port."""
    board.server.start()


class Once:
    """Does something the first time that a stage got so far; to be given to a job as its `watch`."""

    def __init__(self, stage: str, done: int, deed: Any) -> None:
        self._stage, self._done, self._deed = stage, done, deed
        self.happened = False

    def __call__(self, progress: Progress) -> None:
        if not self.happened and progress.stage == self._stage and progress.done >= self._done:
            self.happened = True
            self._deed()
