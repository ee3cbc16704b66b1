"""Runs brought into a record from files, and records joined to a new one."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from tests.store.contract import sample_campaign, sample_run
from tests.store.joinkit import added_once

import gnomon
from gnomon.core.sample import FINISHED, Event
from gnomon.errors import ProblemError, RecordError
from gnomon.store.base import COMMAND, EventQuery
from gnomon.store.sqlite import SqliteStore


def record(path: Path, *blocks: int, campaign: str = "c1") -> Path:
    with SqliteStore.open(path) as store:
        store.open_campaign(sample_campaign(campaign))
        store.append(campaign, Event(name=COMMAND, at_s=1.0, data={"arguments": ["place", "m"], "folder": "/"}))
        for block in blocks:
            store.append(campaign, sample_run(block=block))
        store.append(campaign, Event(name=FINISHED, at_s=2.0))
    return path


def exported(path: Path, out: Path) -> Path:
    out.write_text("".join(f"{line}\n" for line in gnomon.export_run("c1", record=path)), encoding="utf-8")
    return out


def lines(path: Path) -> list[str]:
    return list(gnomon.export_run("c1", record=path))


def test_an_export_is_imported_once_and_completes_what_is_there(tmp_path: Path) -> None:
    here = record(tmp_path / "here.sqlite", 0)
    file = exported(record(tmp_path / "there.sqlite", 0, 1, 2), tmp_path / "run.jsonl")
    first, again = (gnomon.import_runs(file, record=here) for _ in range(2))
    assert [(part.campaigns, part.runs) for part in (*first.files, *again.files)] == [(0, 2), (0, 0)]
    assert "2 runs" in repr(first)
    assert gnomon.read_document(first.document()).files == first.files


def test_commands_of_other_machines_stay_behind_and_come_into_a_new_record(tmp_path: Path) -> None:
    there = record(tmp_path / "there.sqlite", 0)
    gnomon.import_runs(there, record=tmp_path / "here.sqlite")
    gnomon.merge_runs(there, out=tmp_path / "new.sqlite")
    for path, count in ((tmp_path / "here.sqlite", 0), (tmp_path / "new.sqlite", 1)):
        with SqliteStore.read(path) as store:
            assert len(list(store.query(EventQuery(campaign="c1", name=COMMAND)))) == count


def test_a_new_record_holds_all_of_each(tmp_path: Path) -> None:
    one, two = record(tmp_path / "one.sqlite", 0), record(tmp_path / "two.sqlite", 0, 1)
    other = record(tmp_path / "other.sqlite", 0, campaign="c2")
    joined = gnomon.merge_runs(one, exported(two, tmp_path / "two.jsonl"), other, out=tmp_path / "all.sqlite")
    assert [(part.campaigns, part.runs) for part in joined.files] == [(1, 1), (0, 1), (1, 1)]
    assert sorted(lines(tmp_path / "all.sqlite")) == sorted(lines(two))
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".sqlite") == ["two.jsonl"]


def test_the_hint_can_be_pasted_whatever_the_path(tmp_path: Path) -> None:
    (tmp_path / "my runs").mkdir()
    one = record(tmp_path / "my runs" / "one.sqlite", 0)
    with pytest.raises(RecordError, match="already exists") as told:
        gnomon.merge_runs(one, out=one)
    assert shlex.split(told.value.hint)[-1] == str(one)


def test_what_cannot_be_joined_leaves_nothing(tmp_path: Path) -> None:
    one = record(tmp_path / "one.sqlite", 0)
    (tmp_path / "damaged.jsonl").write_text("{}\n", encoding="utf-8")
    with pytest.raises(ProblemError, match="line 1"):
        gnomon.merge_runs(one, tmp_path / "damaged.jsonl", out=tmp_path / "all.sqlite")
    with pytest.raises(RecordError, match="already exists"):
        gnomon.merge_runs(one, out=one)
    with pytest.raises(RecordError, match="is itself the destination"):
        gnomon.import_runs(one, record=one)
    (tmp_path / "linked").hardlink_to(one)
    with pytest.raises(RecordError, match="is itself the destination"):
        gnomon.import_runs(tmp_path / "linked", record=one)
    (tmp_path / "linked").unlink()
    with pytest.raises(RecordError, match="there is no file"):
        gnomon.import_runs(tmp_path / "none", record=one)
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".sqlite") == ["damaged.jsonl"]
    assert not (tmp_path / "all.sqlite").exists()


def test_several_import_overlapping_records_at_the_same_moment(tmp_path: Path) -> None:
    assert added_once(str(tmp_path / "record.sqlite"), tmp_path)["campaigns"] == 8
