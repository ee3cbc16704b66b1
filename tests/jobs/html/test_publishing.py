"""The site of a record: what is in it, what it refuses, and that it asks for nothing."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cli.placement_kit import placement
from tests.jobs.html.browser import chromium, needs_chromium
from tests.jobs.html.kit import hostile
from tests.jobs.html.test_page import Elements

import gnomon
from gnomon.cli.main import run
from gnomon.core.sample import FINISHED, Campaign, Context
from gnomon.errors import RecordError, UsageError
from gnomon.jobs.html.site import MARKER, histories_of, told_of
from gnomon.jobs.place.document import place_document
from gnomon.jobs.runs.answers import ANSWER, packed
from gnomon.store.base import note
from gnomon.store.sqlite import SqliteStore

CONTEXT = Context(device={}, versions={}, model_digest="0", model_name="m", options={}, seed=0, gnomon_version="0")
BASE: dict[str, Any] = json.loads(json.dumps(place_document(placement())))
DAY_S = 86400.0


def document(id: str, times: float, *, model: str = "m.onnx", device: str = "pi5") -> dict[str, Any]:
    made = copy.deepcopy(BASE)
    made["campaign"], made["device"], made["model"]["path"] = id, device, f"models/{model}"
    for one in made["contenders"]:
        for clock in ("measured", "cpu"):
            if one.get(clock):
                one[clock] = {k: v * times if k.endswith("_s") and v else v for k, v in one[clock].items()}
    return made


def add(store: SqliteStore, id: str, at_s: float, answer: dict[str, Any] | None) -> None:
    store.open_campaign(Campaign(id=id, kind="place", key=id, context=CONTEXT, started_at_s=at_s))
    note(store, id, ANSWER, {"zlib": "!"} if answer is None else packed(answer))
    note(store, id, FINISHED, {})


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty nights of one model, slower from the eighteenth on; another device; a hostile run; a damaged one."""
    path = tmp_path_factory.mktemp("record") / "record.sqlite"
    draw = random.Random(3)
    with SqliteStore.open(path) as store:
        for night in range(30):
            times = (1.2 if night >= 17 else 1.0) * draw.lognormvariate(0, 0.005)
            add(store, f"run{night}", night * DAY_S, document(f"run{night}", times))
        add(store, "other", 5.0, document("other", 2.0, device="rk3588"))
        add(store, "../../up", 6.0, {**hostile(), "campaign": "../../up"})
        add(store, "damaged", 7.0, None)
    return path


@pytest.fixture(scope="module")
def site(record: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out") / "site"
    found = gnomon.publish(record, out=out)
    assert (found.runs, found.histories, found.damaged) == (32, 3, ("damaged",))
    return out


def pages(site: Path) -> Iterator[tuple[Path, str]]:
    for path in site.rglob("*.html"):
        yield path, path.read_text(encoding="utf-8")


def test_every_link_leads_to_a_page_and_all_are_reached(site: Path) -> None:
    reached = {site / "index.html"}
    for path, text in pages(site):
        for link in re.findall(r'href="([^"#]+)"', text):
            target = (path.parent / link).resolve()
            assert target.is_file() and target.is_relative_to(site.resolve())
            reached.add(target)
    assert {path.resolve() for path, _ in pages(site)} == {path.resolve() for path in reached}


def test_no_page_may_ask_for_anything_and_no_text_is_markup(site: Path) -> None:
    for path, text in pages(site):
        found = Elements(text).found
        (policy,) = [str(attributes["content"]) for _, attributes in found if "http-equiv" in attributes]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert not [name for tag, attributes in found for name in (tag, *attributes) if name.startswith(("img", "on"))]
        if path.parent == site:
            assert "script" not in [tag for tag, _ in found]


def test_a_change_of_level_is_told_with_its_first_run(site: Path) -> None:
    text = (site / "index.html").read_text()
    assert "1 change of level" in text and "+20." in text and "runs/run17.html" in text
    assert "The answer of a run is damaged" in text and "damaged" in text
    history = next(t for p, t in pages(site) if p.name.startswith("history-") and "30 runs" in t)
    assert 'class="way level" d="M' in history and history.count("<circle") == 30
    short = next(t for p, t in pages(site) if p.name.startswith("history-") and "rk3588" in t)
    assert "from 20 runs on" in short


def test_a_change_says_where_the_file_of_the_model_is_another() -> None:
    made = []
    for night in range(30):
        one = document(f"run{night}", (2.0 if night >= 17 else 1.0) * (1 + 0.001 * (night % 3)))
        one["model"]["sha256"] = "b" if night >= 17 else "a"
        made.append(told_of(one, one["campaign"], night * DAY_S))
    (history,) = histories_of(made)
    assert [change.words for change in history.changes] == ["+100.0 %, slower, of another file"]
    (same,) = histories_of([replace(run, digest="a") for run in made])
    assert [change.words for change in same.changes] == ["+100.0 %, slower"]


def test_a_name_of_any_bytes_has_a_page() -> None:
    (history,) = histories_of([told_of(document("a", 1.0, model="m\udcff.onnx"), "a", 1.0)])
    assert history.file.startswith("history-") and history.model.encode("utf-8")


def test_runs_by_other_clocks_are_other_histories() -> None:
    wall = {**document("b", 1.0), "clock": "wall"}
    runs = [told_of(one, one["campaign"], 1.0) for one in (document("a", 1.0), wall)]
    assert [one.clock for one in histories_of(runs)] == ["cpu", "wall"]


def test_a_site_is_replaced_and_nothing_else_is(record: Path, tmp_path: Path) -> None:
    out = tmp_path / "site"
    (tmp_path / "empty").mkdir()
    for folder in (out, out, tmp_path / "empty"):
        assert run(["publish", str(record), "-o", str(folder)]) == 0
        assert (folder / MARKER).is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "site"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine").touch()
    for taken in (other, other / "mine"):
        with pytest.raises(UsageError, match="is not such a site"):
            gnomon.publish(record, out=taken)
    assert [path.name for path in other.iterdir()] == ["mine"]
    with pytest.raises(RecordError):
        gnomon.publish(tmp_path / "none.sqlite", out=tmp_path / "new")
    assert not (tmp_path / "new").exists()


@needs_chromium
def test_a_browser_asks_for_nothing_and_says_nothing(site: Path, tmp_path: Path) -> None:
    with chromium(tmp_path) as browser:
        for path in (site / "index.html", *sorted(site.glob("history-*.html"))[:1]):
            browser.events.clear()
            browser.open(path, script=False)
            assert browser.asked_for() == [path.as_uri()]
            assert browser.said() == []
            assert browser.value("getComputedStyle(document.querySelector('header')).position") == "sticky"
            assert browser.value("window.owned === undefined")
