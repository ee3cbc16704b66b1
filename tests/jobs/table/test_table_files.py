"""Tables on disk: what is written is read, a cut-off last line costs its unit alone, hostile files are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.jobs.estimator.estimator_kit import made_table, small_space
from tests.spaces.test_latency_table import MANIFEST, failed, relu, row, table

from gnomon.api.table import check_table, merge_tables
from gnomon.errors import ProblemError, RecordError, UsageError
from gnomon.jobs.estimator.job import described
from gnomon.jobs.table.exchange import export_sums, export_table
from gnomon.jobs.table.folder import MANIFEST as MANIFEST_FILE
from gnomon.jobs.table.folder import ROWS, SPACE, TableFolder, is_table, keep_space, read_table, write_table
from gnomon.spaces.latency_table import Row, Table
from gnomon.spaces.layers import layer
from gnomon.spaces.loading import load_space
from gnomon.spaces.unit import Unit

SECONDS = st.floats(1e-9, 1e3)
UNITS = st.builds(
    lambda width, kernel, channels: Unit(
        layers=(layer("Conv", out_channels=channels, kernel=(kernel, 1)), layer("Relu6")), inputs=((1, width, 9, 9),)
    ),
    st.integers(1, 2000),
    st.integers(1, 9),
    st.integers(1, 2000),
)


@st.composite
def rows(draw: st.DrawFn) -> Row:
    unit, at_s = draw(UNITS), draw(st.floats(0, 4e9))
    if draw(st.booleans()):
        return Row(unit=unit, status="failed", at_s=at_s, reason=draw(st.text(min_size=1, max_size=400)))
    low_s, call_s, high_s = sorted(draw(st.tuples(SECONDS, SECONDS, SECONDS)))
    known = draw(st.booleans())
    return Row(
        unit=unit,
        status=draw(st.sampled_from(("ok", "unstable"))),
        at_s=at_s,
        call_s=call_s,
        low_s=low_s if known else None,
        high_s=high_s if known else None,
        drift=draw(st.floats(0.1, 10)),
        processes=draw(st.integers(0, 99)),
        samples=draw(
            st.dictionaries(st.from_regex("[0-9]/[0-9]", fullmatch=True), st.lists(SECONDS, max_size=3).map(tuple))
        ),
        reported=draw(st.dictionaries(st.text(max_size=9), SECONDS, max_size=2)),
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(found=st.lists(rows(), max_size=4), data=st.data())
def test_what_is_written_is_read_and_any_cut_costs_the_last_row_alone(
    tmp_path_factory: pytest.TempPathFactory, found: list[Row], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("t") / "table"
    whole = Table(manifest=MANIFEST, rows=tuple(found))
    write_table(whole, path)
    assert read_table(path) == whole
    if not whole.rows:
        return
    lines = (path / ROWS).read_bytes().splitlines(keepends=True)
    cut = data.draw(st.integers(0, len(lines[-1]) - 2))
    (path / ROWS).write_bytes(b"".join(lines[:-1]) + lines[-1][:cut])
    assert read_table(path).rows == whole.rows[:-1]
    folder = TableFolder(path, MANIFEST)
    folder.append(whole.rows[-1])
    folder.close()
    assert read_table(path) == whole


def test_a_line_in_the_middle_that_was_cut_off_is_passed_over_and_a_damaged_one_is_not(tmp_path: Path) -> None:
    write_table(table(row(8), row(9), row(10)), tmp_path / "t")
    file = tmp_path / "t" / ROWS
    lines = file.read_text().splitlines()
    brace = lines[1].index("}") + 1  # the inner end of a layer, where half a line looks like a whole one
    file.write_text("\n".join([lines[0], lines[1][:brace], lines[2]]) + "\n")
    assert [r.unit for r in read_table(tmp_path / "t").rows] == [relu(8), relu(10)]
    for damaged in (lines[1].replace(":", ";", 1), lines[1] + "}", "[]", "nonsense"):
        file.write_text("\n".join([lines[0], damaged, lines[2]]) + "\n")
        with pytest.raises(ProblemError, match="malformed"):
            read_table(tmp_path / "t")


def manifest_with(folder: Path, **changes: Any) -> Path:
    write_table(table(row(8)), folder / "t")
    known = json.loads((folder / "t" / MANIFEST_FILE).read_text())
    (folder / "t" / MANIFEST_FILE).write_text(json.dumps({**known, **changes}))
    return folder / "t"


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": 2},
        {"clock": "sun"},
        {"overhead_s": -1},
        {"overhead_s": float("nan")},
        {"rules": [5]},
        {"evidence": [5]},
        {"anchor_calls_s": [0]},
        {"context": {"device": 5}},
        {"context": {"options": [1]}},
    ],
    ids=str,
)
def test_hostile_manifests_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(ProblemError) as refused:
        read_table(manifest_with(tmp_path, **changes))
    assert refused.value.hint


@pytest.mark.parametrize("text", ["", "{}", '{"schema":1,"schema":1}'])
def test_what_is_no_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST_FILE).write_text(text)
    with pytest.raises(ProblemError):
        read_table(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "0" * 12},
        {"unit": {"layers": [{"kind": ["Relu"]}], "inputs": [[1, 1, 1, 1]], "dtype": "float32", "layout": "NCHW"}},
        {"status": "fine"},
        {"call_s": 0},
        {"call_s": float("nan")},
        {"low_s": 1e9},
        {"drift": 0},
        {"processes": -1},
        {"samples": {"0/0": ["1"]}},
        {"reported": {"x": "y"}},
        {"more": 1},
    ],
    ids=str,
)
def test_hostile_rows_are_refused_with_their_line(tmp_path: Path, changes: dict[str, Any]) -> None:
    write_table(table(row(8), row(9)), tmp_path / "t")
    file = tmp_path / "t" / ROWS
    first, second = file.read_text().splitlines()
    file.write_text(f"{first}\n{json.dumps({**json.loads(second), **changes})}\n")
    with pytest.raises(ProblemError) as refused:
        read_table(tmp_path / "t")
    assert refused.value.hint


def test_places_that_cannot_hold_a_table(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a latency table"):
        read_table(tmp_path)
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "other").write_text("x")
    for name in ("file", "full"):
        with pytest.raises(UsageError) as refused:
            TableFolder(tmp_path / name, MANIFEST)
        assert "--out" in refused.value.hint
        with pytest.raises(UsageError):
            write_table(table(row(8)), tmp_path / name)
    assert not is_table(tmp_path / "full")
    with pytest.raises(RecordError):
        TableFolder(tmp_path / "file" / "below", MANIFEST)
    write_table(table(failed(8)), tmp_path / "t")
    with pytest.raises(UsageError, match="already exists"):
        write_table(table(row(9)), tmp_path / "t")
    assert read_table(tmp_path / "t").failed[0].reason == "refused"


def test_the_manifest_of_an_older_table_without_an_anchor_is_read(tmp_path: Path) -> None:
    write_table(table(row(8)), tmp_path / "t")
    file = tmp_path / "t" / MANIFEST_FILE
    known = json.loads(file.read_text())
    few = {k: known[k] for k in ("schema", "space", "context", "clock", "overhead_s")}
    file.write_text(json.dumps(few))
    assert read_table(tmp_path / "t").manifest == replace(
        MANIFEST, anchor="", anchor_calls_s=(), created_at_s=0.0, gnomon_version=""
    )


@pytest.mark.parametrize("named", ["evil.py:space", "{there}/evil.py:space"])
def test_looking_at_a_table_runs_no_file_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """A table may come from anybody: only spaces that are given, shipped or installed are run."""
    (tmp_path / "evil.py").write_text("open('ran', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    manifest = replace(MANIFEST, space=named.format(there=tmp_path))
    write_table(Table(manifest=manifest, rows=(row(8, 1e-3),)), tmp_path / "t")
    found = check_table(tmp_path / "t")
    (told,) = [one for one in found.complaints if "which gnomon does not know" in one]
    assert "--space" in told
    (tmp_path / "nets.csv").write_text("0\n")
    with pytest.raises(UsageError, match="which gnomon does not know"):
        export_sums([tmp_path / "t"], tmp_path / "nets.csv", tmp_path / "sums")
    with pytest.raises(UsageError, match="which gnomon does not know"):
        described(tmp_path / "t", None)
    export_table([tmp_path / "t"], tmp_path / "t.csv")
    merge_tables(tmp_path / "t", tmp_path / "t", out=tmp_path / "both")
    assert not (tmp_path / "ran").exists()


def test_a_table_remembers_its_space_and_so_does_what_is_merged_of_it(tmp_path: Path) -> None:
    space = small_space()
    write_table(made_table(space), tmp_path / "t", space)
    merge_tables(tmp_path / "t", tmp_path / "t", out=tmp_path / "both")
    for name in ("t", "both"):
        assert not check_table(tmp_path / name).complaints
    (tmp_path / "t" / SPACE).write_text("{")
    with pytest.raises(ProblemError, match="the space of the table is malformed"):
        described(tmp_path / "t", None)
    keep_space(load_space("fbnet"), tmp_path / "t")
    assert not (tmp_path / "t" / SPACE).exists(), "a shipped space is remembered by its name"


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    path = manifest_with(tmp_path, clock="sun", overhead_s=-1)
    with (path / ROWS).open("a") as file:
        file.write(json.dumps({"id": 3, "unit": [], "status": "fine", "at_s": 1.0}) + "\n")
    with pytest.raises(ProblemError) as refused:
        read_table(path)
    for place in ("$.clock", "$.overhead_s", "line 2.id", "line 2.unit", "line 2.status"):
        assert place in refused.value.message


def test_figures_of_another_tool_come_back_as_they_were(tmp_path: Path) -> None:
    told = replace(row(8), reported={"Layers Time/Avg_Time": 37, "Layers Time/Max_Time": 40.0})
    write_table(table(told), tmp_path / "t")
    assert repr(read_table(tmp_path / "t").rows[0].reported) == repr(told.reported)
