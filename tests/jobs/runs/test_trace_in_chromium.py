"""The exported trace read by a real tool: what is behind the Performance panel of Chromium's DevTools.

`chrome://tracing` is not in Debian's Chromium any more. This reader keeps no counters of other programs: those are read
by Perfetto's trace processor (`test_trace_in_perfetto.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.jobs.html.browser import Page, chromium, needs_chromium
from tests.jobs.html.kit import hostile
from tests.jobs.runs.test_exports import document
from tests.jobs.test_job_documents import large

from gnomon.jobs.runs.exports import chrome_trace

pytestmark = needs_chromium

_READER = "devtools://devtools/bundled/models/trace/trace.js"
_READ = f"""
(async () => {{
  const reader = await import("{_READER}");
  const model = reader.TraceModel.Model.createWithAllHandlers();
  await model.parse(TRACE.traceEvents, {{ metadata: {{}}, isFreshRecording: false }});
  const found = model.parsedTrace().data;
  return {{
    processes: [...found.Meta.processNames.entries()].map(([pid, event]) => [pid, event.args.name]),
    threads: reader.Handlers.Threads.threadsInTrace(found).map((thread) => [
      [thread.pid, thread.tid], thread.name, thread.entries.map((entry) => [entry.name, entry.ts, entry.dur]),
    ]),
  }};
}})()
"""


@pytest.fixture(scope="module")
def devtools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(tmp_path_factory.mktemp("browser")) as opened:
        opened.ask("Page.navigate", url="devtools://devtools/bundled/devtools_app.html")
        opened.wait_drawn("document.readyState === 'complete'")
        known = f"import('{_READER}').then((r) => Boolean(r.TraceModel && r.Handlers.Threads), () => false)"
        if not opened.value(known):
            pytest.skip("the DevTools of this chromium read traces by other names")
        yield opened


def traces(folder: Path) -> dict[str, dict[str, Any]]:
    made = {"small": document(folder / "record.sqlite"), "large": large(), "hostile": hostile()}
    return {name: chrome_trace(found) for name, found in made.items()}


@pytest.mark.parametrize("name", ["small", "large", "hostile"])
def test_chromium_reads_every_slice_on_its_named_track(devtools: Page, tmp_path: Path, name: str) -> None:
    trace = traces(tmp_path)[name]
    events = trace["traceEvents"]
    read = devtools.value(_READ.replace("TRACE", json.dumps(trace, allow_nan=False)))

    assert dict(read["processes"]) == {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    slices: dict[tuple[int, int], list[Any]] = {}
    for e in sorted((e for e in events if e["ph"] == "X"), key=lambda e: (e["ts"], -e["dur"])):
        slices.setdefault((e["pid"], e["tid"]), []).append([e["name"], e["ts"], e["dur"]])
    found = {tuple(track): (told, entries) for track, told, entries in read["threads"]}
    assert found == {track: (names[track], entries) for track, entries in slices.items()}
