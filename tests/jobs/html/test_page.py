"""The page as a file: what is in it, how large it is, and that it is read again; without a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from tests.cli.placement_kit import placement, profiled
from tests.jobs.compare.test_compare import document as profile
from tests.jobs.html.kit import hostile
from tests.jobs.place.test_sustained import found as sustained_part
from tests.jobs.test_job_documents import FOUND, large
from tests.report.tuning_kit import tune

import gnomon
from gnomon.cli.main import cli
from gnomon.errors import RecordError, UsageError
from gnomon.jobs.compare.job import compare
from gnomon.jobs.compare.sides import read_run
from gnomon.jobs.html.job import write_page
from gnomon.jobs.html.page import page
from gnomon.jobs.html.views import cell_parts, view
from gnomon.jobs.place.picture import sustained_charts
from gnomon.report.markdown import escaped

MOST_BYTES = 2_000_000


class Elements(HTMLParser):
    """All elements with their attributes, and the text of each script and style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._in = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._in = tag

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self._in, []).append(data)


@pytest.mark.parametrize(("more", "hint"), [({}, "Give --html a file"), ({"campaign": "0"}, "gnomon report last")])
def test_a_page_that_cannot_be_written_is_elsewhere_only_where_a_record_has_it(
    tmp_path: Path, more: dict[str, str], hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnomon.jobs.html.job.page", lambda *_: "page")
    with pytest.raises(RecordError, match="cannot be written") as raised:
        write_page({"format": "gnomon-front", **more}, tmp_path / "none" / "x.html")
    assert raised.value.hint.startswith(hint)


def test_a_large_model_stays_below_two_megabytes() -> None:
    assert len(page([large()], ["large"]).encode()) <= MOST_BYTES


@pytest.mark.parametrize("name", FOUND)
def test_every_document_has_a_page_that_asks_for_nothing(name: str) -> None:
    text = page([FOUND[name]], [name])
    assert json.loads(Elements(text).texts["script"][0]) == FOUND[name]
    inert(text)


def inert(text: str) -> None:
    """Nothing of the page leads elsewhere, and its policy holds exactly for its style and its script."""
    elements = Elements(text)
    allowed = {"script", "style", "meta", "html", "head", "body", "title", "svg", "a", "button"}
    assert {tag for tag, _ in elements.found} & {"img", "iframe", "object", "embed", "link", "base", "form"} == set()
    for tag, attributes in elements.found:
        assert not [name for name in attributes if name.startswith("on") or name in ("src", "style", "srcdoc")], tag
        assert (attributes.get("href") or "#").startswith("#")
    assert "script" in allowed
    outside = re.sub(r'<script type="application/json".*?</script>', "", text, flags=re.DOTALL)
    assert "://" not in re.sub(r"<(p|li|td|th|dd|h1|title|text|strong)\b[^>]*>.*?</\1>", "", outside, flags=re.DOTALL)
    policy = next(a["content"] for tag, a in elements.found if tag == "meta" and "http-equiv" in a) or ""
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    for rule, own in (("style-src", elements.texts["style"][0]), ("script-src", elements.texts["script"][-1])):
        digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    kinds = [attributes.get("type") for tag, attributes in elements.found if tag == "script"]
    assert kinds.count(None) == 1


@pytest.mark.parametrize("name", ["place by hand", "tune by hand", "space show profile --json"])
def test_conditions_stand_beside_the_title_once(name: str) -> None:
    dated = json.loads(json.dumps(FOUND[name]).replace('"began_s": 0.0', '"began_s": 1767355200.0'))
    heading = page([dated], [name]).partition("</h1>")[2].partition('<p class="answer">')[0]
    assert re.fullmatch(r'\s*<p class="note">[^<]*\b2026-01-02\b[^<]*</p>\s*', heading), heading


def test_a_column_without_a_value_is_not_shown() -> None:
    found = placement().document()
    titles = [column.title for column in cell_parts(found, 9)[1].columns]  # type: ignore[union-attr]
    assert "predicted" in titles and "profiler overhead" not in titles
    for one in found["contenders"]:
        one["predicted_s"] = one["prediction_error"] = None
    columns = cell_parts(found, 9)[1].columns  # type: ignore[union-attr]
    assert [c.title for c in columns] == [title for title in titles if not title.startswith("predict")]


def test_markdown_has_the_answer_its_conditions_and_its_table() -> None:
    found = profiled()
    lines = found.to_markdown().splitlines()
    assert lines[0].startswith("**onert:cpu is fastest: 220 us of CPU time") and r"\[1.63, 1.64\].**" in lines[0]
    assert lines[2] == escaped(view(found.document()).conditions)
    titles, kinds, *rows = (line for line in lines if line.startswith("|"))
    assert titles.split(" | ")[:2] == ["| configuration", "wall"] and kinds.split(" | ")[:2] == ["| ---", "--:"]
    assert len(rows) == len(found.columns) and {row.count(" | ") for row in (titles, kinds, *rows)} == {9}
    assert "p99" not in titles, "a column of pages alone"


def test_what_is_chosen_is_marked_once() -> None:
    text = page([FOUND["place by hand"]], ["place"])
    assert re.search(r'<tr class="chosen"><th[^>]*>onert: plan<', text)
    assert not re.search(r"<th[^>]*>&gt; ", text), "the style writes the mark"


def test_hostile_texts_stay_texts() -> None:
    text = page([hostile(), hostile()], ["<script>", "\x1b]0;x\x07"])
    inert(text)
    assert text.count("<script") == 4  # two documents, where operators stand, and the script
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", text)
    assert "{{7*7}}" in text
    assert read_back(text) == hostile()


def read_back(text: str) -> Any:
    return json.loads(Elements(text).texts["script"][0])


def test_headings_of_tables_have_a_scope_and_charts_a_name() -> None:
    elements = Elements(page([placement().document()], ["one"]))
    assert {attributes.get("scope") for tag, attributes in elements.found if tag == "th"} == {"col", "row"}
    charts = [attributes for tag, attributes in elements.found if tag == "svg"]
    assert [(one.get("class") or "").partition(" ")[2] for one in charts].count("wide") == 4
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes in charts)
    assert ("html", {"lang": "en"}) in elements.found


def sides(folder: Path, factor: float = 1.3) -> list[str]:
    rng = np.random.default_rng(3)
    paths = [folder / "a.json", folder / "b.json"]
    for path, times in zip(paths, (1.0, factor), strict=True):
        path.write_text(json.dumps(profile(rng, level_us=5000.0 * times)), encoding="utf-8")
    return list(map(str, paths))


def test_a_page_is_compared_as_its_run_is(tmp_path: Path) -> None:
    names = sides(tmp_path)
    pages = [str(tmp_path / f"{k}.html") for k in range(2)]
    for name, to in zip(names, pages, strict=True):
        assert gnomon.write_report(name, out=to) == Path(to).stat().st_size
    known, found = compare(names), compare(pages)
    assert found.pairs == known.pairs
    both = tmp_path / "both.html"
    gnomon.write_report(*names, out=both)
    assert compare([str(both), f"{both}#2"]).pairs == known.pairs
    assert "slower" in both.read_text(encoding="utf-8")
    with pytest.raises(UsageError, match="has no run 3"):
        read_run(f"{both}#3", None)


def test_the_command_writes_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = sides(tmp_path)
    monkeypatch.chdir(tmp_path)
    told = CliRunner().invoke(cli, ["report", *names], catch_exceptions=False)
    assert told.exit_code == 0
    assert told.output == f"report.html: {Path('report.html').stat().st_size:,} bytes\n"
    assert "What changed" in Path("report.html").read_text(encoding="utf-8")


def test_what_runs_differ_by_is_said_as_for_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path))
    names, out = sides(tmp_path, 1.04), tmp_path / "page.html"
    for sessions, verdict in (("2%", "unknown"), ("0%", "slower")):
        said = ["--sessions", sessions]
        told = CliRunner().invoke(cli, ["report", *names, "-o", str(out), *said], catch_exceptions=False)
        assert told.exit_code == 0
        compared = CliRunner().invoke(cli, ["compare", *names, "--json", *said], catch_exceptions=False)
        rows = [row for pair in json.loads(compared.output)["pairs"] for row in pair["configurations"]]
        assert {row["verdict"] for row in rows} == {verdict}
        answer = gnomon.read_document(json.loads(compared.output)).headline()[1]
        assert f'<p class="answer">{answer}</p>' in out.read_text(encoding="utf-8")
    with pytest.raises(UsageError, match="sessions cannot be"):
        gnomon.write_report(*names, out=out, sessions=-0.1)


def test_a_folder_that_is_not_there_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(b"no model, which would be told next")
    told = CliRunner().invoke(cli, ["profile", str(model), "--html", str(tmp_path / "none" / "x.html")])
    assert told.exit_code == 2 and "is not a folder that can be written to" in told.output


def test_documents_of_several_devices_are_shown_one_by_one(tmp_path: Path) -> None:
    tuned = [tune(device={**tune()["device"], "key": key}) for key in ("phone", "board")]
    write_page({"format": "gnomon-tuned", "version": 1, "tuned": tuned}, tmp_path / "x.html")
    text = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert all(f"mobile on {key}: 0.601 ms tuned" in text for key in ("phone", "board"))


def test_a_result_makes_its_page() -> None:
    assert read_back(profiled().to_html()) == profiled().document()


def test_a_sustained_run_is_drawn_over_even_time() -> None:
    states = {block: {"temperatures_c": {"zone": 40.0 + block / 10}} for block in (0, 190)}
    part = sustained_part([1.0] * 190 + [1.25] * 410, states=states)
    calls, heat = sustained_charts(part)
    assert (calls.x.title, calls.x.linear, [group.name for group in calls.groups]) == (
        "minutes of calling",
        True,
        ["99th percentile", "median", "a change"],
    )
    assert [mark.label for mark in calls.groups[2].marks] == ["slower"]
    assert heat.title == "hottest zone, degrees Celsius"
    assert not list(sustained_charts(replace(part, blocks=replace(part.blocks, at_s=part.blocks.at_s[:1]))))
