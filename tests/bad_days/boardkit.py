"""A board behind SSH for jobs: its configuration as a user would write it, Pythons with little in them, sudden deaths.

The board is a real SSH server on this machine (`tests.devices.shell.sshkit`) with a home, leases and temporary files
of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.devices.shell.sshkit import SSHD, SshServer, becomes, missing, ssh_server, user

from gnomon.devices.address import Address
from gnomon.devices.config import DeviceConfig
from gnomon.measure.effort import Effort
from gnomon.measure.progress import Progress


@dataclass(frozen=True, kw_only=True)
class Board:
    """A running server and the Python there that measures."""

    server: SshServer
    python: Path

    @property
    def root(self) -> Path:
        """Where all lies that the board has of its own; livekit's `processes_in` and `nothing_left` take it."""
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
        """The processes that run on the board, told by its environment."""
        return [pid for pid in _everybody() if _runs_in(pid, self.server.tmp)]


def _everybody() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]


def _runs_in(pid: int, temporary: Path) -> bool:
    wanted = f"TMPDIR={temporary}".encode()
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if not any(v == wanted or v.startswith(wanted + b"/") for v in variables):
            return False
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def workers(board: Board) -> list[int]:
    """The processes of the board that measure."""
    found = []
    for pid in board.processes():
        with contextlib.suppress(OSError):
            if b"work" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def python_with(folder: Path, packages: Sequence[str] = ()) -> Path:
    """A Python of its own that has only these of the packages that are installed here; skips where one is not."""
    venv.create(folder, symlinks=True)  # in this process, as one of its own takes longer than all else here
    for package in packages:
        home = next((Path(p) / package for p in sys.path if (Path(p) / package).is_dir()), None)
        if home is None:
            pytest.skip(f"{package} is not installed here")
        for entry in (home, home.with_name(f"{package}.libs")):
            if entry.exists():
                (site_of(folder) / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


def site_of(folder: Path) -> Path:
    """Where a virtual environment has its packages."""
    return next(folder.glob("lib/python3*/site-packages"))


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
    log = board.root / "sshd.log"
    heard = log.read_text(errors="replace").count("Server listening")
    with log.open("ab") as errors:
        board.server.process = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", str(board.root / "sshd_config")],
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            start_new_session=True,
        )
    assert becomes(lambda: log.read_text(errors="replace").count("Server listening") > heard)


class Once:
    """Does something the first time that a stage got so far; to be given to a job as its `watch`."""

    def __init__(self, stage: str, done: int, deed: Any) -> None:
        self._stage, self._done, self._deed = stage, done, deed
        self.happened = False

    def __call__(self, progress: Progress) -> None:
        if not self.happened and progress.stage == self._stage and progress.done >= self._done:
            self.happened = True
            self._deed()


_PLACE = """
import json, sys
from pathlib import Path
from gnomon.devices.opening import resolve
from gnomon.session.request import ModelRequest
from gnomon.jobs.place.job import place
from gnomon.measure.effort import Effort
asked = json.loads(sys.argv[1])
request = ModelRequest(
    model=Path(asked["model"]),
    device=resolve(asked["device"]),
    record=Path(asked["record"]),
    effort=Effort(**asked["effort"]),
    runtimes=tuple(asked["runtimes"]),
)
found = place(
    request, Path(asked["out"]), overwrite=True,
    watch=lambda p: print("progress", p.stage, p.done, flush=True),
    tell=lambda text: print("told", text, flush=True),
)
print("resumed" if found.resumed else "new", found.verified.ok, flush=True)
"""


def start_place(
    folder: Path, model: Path, effort: Effort, device: str, runtimes: Sequence[str], out: str = "out"
) -> subprocess.Popen[str]:
    """`place` on a device of the user's file, in a process of its own with its temporary files below `folder`."""
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    asked = {
        "model": str(model),
        "device": device,
        "record": str(folder / "record.sqlite"),
        "out": str(folder / out),
        "effort": asdict(effort),
        "runtimes": list(runtimes),
    }
    return subprocess.Popen(
        [sys.executable, "-c", _PLACE, json.dumps(asked)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
        start_new_session=True,
    )
