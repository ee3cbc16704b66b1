"""What jobs answered is kept beside their runs, and read again; what is damaged is told."""

from __future__ import annotations

import base64
import io
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.cli.placement_kit import placement
from tests.jobs.test_job_documents import FOUND

import gnomon
from gnomon.cli.main import run
from gnomon.core.sample import FINISHED, Campaign, Context
from gnomon.errors import RecordError
from gnomon.jobs.documents import report_of
from gnomon.jobs.runs.answers import ANSWER, answer_of, answered_cell, asked_before, keep, packed
from gnomon.report.page import Page
from gnomon.store.base import CELL, note
from gnomon.store.sqlite import SqliteStore

CONTEXT = Context(device={}, versions={}, model_digest="0" * 64, model_name="m", options={}, seed=0, gnomon_version="0")
CAMPAIGN = Campaign(id="c" * 32, kind="place", key="k", context=CONTEXT, started_at_s=1.0)


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    with SqliteStore.open(tmp_path / "record.sqlite") as opened:
        opened.open_campaign(CAMPAIGN)
    return SqliteStore.open(tmp_path / "record.sqlite")


def test_an_answer_comes_back_and_is_reported(store: SqliteStore) -> None:
    document = {**placement().document(), "campaign": CAMPAIGN.id, "record": str(store.path)}
    assert answer_of(store, CAMPAIGN) is None
    with pytest.raises(RecordError, match="this run has no answer"):
        gnomon.export_run_as("perfetto", out=store.path.with_name("t.json"), record=store.path)
    keep(document, None)
    keep({**document, "seconds": 2.5}, None)
    found = gnomon.answer_of_run(record=store.path)
    assert found is not None
    assert found == {**document, "seconds": 2.5}  # the last one
    report = report_of(found)
    assert report is not None
    text = io.StringIO()
    report(found, Page(text, width=80, brief=True))
    assert document["decision"]["reason"].split()[0] in text.getvalue()
    assert report_of({"format": "gnomon-unheard-of"}) is None


def test_what_cannot_be_kept_or_read_again_is_told(store: SqliteStore) -> None:
    told: list[str] = []
    keep({"campaign": "nobody", "record": str(store.path)}, told.append)
    keep({"campaign": CAMPAIGN.id, "record": str(store.path), "a": "0" * (5 << 20)}, told.append)
    assert "was not stored" in told[0] and "has more than" in told[1]
    assert answer_of(store, CAMPAIGN) is None


def deflated(text: bytes) -> dict[str, Any]:
    return {"zlib": base64.b64encode(zlib.compress(text)).decode()}


PLACE = FOUND["place by hand"]


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"zlib": "!"},
        {"zlib": "eJyLBgAAXQBd"},
        deflated(b"[" * 200_000),
        deflated(b"[]"),
        deflated(b"\xff"),
        packed({"format": "gnomon-profile", "version": 1}),
        packed({"format": "other"}),
        packed({name: value for name, value in PLACE.items() if name != "campaign"}),
        packed({**PLACE, "contenders": [{"label": 3}]}),
    ],
)
def test_a_damaged_answer_is_told(store: SqliteStore, data: dict[str, object]) -> None:
    note(store, CAMPAIGN.id, ANSWER, data)
    with pytest.raises(RecordError, match="answer of the campaign"):
        answer_of(store, CAMPAIGN)


def test_runs_are_shown_beside_an_answer_that_cannot_be_read(
    store: SqliteStore, capsys: pytest.CaptureFixture[str]
) -> None:
    note(store, CAMPAIGN.id, ANSWER, packed({**PLACE, "a field of a later version": 1}))
    assert run(["runs", "show", "last", "--record", str(store.path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Warning: the answer of the campaign" in shown and "or comes from another version of gnomon" in shown
    assert CAMPAIGN.id[:8] in shown


def test_what_an_older_gnomon_did_not_tell_is_filled_in(store: SqliteStore) -> None:
    note(store, CAMPAIGN.id, ANSWER, packed({name: value for name, value in PLACE.items() if name != "threads"}))
    assert answer_of(store, CAMPAIGN).document() == {**PLACE, "threads": []}


def test_a_small_event_becomes_no_large_answer(store: SqliteStore) -> None:
    note(store, CAMPAIGN.id, ANSWER, deflated(b'{"a":[' + b"[]," * 2_000_000 + b"0]}"))
    with pytest.raises(RecordError, match="has more than"):
        answer_of(store, CAMPAIGN)


QUESTION = "0123"
OTHER = {"question": "4567"}
SAME = {"question": QUESTION}


@pytest.mark.parametrize(
    "answer",
    [
        packed(PLACE),
        packed(PLACE) | OTHER,
        {"zlib": "x"} | SAME,
        packed({**PLACE, "decision": None}) | SAME,
        packed(FOUND["profile by hand"]) | SAME,
    ],
)
def test_what_is_damaged_or_of_another_question_is_no_answer(store: SqliteStore, answer: dict[str, str]) -> None:
    cell = {"suite": "s", "cell": "c"}
    for name, data in ((CELL, cell), (ANSWER, answer), (FINISHED, {})):
        note(store, CAMPAIGN.id, name, data)
    digest = CONTEXT.model_digest
    asked = partial(asked_before, store.path, "place", QUESTION, digest)
    assert asked(package=Path(PLACE["package"])) is None
    sound = answer.get("question") != QUESTION
    finished, kept = answered_cell(store, "place", cell)
    assert finished
    assert (kept and kept.document()) == (PLACE if sound else None)
    note(store, CAMPAIGN.id, ANSWER, packed(PLACE) | SAME)
    assert asked(package=Path(PLACE["package"])).document() == PLACE
    assert asked(package=Path("another")) is None
    assert answered_cell(store, "place", cell)[1].document() == PLACE
