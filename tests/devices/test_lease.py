"""The lease: one folder a user and machine whatever the environment, nobody else's, and exclusion that really holds."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gnomon.devices.lease import lease, lease_folder
from gnomon.errors import DeviceError

HOLD = """
import sys
from gnomon.devices.lease import lease, lease_folder
with lease(lease_folder(), sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def hold(name: str, environment: dict[str, str]) -> subprocess.Popen[str]:
    """A process that holds the lease until its standard input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"], **environment},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_moment_is_not_worth_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was killed while it started a process leaves the lock with that for a moment."""
    told: list[str] = []
    process = hold("local", {"GNOMON_LEASES": os.environ["GNOMON_LEASES"]})
    monkeypatch.setattr("gnomon.devices.lease.time.sleep", lambda seconds: process.communicate())
    with lease(lease_folder(), "local", on_wait=told.append):
        assert told == []


def test_a_cron_job_and_a_desktop_exclude_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GNOMON_LEASES")
    name = f"test-{os.getpid()}"  # in the real folder: the lease of a device that there is not
    try:
        with hold(name, {}) as cron:
            for variables in ({}, {"XDG_RUNTIME_DIR": str(tmp_path)}, {"TMPDIR": str(tmp_path), "HOME": str(tmp_path)}):
                for variable, value in variables.items():
                    monkeypatch.setenv(variable, value)
                told: list[str] = []
                with pytest.raises(DeviceError) as refused, lease(lease_folder(), name, on_wait=told.append, wait_s=0):
                    pass
                assert str(cron.pid) in refused.value.message
                assert str(cron.pid) in told[0]
                assert refused.value.transient
            cron.send_signal(signal.SIGKILL)
        with lease(lease_folder(), name, wait_s=10):
            pass
        assert list(tmp_path.iterdir()) == []
    finally:
        assert not list(lease_folder().glob(f"lease-{name}.*"))


def test_only_one_variable_moves_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNOMON_LEASES", str(tmp_path / "x"))
    assert lease_folder() == tmp_path / "x"
    monkeypatch.setenv("GNOMON_LEASES", "")
    assert lease_folder() == Path("/tmp/gnomon-leases")  # noqa: S108
    assert lease_folder().stat().st_mode & 0o7777 == 0o1777
    with lease(tmp_path / "new", "local"):
        assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def link(folder: Path) -> None:
    (folder.parent / "theirs").mkdir()
    folder.symlink_to(folder.parent / "theirs")


def open_to_all(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def file(folder: Path) -> None:
    folder.touch()


def of_another(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    try:
        os.chown(folder, 65534, 65534)
    except PermissionError:
        pytest.skip("giving a folder to another user needs root")


@pytest.mark.parametrize("make", [link, open_to_all, file, of_another])
def test_a_folder_that_is_not_ones_own_is_refused(tmp_path: Path, make: object) -> None:
    folder = tmp_path / "leases"
    assert callable(make)
    make(folder)
    with pytest.raises(DeviceError, match="cannot be taken") as refused, lease(folder, "local"):
        pass
    assert "GNOMON_LEASES" in refused.value.hint
    assert not (tmp_path / "theirs").exists() or not list((tmp_path / "theirs").iterdir())


def test_a_folder_that_a_stopped_process_keeps_locked_is_told_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnomon.devices.lease._GATE_S", 0.0)
    folder, told = tmp_path / "leases", list[str]()
    folder.mkdir(mode=0o700)
    gate = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(gate, fcntl.LOCK_EX)
        with (
            pytest.raises(DeviceError, match=rf"keeps {re.escape(str(folder))} locked") as refused,
            lease(folder, "local", on_wait=told.append, wait_s=0),
        ):
            pass
        assert refused.value.busy and "locked" in told[0]
    finally:
        os.close(gate)
    with lease(folder, "local"):
        assert [path.name for path in folder.iterdir()] == ["lease-local.1.ticket"]
    assert not list(folder.iterdir())


def test_a_folder_that_cannot_be_common_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where another account has taken its name, and lets nobody in."""
    told: list[str] = []
    monkeypatch.delenv("GNOMON_LEASES")
    monkeypatch.setattr("gnomon.devices.lease._COMMON", tmp_path / "common")
    monkeypatch.setattr("gnomon.devices.lease._OWN", tmp_path / "own")
    (tmp_path / "common").mkdir(mode=0o755)
    assert lease_folder() == tmp_path / "own"
    with lease(lease_folder(), "local", on_wait=told.append):
        pass
    assert told == [f"{tmp_path}/common is not a folder in which every account may write: others may measure meanwhile"]
