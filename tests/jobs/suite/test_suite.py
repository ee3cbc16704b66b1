"""Suites are run, interrupted, gone on with, looked at and compared."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.bad_days.livekit import matmul_onnx
from tests.jobs.suite.suitekit import REAL, calls, laid_out, measure
from tests.shortkit import SHORTLY

import gnomon
from gnomon.cli.main import run
from gnomon.core import codec
from gnomon.core.sample import Context
from gnomon.devices.config import load_devices
from gnomon.devices.health import health_of
from gnomon.errors import RecordError, UsageError
from gnomon.jobs.suite.document import CellPart, SuiteDocument
from gnomon.jobs.suite.job import Outcome, SuiteRequest, compare_suites, run_suite, suite_status
from gnomon.jobs.suite.plan import Cell, cells_of, read_suite
from gnomon.measure.campaign import Question, open_campaign
from gnomon.store.base import CELL, CampaignQuery, last_note, note
from gnomon.store.opening import open_store
from gnomon.store.sqlite import SqliteStore


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SuiteRequest:
    """Three devices of one tag; a suite of four models on two of them, twice."""
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path))
    return laid_out(tmp_path, "abc", 4)


def once_each(out: Path, count: int) -> None:
    ended = (out / "ended").read_text().split()
    assert len(ended) == count and max(Counter(ended).values()) == 1


def test_all_cells_are_done_once_each_and_two_slots_on_two_devices(session: SuiteRequest, tmp_path: Path) -> None:
    found = run_suite(session, measure)
    assert found.whole and found.done == 16 and found.finished
    once_each(tmp_path, 16)
    slots: dict[tuple[str, int], set[str | None]] = {}
    for part in found.cells:
        slots.setdefault((part.model, part.repeat), set()).add(part.device)
    assert all(len(devices) == 2 for devices in slots.values())
    again = gnomon.read_document(found.document())
    assert again == found
    assert suite_status(record=session.record).cells == found.cells


def test_a_dead_device_is_replaced_by_another_of_its_tag(session: SuiteRequest, tmp_path: Path) -> None:
    (tmp_path / "dead").write_text("b")
    told: list[tuple[str, str]] = []
    found = run_suite(session, measure, tell=lambda name, sentence: told.append((name, sentence)))
    assert found.whole and {part.device for part in found.cells} == {"a", "c"}
    assert any(name == "b" and sentence.endswith("b is dead") for name, sentence in told)
    once_each(tmp_path, 16)


def test_cells_for_which_no_device_is_left_fail_and_the_others_are_done(session: SuiteRequest, tmp_path: Path) -> None:
    (tmp_path / "dead").write_text("b c")
    found = run_suite(session, measure)
    assert (found.done, found.failed, found.waiting) == (8, 8, 0) and not found.whole
    assert {part.error.kind for part in found.cells if part.error} == {"device"}
    assert set(found.out) <= {"b", "c"}


def test_an_interrupted_suite_goes_on_and_measures_nothing_twice(session: SuiteRequest, tmp_path: Path) -> None:
    done: list[Cell] = []

    def interrupted(cell: Cell, device: str, **how: Any) -> Outcome:
        if len(done) == 5:
            raise KeyboardInterrupt
        done.append(cell)
        return measure(cell, device, **how)

    def again(cell: Cell, device: str, **how: Any) -> Outcome:
        part, document, of_device = measure(cell, device, **how)
        return replace(part, answer=str(how["again"])), document, of_device

    with pytest.raises(KeyboardInterrupt):
        run_suite(session, interrupted)
    before = suite_status(record=session.record)
    assert before.waiting >= 16 - 5 - 2 and not before.finished
    told = run_suite(session, again)
    assert told.whole and told.run == before.run
    assert {part.answer for part in told.cells} == {"fine", "True"}
    once_each(tmp_path, 16)
    assert run_suite(session, measure).run != before.run


def test_two_at_once_are_refused(session: SuiteRequest, tmp_path: Path) -> None:
    def second(cell: Cell, device: str, **how: Any) -> Outcome:
        if not (tmp_path / "calls").exists():
            other = run_suite(session, measure)  # a held campaign is not taken up: it is another run
            assert other.whole
        return measure(cell, device, **how)

    assert run_suite(session, second).whole


def test_a_defect_is_told_and_runs_are_found_by_name_or_told(session: SuiteRequest) -> None:
    def defect(*_: object, **how: object) -> Outcome:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_suite(session, defect)
    run = run_suite(session, measure).run
    assert suite_status(run[:10], record=session.record).run == run
    with pytest.raises(RecordError, match="there is no suite run"):
        suite_status("last~1", record=session.record)
    run_suite(session, measure)
    assert suite_status("last~1", record=session.record).run == run
    edited(session, "2 of any @x", "nobody")
    with pytest.raises(UsageError, match="nobody"):
        run_suite(session, measure)


def interrupted(session: SuiteRequest, after: int) -> str:
    """The run of a suite that was interrupted after so many cells."""
    left = iter(range(after))

    def measured(cell: Cell, device: str, **how: Any) -> Outcome:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return measure(cell, device, **how)

    with pytest.raises(KeyboardInterrupt):
        run_suite(session, measured)
    return suite_status(record=session.record).run


def edited(session: SuiteRequest, old: str, new: str) -> None:
    text = session.path.read_text()
    assert old in text
    session.path.write_text(text.replace(old, new))


OTHER = '[[cells]]\njobs = ["profile"]\nmodels = ["m0.onnx"]\ndevices = ["a"]\n'


def test_after_an_edit_what_it_changed_is_measured_again_and_nothing_else(
    session: SuiteRequest, tmp_path: Path
) -> None:
    session.path.write_text(session.path.read_text() + OTHER)
    run = interrupted(session, 9)
    done = suite_status(record=session.record).done
    edited(session, OTHER, OTHER + "options = { threads = 4 }\n")
    (tmp_path / "m4.onnx").touch()
    told: list[str] = []
    asked: list[Cell] = []

    def measured(cell: Cell, device: str, **how: Any) -> Outcome:
        asked.append(cell)
        return measure(cell, device, **how)

    found = run_suite(session, measured, tell=lambda name, sentence: told.append(sentence))
    assert found.run == run and found.whole and len(found.cells) == 21 and found.finished
    assert [cell.options for cell in asked if cell.job == "profile"] == [{"threads": 4}]
    assert f"continuing the run {run[:12]}: 5 of 21 cells new or changed" in told
    assert 21 - done <= len(asked) <= 22 - done
    assert max(Counter((tmp_path / "ended").read_text().split()).values()) == 1


def test_a_run_of_which_no_cell_is_as_it_was_is_not_gone_on_with(session: SuiteRequest) -> None:
    setting = "options = { threads = 4 }\n"
    run = interrupted(session, 5)
    edited(session, "repeats = 2\n", "repeats = 2\n" + setting)
    told: list[str] = []
    found = run_suite(session, measure, tell=lambda name, sentence: told.append(sentence))
    assert found.whole and found.run != run and len(found.cells) == 16
    assert f"starting a new run: the interrupted run {run[:12]} cannot continue, because the file" in told[0]
    told.clear()
    run_suite(session, measure, tell=lambda name, sentence: told.append(sentence))
    assert not any("a new run" in sentence for sentence in told)
    edited(session, setting, "")
    assert run_suite(session, measure).run == run


def test_more_devices_of_a_tag_measure_nothing_again_and_one_that_lost_it_does(
    session: SuiteRequest, tmp_path: Path
) -> None:
    edited(session, "2 of any @x", "one of @x")
    known = tmp_path / "devices.toml"
    known.write_text(known.read_text().replace('"x"', '"y"').replace('"y"', '"x"', 1))  # a alone
    run = interrupted(session, 5)
    before = {part.id for part in suite_status(record=session.record).cells if part.state == "done"}
    known.write_text(known.read_text().replace('"y"', '"x"', 1))  # a and b
    session.path.write_text("max_time_s = 0.000001\n" + session.path.read_text())
    more = run_suite(session, measure)  # its time is over at once
    assert more.waiting and not more.finished
    assert more.run == run and {part.id for part in more.cells if part.state == "done"} == before
    known.write_text(known.read_text().replace('"x"', '"y"', 1))  # b alone
    edited(session, "max_time_s = 0.000001\n", "")
    found = run_suite(session, measure)
    assert found.run == run and {part.device for part in found.cells} == {"b"} and found.done == 8
    assert not before & {part.id for part in found.cells}


def test_a_cell_for_which_no_device_was_left_is_tried_on_one_that_came(session: SuiteRequest, tmp_path: Path) -> None:
    edited(session, "2 of any @x", "one of @x")
    known = tmp_path / "devices.toml"
    known.write_text(known.read_text().replace('"x"', '"y"').replace('"y"', '"x"', 1))
    (tmp_path / "dead").write_text("a")
    run = interrupted(session, 1)
    assert suite_status(record=session.record).failed == 1
    known.write_text(known.read_text().replace('"y"', '"x"', 1))
    found = run_suite(session, measure)
    assert found.run == run and found.whole


def old_id(cell: Cell, number: int = 0) -> str:
    """How cells were called before what they measure was a part of it."""
    group = json.dumps([number, cell.job, cell.model, cell.selector, cell.repeat])
    return hashlib.sha256(f"{group}/{cell.slot}".encode()).hexdigest()[:16]


def test_a_run_of_before_ids_told_all_is_read_and_gone_on_with(
    session: SuiteRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = cells_of(read_suite(session.path), tmp_path, load_devices())
    old = tuple(replace(cell, id=old_id(cell), group=f"0 {cell.model} {cell.repeat}") for cell in plan)
    with open_store(session.record) as store:
        digest = hashlib.sha256("".join(cell.id for cell in old).encode()).hexdigest()
        context = Context(
            device={}, versions={}, model_digest=digest, model_name="x", options={}, seed=0, gnomon_version="0.1.0"
        )
        campaign, _ = open_campaign(store, Question(kind="suite", context=context, details={}))
        note(store, campaign.id, "suite-cells", {"cells": [codec.to_json(cell) for cell in old]})
        for cell, device in ((old[0], "a"), (old[1], "b")):
            part = CellPart(
                **{n: getattr(cell, n) for n in ("id", "job", "model", "selector", "slot", "repeat")},
                state="done",
                device=device,
            )
            note(store, campaign.id, "suite-cell", {"cell": codec.to_json(part)})
    status = suite_status(record=session.record)
    assert (status.done, status.waiting) == (2, 14)
    found = run_suite(session, measure)
    assert found.run == campaign.id and found.whole and len(calls(tmp_path)) == 14
    assert {part.id for part in found.cells} == {cell.id for cell in old}


def command(*words: str) -> list[str]:
    return [sys.executable, "-c", f"{SHORTLY}from gnomon.cli.main import main; main()", "suite", *words]


@pytest.mark.usefixtures("short_visits")
def test_real_cells_survive_kill_9_and_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
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
    assert 0 < suite_status().waiting < 2
    ended = subprocess.run(command("run", str(path)), capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert b"2 of 2 cells done" in ended.stdout
    found = suite_status()
    with SqliteStore.read(record) as store:
        cells = [last_note(store, c.id, CELL)["cell"] for c in store.query(CampaignQuery(kind="profile"))]
        assert sorted(cells) == sorted(part.id for part in found.cells)  # one campaign a cell
    other: SuiteDocument = gnomon.run_suite(path)
    assert other.whole
    compared = compare_suites(changed=())
    assert len(compared.cells) == 2 and all(cell.comparison for cell in compared.cells)
    assert gnomon.read_document(compared.document()) == compared
    capfd.readouterr()
    assert run(["suite", "compare"]) == 0
    assert "in 2 cells" in capfd.readouterr().out


def test_a_device_that_fails_again_and_again_is_in_quarantine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path))
    (tmp_path / "devices.toml").write_text('[devices.dead]\naddress = "ssh://127.0.0.1:1"\n')
    (tmp_path / "m.onnx").write_bytes(matmul_onnx())
    path = tmp_path / "suite.toml"
    path.write_text(
        REAL.replace('"local"', '"dead"').replace("= 2", "= 4").replace("processes", "wait_s = 0.01, processes")
    )
    found = gnomon.run_suite(path)
    assert (found.done, found.failed, found.out) == (0, 4, ("dead",))
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
        (cell,) = found.cells
        assert found.done == done and told in str(cell.answer or cell.error)
