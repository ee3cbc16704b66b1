"""The lease is a queue: first come first served, whoever is killed meanwhile, and what those that wait are told."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gnomon.devices.lease import Lease, lease

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
        f"another gnomon (process {os.getpid()}, gnomon place model.onnx, since {since}) measures on local: "
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
