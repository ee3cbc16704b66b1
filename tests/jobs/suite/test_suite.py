"""Suites are run, interrupted, gone on with, looked at and compared."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.bad_days.livekit import matmul_onnx
from tests.jobs.suite.suitekit import calls, measure

import gnomon
from gnomon.devices.health import health_of
from gnomon.errors import RecordError, UsageError
from gnomon.jobs.suite.job import SuiteRequest, SuiteRun, compare_suites, run_suite, suite_status
from gnomon.store.base import CELL, CampaignQuery, last_note
from gnomon.store.sqlite import SqliteStore

DEVICES = "".join(f'[devices.{name}]\naddress = "ssh://{name}"\ntags = ["x"]\n' for name in "abc")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SuiteRequest:
    """Three devices of one tag; a suite of four models on two of them, twice."""
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path))
    (tmp_path / "devices.toml").write_text(DEVICES)
    for number in range(4):
        (tmp_path / f"m{number}.onnx").touch()
    (tmp_path / "suite.toml").write_text(
        'name = "x"\n[[cells]]\njobs = ["place"]\nmodels = ["*.onnx"]\ndevices = ["2 of any @x"]\nrepeats = 2\n'
    )
    return SuiteRequest(path=tmp_path / "suite.toml", record=tmp_path / "record.sqlite", out=tmp_path)


def once_each(out: Path, count: int) -> None:
    ended = (out / "ended").read_text().split()
    assert len(ended) == count and max(Counter(ended).values()) == 1


def test_all_cells_are_done_once_each_and_two_slots_on_two_devices(lab: SuiteRequest, tmp_path: Path) -> None:
    found = run_suite(lab, measure)
    assert found.whole and found.made.done == 16 and found.made.finished
    once_each(tmp_path, 16)
    slots: dict[tuple[str, int], set[str | None]] = {}
    for part in found.made.cells:
        slots.setdefault((part.model, part.repeat), set()).add(part.device)
    assert all(len(devices) == 2 for devices in slots.values())
    again = gnomon.read_document(found.document())
    assert again == found.made
    assert suite_status(record=lab.record).made.cells == found.made.cells


def test_a_dead_device_is_replaced_by_another_of_its_tag(lab: SuiteRequest, tmp_path: Path) -> None:
    (tmp_path / "dead").write_text("b")
    told: list[tuple[str, str]] = []
    found = run_suite(lab, measure, tell=lambda name, sentence: told.append((name, sentence)))
    assert found.whole and {part.device for part in found.made.cells} == {"a", "c"}
    assert ("b", "place m0.onnx on 2 of any @x: b is dead") in told or any(name == "b" for name, _ in told)
    once_each(tmp_path, 16)


def test_cells_for_which_no_device_is_left_fail_and_the_others_are_done(lab: SuiteRequest, tmp_path: Path) -> None:
    (tmp_path / "dead").write_text("b c")
    found = run_suite(lab, measure)
    assert (found.made.done, found.made.failed, found.made.waiting) == (8, 8, 0) and not found.whole
    assert {part.error.kind for part in found.made.cells if part.error} == {"device"}
    assert set(found.made.out) <= {"b", "c"}


def test_an_interrupted_suite_goes_on_and_measures_nothing_twice(lab: SuiteRequest, tmp_path: Path) -> None:
    done: list[Mapping[str, Any]] = []

    def interrupted(task: Mapping[str, Any]) -> Mapping[str, Any]:
        if len(done) == 5:
            raise KeyboardInterrupt
        done.append(task)
        return measure(task)

    with pytest.raises(KeyboardInterrupt):
        run_suite(lab, interrupted)
    before = suite_status(record=lab.record).made
    assert before.waiting >= 16 - 5 - 2 and not before.finished
    told = run_suite(lab, lambda task: {**measure(task), "answer": str(task["again"])})
    assert told.whole and told.made.run == before.run
    assert {part.answer for part in told.made.cells} == {"fine", "True"}
    once_each(tmp_path, 16)
    assert run_suite(lab, measure).made.run != before.run


def test_a_suite_stops_at_its_time_and_goes_on(lab: SuiteRequest, tmp_path: Path) -> None:
    path = tmp_path / "suite.toml"
    whole = path.read_text()
    path.write_text("max_time_s = 0.000001\n" + whole)
    first = run_suite(lab, measure)
    assert first.made.waiting == 16 and not first.made.finished
    path.write_text(whole)
    assert run_suite(lab, measure).made.run == first.made.run


def test_two_at_once_are_refused(lab: SuiteRequest, tmp_path: Path) -> None:
    def second(task: Mapping[str, Any]) -> Mapping[str, Any]:
        if not (tmp_path / "calls").exists():
            other = run_suite(lab, measure)  # a held campaign is not taken up: it is another run
            assert other.whole
        return measure(task)

    assert run_suite(lab, second).whole


def test_a_defect_is_told_and_what_was_done_stays(lab: SuiteRequest) -> None:
    def broken(task: Mapping[str, Any]) -> Mapping[str, Any]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_suite(lab, broken)


def test_runs_are_found_by_name_or_told(lab: SuiteRequest) -> None:
    run = run_suite(lab, measure).made.run
    assert suite_status(run[:10], record=lab.record).made.run == run
    with pytest.raises(RecordError, match="no one run"):
        suite_status("last~1", record=lab.record)
    run_suite(lab, measure)
    assert suite_status("last~1", record=lab.record).made.run == run


REAL = """name = "real"
[[cells]]
jobs = ["profile"]
models = ["m.onnx"]
devices = ["local"]
repeats = 2
options = { runtimes = ["onnxruntime"], processes = 1 }
"""


def command(*words: str) -> list[str]:
    return [sys.executable, "-c", "from gnomon.cli.main import main; main()", "suite", *words]


def test_real_cells_survive_kill_9_and_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path))
    (tmp_path / "m.onnx").write_bytes(matmul_onnx())
    path = tmp_path / "suite.toml"
    path.write_text(REAL)
    record = tmp_path / "record.sqlite"
    started = subprocess.Popen(command("run", str(path)), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        assert started.stderr is not None
        assert started.stderr.readline().startswith(b"local: profile m.onnx")
        time.sleep(0.5)  # into the second cell
    finally:
        started.send_signal(signal.SIGKILL)
        started.communicate()
    assert 0 < suite_status().made.waiting < 2
    ended = subprocess.run(command("run", str(path)), capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert b"2 of 2 cells done" in ended.stdout
    found = suite_status().made
    with SqliteStore.read(record) as store:
        cells = [last_note(store, c.id, CELL)["cell"] for c in store.query(CampaignQuery(kind="profile"))]
        assert sorted(cells) == sorted(part.id for part in found.cells)  # one campaign a cell
    other: SuiteRun = gnomon.run_suite(path)
    assert other.whole
    compared = compare_suites(changed=())
    assert len(compared.made.cells) == 2 and all(cell.comparison for cell in compared.made.cells)
    assert gnomon.read_document(compared.document()) == compared.made
    told = subprocess.run(command("compare"), capture_output=True, check=False)
    assert told.returncode == 0 and b"in 2 cells" in told.stdout


def test_a_device_that_fails_again_and_again_is_in_quarantine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path))
    (tmp_path / "devices.toml").write_text('[devices.dead]\naddress = "ssh://127.0.0.1:1"\n')
    (tmp_path / "m.onnx").write_bytes(matmul_onnx())
    path = tmp_path / "suite.toml"
    path.write_text(
        REAL.replace('"local"', '"dead"').replace("= 2", "= 4").replace("processes", "wait_s = 0.01, processes")
    )
    found = gnomon.run_suite(path)
    assert (found.made.done, found.made.failed, found.made.out) == (0, 4, ("dead",))
    quarantine = health_of("dead").quarantine
    assert quarantine is not None and quarantine.kind == "transport" and "3 times in a row" in quarantine.reason


@pytest.mark.usefixtures("short_visits")
def test_notes_that_cannot_be_kept_cost_no_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full, or the file of health is damaged, once a cell was measured or its device has failed."""

    def full(name: str, *rest: object) -> None:
        raise UsageError("the file of health cannot be written: No space left on device", hint="")

    monkeypatch.setenv("GNOMON_HOME", str(tmp_path))
    monkeypatch.setattr("gnomon.devices.health.went_well", full)
    monkeypatch.setattr("gnomon.devices.health.failed", full)
    (tmp_path / "devices.toml").write_text('[devices.dead]\naddress = "ssh://127.0.0.1:1"\n')
    (tmp_path / "m.onnx").write_bytes(matmul_onnx())
    path = tmp_path / "suite.toml"
    for device, done, told in (("local", 1, "(the file of health cannot"), ("dead", 0, "(the file of health cannot")):
        path.write_text(
            REAL.replace('"local"', f'"{device}"')
            .replace("= 2", "= 1")
            .replace("processes", "wait_s = 0.01, processes")
        )
        found = gnomon.run_suite(path, out=tmp_path / device)
        (cell,) = found.made.cells
        assert found.made.done == done and told in str(cell.answer or cell.error)


def test_a_device_that_nobody_knows_is_refused_before_anything(lab: SuiteRequest, tmp_path: Path) -> None:
    path = tmp_path / "suite.toml"
    path.write_text(path.read_text().replace("2 of any @x", "nobody"))
    with pytest.raises(UsageError, match="nobody"):
        run_suite(lab, measure)
    assert not calls(tmp_path)
