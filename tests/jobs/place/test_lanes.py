"""Lanes end, and clean up, also while they wait for a command that says nothing."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from gnomon.devices.address import Address
from gnomon.devices.config import DeviceConfig
from gnomon.devices.local import LocalDevice
from gnomon.errors import UsageError
from gnomon.jobs.place import fleet
from gnomon.jobs.place.fleet import LANE_FILES, MOST_LANES, lanes_for, run_lanes
from gnomon.system.limits import open_files


def board(name: str) -> DeviceConfig:
    return DeviceConfig(name=name, address=Address(kind="ssh", host=name))


def test_a_lane_that_waits_for_a_silent_command_ends_with_the_others(tmp_path: Path) -> None:
    running, left = threading.Event(), []

    def job(name: str) -> None:
        if name == "other":
            assert running.wait(60)
            raise KeyboardInterrupt
        with LocalDevice() as device:
            left.append(device.folder)
            fifo = tmp_path / "fifo"

            def wait() -> None:
                fifo.read_bytes()
                running.set()

            waiter = threading.Thread(target=wait)
            device.run(["mkfifo", str(fifo)], env={}, timeout_s=60)
            waiter.start()
            try:
                device.run(["sh", "-c", f"echo started > {fifo}; exec sleep 600"], env={}, timeout_s=600)
            finally:
                waiter.join()
        left.clear()

    with pytest.raises(KeyboardInterrupt):
        run_lanes({"silent": board("silent"), "other": board("other")}, job, patience_s=20)
    assert len(left) == 1
    assert not left[0].exists()


def test_a_lane_is_stopped_only_where_it_waits(tmp_path: Path) -> None:
    """What it does meanwhile, such as writing to the record, is never cut in two."""
    working, asked, done = threading.Event(), threading.Event(), []

    def job(name: str) -> None:
        if name == "other":
            assert working.wait(60)
            asked.set()
            raise KeyboardInterrupt
        with LocalDevice() as device:
            working.set()
            assert asked.wait(60)
            deadline = time.monotonic() + 0.5
            while time.monotonic() < deadline:  # an exception from outside would strike here
                done.append("a step")
            done.append("all")
            device.run(["sleep", "600"], env={}, timeout_s=600)

    with pytest.raises(KeyboardInterrupt):
        run_lanes({"busy": board("busy"), "other": board("other")}, job, patience_s=20)
    assert done[-1] == "all"


def test_more_machines_than_lanes_take_turns_and_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "MOST_LANES", 3)
    running, most, told = threading.Semaphore(3), [], []

    def job(name: str) -> str:
        assert running.acquire(blocking=False)
        most.append(name)
        time.sleep(0.01)
        running.release()
        return name

    names = [f"b{number}" for number in range(20)]
    ended = run_lanes({name: board(name) for name in names}, job, tell=lambda name, words: told.append((name, words)))
    assert list(ended.values()) == names and sorted(most) == sorted(names)
    assert [name for name, _ in told] == names[3:] and "3 lanes" in told[0][1] and "20 machines" in told[0][1]


def test_lanes_are_as_many_as_open_files_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lanes_for(0) == 0
    asked = []

    def allowed(wanted: int) -> int:
        asked.append(wanted)
        return min(wanted, open_files() + 64 + 5 * LANE_FILES)

    monkeypatch.setattr(fleet, "allow_files", allowed)
    assert lanes_for(4) == 4 and lanes_for(50) == 5
    assert asked[-1] - asked[0] == 46 * LANE_FILES
    monkeypatch.setattr(fleet, "allow_files", lambda wanted: 1 << 20)
    assert lanes_for(10_000) == MOST_LANES


def test_no_room_for_one_lane_is_told_with_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "allow_files", lambda wanted: 70)
    with pytest.raises(UsageError, match="of 70 that this process may have") as told:
        run_lanes({"a": board("a")}, lambda name: name)
    assert "ulimit -n" in told.value.hint
