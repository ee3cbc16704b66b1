"""Listing, showing and exporting what the record holds."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.store.contract import failed_run, sample_campaign, sample_run

from gnomon.core.codec import from_json
from gnomon.core.sample import Event, Run, Samples
from gnomon.errors import RecordError
from gnomon.jobs.runs.job import (
    COLUMNS,
    export_csv,
    find_campaign,
    list_campaigns,
    show_campaign,
)
from gnomon.store.base import CampaignQuery
from gnomon.store.lines import write_lines
from gnomon.store.sqlite import SqliteStore


def timed(candidate: str, wall_ns: int, process: int = 0) -> Run:
    samples = Samples(wall_ns=(wall_ns,) * 8, cpu_ns=(wall_ns // 2,) * 8)
    return Run(candidate=candidate, process=process, block=0, started_at_s=1.0, samples=samples)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore.open(tmp_path / "record.sqlite") as opened:
        opened.open_campaign(sample_campaign("abc1"))
        for run in (timed("slow", 2_000_000), timed("fast", 1_000_000), sample_run("fast"), failed_run("broken")):
            opened.append("abc1", run)
        for decision in ("slow", "fast"):
            opened.append("abc1", Event(name="decision", at_s=2.0, data={"best": decision}))
        opened.append("abc1", Event(name="finished", at_s=3.0))
        opened.open_campaign(sample_campaign("abd2", kind="proof"))
        yield opened


def test_the_list_says_what_each_campaign_holds(store: SqliteStore) -> None:
    new, old = list_campaigns(store)
    assert (new.campaign.id, new.finished, new.runs, new.decision) == ("abd2", False, 0, None)
    assert (old.candidates, old.runs, old.failures, old.finished) == (3, 4, 1, True)
    assert old.decision == {"best": "fast"}
    assert old.device == "Café 9000 🦄"


def test_a_campaign_that_is_being_measured_is_running(store: SqliteStore) -> None:
    with SqliteStore.open(store.path) as other:
        held, done = list_campaigns(other)
        assert (held.finished, held.running) == (False, True)
        assert done.finished
    store.close()
    with SqliteStore.open(store.path) as other:
        assert [row.running for row in list_campaigns(other)] == [False, False]


def test_a_campaign_shows_its_candidates_the_fastest_first(store: SqliteStore) -> None:
    detail = show_campaign(store, find_campaign(store, "abc1"))
    assert [c.candidate for c in detail.candidates] == ["fast", "slow", "broken"]
    fast, _, broken = detail.candidates
    assert fast.summary is not None
    assert fast.summary.median_s == pytest.approx(1e-3)
    assert (fast.summary.n, fast.profiled_runs) == (8, 1)
    assert broken.summary is None
    assert broken.last_failure == failed_run().failure
    assert [e.name for e in detail.events] == ["decision", "decision", "finished"]
    by_cpu = show_campaign(store, find_campaign(store, "abc1"), clock="cpu").candidates[0]
    assert by_cpu.summary is not None
    assert by_cpu.summary.median_s == pytest.approx(0.5e-3)


def test_rows_and_details_are_json(store: SqliteStore) -> None:
    for row in list_campaigns(store):
        assert json.loads(json.dumps(row.document(), allow_nan=False))["campaign"]["id"] == row.campaign.id
    store.append(
        "abd2", Run(candidate="few", process=0, block=0, started_at_s=1.0, samples=Samples(wall_ns=(5,), cpu_ns=(5,)))
    )
    value = show_campaign(store, find_campaign(store, "abd2")).document()
    assert value["candidates"][0]["summary"]["high_s"] is None
    json.dumps(value, allow_nan=False)


@pytest.mark.parametrize(
    ("prefix", "id"), [("abc1", "abc1"), ("abc", "abc1"), ("abd", "abd2"), ("last", "abd2"), ("last~1", "abc1")]
)
def test_a_campaign_is_found_by_the_start_of_its_id(store: SqliteStore, prefix: str, id: str) -> None:
    assert find_campaign(store, prefix).id == id


@pytest.mark.parametrize("prefix", ["ab", "", "%", "abc12", "last~2"])
def test_what_is_not_one_campaign_names_those_there_are(store: SqliteStore, prefix: str) -> None:
    with pytest.raises(RecordError) as refused:
        find_campaign(store, prefix)
    assert "abc1" in refused.value.hint


def test_an_empty_record_says_so(tmp_path: Path) -> None:
    with SqliteStore.open(tmp_path / "empty.sqlite") as store:
        assert list(list_campaigns(store)) == []
        for prefix in ("last", "x"):
            with pytest.raises(RecordError) as refused:
                find_campaign(store, prefix)
            assert "easure a model first" in refused.value.hint


def test_json_lines_hold_everything(store: SqliteStore) -> None:
    lines = [json.loads(line) for line in write_lines(store, store.query(CampaignQuery(id="abc1")))]
    assert [line["type"] for line in lines] == ["campaign"] + ["run"] * 4 + ["event"] * 3
    assert {line["campaign"] for line in lines} == {"abc1"}
    run = {k: v for k, v in lines[3].items() if k not in ("type", "campaign")}
    assert from_json(Run, run) == sample_run("fast")


def test_csv_has_a_row_a_sample_and_a_row_a_failure(store: SqliteStore) -> None:
    text = "\r\n".join(export_csv(store, store.query(CampaignQuery())))
    rows = list(csv.DictReader(io.StringIO(text)))
    assert tuple(rows[0]) == tuple(COLUMNS)
    assert len(rows) == 8 + 8 + 3 + 1
    assert float(rows[8]["wall_s"]) == pytest.approx(1e-3)
    assert (rows[-1]["failure_kind"], rows[-1]["wall_s"]) == ("crash", "")


def test_csv_escapes_what_a_terminal_obeys(store: SqliteStore) -> None:
    plain = sample_campaign("esc")
    hostile = "\x1b[2Jm\x9b1m\u202e.onnx"
    store.open_campaign(replace(plain, context=replace(plain.context, model_name=hostile)))
    store.append("esc", timed("\x1b]0;x\x07", 5))
    store.append("esc", failed_run("broken"))
    text = "\n".join(export_csv(store, store.query(CampaignQuery(id="esc"))))
    assert not [c for c in text if not c.isprintable() and c != "\n"]
    row = next(csv.DictReader(io.StringIO(text)))
    assert row["model"] == r"\x1b[2Jm\x9b1m\u202e.onnx"
    assert row["candidate"] == r"\x1b]0;x\x07"


def test_exports_stream(store: SqliteStore) -> None:
    for process, export in enumerate((export_csv, write_lines)):
        lines = export(store, store.query(CampaignQuery(id="abc1")))
        next(lines)
        store.append("abc1", timed("late", 5, process))
        assert any("late" in line for line in lines)
