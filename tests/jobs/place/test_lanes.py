"""Lanes end, and clean up, also while they wait for a command that says nothing."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from gnomon.devices.address import Address
from gnomon.devices.config import DeviceConfig
from gnomon.devices.local import LocalDevice
from gnomon.jobs.place.fleet import run_lanes


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
