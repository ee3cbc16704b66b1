"""The local device: the shipped contract, and what only this machine can show (processes, folders, kill -9)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.devices.shell.shellkit import FAMILY, Commands, Extremes
from tests.processkit import becomes, gone

from gnomon.devices.base import Conversing
from gnomon.devices.local import LocalDevice
from gnomon.errors import DeviceError
from gnomon.system import process
from gnomon.system.process import LINE_LIMIT_BYTES
from gnomon.testing.device import DeviceContract


@pytest.fixture
def device() -> Iterator[LocalDevice]:
    with LocalDevice() as opened:
        yield opened


class TestLocalDevice(DeviceContract, Commands, Extremes):
    pass


class TestOldKernel(Commands):
    """A kernel without pidfd_open, where processes are looked at again and again."""

    @pytest.fixture(autouse=True)
    def old(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(os, "pidfd_open")


def test_a_daemon_that_left_the_group_does_not_block(device: LocalDevice) -> None:
    completed = device.run(["setsid", "-f", "sh", "-c", "echo $$; exec sleep 3"], env={}, timeout_s=60)
    assert not completed.timed_out


def test_a_line_without_end_is_refused(device: LocalDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    assert LINE_LIMIT_BYTES >= 16 << 20
    monkeypatch.setattr(process, "LINE_LIMIT_BYTES", 1 << 20)
    with pytest.raises(DeviceError, match="line"):
        device.run(["cat", "/dev/zero"], env={}, timeout_s=60, on_line=lambda line: None)


def test_bytes_that_are_no_text_are_marked(device: LocalDevice) -> None:
    lines: list[str] = []
    device.run(["printf", r"a\377b\nc\000d\n"], env={}, timeout_s=60, on_line=lines.append)
    assert lines == ["a\ufffdb", "c\0d"]


def test_only_the_listed_environment_passes(device: LocalDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_TEST", "kept")
    monkeypatch.setenv("PYTHONPATH", "stray")
    monkeypatch.setenv("LD_PRELOAD_TEST", "stray")
    lines = device.run(["env"], env={"HOME": "/given"}, timeout_s=60).stdout.splitlines()
    names = {line.partition("=")[0] for line in lines}
    assert "LC_TEST=kept" in lines
    assert "HOME=/given" in lines
    assert "PATH" in names
    assert not names & {"PYTHONPATH", "LD_PRELOAD_TEST"}


def test_what_chooses_drivers_passes_and_is_in_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("VK_DRIVER_FILES", "/weak.json")
    chosen = {"CUDA_VISIBLE_DEVICES": "", "VK_DRIVER_FILES": "/strong.json"}
    for python in (None, sys.executable):
        with LocalDevice(python=python, environment={"VK_DRIVER_FILES": "/strong.json"}) as device:
            lines = device.run(["env"], env={}, timeout_s=60).stdout.splitlines()
            found = device.describe().fingerprint["driver_variables"]
        assert {f"{name}={value}" for name, value in chosen.items()} <= set(lines)
        assert {name: found[name] for name in chosen} == chosen


def test_the_private_folder_goes_away(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), LocalDevice() as device:
        folder = device.folder
        device.run(["sh", "-c", "mkdir -p a/b; echo > a/b/c"], env={}, timeout_s=60)
        assert (folder / "a" / "b" / "c").exists()
        raise ZeroDivisionError
    assert not folder.exists()
    with pytest.raises(DeviceError):
        device.run(["true"], env={}, timeout_s=60)


def test_no_folder_no_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    with pytest.raises(DeviceError) as refused, LocalDevice():
        pass
    assert "TMPDIR" in refused.value.hint


def test_push_copies_nothing(device: LocalDevice, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"model")
    assert device.push(tmp_path / "m.onnx", "m.onnx") == str(tmp_path / "m.onnx")
    assert Path(device.push(tmp_path / "m.onnx", "n.onnx")).is_symlink()


def test_open_files_do_not_pile_up(device: LocalDevice) -> None:
    device.run(["true"], env={}, timeout_s=60)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        device.run(["sh", "-c", "echo x; exit 1"], env={}, timeout_s=60)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


CAMPAIGN = """
from gnomon.devices.local import LocalDevice
with LocalDevice() as device:
    print(device.folder, flush=True)
    device.run(["sh", "-c", {family!r}], env={{}}, timeout_s=600, on_line=lambda l: print(l, flush=True))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_when_gnomon_dies_so_does_what_it_runs(number: signal.Signals) -> None:
    script = textwrap.dedent(CAMPAIGN).format(family=FAMILY)
    gnomon = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with gnomon:
        assert gnomon.stdout is not None
        folder = Path(gnomon.stdout.readline().strip())
        pids = [int(gnomon.stdout.readline()) for _ in range(3)]
        assert folder.is_dir()
        gnomon.send_signal(number)
        gnomon.wait(timeout=30)
    assert all(gone(p) for p in pids)
    assert becomes(lambda: not folder.exists())


def test_a_killed_guard_does_not_stop_the_work() -> None:
    with LocalDevice() as device:
        guard, _ = device._open()
        guard._process.kill()
        guard._process.wait()
        assert device.run(["true"], env={}, timeout_s=60).ok


def test_one_that_ends_at_once_after_its_last_word_has_said_it() -> None:
    heard: list[str] = []

    def last(line: str) -> bool:
        heard.append(line)
        return True

    with LocalDevice() as device:
        talk = device.converse(["sh", "-c", "echo end"], env={})
        while talk.alive:
            time.sleep(0.01)
        assert talk.ask(b"anything\n", last, timeout_s=60) is None
        assert heard == ["end"] and not talk.alive
        talk.close()


def test_it_can_be_talked_to() -> None:
    device: Conversing = LocalDevice()  # which the type checker sees, too
    assert isinstance(device, Conversing)
