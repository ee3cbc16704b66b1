"""What every result in Python can do: a document, JSON, frames, three lines, a notebook's cell; and it is data."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import sys
from dataclasses import dataclass
from typing import Any

import pytest
from tests.cli.placement_kit import HOSTILE, placement, profiled
from tests.jobs.solve.test_solve_job import PROBLEM
from tests.report.tuning_kit import tune

import gnomon
from gnomon.errors import UsageError
from gnomon.jobs.documents import read_document
from gnomon.report.answer import SVG, Answer

RESULTS: dict[str, Answer] = {
    "place": placement(),
    "profile": profiled(),
    "solve": gnomon.solve(PROBLEM, {"latency": 1.0, "memory": 1e-3}),
    "front": gnomon.front(PROBLEM),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_a_document_and_json(name: str) -> None:
    found = RESULTS[name]
    assert json.loads(found.to_json()) == json.loads(json.dumps(found.document()))


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_shows_in_three_lines(name: str) -> None:
    lines = repr(RESULTS[name]).splitlines()
    assert len(lines) == 3
    assert all(len(line) <= 160 and line.isprintable() for line in lines)
    assert lines[0].startswith(type(RESULTS[name]).__name__)


def test_the_three_lines_say_what_of_and_what_was_found() -> None:
    assert repr(profiled()).splitlines()[1] == "onert:cpu is the fastest of 2: 220 us a call."
    tuned = read_document(tune())
    library = "my tunes/phone.mobile.float32.so"
    told = ["TuneDocument of mobile on phone", f"601 us tuned, 11.6 ms untuned: {library}"]
    assert repr(tuned).splitlines()[:2] == told
    model, reason, _ = repr(placement()).splitlines()
    assert model == "PlaceDocument of hand\\x07.circle on local"
    assert reason == "Mix: the plan is faster."


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_copied_pickled_and_taken_apart(name: str) -> None:
    found: Any = RESULTS[name]
    document = found.document()
    assert copy.copy(found).document() == document
    assert copy.deepcopy(found).document() == document
    assert pickle.loads(pickle.dumps(found)).document() == document  # noqa: S301 - its own
    assert dataclasses.asdict(found).keys() == {field.name for field in dataclasses.fields(found)}


def test_the_frame_is_what_counts_of_each_configuration() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = placement().frame()
    assert isinstance(frame, pandas.DataFrame)
    names = ["configuration", "cpu_us", "cpu_low_us", "cpu_high_us", "wall_us", "ratio", "ratio_low", "ratio_high"]
    assert frame.columns.tolist() == names
    for row, one in zip(frame.to_dict("records"), placement().document()["contenders"], strict=True):
        assert row["configuration"] == one["label"]
        assert one["measured"] is None or row["wall_us"] == 1e6 * one["measured"]["median_s"]
        assert one["against_best"] is None or row["ratio_high"] == one["against_best"]["high"]
    assert profiled().frame().columns.tolist() == names


def test_a_named_table_has_all_columns() -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    found = placement()
    frame = found.frame("contenders")
    contenders = found.document()["contenders"]
    assert frame["label"].tolist() == [one["label"] for one in contenders]
    assert frame["measured.p99_s"].tolist()[:3] == [one["measured"]["p99_s"] for one in contenders[:3]]
    assert frame["load_s"].tolist()[:3] == [0.01] * 3
    assert found.frame("operators")["name"].tolist()[2] == HOSTILE


def test_every_sample_is_a_row() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = placement().frame("runs")
    assert list(frame.columns) == ["label", "process", "block", "sample", "wall_us", "cpu_us"]
    assert len(frame) == 3 * 3 * 4 * 5
    assert isinstance(frame, pandas.DataFrame)
    assert frame["wall_us"].iloc[0] == 220.0


def test_a_frame_may_be_of_pyarrow() -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    table = placement().frame("runs", using="pyarrow")
    assert isinstance(table, pyarrow.Table)
    assert (table.num_rows, table.column_names[4]) == (180, "wall_us")
    assert profiled().frame(using="pyarrow").num_rows == 2


def test_a_frame_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match="a frame needs pandas, which is not installed") as caught:
        placement().frame()
    assert "pip install 'pandas>=2.2'" in caught.value.hint


def test_a_table_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match="no table 'nothing'") as caught:
        placement().frame("nothing")
    assert caught.value.hint == "Tables: missing, doubts, environments, contenders, operators, runs."
    with pytest.raises(UsageError, match="frames cannot use 'polars'"):
        placement().frame(using="polars")  # type: ignore[arg-type]


def test_a_notebook_gets_text_html_and_a_chart() -> None:
    found = placement()
    bundle = found._repr_mimebundle_()
    assert list(bundle) == ["text/plain", "text/html", SVG]
    assert bundle["text/plain"] == repr(found)
    assert "<th>configuration</th>" in bundle["text/html"] and "onert:cpu" in bundle["text/html"]
    for words in ("onert: plan", "onert:cpu", "onert:ruy (+cpu for 1 of 4)", "160 us [159, 162]"):
        assert f"{words}</text>" in bundle[SVG]


def test_the_chart_of_a_profile_has_each_configuration_with_its_interval() -> None:
    found = profiled()
    picture = found._repr_mimebundle_()[SVG]
    alive = [one for one in found.document()["columns"] if one["wall"] is not None]
    assert all(f"{one['label']}</text>" in picture for one in alive)


def test_names_from_files_are_text_in_html() -> None:
    found = dataclasses.replace(placement(), device="<script>alert(1)</script>\x1b")
    html = found._repr_mimebundle_()["text/html"]
    assert "<script>" not in html and "&lt;script&gt;" in html and "\x1b" not in html


def test_what_has_no_table_and_no_chart_is_shown_all_the_same() -> None:
    bundle = RESULTS["solve"]._repr_mimebundle_()
    assert list(bundle) == ["text/plain", "text/html"]
    with pytest.raises(UsageError, match="this result has no tables"):
        RESULTS["solve"].frame()


@dataclass(frozen=True, slots=True, kw_only=True)
class Many(Answer):
    """A result of so many rows."""

    count: int

    __repr__ = Answer.__repr__

    def document(self) -> dict[str, Any]:
        return {"rows": [{"n": n, "inside": {"half": n / 2}, "list": [n]} for n in range(self.count)]}


def test_long_tables_are_cut_in_html_and_whole_in_rows() -> None:
    html = Many(count=50)._repr_mimebundle_()["text/html"]
    assert html.count("<tr>") == 21 and "and 30 more" in html
    assert "<th>inside.half</th>" in html and "<th>list</th>" not in html
    assert Many(count=50).table_rows()["rows"][49] == {"n": 49, "inside.half": 24.5, "list": [49]}
