"""The exported trace opened by Perfetto's own trace processor: every slice, track and counter, and no complaint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.jobs.html.kit import hostile
from tests.jobs.runs.perfettokit import asked, needs_perfetto
from tests.jobs.runs.test_exports import document, traced
from tests.jobs.test_job_documents import large

pytestmark = needs_perfetto

SLICES = (
    "select p.pid, t.tid, s.name, s.ts, s.dur from slice s join thread_track k on k.id = s.track_id"
    " join thread t using (utid) join process p using (upid)"
)
THREADS = "select p.pid, t.tid, t.name from thread t join process p using (upid) where t.name is not null"
PROCESSES = "select pid, name from process where name is not null"
COUNTERS = (
    "select p.pid, k.name, c.ts, c.value from counter c join process_counter_track k on k.id = c.track_id"
    " join process p using (upid)"
)
COMPLAINTS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"


@pytest.mark.parametrize("name", ["small", "large", "hostile"])
def test_perfetto_reads_all_of_a_trace_and_complains_of_nothing(tmp_path: Path, name: str) -> None:
    made = {"small": document(tmp_path / "r.sqlite"), "large": large(), "hostile": hostile()}[name]
    trace = tmp_path / "trace.json"
    trace.write_text(traced(made), encoding="utf-8")
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]

    slices, threads, processes, counters, complaints = asked(trace, SLICES, THREADS, PROCESSES, COUNTERS, COMPLAINTS)

    assert complaints == []
    assert sorted((int(s["pid"]), int(s["tid"]), s["name"], int(s["ts"]), int(s["dur"])) for s in slices) == sorted(
        (e["pid"], e["tid"], e["name"], round(e["ts"] * 1000), round(e["dur"] * 1000)) for e in events if e["ph"] == "X"
    )
    assert {(int(t["pid"]), int(t["tid"])): t["name"] for t in threads} == {
        (e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"
    }
    assert {int(p["pid"]): p["name"] for p in processes} == {
        e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"
    }
    assert sorted((int(c["pid"]), c["name"], int(c["ts"]), round(float(c["value"]), 6)) for c in counters) == sorted(
        (e["pid"], f"{e['name']} value", round(e["ts"] * 1000), round(e["args"]["value"], 6))
        for e in events
        if e["ph"] == "C"
    )
