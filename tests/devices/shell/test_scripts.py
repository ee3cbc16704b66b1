"""What the shell of a device runs, run by a shell of this machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gnomon.devices.shell.scripts import run_script


@pytest.mark.parametrize(
    ("argv", "folder", "status"),
    [
        (["sh", "-c", "sleep 600 & wait"], "ended", b"137"),  # the guard cleaned up meanwhile, and would not find it
        (["true"], "work", b"0"),  # the disk is full: the note cannot be written, but the guard is there
    ],
)
def test_a_command_without_a_note_is_killed_only_where_the_guard_has_gone(
    tmp_path: Path, argv: list[str], folder: str, status: bytes
) -> None:
    (tmp_path / "work").mkdir()
    note = tmp_path / folder / "1" if folder == "ended" else tmp_path / folder
    script = run_script(argv=argv, env={}, work=str(tmp_path / "work"), note=str(note), token="t")  # noqa: S106
    done = subprocess.run(
        ["setsid", "sh", "-c", script],
        env={"PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    assert done.stdout.endswith(b"\x1et>" + status + b"\x1e")
