"""The process of a job, without a device: what it leaves, how it waits, how it ends; and progress in a file."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.devices.shell.sshkit import becomes

from gnomon.cli.main import run
from gnomon.cli.progress import ProgressFile
from gnomon.devices.address import LOCAL
from gnomon.devices.lease import lease, lease_folder
from gnomon.devices.unattended import _STARTER as STARTER
from gnomon.measure.progress import Progress

pytestmark = pytest.mark.devices


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "a job"
    (folder / "out").mkdir(parents=True)
    return folder


def started(job: Path, command: Sequence[str]) -> subprocess.Popen[bytes]:
    """The process of a job with a command."""
    (job / "job.json").write_text(json.dumps({"command": list(command)}))
    lock = os.open(job / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        with (job / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-P", "-c", STARTER, str(job), str(lock)],
                cwd=job,
                stdout=log,
                stderr=log,
                pass_fds=(lock,),
                env={**os.environ, "GNOMON_PROGRESS": str(job / "progress.json")},
            )
    finally:
        os.close(lock)


@pytest.mark.parametrize(("command", "code"), [(["runs", "--json"], 0), (["runs", "show", "none", "--json"], 8)])
def test_it_leaves_the_document_and_the_exit_code(job: Path, command: list[str], code: int) -> None:
    assert started(job, command).wait(timeout=60) == code
    assert json.loads((job / "exit.json").read_text())["code"] == code
    found = json.loads((job / "out" / "document.json").read_text())
    assert ("error" in found) == (code != 0)
    assert ("error: " in (job / "log").read_text()) == (code != 0)
    assert {path.name for path in job.rglob("*.part")} == set()


def test_what_cannot_even_begin_says_so(job: Path) -> None:
    (job / "out").rmdir()
    assert started(job, ["runs", "--json"]).wait(timeout=60) == 70
    assert json.loads((job / "exit.json").read_text())["code"] == 70
    assert "FileNotFoundError" in (job / "log").read_text()


def test_it_waits_for_the_device_and_ends_when_it_is_told(job: Path, tmp_path: Path) -> None:
    with lease(lease_folder(), LOCAL):
        process = started(job, ["runs", "--json"])
        assert becomes(lambda: (job / "progress.json").exists())
        told = json.loads((job / "progress.json").read_text())
        assert (told["stage"], told["why"]) == ("waiting for the device", f"process {os.getpid()} measures there")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 143
        assert json.loads((job / "exit.json").read_text())["code"] == 143
        assert not (job / "out" / "document.json").exists()
        process = started(job, ["runs", "--json"])
    assert process.wait(timeout=60) == 0


def test_progress_in_a_file_is_whole_and_not_written_all_the_time(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    file = ProgressFile(path)

    def show(stage: str, done: int) -> dict[str, object]:
        file.show(Progress(stage=stage, done=done, total=9, left_s=1.5))
        found: dict[str, object] = json.loads(path.read_text())
        return found

    assert show("search", 0)["done"] == 0
    assert show("search", 1)["done"] == 0  # a moment ago
    assert show("search", 9)["done"] == 9  # the last
    assert show("proof", 1) == {**show("proof", 2), "stage": "proof", "done": 1, "total": 9, "left_s": 1.5, "why": ""}
    assert list(tmp_path.iterdir()) == [path]
    ProgressFile(tmp_path / "none" / "progress.json").show(Progress(stage="s", done=0, total=1, left_s=None))
    assert not (tmp_path / "none").exists()


def test_a_device_that_ssh_does_not_reach(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["unattended", "list", "--device", "local", "--json"]) == 2
    assert "not reached by ssh" in json.loads(capsys.readouterr().out)["error"]["message"]
    assert run(["pareto", "m.onnx", "--unattended", "--no-profile", "--json"]) == 2
    assert "--no-profile" in json.loads(capsys.readouterr().out)["error"]["message"]
