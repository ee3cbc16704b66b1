"""Ctrl-C, kill -9 and two gnomons at once: nothing is left behind, nothing is lost, nothing is measured twice."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tests.bad_days.livekit import (
    Visits,
    campaigns_after,
    interrupt,
    model_in,
    nothing_left,
    recorded,
    start_job,
    wait_for_line,
)

from gnomon.measure.effort import Effort
from gnomon.store.base import CampaignQuery
from gnomon.store.sqlite import SqliteStore

EFFORT = Effort(processes_least=2, processes_most=2, rounds=3, block_s=0.03, warm_s=0.01, laggard=1e9)


def finish(folder: Path, model: Path, *, package: bool = False) -> str:
    """Run to the end; the last line tells whether it was resumed."""
    with start_job(folder, model, EFFORT, package=package) as gnomon:
        told, errors = gnomon.communicate(timeout=240)
    assert gnomon.returncode == 0, errors
    return told.splitlines()[-1]


@pytest.mark.slow
def test_ctrl_c_and_the_next_call_goes_on(tmp_path: Path) -> None:
    model, record = model_in(tmp_path), tmp_path / "record.sqlite"
    with start_job(tmp_path, model, EFFORT, package=True) as gnomon:
        wait_for_line(gnomon, "progress profile 5")
        interrupt(gnomon, signal.SIGINT)
    assert gnomon.returncode == -signal.SIGINT or gnomon.returncode == 1
    assert nothing_left(tmp_path)
    before = recorded(record)
    assert len(before) >= 4
    assert not (tmp_path / "out").exists()
    assert finish(tmp_path, model, package=True) == "resumed"
    assert len(campaigns_after(record, before)) == 1
    assert (tmp_path / "out" / "plan.json").is_file()
    assert nothing_left(tmp_path)


@pytest.mark.slow
def test_kill_9_at_random_moments(tmp_path: Path) -> None:
    model, record = model_in(tmp_path), tmp_path / "record.sqlite"
    rng = random.Random(1)
    seen: Visits = Counter()
    for _ in range(3):
        with start_job(tmp_path, model, EFFORT) as gnomon:
            time.sleep(rng.uniform(0.2, 3.0))
            interrupt(gnomon, signal.SIGKILL)
        assert nothing_left(tmp_path)
        if record.exists():
            now = recorded(record)
            assert seen.keys() <= now.keys()  # what was recorded stays
            seen = now
    finish(tmp_path, model)
    by_campaign = campaigns_after(record, seen)
    # One that was interrupted is taken up again until it is finished; only then comes another.
    with SqliteStore.open(record) as store:
        finished = {campaign.id for campaign in store.query(CampaignQuery(finished=True))}
    assert by_campaign == finished
    assert nothing_left(tmp_path)


@pytest.mark.slow
def test_two_gnomons_take_turns(tmp_path: Path) -> None:
    model = model_in(tmp_path)
    effort = replace(EFFORT, processes_least=1, processes_most=1)
    with start_job(tmp_path, model, effort) as first:
        wait_for_line(first, "progress")
        first.send_signal(signal.SIGSTOP)  # so that it has not ended when the other one comes
        with start_job(tmp_path, model, effort) as second:
            try:
                told = wait_for_line(second, "told")
            finally:
                first.send_signal(signal.SIGCONT)
            assert str(first.pid) in told
            assert "waiting" in told
            ends = [process.communicate(timeout=240) for process in (first, second)]
    for process, (out, errors) in zip((first, second), ends, strict=True):
        assert process.returncode == 0, errors
        assert out.splitlines()[-1] == "new"
    after = recorded(tmp_path / "record.sqlite")
    assert set(after.values()) == {1}
    assert len({campaign for campaign, *_ in after}) == 2
