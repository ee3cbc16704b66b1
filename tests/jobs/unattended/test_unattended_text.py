"""What is told of searches that run by themselves, for people; and what no device may make of it."""

from __future__ import annotations

import io
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import DeviceError
from gnomon.jobs.unattended.command import job_of
from gnomon.jobs.unattended.device import Keep, _Fetcher
from gnomon.jobs.unattended.report import carried_report, fetched_report, job_report, jobs_report
from gnomon.report.page import Page

TOLD: dict[str, Any] = {
    "id": "0123abcd",
    "folder": "/jobs/0123abcd",
    "state": "running",
    "reason": "",
    "job": {"model": "m\x1b[31m.onnx", "command": ["pareto"], "made_at_s": 1.8e9},
    "started_at_s": 1.8e9,
    "starts": 2,
    "ended_at_s": None,
    "exit_code": None,
    "progress": {"stage": "search", "done": 3, "total": 9, "left_s": 61.0},
    "log": ["gnomon: search (9 steps)", "\x1b[2J"],
    "now_s": 1.8e9,
}
STATES = {
    "running": "running (search: 3 of 9 evaluations, 1 min 1 s left)",
    "waiting": "waiting for the device, where process 7 measures there",
    "done": "done",
    "failed": "failed with exit code 5",
    "stopped": "stopped",
    "vanished": "vanished (the device was restarted)",
}
REASONS = {"waiting": "process 7 measures there", "vanished": "the device was restarted"}


def document(state: str) -> dict[str, Any]:
    changed = {**TOLD, "state": state, "reason": REASONS.get(state, ""), "exit_code": 5 if state == "failed" else None}
    return job_of(changed, "board", "ssh://board").document()


def text(report: Any, found: dict[str, Any]) -> str:
    file = io.StringIO()
    report(found, Page(file, width=100))
    return file.getvalue()


@pytest.mark.parametrize("state", STATES)
def test_each_state_in_words(state: str) -> None:
    job = document(state)
    page = text(job_report, job)
    assert page.startswith(f"0123abcd on board: {STATES[state]}.\n")
    assert "started 2 times" in page
    assert "\x1b" not in page
    assert ("gnomon unattended stop 0123abcd --device board" in page) == (state in ("running", "waiting"))
    assert ("gnomon unattended start 0123abcd --device board" in page) == (state not in ("running", "waiting"))
    listed = text(jobs_report, {"device": "board", "jobs": [job]})
    assert STATES[state][:20] in listed
    fetched = {"job": job, "files": ["a", "p/x", "p/y"], "folder": "f", "record": "r", "runs": 1, "document": None}
    page = text(fetched_report, fetched)
    assert "1 run is new in the results database." in page
    assert "a, p\n" in page
    assert "no result yet" in page


def test_what_came_of_carrying() -> None:
    job = document("running")
    assert "runs on board by itself" in text(carried_report, {"job": job, "made": True, "started": True})
    assert "goes on from its record" in text(carried_report, {"job": job, "made": False, "started": True})
    assert "already, as 0123abcd: running" in text(carried_report, {"job": job, "made": False, "started": False})
    assert "No search runs on board" in text(jobs_report, {"device": "board", "jobs": []})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from([*TOLD, "model", "command", "made_at_s", "stage", "done", "total", "left_s"]), JSON)
def test_nonsense_is_no_job_and_no_crash(key: str, value: object) -> None:
    told = {**TOLD, "job": dict(TOLD["job"]), "progress": dict(TOLD["progress"])}
    place = next(part for part in (told, told["job"], told["progress"]) if key in part)
    place[key] = value
    try:
        job = job_of(told, "board", "ssh://board")
    except DeviceError as error:
        assert error.hint
        return
    text(job_report, job.document())
    text(jobs_report, {"device": "board", "jobs": [job.document()]})


def test_a_package_that_comes_home_takes_the_place_of_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    device = SimpleNamespace(pull=lambda remote, local: local.write_text(remote))
    job = job_of(TOLD, "board", "ssh://board")
    fetcher = _Fetcher(keep=cast(Keep, SimpleNamespace(device=device)), job=job, place=tmp_path, out="/out")
    (tmp_path / "net").symlink_to("nowhere")
    assert "net/plan.json" in fetcher.files([PurePosixPath("package/net/plan.json")])
    assert not (tmp_path / "net").is_symlink()
    assert (tmp_path / "net" / "plan.json").read_text() == "/out/package/net/plan.json"
