"""A job's answer for other tools, read by those: pyarrow, the onnx checker, a schema of Chrome's traces."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import pytest
from tests.jobs.html.kit import hostile
from tests.jobs.test_job_documents import EACH, FOUND, large
from tests.store.contract import failed_run, sample_campaign, sample_run

import gnomon
from gnomon.errors import ModelError, RecordError
from gnomon.jobs.compare.sides import CONFIGURATIONS
from gnomon.jobs.runs import job
from gnomon.jobs.runs.answers import keep
from gnomon.jobs.runs.exports import chrome_trace
from gnomon.models.load import load
from gnomon.store.sqlite import SqliteStore

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

MODEL = Path(__file__).parents[3] / "docs" / "examples" / "digits.onnx"

WHOLE = FOUND["profile by hand"]

STATE = {
    "load_average_1m": 0.5,
    "frequencies_khz": [1_200_000, None],
    "governors": ["performance"],
    "temperatures_c": {"cpu": 41.5},
    "throttle_count": None,
    "memory_available_bytes": 1 << 30,
    "swap_used_bytes": None,
    "on_battery": None,
}

NUMBER, NAME = {"type": "integer", "minimum": 0}, {"type": "string", "minLength": 1}
TIME = {"type": "number", "minimum": 0}


def event(phase: str, args: dict[str, Any], name: dict[str, Any] = NAME, **more: Any) -> dict[str, Any]:
    """An event of a kind: these properties, all of them, and no others."""
    known = {"ph": {"const": phase}, "name": name, "pid": NUMBER, "tid": NUMBER, "args": args, **more}
    return {"type": "object", "properties": known, "required": list(known), "additionalProperties": False}


def described(name: str, argument: str, kind: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an event that describes a process or a thread."""
    args = {"type": "object", "properties": {argument: kind}, "required": [argument], "additionalProperties": False}
    return event("M", args, {"const": name})


TRACE = {
    "type": "object",
    "required": ["traceEvents", "displayTimeUnit"],
    "additionalProperties": False,
    "properties": {
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "otherData": {"type": "object"},
        "traceEvents": {
            "type": "array",
            "items": {
                "oneOf": [
                    event("X", {"type": "object"}, cat=NAME, ts=TIME, dur=TIME),
                    event(
                        "C", {"type": "object", "minProperties": 1, "additionalProperties": {"type": "number"}}, ts=TIME
                    ),
                    described("process_name", "name", NAME),
                    described("thread_name", "name", NAME),
                    described("thread_sort_index", "sort_index", {"type": "integer"}),
                ],
            },
        },
    },
}
"""What the description of the Trace Event Format says of the three kinds of events that are written."""


def well_formed(text: str) -> list[dict[str, Any]]:
    """The events of a trace that keeps to the Trace Event Format, in the text that viewers read.

    Beside the schema: what is told of a process or a thread is told once, and of each that has slices; the slices of a
    thread lie within each other or apart, which viewers need to stack them; no number is NaN or infinite.
    """
    trace = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    jsonschema.validate(trace, TRACE)
    events: list[dict[str, Any]] = trace["traceEvents"]
    names = [
        (e["name"], e["pid"], *([] if e["name"] == "process_name" else [e["tid"]])) for e in events if e["ph"] == "M"
    ]
    assert len(names) == len(set(names))
    for e in events:
        if e["ph"] == "X":
            assert ("process_name", e["pid"]) in names and ("thread_name", e["pid"], e["tid"]) in names
        elif e["ph"] == "C":
            assert ("process_name", e["pid"]) in names
    for track in {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"}:
        slices = [e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == track]
        open_until: list[int] = []
        for e in sorted(slices, key=lambda e: (e["ts"], -e["dur"])):
            begin, end = round(e["ts"] * 1000), round(e["ts"] * 1000) + round(e["dur"] * 1000)
            while open_until and open_until[-1] <= begin:
                open_until.pop()
            assert not open_until or end <= open_until[-1], e["name"]
            open_until.append(end)
    return events


def traced(made: dict[str, Any]) -> str:
    """The trace of a document, as it is written."""
    return json.dumps(chrome_trace(gnomon.read_document(made)), allow_nan=False)


def column(label: str, *, traced: bool = True) -> dict[str, Any]:
    profile = {
        "process": [0, 1, 2],
        "call_us": [20.0, 24.0, 22.0],
        "name": ["Conv a", "Reorder", "Conv b"],
        "backend": ["cpu", "cpu", "npu"],
        "operators": [[0, 1], [], [2]],
        "wall_us": [[4.0, 6.0, 5.0], [1.0, None, 1.0], [2.5, 2.5, 2.5]],
    }
    samples = {
        "process": [0, 1],
        "block": [0, 0],
        "started_at_s": [1000.5, 1001.5],
        "inner": [2, 2],
        "wall_us": [[20.0, 21.0], [22.0, 20.0]],
        "cpu_us": None,
    }
    made = WHOLE["columns"][0]
    told = {"profile": profile if traced else None, "samples": samples}
    return {**made, "label": label, "runs": {**made["runs"], **told}}


def document(record: Path) -> dict[str, Any]:
    graph = load(MODEL).graph
    times = {0: 5e-6, 2: 2.5e-6}
    return {
        **WHOLE,
        "model": {"path": str(MODEL), "format": "onnx", "sha256": graph.digest, "operators": 9, "macs": None},
        "device": "local",
        "columns": [column("one"), column("two", traced=False)],
        "operators": [
            {
                "index": op.index,
                "name": op.name,
                "type": op.type,
                "macs": None,
                "times_s": {"one": times.get(op.index), "two": None},
                "within": {"one": 0} if op.index == 1 else {},
            }
            for op in graph.operators
        ],
        "environments": [WHOLE["environments"][0] | {"at_s": 1002.0, "seconds": 2.0, "before": STATE, "after": STATE}],
        "campaign": "c1",
        "record": str(record),
    }


@pytest.fixture
def record(tmp_path: Path) -> Path:
    path = tmp_path / "record.sqlite"
    with SqliteStore.open(path) as store:
        store.open_campaign(sample_campaign())
        for block in range(3):
            store.append("c1", sample_run(block=block))
        store.append("c1", failed_run())
    keep(document(path), None)
    return path


def test_samples_are_read_back_by_pyarrow_as_the_csv_has_them(record: Path, tmp_path: Path) -> None:
    (out,) = gnomon.export_run_as("parquet", out=tmp_path / "samples.parquet", record=record)
    table = parquet.read_table(out)
    rows = list(gnomon.export_run(record=record, form="csv"))
    assert table.column_names == rows[0].split(",")
    assert table.num_rows == len(rows) - 1
    assert str(table.schema.field("wall_s").type) == "double"
    walls = [float(row.split(",")[9]) for row in rows[1:] if row.split(",")[9]]
    assert [value for value in table["wall_s"].to_pylist() if value is not None] == walls
    assert sum(value is not None for value in table["failure_kind"].to_pylist()) == 1
    with pytest.raises(RecordError, match="already exists"):
        gnomon.export_run_as("parquet", out=out, record=record)


def test_a_trace_has_a_track_a_configuration_with_its_kernels_in_order(record: Path, tmp_path: Path) -> None:
    (out,) = gnomon.export_run_as("perfetto", out=tmp_path / "trace.json", record=record)
    events = well_formed(out.read_text(encoding="utf-8"))
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert tracks == {(1, 1): "one", (2, 1): "one", (1, 2): "two", (2, 2): "two"}
    call, *kernels = [e for e in events if e["ph"] == "X" and e["pid"] == 1]
    assert [(k["name"], k["ts"], k["dur"]) for k in kernels] == [
        ("Conv a", 0.0, 5.0),
        ("Reorder", 5.0, 1.0),
        ("Conv b", 6.0, 2.5),
    ]
    assert kernels[0]["args"]["operators"] == ["0 Conv", "1 Relu"]
    assert call["dur"] == 22.0
    blocks = [(e["tid"], e["ts"], e["dur"]) for e in events if e["ph"] == "X" and e["pid"] == 2]
    assert blocks == [(1, 5e5, 82.0), (1, 15e5, 84.0), (2, 5e5, 82.0), (2, 15e5, 84.0)]
    counters = {e["name"]: (e["ts"], e["args"]["value"]) for e in events if e["ph"] == "C"}
    assert counters["frequency of core 0 (MHz)"] == (2e6, 1200.0)
    assert counters["temperature of cpu (C)"] == (2e6, 41.5)
    assert counters["load average of 1 min"] == (2e6, 0.5)
    assert "frequency of core 1 (MHz)" not in counters


def test_the_trace_of_every_answer_keeps_to_the_format() -> None:
    answers = [found for found in FOUND.values() if found["format"] in CONFIGURATIONS]
    for made in (*answers, large(), hostile()):
        assert well_formed(traced(made))
    untimed = document(Path("record"))  # the call is then as long as its kernels
    untimed["columns"][0]["runs"]["profile"]["call_us"] = [None, None, None]
    assert next(e["dur"] for e in well_formed(traced(untimed)) if e["name"] == "call") == 8.5


def test_model_explorer_gets_a_value_a_node_that_it_has(record: Path, tmp_path: Path) -> None:
    (out,) = gnomon.export_run_as("model-explorer", out=tmp_path / "nodes", record=record)
    found = json.loads(out.read_text(encoding="utf-8"))
    names = [node.name for node in onnx.load(MODEL).graph.node]
    assert found["results"] == {names[0]: {"value": 5.0}, names[2]: {"value": 2.5}}
    assert [stop["stop"] for stop in found["gradient"]] == [0, 1]
    assert out.name == "one.json"


def test_configurations_whose_files_would_have_one_name_have_a_file_each(record: Path, tmp_path: Path) -> None:
    made = document(record)
    names = {"one": "a b", "two": "a/b"}
    made["columns"] = [column(name) for name in names.values()]
    for row in made["operators"]:
        row["times_s"] = dict.fromkeys(names.values(), row["times_s"]["one"])
    keep(made, None)
    found = gnomon.export_run_as("model-explorer", out=tmp_path / "nodes", record=record)
    assert [path.name for path in found] == ["a_b.json", "a_b-2.json"]
    assert all(path.is_file() for path in found)


def test_model_explorer_makes_the_same_of_its_own_records(record: Path, tmp_path: Path) -> None:
    builder = pytest.importorskip("model_explorer.node_data_builder", reason="pip install ai-edge-model-explorer")
    (out,) = gnomon.export_run_as("model-explorer", out=tmp_path / "nodes", record=record)
    found = json.loads(out.read_text(encoding="utf-8"))
    made = builder.GraphNodeData(
        results={name: builder.NodeDataResult(**value) for name, value in found["results"].items()},
        gradient=[builder.GradientItem(**stop) for stop in found["gradient"]],
    )
    same = json.loads(made.to_json_string())
    assert {name: same[name] for name in found} == found


def test_netron_gets_a_copy_that_the_checker_takes(record: Path, tmp_path: Path) -> None:
    (out,) = gnomon.export_run_as("netron", out=tmp_path / "timed.onnx", record=record)
    onnx.checker.check_model(out, full_check=True)
    before, after = onnx.load(MODEL), onnx.load(out)
    notes = [{entry.key: entry.value for entry in node.metadata_props} for node in after.graph.node]
    assert notes[:4] == [
        {"gnomon one time": "5.00 us", "gnomon one backend": "cpu"},
        {"gnomon one time": f"included in {before.graph.node[0].name}", "gnomon one backend": "cpu"},
        {"gnomon one time": "2.50 us", "gnomon one backend": "npu"},
        {},
    ]
    for node in after.graph.node:
        del node.metadata_props[:]
    assert after == before


def test_notes_go_to_the_file_that_was_measured_alone(record: Path, tmp_path: Path) -> None:
    other = onnx.load(MODEL)
    other.graph.doc_string = "another"
    onnx.save(other, tmp_path / "other.onnx")
    with pytest.raises(ModelError, match="is not the file that was measured"):
        gnomon.export_run_as("netron", out=tmp_path / "o.onnx", model=tmp_path / "other.onnx", record=record)
    assert not (tmp_path / "o.onnx").exists()


HELD = (*CONFIGURATIONS, "gnomon-pareto")


@pytest.mark.parametrize("name", [name for name in EACH if FOUND[name]["format"] not in HELD])
def test_an_answer_without_configurations_is_told(tmp_path: Path, name: str) -> None:
    answer, out = gnomon.read_document(FOUND[name]), tmp_path / "out"
    for export in (job.export_trace, job.export_node_data, partial(job.export_netron, model=None)):
        with pytest.raises(RecordError, match="has no runs"):
            export(answer, out=out)
