"""Several devices at once: lanes, which end and clean up also where they wait, and placing with a real runtime."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.bad_days.livekit import model_in
from tests.jobs.place.fleet_kit import device

from gnomon.devices.address import parse_address
from gnomon.devices.config import DeviceConfig
from gnomon.devices.local import LocalDevice
from gnomon.errors import DeviceError, GnomonError, PackageError, UsageError
from gnomon.jobs.place import fleet
from gnomon.jobs.place.document import ErrorPart, PlaceDocument
from gnomon.jobs.place.fleet import LANE_FILES, MOST_LANES, lanes_for, package_folders, place_on, run_lanes
from gnomon.jobs.place.job import place
from gnomon.measure.effort import Effort
from gnomon.session.request import ModelRequest
from gnomon.system.limits import open_files
from gnomon.system.stopping import Stopped, pause


def board(name: str, host: str = "") -> DeviceConfig:
    return DeviceConfig(name=name, address=parse_address(f"ssh://{host or name}"))


BOARDS = {name: board(name) for name in ("a", "b", "c")}


def test_lanes_run_at_the_same_time_keep_their_order_and_fail_alone() -> None:
    together = threading.Barrier(3, timeout=20)

    def job(name: str) -> str:
        together.wait()
        if name == "b":
            raise DeviceError("b is gone")
        return name.upper()

    ended = run_lanes(BOARDS, job)
    assert list(ended) == ["a", "b", "c"] and (ended["a"], ended["c"]) == ("A", "C")
    assert isinstance(ended["b"], DeviceError)


def test_devices_of_one_machine_take_turns() -> None:
    inside = threading.Lock()

    def job(name: str) -> None:
        assert inside.acquire(blocking=False)
        time.sleep(0.02)
        inside.release()

    ended = run_lanes({name: board(name, "one") for name in "abc"}, job)
    assert not any(isinstance(end, GnomonError) for end in ended.values())


def waiting(started: Callable[[], object], cleaned: list[str]) -> Callable[[str], None]:
    def job(name: str) -> None:
        try:
            started()
            while True:
                pause(0.01)
        finally:
            cleaned.append(name)

    return job


def test_ctrl_c_ends_every_lane_in_order() -> None:
    cleaned: list[str] = []
    together = threading.Barrier(4, timeout=20)

    def interrupt() -> None:
        together.wait()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        run_lanes(BOARDS, waiting(together.wait, cleaned))
    assert sorted(cleaned) == ["a", "b", "c"]


def test_a_defect_in_one_lane_ends_the_others_and_is_told() -> None:
    cleaned: list[str] = []
    ready = threading.Barrier(3, timeout=20)
    wait = waiting(ready.wait, cleaned)

    def job(name: str) -> None:
        if name == "a":
            ready.wait()
            raise ZeroDivisionError("a defect")
        wait(name)

    with pytest.raises(ZeroDivisionError):
        run_lanes(BOARDS, job)
    assert sorted(cleaned) == ["b", "c"]


def test_a_stopped_lane_goes_to_no_further_device() -> None:
    begun: list[str] = []
    ready = threading.Barrier(2, timeout=20)

    def job(name: str) -> None:
        begun.append(name)
        ready.wait()
        if name == "other":
            raise ZeroDivisionError
        try:
            while True:
                pause(0.01)
        except Stopped:
            raise DeviceError("lost while it was cleaned") from None

    with pytest.raises(ZeroDivisionError):
        run_lanes({"x": board("x", "one"), "y": board("y", "one"), "other": board("other")}, job)
    assert sorted(begun) == ["other", "x"]


def test_folders_of_packages(tmp_path: Path) -> None:
    names = dict.fromkeys(["ssh://me@board:22", "ssh_me_board_22", "..", "ok"])
    folders = package_folders(names, tmp_path / "out")
    assert len(set(folders.values())) == 4
    assert all(f.parent == tmp_path / "out" and f.name not in ("", ".", "..") for f in folders.values())
    (tmp_path / "file").touch()
    with pytest.raises(PackageError):
        package_folders(names, tmp_path / "file")


def requests(tmp_path: Path, *names: str) -> dict[str, ModelRequest]:
    return {name: ModelRequest(model=tmp_path / "m.onnx", device=board(name)) for name in names}


def test_place_on_tags_what_lanes_tell(tmp_path: Path) -> None:
    def fake(request: ModelRequest, out: Path | None, _: object, tell: Callable[[str], None] | None) -> PlaceDocument:
        if tell is not None:
            tell("hello")
        if request.device.name == "b":
            raise DeviceError("b is gone", hint="Look for it.")
        assert out is not None
        return device(out.name, {"cpu": 100}, folder=out.parent)

    told: list[tuple[str, str]] = []
    three = requests(tmp_path, "a", "b", "c")
    found = place_on(three, tmp_path / "out", fake, tell=lambda n, s: told.append((n, s)))
    assert sorted(told) == [(n, "hello") for n in "abc"]
    assert list(found.placements) == ["a", "c"]
    assert found.devices[1].error == ErrorPart(
        kind="DeviceError", message="b is gone", hint="Look for it.", exit_code=DeviceError.exit_code
    )
    with pytest.raises(DeviceError):
        place_on(requests(tmp_path, "b"), tmp_path / "none", fake)
    assert not (tmp_path / "none").exists()
    with pytest.raises(UsageError):
        place_on({}, tmp_path / "none", fake)


def test_two_names_of_this_machine_for_real(small: Effort, tmp_path: Path) -> None:
    """The composition on real placements: no times are judged."""
    asked = {}
    for name in ("first", "second"):
        device = DeviceConfig(name=name, address=parse_address("local"))
        asked[name] = ModelRequest(model=model_in(tmp_path), device=device, effort=small, runtimes=("onnxruntime",))
    found = place_on(asked, tmp_path / "out", lambda request, out, watch, tell: place(request, out or tmp_path))
    assert [device.error for device in found.devices] == [None, None]
    assert {Path(p.package or "").name for p in found.placements.values()} == {"first", "second"}


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
            deadline = time.monotonic() + 0.1
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
    assert [name for name, _ in told] == names[3:] and "only 3 of the 20 machines" in told[0][1]


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
    with pytest.raises(UsageError, match="of the 70 that it may open") as told:
        run_lanes({"a": board("a")}, lambda name: name)
    assert "ulimit -n" in told.value.hint
