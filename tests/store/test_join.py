"""Records joined: nothing twice, nothing lost, nothing changed, and all of it or nothing."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gnomon.core.sample import FINISHED, Campaign, Context, Event, Failure, Run, Samples
from gnomon.errors import ProblemError, RecordError
from gnomon.store.base import CampaignQuery, EventQuery, RunQuery
from gnomon.store.join import join_records, opened
from gnomon.store.lines import read_lines, write_lines
from gnomon.store.sqlite import SqliteStore

NOTE, LAB = "lab", {"device": "board", "address": "ssh://board", "python": "/usr/bin/python3"}
CONTEXT = Context(
    device={"cpu_model": "c"},
    versions={"onert": "0.1.0"},
    model_digest="00",
    model_name="m",
    options={},
    seed=0,
    gnomon_version="0",
)


def told(event: Event) -> Event:
    return replace(event, data={**event.data, **LAB}) if event.name == NOTE else event


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
        first = join_records(there, here, told)
        assert (first["campaigns"], first["runs"]) == (2, 4)
        again = join_records(there, here, told)
        assert (again["campaigns"], again["runs"]) == (0, 0)
        there.append("one", sampled(2))
        there.append("one", Event(name=FINISHED, at_s=9.0))
        assert join_records(there, here, told)["runs"] == 1
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
        assert join_records(there, here, told)["runs"] == 1
        assert held(here, "one")[0] == [sampled(0, 7), sampled(0, candidate="b"), sampled(1)]


def test_what_is_measured_for_here_is_left_alone(tmp_path: Path) -> None:
    with records(tmp_path) as (there, here), SqliteStore.open(tmp_path / "here.sqlite") as measuring:
        there.open_campaign(campaign("one"))
        there.append("one", sampled(0))
        measuring.open_campaign(campaign("one"))
        with pytest.raises(RecordError, match="is measuring for"):
            join_records(there, here, told)
        assert held(here, "one") == ([], [])


def test_what_was_joined_is_held_no_longer(tmp_path: Path) -> None:
    with records(tmp_path) as (there, here), SqliteStore.open(tmp_path / "here.sqlite") as other:
        here.open_campaign(campaign("own"))
        for block in range(2):
            there.open_campaign(campaign("one"))
            there.append("one", sampled(block))
            assert join_records(there, (here, other)[block])["runs"] == 1
        assert held(here, "one")[0] == [sampled(0), sampled(1)]
        assert [c.id for c in other.query(CampaignQuery(held=True))] == ["own"]


def lines_of(store: SqliteStore) -> bytes:
    return "".join(f"{line}\n" for line in write_lines(store, reversed(list(store.query(CampaignQuery()))))).encode()


def filled(path: Path, ids: tuple[str, ...] = ("one", "two")) -> bytes:
    with SqliteStore.open(path) as store:
        for id in ids:
            store.open_campaign(campaign(id))
            for item in (failed(0.5), sampled(0), sampled(1), Event(name=FINISHED, at_s=9.0, data={"a": [1, "x"]})):
                store.append(id, item)
        return lines_of(store)


def test_lines_are_read_as_they_were_written(tmp_path: Path) -> None:
    text = filled(tmp_path / "there.sqlite")
    (tmp_path / "there.jsonl").write_bytes(text)
    with SqliteStore.open(tmp_path / "here.sqlite") as here, opened(tmp_path / "there.jsonl") as there:
        assert (join_records(there, here)["runs"], join_records(there, here)["runs"]) == (6, 0)
        assert lines_of(here) == text


WRONG = {
    "nonsense": (3, "nonsense", "line 3: not JSON"),
    "cut off": (None, '{"type":"run","campaign":"two","cand', "line 11: not JSON"),
    "no campaign": (3, '{"type":"event","campaign":"three","name":"x","at_s":1.0,"data":{}}', "line 3: the campaign"),
    "no type": (3, '{"type":"table","campaign":"one"}', "line 3: one of campaign, run, event"),
    "no object": (3, "[]", "line 3: an object"),
    "a field of another name": (3, '{"type":"event","campaign":"one","nam":"x","at_s":1.0}', "line 3: $.name: missing"),
    "another year in Japan": (
        3,
        '{"type":"event","campaign":"one","name":"x","at_s":253402300799.0}',
        "line 3: $.at_s",
    ),
    "NaN": (3, '{"type":"event","campaign":"one","name":"x","at_s":1.0,"data":{"a":NaN}}', "line 3: "),
    "a long number": (
        3,
        '{"type":"run","campaign":"one","candidate":"a","process":99999999999999999999,"block":0,"started_at_s":1.0,'
        '"failure":{"stage":"run","kind":"crash","transient":true,"message":"m"}}',
        "line 3: it has a number of more than 64 bits",
    ),
    "neither samples nor a failure": (
        3,
        '{"type":"run","campaign":"one","candidate":"a","process":9,"block":0,"started_at_s":1.0}',
        "line 3: the run of 'a' has both samples and a failure, or neither",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told_with_its_line_and_nothing_of_the_file_is_taken(tmp_path: Path, name: str) -> None:
    number, wrong, told = WRONG[name]
    lines = filled(tmp_path / "there.sqlite").decode().splitlines()
    lines.insert(len(lines) if number is None else number - 1, wrong)
    with SqliteStore.open(tmp_path / "here.sqlite") as here:
        with pytest.raises(ProblemError) as caught:
            read_lines("\n".join(lines).encode(), here)
        assert told in caught.value.message
        assert str(tmp_path) not in caught.value.message
        assert list(here.query(CampaignQuery())) == []


def test_samples_of_a_visit_on_two_lines_are_refused(tmp_path: Path) -> None:
    lines = filled(tmp_path / "there.sqlite").decode().splitlines()
    other = json.loads(lines[2]) | {"started_at_s": 99.0}
    text = "\n".join([*lines[:3], json.dumps(other), *lines[3:]]).encode()
    with SqliteStore.open(tmp_path / "here.sqlite") as here, pytest.raises(ProblemError, match=r"line 4: samples of"):
        read_lines(text, here)


def test_a_damaged_record_is_refused_whole(tmp_path: Path) -> None:
    filled(tmp_path / "there.sqlite")
    with sqlite3.connect(tmp_path / "there.sqlite") as db:
        db.execute("DROP TRIGGER runs_no_UPDATE")
        db.execute("UPDATE runs SET wall_ns = '[-1]' WHERE seq = 6")
    with (
        pytest.raises(RecordError, match=r"run 3 of .* two: .*\$\.samples\.wall_ns"),
        opened(tmp_path / "there.sqlite"),
    ):
        pass


def test_what_cannot_be_added_whole_leaves_the_record_as_it_was(tmp_path: Path) -> None:
    with records(tmp_path) as (there, here):
        there.open_campaign(campaign("one"))
        there.append("one", sampled(0))
        there.open_campaign(campaign("two"))
        here.open_campaign(replace(campaign("two"), kind="another"))
        with pytest.raises(RecordError, match="another campaign"):
            join_records(there, here)
        assert [c.id for c in here.query(CampaignQuery())] == ["two"]


JOINER = """
import os, signal, sys
from pathlib import Path
from gnomon.store.join import join_records, opened
from gnomon.store.sqlite import SqliteStore
class Killed(SqliteStore):
    left = int(sys.argv[3])
    def append(self, campaign, item):
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1
        super().append(campaign, item)
with opened(Path(sys.argv[1])) as there, Killed.open(Path(sys.argv[2])) as here:
    join_records(there, here)
"""


@pytest.mark.parametrize("left", [0, 5])
def test_a_kill_in_the_middle_leaves_a_whole_record(tmp_path: Path, left: int) -> None:
    text = filled(tmp_path / "there.sqlite")
    before = filled(tmp_path / "here.sqlite", ("three",))
    arguments = [str(tmp_path / "there.sqlite"), str(tmp_path / "here.sqlite"), str(left)]
    killed = subprocess.run([sys.executable, "-c", JOINER, *arguments], check=False)
    assert killed.returncode == -signal.SIGKILL
    with SqliteStore.open(tmp_path / "here.sqlite") as here, opened(tmp_path / "there.sqlite") as there:
        assert lines_of(here) == before
        assert join_records(there, here)["runs"] == 6
        assert lines_of(here) == before + text
