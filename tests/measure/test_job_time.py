"""The time that a job may take: what is begun after it, what is told then, and where the next one goes on."""

from __future__ import annotations

import pytest
from tests.measure.test_campaign import StandIn, candidates, runner, steady

from gnomon.core.sample import FINISHED
from gnomon.measure.effort import Effort, JobTime
from gnomon.store.base import EventQuery
from gnomon.store.sqlite import SqliteStore

EFFORT = Effort(processes_least=3, processes_most=3, rounds=2, together=2)


class Clock:
    """Seconds that pass only where a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        monkeypatch.setattr("gnomon.measure.effort.time.monotonic", lambda: self.now_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_what_was_waited_is_not_counted(clock: Clock) -> None:
    job = JobTime(10.0)
    clock.now_s += 7
    job.waited_s += 4
    assert (job.used_s, job.left_s) == (3.0, 7.0)
    assert JobTime().left_s == float("inf")


def test_no_session_begins_once_the_time_is_over(clock: Clock, store: SqliteStore) -> None:
    link = StandIn(steady)
    job = JobTime(10.0)
    campaign = runner(link, store, time_of_job=job)
    before = link.request

    def request(*args: object, **more: object) -> None:
        before(*args, **more)  # type: ignore[arg-type]
        clock.now_s += 4  # the third session begins in time, and is not cut off

    link.request = request  # type: ignore[method-assign]
    found = campaign.measure("profile", candidates("fast", "slow", "third", "fourth"), EFFORT)
    assert len(link.requests) == 3
    assert campaign.stopped == "profile"
    assert all(m.ok for m in found.values())
    assert sorted({r.process for r in found["fast"].runs}) == [0, 1]
    late = campaign.measure("proof", candidates("proof/fast", "proof/new"), EFFORT)
    assert len(link.requests) == 3
    assert late["proof/fast"].ok  # what the proof lacks the profile has
    failure = late["proof/new"].failure
    assert failure is not None
    assert (failure.kind, failure.message) == ("unmeasured", "the job was stopped before this was measured")


def test_the_next_run_goes_on_from_there(clock: Clock, store: SqliteStore) -> None:
    link = StandIn(steady)
    job = JobTime(1.0)
    first = runner(link, store, time_of_job=job)
    clock.now_s += 2
    assert len(first.measure("profile", candidates("fast"), EFFORT)["fast"].runs) == EFFORT.rounds  # one process
    first.finish({"chosen": "none"})
    assert not list(store.query(EventQuery(campaign=first.campaign.id, name=FINISHED)))
    second = runner(link, store)
    assert second.campaign.id == first.campaign.id
    assert second.measure("profile", candidates("fast"), EFFORT)["fast"].ok
    assert second.stopped == ""
    second.finish({"chosen": "fast"})
    assert list(store.query(EventQuery(campaign=first.campaign.id, name=FINISHED)))


def test_a_stage_that_needs_more_than_is_left_is_not_begun(clock: Clock, store: SqliteStore) -> None:
    campaign = runner(StandIn(steady), store, time_of_job=JobTime(10.0))
    clock.now_s += 4
    assert not campaign.over("price chains", needs_s=4.0)
    assert campaign.stopped == ""
    assert campaign.over("price chains", needs_s=7.0)
    assert campaign.stopped == "price chains"
    assert not campaign.over("proof")  # what is shorter still has its time
    assert campaign.measure("proof", candidates("proof/a"), EFFORT)["proof/a"].ok
