"""What the shell of a device runs, run by a shell of this machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from gnomon.devices.shell.scripts import run_script


def test_a_command_whose_note_cannot_be_written_is_killed(tmp_path: Path) -> None:
    """The guard cleaned up while it was started, and so would not find it."""
    (tmp_path / "work").mkdir()
    script = run_script(
        argv=["sh", "-c", "sleep 600 & wait"],
        env={},
        work=str(tmp_path / "work"),
        note=str(tmp_path / "ended" / "1"),
        token="t",  # noqa: S106 - it marks the output
    )
    done = subprocess.run(
        ["setsid", "sh", "-c", script],
        env={"PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    assert done.stdout.endswith(b"\x1et>137\x1e")


def test_a_full_disk_does_not_kill_a_command(tmp_path: Path) -> None:
    """Its note could not be written, but the guard is there."""
    (tmp_path / "work").mkdir()
    script = run_script(argv=["true"], env={}, work=str(tmp_path / "work"), note=f"{tmp_path}/work", token="t")  # noqa: S106
    done = subprocess.run(
        ["setsid", "sh", "-c", script],
        env={"PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    assert done.stdout.endswith(b"\x1et>0\x1e")
