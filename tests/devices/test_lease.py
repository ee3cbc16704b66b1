"""The lease: one folder a user and machine, exclusion that really holds, and a queue in which nobody overtakes."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gnomon.devices.lease import Lease, lease, lease_folder
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
    monkeypatch.setattr("gnomon.devices.lease.pause", lambda seconds: process.communicate())
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
    assert told == [
        f"{tmp_path}/common is not a folder in which every account may write: others may measure at the same time"
    ]


WAIT = """
import sys, time
from pathlib import Path
from gnomon.devices.lease import lease
sys.argv[0] = "gnomon"
folder, name, log = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
with lease(folder, "local", on_wait=lambda told: print(told, flush=True)):
    with log.open("a") as file:
        file.write(name + " in\\n")
        file.flush()
        time.sleep(0.05)
        file.write(name + " out\\n")
"""


def waiter(folder: Path, name: str, log: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WAIT, str(folder), name, str(log)], stdout=subprocess.PIPE, text=True
    )


def waiting(folder: Path, name: str, log: Path) -> subprocess.Popen[str]:
    """A process that has told for whom it waits, and so is in the queue."""
    process = waiter(folder, name, log)
    assert process.stdout is not None
    assert "waiting for it to end" in process.stdout.readline()
    return process


@contextmanager
def all_ended(*processes: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
        for process in processes:
            process.communicate(timeout=60)
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def tickets(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.glob("*.ticket"))


def test_who_waits_first_is_served_first_though_one_is_killed(tmp_path: Path) -> None:
    folder, log = tmp_path / "leases", tmp_path / "log"
    with lease(folder, "local"):
        a = waiting(folder, "a", log)
        b = waiting(folder, "b", log)
        c = waiting(folder, "c", log)
        b.kill()
        b.communicate()
        d = waiting(folder, "d", log)
        assert len(tickets(folder)) == 4
    with all_ended(a, c, d):
        pass
    assert log.read_text().split() == ["a", "in", "a", "out", "c", "in", "c", "out", "d", "in", "d", "out"]
    assert tickets(folder) == []


def test_a_late_comer_does_not_overtake(tmp_path: Path) -> None:
    """The holder has gone and the next has not looked yet: whoever comes then gets in line."""
    first, second, third = (Lease(tmp_path, "local") for _ in range(3))
    assert first.take() is None
    assert second.take() is not None
    first.close()
    assert str(os.getpid()) in (third.take() or "")
    assert second.take() is None
    assert third.take() is not None
    second.close()
    assert third.take() is None
    third.close()


def test_those_who_wait_are_told_who_since_when_and_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/gnomon", "place", "model.onnx"])
    told: list[str] = []
    with lease(tmp_path, "local"):
        since = time.strftime("%H:%M", time.localtime((tmp_path / "lease-local.1.ticket" / "who").stat().st_mtime))
        process = waiter(tmp_path, "a", tmp_path / "log")
        assert process.stdout is not None
        told.append(process.stdout.readline())
    with all_ended(process):
        pass
    assert told == [
        f"another gnomon (process {os.getpid()}, gnomon place model.onnx, since {since}) is measuring on local: "
        "waiting for it to end\n"
    ]


def test_many_at_once_exclude_each_other_and_all_come_to_their_turn(tmp_path: Path) -> None:
    folder, log = tmp_path / "leases", tmp_path / "log"
    processes = [waiter(folder, str(k), log) for k in range(6)]
    killed = processes[2]
    killed.kill()
    with all_ended(*processes):
        pass
    lines = log.read_text().split("\n")[:-1]
    inside: list[str] = []
    for line in lines:
        name, _, what = line.partition(" ")
        if what == "in":
            assert not inside or inside == ["2"]  # the killed one never said that it left
            inside = [name]
        else:
            assert inside == [name]
            inside = []
    assert {line.split()[0] for line in lines if line.endswith("out")} >= {"0", "1", "3", "4", "5"}
    assert len(tickets(folder)) <= 1  # at most that of the killed one, which the next that comes removes
