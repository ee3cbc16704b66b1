"""A device without Python that has a stand-in for onert_run, and the real runtime below it."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.devices.shell import plainkit, sshkit

SOURCE = Path(__file__).with_name("onert_run.c")


def native() -> Path:
    """The folder of libonert.so in the wheel of onert; skips where it is not installed. Nothing is imported."""
    found = importlib.util.find_spec("onert")
    if found is None or found.origin is None:
        pytest.skip("onert is not installed")
    return Path(found.origin).parent / "native"


def stand_in(folder: Path) -> Path:
    """The stand-in, compiled as `onert_run` into the folder; skips where there is no C compiler."""
    if shutil.which("gcc") is None:
        pytest.skip("the C compiler is not installed: gcc")
    made = folder / "onert_run"
    subprocess.run(["gcc", "-O1", "-std=gnu11", "-o", str(made), str(SOURCE), "-ldl", "-lm"], check=True)
    return made


@contextlib.contextmanager
def board(root: Path, environment: dict[str, str] | None = None) -> Iterator[sshkit.SshServer]:
    """A server whose PATH has a shell, small programs and the stand-in, but no Python."""
    if what := sshkit.missing() or plainkit.missing():
        pytest.skip(what)
    path = plainkit.programs(root / "bin")
    library = native()
    stand_in(path)
    known = {"PATH": str(path), "LD_LIBRARY_PATH": str(library), **(environment or {})}
    with sshkit.ssh_server(root / "server", environment=known) as running:
        yield running
