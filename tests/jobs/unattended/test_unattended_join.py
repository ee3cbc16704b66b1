"""A job's record joined with this machine's: nothing twice, nothing lost, nothing changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gnomon.core.sample import FINISHED, Campaign, Context, Event, Failure, Run, Samples
from gnomon.errors import RecordError
from gnomon.jobs.unattended.device import join_records
from gnomon.session.replay import NOTE
from gnomon.store.base import CampaignQuery, EventQuery, RunQuery
from gnomon.store.sqlite import SqliteStore

LAB = {"device": "board", "address": "ssh://board", "python": "/usr/bin/python3"}
CONTEXT = Context(
    device={"cpu_model": "c"},
    versions={"onert": "0.1.0"},
    model_digest="00",
    model_name="m",
    options={},
    seed=0,
    gnomon_version="0",
)


def campaign(id: str) -> Campaign:
    return Campaign(id=id, kind="pareto", key="k", context=CONTEXT, started_at_s=1.0)


def sampled(block: int, wall: int = 5, candidate: str = "a") -> Run:
    samples = Samples(wall_ns=(wall,), cpu_ns=(), inner=1)
    return Run(candidate=candidate, process=0, block=block, started_at_s=1.0 + block, samples=samples)


def failed(at_s: float) -> Run:
    failure = Failure(stage="run", kind="crash", transient=True, message="m")
    return Run(candidate="a", process=0, block=0, started_at_s=at_s, failure=failure)


@contextmanager
def records(tmp_path: Path) -> Iterator[tuple[SqliteStore, SqliteStore]]:
    with SqliteStore.open(tmp_path / "there.sqlite") as there, SqliteStore.open(tmp_path / "here.sqlite") as here:
        yield there, here


def held(store: SqliteStore, id: str) -> tuple[list[Run], list[Event]]:
    return list(store.query(RunQuery(campaign=id))), list(store.query(EventQuery(campaign=id)))


def test_everything_comes_once_and_in_its_order(tmp_path: Path) -> None:
    note = Event(name=NOTE, at_s=1.0, data={"device": "local", "address": "local", "python": "p", "settings": {}})
    with records(tmp_path) as (there, here):
        for id in ("one", "two"):
            there.open_campaign(campaign(id))
            there.append(id, note)
        for item in (failed(0.5), sampled(0), failed(0.6), sampled(1)):
            there.append("one", item)
        first = join_records(there, here, LAB)
        assert (first.campaigns, first.runs) == (2, 4)
        again = join_records(there, here, LAB)
        assert (again.campaigns, again.runs) == (0, 0)
        there.append("one", sampled(2))
        there.append("one", Event(name=FINISHED, at_s=9.0))
        assert join_records(there, here, LAB).runs == 1
        runs, events = held(here, "one")
        assert runs == held(there, "one")[0]
        assert [(e.name, dict(e.data)) for e in events] == [(NOTE, {**note.data, **LAB}), (FINISHED, {})]
        assert [c.id for c in here.query(CampaignQuery())] == ["two", "one"]
        assert list(here.query(CampaignQuery(finished=True))) == [campaign("one")]


def test_each_may_have_gone_on_with_a_campaign_by_itself(tmp_path: Path) -> None:
    with records(tmp_path) as (there, here):
        for store, wall in ((there, 5), (here, 7)):
            store.open_campaign(campaign("one"))
            store.append("one", sampled(0, wall))
        there.append("one", sampled(1))
        here.append("one", sampled(0, candidate="b"))
        assert join_records(there, here, LAB).runs == 1
        assert held(here, "one")[0] == [sampled(0, 7), sampled(0, candidate="b"), sampled(1)]


def test_what_is_measured_for_here_is_left_alone(tmp_path: Path) -> None:
    with records(tmp_path) as (there, here), SqliteStore.open(tmp_path / "here.sqlite") as measuring:
        there.open_campaign(campaign("one"))
        there.append("one", sampled(0))
        measuring.open_campaign(campaign("one"))
        with pytest.raises(RecordError, match="running"):
            join_records(there, here, LAB)
        assert held(here, "one") == ([], [])
