"""Bad days of a device in the middle of a campaign: it vanishes, changes, fills up; gnomon dies; two want it."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.bad_days.boardkit import (
    Board,
    Once,
    give_version,
    python_with,
    running_board,
    start_place,
    switch_off,
    switch_on,
    workers,
)
from tests.bad_days.livekit import (
    interrupt,
    matmul_onnx,
    nothing_left,
    recorded,
    wait_for_line,
)
from tests.devices.shell.sshkit import becomes

from gnomon.core.sample import Run
from gnomon.devices.base import DeviceInfo
from gnomon.devices.config import add_device
from gnomon.devices.shell.ssh import SshDevice
from gnomon.errors import DeviceError
from gnomon.jobs.place.job import place, profile
from gnomon.measure.effort import Effort
from gnomon.runtimes.base import Wish
from gnomon.session.request import ModelRequest
from gnomon.store.base import CampaignQuery, EventQuery, RunQuery
from gnomon.store.sqlite import SqliteStore

pytestmark = pytest.mark.devices

ONE = ("onnxruntime",)
SHORT = Effort(processes_least=1, processes_most=1, rounds=3, block_s=0.03, warm_s=0.01, laggard=1e9, timeout_s=30.0)


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """A board that has a runtime for ONNX models."""
    with running_board(tmp_path_factory.mktemp("board"), ("numpy", "onnxruntime")) as running:
        yield running


def model_in(folder: Path, data: bytes | None = None) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(matmul_onnx(depth=1) if data is None else data)
    return path


def request_for(board: Board, folder: Path, **changes: Any) -> ModelRequest:
    known: dict[str, Any] = {
        "device": board.config(),
        "effort": SHORT,
        "runtimes": ONE,
        "record": folder / "record.sqlite",
        "wait_s": 60.0,
    }
    if "model" not in changes:
        known["model"] = model_in(folder)
    return ModelRequest(**{**known, **changes})


def runs_in(record: Path) -> list[Run]:
    with SqliteStore.open(record) as store:
        return [r for c in store.query(CampaignQuery()) for r in store.query(RunQuery(campaign=c.id))]


# It vanishes


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["profile", "run the package"])
def test_it_goes_on_by_itself_when_the_board_is_back(board: Board, tmp_path: Path, stage: str) -> None:
    # Visits that last long enough to be met: one process may have ended just now, and the next not have begun.
    request, told = request_for(board, tmp_path, effort=replace(SHORT, block_s=0.3)), list[str]()
    before: list[Counter[tuple[str, str, int, int]]] = []

    def outage() -> None:
        assert becomes(lambda: bool(workers(board)))
        switch_off(board)
        threading.Timer(1.5, switch_on, [board]).start()
        before.append(recorded(tmp_path / "record.sqlite"))

    found = place(request, tmp_path / "out", watch=Once(stage, 1, outage), tell=told.append)
    assert found.resumed
    assert found.verified.ok
    after = recorded(tmp_path / "record.sqlite")
    assert before[0]
    assert before[0].keys() <= after.keys()
    assert set(after.values()) == {1}
    assert {campaign for campaign, *_ in after} == {found.campaign}
    assert not [r.failure for r in runs_in(tmp_path / "record.sqlite") if r.failure]  # an outage is not a failure
    assert ["waiting up to 60 s" in s for s in told] == [True, False], told
    assert told[1] == "board is back: going on from the results database"
    assert board.clean()


@pytest.mark.slow
def test_one_that_stays_away_is_given_up_and_the_same_command_goes_on(board: Board, tmp_path: Path) -> None:
    request, out = request_for(board, tmp_path, wait_s=1.0, effort=SHORT), tmp_path / "out"
    with pytest.raises(DeviceError) as lost:
        place(request, out, watch=Once("profile", 2, lambda: switch_off(board)))
    try:
        assert "did not come back within 1 s" in lost.value.message
        assert "again" in lost.value.hint
        assert not out.exists()
        before = recorded(tmp_path / "record.sqlite")
        assert len(before) >= 2
        with pytest.raises(DeviceError, match="refuses"):  # it was not met by this command, so it is not waited for
            place(replace(request, wait_s=600.0), out)
    finally:
        switch_on(board)
    assert board.clean()
    found = place(request, out)
    assert found.resumed
    assert found.verified.ok
    after = recorded(tmp_path / "record.sqlite")
    assert before.keys() <= after.keys()
    assert set(after.values()) == {1}
    assert {campaign for campaign, *_ in after} == {found.campaign}


def test_profile_waits_too(board: Board, tmp_path: Path, small: Effort) -> None:
    def outage() -> None:
        switch_off(board)
        switch_on(board)

    found = profile(request_for(board, tmp_path, effort=small), watch=Once("profile", 1, outage))
    assert found.resumed


def test_a_board_that_vanishes_while_files_are_pushed_is_waited_for(
    board: Board, tmp_path: Path, small: Effort, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything was measured; what was to be measured again still is."""
    before = profile(request_for(board, tmp_path, effort=small))
    pushed, told = SshDevice.push, list[str]()

    def push(self: SshDevice, local: Path, name: str) -> str:
        if not told:
            told.append("")
            switch_off(board)
            threading.Timer(1.5, switch_on, [board]).start()
        return pushed(self, local, name)

    monkeypatch.setattr(SshDevice, "push", push)
    found = profile(request_for(board, tmp_path, effort=small, fresh=True), tell=told.append)
    assert "waiting up to 60 s" in told[1]
    assert (found.resumed, found.campaign != before.campaign) == (False, True)


# gnomon ends


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_when_gnomon_is_ended_the_board_is_clean_and_the_next_goes_on(
    board: Board, tmp_path: Path, number: signal.Signals
) -> None:
    add_device(board.config())
    model, record = model_in(tmp_path), tmp_path / "record.sqlite"
    with start_place(tmp_path, model, SHORT, "board", ONE) as gnomon:
        wait_for_line(gnomon, "progress profile 2")
        assert becomes(lambda: workers(board))
        interrupt(gnomon, number)
    assert gnomon.returncode in (-number, 1)
    assert board.clean()
    assert nothing_left(tmp_path)
    before = recorded(record)
    assert len(before) >= 2
    with start_place(tmp_path, model, SHORT, "board", ONE) as again:
        out, errors = again.communicate(timeout=240)
    assert again.returncode == 0, errors
    assert out.splitlines()[-1] == "resumed True"
    assert "told" not in out  # nobody had to be waited for
    after = recorded(record)
    assert before.keys() <= after.keys()
    assert set(after.values()) == {1}
    assert board.clean()


# Two want it


@pytest.mark.slow
def test_two_gnomons_take_turns_on_one_board(board: Board, tmp_path: Path) -> None:
    add_device(board.config())
    add_device(board.config(name="the-same"))
    model = model_in(tmp_path)
    with start_place(tmp_path, model, replace(SHORT, rounds=60), "board", ONE, "one") as first:
        wait_for_line(first, "progress")
        with start_place(tmp_path, model, SHORT, "the-same", ONE, "two") as second:
            told = wait_for_line(second, "told")
            assert "another gnomon (process " in told
            assert "measures on the-same: waiting for it to end" in told
            assert not (tmp_path / "two").exists()
            interrupt(first, signal.SIGKILL)  # its lease goes with it
            out, errors = second.communicate(timeout=240)
    assert second.returncode == 0, errors
    assert out.splitlines()[-1] == "new True"
    assert set(recorded(tmp_path / "record.sqlite").values()) == {1}
    assert board.clean()


# What runs there misbehaves


def test_a_setting_in_which_a_runtime_hangs_does_not_spoil_the_others(
    board: Board, tmp_path: Path, small: Effort
) -> None:
    stuck = tmp_path / "stuck"
    stuck.mkdir()
    (stuck / "sitecustomize.py").write_text("import os, time\nif os.environ.get('STUCK'): time.sleep(3600)\n")
    wish = Wish(environments=({"PYTHONPATH": str(stuck), "STUCK": "1"},))
    effort = replace(small, timeout_s=5.0)
    found = profile(request_for(board, tmp_path, wish=wish, effort=effort))
    assert [c.label for c in found.columns] == ["onnxruntime"]
    (hung,) = (m for m in found.missing if m.name.startswith("onnxruntime["))
    assert "hang" in hung.reason
    assert [r.failure.kind for r in runs_in(tmp_path / "record.sqlite") if r.failure] == ["hang"]
    assert board.clean()


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system can be mounted by root only")
def test_no_room_on_the_board_for_the_model(board: Board, tmp_path: Path, small: Effort) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "none", str(disk)], capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    try:
        model = model_in(tmp_path, matmul_onnx(width=1024, depth=1))
        device = board.config(folder=str(disk))
        request = request_for(board, tmp_path, model=model, device=device, effort=small)
        with pytest.raises(DeviceError, match="full") as refused:
            place(request, tmp_path / "out")
        assert "folder = " in refused.value.hint
        assert str(disk) in refused.value.message
        assert board.clean()
        assert not (tmp_path / "out").exists()
        assert not list(disk.glob("pushed/.part-*"))
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


# It changes


def interrupted(request: ModelRequest) -> Counter[tuple[str, str, int, int]]:
    """Begin a campaign that is then interrupted; what it measured."""

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        profile(request, watch=Once("profile", 1, stop))
    assert isinstance(request.record, Path)
    return recorded(request.record)


def test_another_version_of_a_runtime_does_not_go_on(board: Board, tmp_path: Path, small: Effort) -> None:
    folder = tmp_path / "python"
    python = python_with(folder, ("numpy", "onnxruntime"))
    request = request_for(board, tmp_path, device=board.config(python=str(python)), effort=small)
    before = interrupted(request)
    give_version(folder, "onnxruntime", "9.9.9")
    found = profile(request)
    assert not found.resumed
    assert found.versions == {"onnxruntime": "9.9.9"}
    after = recorded(tmp_path / "record.sqlite")
    assert before.keys() <= after.keys()
    assert len({campaign for campaign, *_ in after}) == 2
    assert board.clean()


def test_another_kernel_on_the_board_does_not_go_on(
    board: Board, tmp_path: Path, small: Effort, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_for(board, tmp_path, effort=small)
    before = interrupted(request)
    true = SshDevice.describe
    with monkeypatch.context() as changed:

        def describe(self: SshDevice) -> DeviceInfo:
            info = true(self)
            return replace(info, fingerprint={**info.fingerprint, "kernel": "99.9 of another build"})

        changed.setattr(SshDevice, "describe", describe)
        found = profile(request)
        assert not found.resumed
    after = recorded(tmp_path / "record.sqlite")
    assert before.keys() <= after.keys()
    assert len({campaign for campaign, *_ in after}) == 2


_JUMPY = """
import os, time
true = time.time
began = true()

def jumpy():
    passed = true() - began
    return began + passed + (-86400.0 * 365 if int(passed * 50) % 2 else 86400.0 * 365)

time.time = jumpy
"""


@pytest.fixture
def jumpy(board: Board, small: Effort, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The record of a profile on the board with its clock jumping by a year, forth and back, fifty times a second."""
    if not _JUMPED:
        folder = tmp_path_factory.mktemp("jumpy")
        (folder / "sitecustomize.py").write_text(_JUMPY)
        device = board.config(environment={"PYTHONPATH": str(folder)})
        found = profile(request_for(board, folder, device=device, effort=replace(small, rounds=6)))
        assert 0 < found.columns[0].wall.median_s < 60
        _JUMPED.append(folder / "record.sqlite")
    return _JUMPED[0]


_JUMPED: list[Path] = []


def test_a_clock_that_jumps_on_the_board_changes_no_measurement(jumpy: Path) -> None:
    by_candidate: dict[str, list[tuple[int, int]]] = {}
    for run in runs_in(jumpy):
        assert run.samples is not None, run.failure
        assert all(0 < wall_s < 60 for wall_s in run.samples.wall_s)
        by_candidate.setdefault(run.candidate, []).append((run.process, run.block))
    assert by_candidate["onnxruntime"] == [(0, block) for block in range(6)]  # in the order in which they were taken
    with SqliteStore.open(jumpy) as store:
        (campaign,) = store.query(CampaignQuery())
        times = [event.at_s for event in store.query(EventQuery(campaign=campaign.id))]
    assert times == sorted(times)
    assert all(campaign.started_at_s <= at_s <= time.time() for at_s in times)


def test_when_something_ran_is_told_by_the_clock_here(jumpy: Path) -> None:
    with SqliteStore.open(jumpy) as store:
        (campaign,) = store.query(CampaignQuery())
    assert all(campaign.started_at_s <= run.started_at_s <= time.time() for run in runs_in(jumpy))
