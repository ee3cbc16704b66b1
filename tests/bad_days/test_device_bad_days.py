"""Bad days of a device in the middle of a campaign: it vanishes, it changes, gnomon dies."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.bad_days.boardkit import Board, Once, give_version, python_with, running_board, switch_off, switch_on
from tests.bad_days.livekit import (
    Visits,
    campaigns_after,
    interrupt,
    model_in,
    nothing_left,
    recorded,
    runs_in,
    start_job,
    wait_for_line,
    workers,
)
from tests.processkit import becomes

from gnomon.core.sample import Campaign
from gnomon.devices.base import DeviceInfo
from gnomon.devices.config import add_device
from gnomon.devices.shell.ssh import SshDevice
from gnomon.jobs.place.job import place, profile
from gnomon.measure.effort import Effort
from gnomon.session.request import ModelRequest
from gnomon.store.base import CampaignQuery, EventQuery
from gnomon.store.sqlite import SqliteStore

pytestmark = pytest.mark.devices

ONE = ("onnxruntime",)
SHORT = Effort(processes_least=1, processes_most=1, rounds=3, block_s=0.03, warm_s=0.01, laggard=1e9, timeout_s=30.0)


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """A board that has a runtime for ONNX models."""
    with running_board(tmp_path_factory.mktemp("board"), ("numpy", "onnxruntime")) as running:
        yield running


def request_for(board: Board, folder: Path, **changes: Any) -> ModelRequest:
    known: dict[str, Any] = {
        "model": model_in(folder),
        "device": board.config(),
        "effort": SHORT,
        "runtimes": ONE,
        "record": folder / "record.sqlite",
        "wait_s": 60.0,
    }
    return ModelRequest(**{**known, **changes})


# It vanishes


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["profile", "run the package"])
def test_it_goes_on_by_itself_when_the_board_is_back(board: Board, tmp_path: Path, stage: str) -> None:
    # Visits that last long enough to be met: one process may have ended just now, and the next not have begun.
    request, told = request_for(board, tmp_path, effort=replace(SHORT, block_s=0.3)), list[str]()
    before: list[Visits] = []

    def outage() -> None:
        assert becomes(lambda: bool(workers(board.server.tmp)))
        switch_off(board)
        threading.Timer(1.5, switch_on, [board]).start()
        before.append(recorded(tmp_path / "record.sqlite"))

    watched: dict[str, Any] = {"watch": Once(stage, 1, outage), "tell": told.append}
    found = profile(request, **watched) if stage == "profile" else place(request, tmp_path / "out", **watched)
    assert found.resumed
    assert before[0]
    assert campaigns_after(tmp_path / "record.sqlite", before[0]) == {found.campaign}
    assert not [r.failure for r in runs_in(tmp_path / "record.sqlite") if r.failure]  # an outage is not a failure
    assert ["waiting up to 60 s" in s for s in told] == [True, False], told
    assert told[1] == "board is back: continuing from the results database"
    assert board.clean()


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
def test_when_gnomon_is_killed_the_board_is_clean_and_the_next_goes_on(board: Board, tmp_path: Path) -> None:
    add_device(board.config())
    model, record = model_in(tmp_path), tmp_path / "record.sqlite"
    with start_job(tmp_path, model, SHORT, device="board") as gnomon:
        wait_for_line(gnomon, "progress profile 2")
        assert becomes(lambda: workers(board.server.tmp))
        interrupt(gnomon, signal.SIGKILL)
    assert board.clean()
    assert nothing_left(tmp_path)
    before = recorded(record)
    assert len(before) >= 2
    with start_job(tmp_path, model, SHORT, device="board") as again:
        out, errors = again.communicate(timeout=240)
    assert again.returncode == 0, errors
    assert out.splitlines()[-1] == "resumed"
    assert "told" not in out  # nobody had to be waited for
    assert len(campaigns_after(record, before)) == 1
    assert board.clean()


# It changes


def test_another_version_of_a_runtime_or_another_kernel_does_not_go_on(
    board: Board, tmp_path: Path, small: Effort, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, record = tmp_path / "python", tmp_path / "record.sqlite"
    python = python_with(folder, ("numpy", "onnxruntime"))
    request = request_for(board, tmp_path, device=board.config(python=str(python)), effort=small)

    def stop() -> None:
        raise KeyboardInterrupt

    def begun() -> list[Campaign]:
        """All campaigns, after one more call that is stopped at its first visit."""
        with pytest.raises(KeyboardInterrupt):
            profile(request, watch=Once("profile", 1, stop))
        with SqliteStore.open(record) as store:
            return sorted(store.query(CampaignQuery()), key=lambda campaign: campaign.started_at_s)

    assert len(begun()) == len(begun()) == 1
    give_version(folder, "onnxruntime", "9.9.9")
    first, second = begun()
    assert first.context.versions["onnxruntime"] != second.context.versions["onnxruntime"] == "9.9.9"
    describe = SshDevice.describe

    def described(self: SshDevice) -> DeviceInfo:
        info = describe(self)
        return replace(info, fingerprint={**info.fingerprint, "kernel": "99.9 of another build"})

    monkeypatch.setattr(SshDevice, "describe", described)
    assert [campaign.id for campaign in begun()[:2]] == [first.id, second.id]
    assert len(recorded(record)) >= 3
    assert board.clean()


_JUMPY = """
import os, time
true = time.time
began = true()

def jumpy():
    passed = true() - began
    return began + passed + (-86400.0 * 365 if int(passed * 50) % 2 else 86400.0 * 365)

time.time = jumpy
"""


def test_a_clock_that_jumps_on_the_board_changes_no_measurement(board: Board, small: Effort, tmp_path: Path) -> None:
    """By a year, forth and back, fifty times a second; when something ran is told by the clock here."""
    (tmp_path / "sitecustomize.py").write_text(_JUMPY)
    device, record = board.config(environment={"PYTHONPATH": str(tmp_path)}), tmp_path / "record.sqlite"
    found = profile(request_for(board, tmp_path, device=device, effort=replace(small, rounds=6)))
    assert 0 < found.columns[0].wall.median_s < 60
    with SqliteStore.open(record) as store:
        (campaign,) = store.query(CampaignQuery())
        times = [event.at_s for event in store.query(EventQuery(campaign=campaign.id))]
    assert times == sorted(times)
    order: list[tuple[int, int]] = []
    for run in runs_in(record):
        assert run.samples is not None, run.failure
        assert all(0 < wall_s < 60 for wall_s in run.samples.wall_s)
        times.append(run.started_at_s)
        order += [(run.process, run.block)] if run.candidate == "onnxruntime" else []
    assert order == [(0, block) for block in range(6)]  # in the order in which they were taken
    assert all(campaign.started_at_s <= at_s <= time.time() for at_s in times)
