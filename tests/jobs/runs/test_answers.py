"""What jobs answered is kept beside their runs, and read again; what is damaged is told."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from tests.cli.placement_kit import placement

from gnomon.core.sample import Campaign, Context
from gnomon.errors import RecordError
from gnomon.jobs.documents import report_of
from gnomon.jobs.place.document import place_document
from gnomon.jobs.runs.answers import ANSWER, answer_of, keep
from gnomon.report.page import Page
from gnomon.store.base import note
from gnomon.store.sqlite import SqliteStore

CONTEXT = Context(device={}, versions={}, model_digest="0" * 64, model_name="m", options={}, seed=0, gnomon_version="0")
CAMPAIGN = Campaign(id="c" * 32, kind="place", key="k", context=CONTEXT, started_at_s=1.0)


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    with SqliteStore.open(tmp_path / "record.sqlite") as opened:
        opened.open_campaign(CAMPAIGN)
    return SqliteStore.open(tmp_path / "record.sqlite")


def test_an_answer_comes_back_and_is_reported(store: SqliteStore) -> None:
    document = {**place_document(placement()), "campaign": CAMPAIGN.id, "record": str(store.path)}
    assert answer_of(store, CAMPAIGN) is None
    keep(document, None)
    keep({**document, "seconds": 2.5}, None)
    found = answer_of(store, CAMPAIGN)
    assert found is not None
    assert found == {**document, "seconds": 2.5}  # the last one
    report = report_of(found)
    assert report is not None
    text = io.StringIO()
    report(found, Page(text, width=80, brief=True))
    assert document["decision"]["reason"].split()[0] in text.getvalue()
    assert report_of({"format": "gnomon-unheard-of"}) is None


def test_what_cannot_be_kept_is_told(store: SqliteStore, tmp_path: Path) -> None:
    told: list[str] = []
    keep({"campaign": "nobody", "record": str(store.path)}, told.append)
    assert "not kept" in told[0]


@pytest.mark.parametrize("data", [{}, {"zlib": "!"}, {"zlib": "eJw="}, {"zlib": "eJyLBgAAXQBd"}, {"zlib": 3}])
def test_a_damaged_answer_is_told(store: SqliteStore, data: dict[str, object]) -> None:
    note(store, CAMPAIGN.id, ANSWER, data)
    with pytest.raises(RecordError, match="answer of the campaign"):
        answer_of(store, CAMPAIGN)
