"""Tables, latencies of spaces and tuning in the record: listed, shown, exported, and gone on with after a kill."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.jobs.table.table_kit import space_file
from tests.jobs.tune.test_record_file import EMPTY, RECORDS
from tests.store.contract import sample_campaign

from gnomon.cli.main import run
from gnomon.errors import RecordError
from gnomon.formats.tuning.records import read_tuning_records, trial_line
from gnomon.jobs.runs.job import command_of, export_files
from gnomon.jobs.table.folder import MANIFEST, ROWS, read_table
from gnomon.jobs.tune.campaign import TrialCampaign
from gnomon.store.base import ARGUMENTS, COMMAND, FILES, CampaignQuery, RunQuery, note, note_command, note_files
from gnomon.store.sqlite import SqliteStore

_QUICK_TABLE = """
import sys
from dataclasses import replace
from gnomon.cli.main import main
from gnomon.jobs.table.job import TableRequest
from tests.jobs.table.table_kit import QUICK
defaults = TableRequest.__init__.__kwdefaults__
TableRequest.__init__.__kwdefaults__ = {**defaults, "effort": replace(QUICK, together=3)}
main(sys.argv[1:])
"""


_COMMAND = "from gnomon.cli.main import main; main()"


def gnomon(program: str, words: Sequence[object], folder: Path) -> subprocess.Popen[str]:
    """The command line in a process of its own, in a folder."""
    environment = {**os.environ, "PYTHONPATH": f"{Path(__file__).parents[3] / 'src'}:{Path(__file__).parents[3]}"}
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def kill_when(process: subprocess.Popen[str], journal: Path, lines: int) -> None:
    """Kill -9 once the journal has so many lines."""
    deadline = time.monotonic() + 300
    while not (journal.exists() and journal.read_bytes().count(b"\n") >= lines):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def asked(capsys: pytest.CaptureFixture[str], record: Path, *words: str) -> dict[str, Any]:
    assert run(["runs", "--record", str(record), *words, "--json"]) == 0
    made: dict[str, Any] = json.loads(capsys.readouterr().out)
    return made


def runs_of(record: Path) -> list[tuple[Any, ...]]:
    """All visits of the newest campaign that gave samples, with the times themselves."""
    with SqliteStore.open(record) as store:
        newest = next(store.query(CampaignQuery()), None)
        runs = [] if newest is None else list(store.query(RunQuery(campaign=newest.id)))
    return [(run.candidate, run.process, run.block, run.samples.wall_ns) for run in runs if run.samples]


def test_a_killed_table_is_listed_as_interrupted_and_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space_file(tmp_path)
    words = ["table", "build", "space.py:space", "--out", "t", "--fuse", "none", "--runtime", "onnxruntime", "--fresh"]
    kill_when(gnomon(_QUICK_TABLE, words, tmp_path), tmp_path / "t" / ROWS, 2)
    record = tmp_path / "home" / "record.sqlite"
    (listed,) = asked(capsys, record, "list")["campaigns"]
    assert (listed["campaign"]["kind"], listed["finished"], listed["running"]) == ("table", False, False)
    assert listed["runs"] > 0
    assert (
        run(["runs", "--record", str(record), "export", "last", "--format", "files", "--out", str(tmp_path / "p")]) == 0
    )
    capsys.readouterr()
    begun = read_table(tmp_path / "p").rows
    assert begun and begun == read_table(tmp_path / "t").rows
    before = runs_of(record)

    (tmp_path / "elsewhere").mkdir()
    resumed = gnomon(_QUICK_TABLE, ["runs", "resume", "last"], tmp_path / "elsewhere")
    _, told = resumed.communicate(timeout=300)
    assert resumed.returncode == 0, told
    assert f"in {tmp_path}: gnomon table build space.py:space" in told and "--fresh" not in told
    after = runs_of(record)
    assert after[: len(before)] == before and len({visit[:3] for visit in after}) == len(after)
    (listed,) = asked(capsys, record, "list")["campaigns"]
    assert listed["finished"] and listed["decision"]["chosen"] == "t"
    shown = asked(capsys, record, "show", "last")
    units = [one for one in shown["candidates"] if one["candidate"].startswith("unit-")]
    assert units and all(one["summary"]["n"] and one["summary"]["high_s"] for one in units)
    capsys.readouterr()
    out = tmp_path / "copy"
    assert run(["runs", "--record", str(record), "export", "last", "--format", "files", "--out", str(out)]) == 0
    assert capsys.readouterr().out.splitlines() == [str(out / MANIFEST), str(out / ROWS)]
    assert read_table(out) == read_table(tmp_path / "t")
    assert run(["runs", "--record", str(record), "resume", "last"]) == RecordError.exit_code
    assert "is finished" in capsys.readouterr().err


def test_files_are_exported_as_the_job_left_them(tmp_path: Path) -> None:
    journal = tmp_path / "rows.jsonl"
    with SqliteStore.open(tmp_path / "record.sqlite") as store:
        campaign = sample_campaign("a1")
        store.open_campaign(campaign)
        with pytest.raises(RecordError, match="wrote no files"):
            export_files(store, campaign, tmp_path / "none")
        with pytest.raises(RecordError, match="cannot be read"):
            note_files(store, "a1", [journal], whole=True)
        journal.write_text("one\n")
        note_files(store, "a1", [journal], whole=True)
        journal.write_text("one\ntwo\n")
        assert [path.read_text() for path in export_files(store, campaign, tmp_path / "out")] == ["one\n"]
        with pytest.raises(RecordError, match="already exists"):
            export_files(store, campaign, tmp_path / "out")
        journal.write_text("two\n")
        with pytest.raises(RecordError, match="changed since"):
            export_files(store, campaign, tmp_path / "other")
        journal.unlink()
        with pytest.raises(RecordError, match="cannot be read"):
            export_files(store, campaign, tmp_path / "other")


def test_files_of_one_name_are_exported_beside_each_other_or_none_is(tmp_path: Path) -> None:
    paths = [tmp_path / name / "t.json" for name in ("one", "two")]
    for path in paths:
        path.parent.mkdir()
        path.write_text(path.parent.name)
    with SqliteStore.open(tmp_path / "record.sqlite") as store:
        campaign = sample_campaign("a1")
        store.open_campaign(campaign)
        note_files(store, "a1", paths, whole=True)
        found = export_files(store, campaign, tmp_path / "out")
        assert [(path.name, path.read_text()) for path in found] == [("t.json", "one"), ("t-2.json", "two")]
        found[0].unlink()
        with pytest.raises(RecordError, match=r"t-2\.json already exists"):
            export_files(store, campaign, tmp_path / "out")
        assert not found[0].exists()


@pytest.mark.parametrize("name", [COMMAND, FILES])
@pytest.mark.parametrize(
    "data",
    [
        {"arguments": "place", "folder": "/f", "files": [{"x": 1}]},
        {"arguments": ["place"], "folder": "", "files": [{"path": "/a\0b"}]},
    ],
)
def test_a_damaged_note_of_the_command_or_the_files_is_told(tmp_path: Path, name: str, data: dict[str, object]) -> None:
    campaign = sample_campaign("a1")
    with SqliteStore.open(tmp_path / "record.sqlite") as store:
        store.open_campaign(campaign)
        note(store, "a1", name, data)
    told = pytest.raises(RecordError, match=f"{name} of the campaign a1")
    with SqliteStore.open(tmp_path / "record.sqlite") as store, told:
        if name == COMMAND:
            command_of(store, campaign)
        else:
            export_files(store, campaign, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_who_asked_is_noted_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path))
    campaign = sample_campaign("a1")
    with SqliteStore.open(tmp_path / "record.sqlite") as store:
        store.open_campaign(campaign)
        note_command(store, "a1")  # by Python
    with SqliteStore.open(tmp_path / "record.sqlite") as store:
        with pytest.raises(RecordError, match="has no command for the campaign"):
            command_of(store, campaign)
        words = ARGUMENTS.set(("tune", "m.onnx", "--fresh"))
        note_command(store, "a1")
        note_command(store, "a1")
        ARGUMENTS.reset(words)
        assert command_of(store, campaign) == (("tune", "m.onnx"), tmp_path)
    with SqliteStore.open(tmp_path / "record.sqlite") as store:
        store.open_campaign(campaign)
        with SqliteStore.open(tmp_path / "record.sqlite") as other, pytest.raises(RecordError, match="is running"):
            command_of(other, campaign)
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path / "own"))
    assert run(["runs", "--record", "record.sqlite", "resume", "a1"]) == RecordError.exit_code
    assert "would use a results database other" in capsys.readouterr().err


@pytest.mark.parametrize(
    "given", ["--option onnxruntime:a=1,library=x.so", "--command 'bench {model}'", "'--command=bench {model}'"]
)
def test_code_is_named_again_by_whoever_resumes(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path))
    campaign = sample_campaign("a1")
    with SqliteStore.open(tmp_path / "record.sqlite") as store:
        store.open_campaign(campaign)
        words = ARGUMENTS.set(("place", "m.onnx", *shlex.split(given), "--fresh"))
        note_command(store, "a1")
        ARGUMENTS.reset(words)
    told = pytest.raises(RecordError, match="gnomon runs only if you name it")
    with SqliteStore.open(tmp_path / "record.sqlite") as store, told as refused:
        command_of(store, campaign)
    assert refused.value.hint == f"If you trust it: cd {tmp_path} && gnomon place m.onnx {given}"


def test_tuning_is_in_the_record(tmp_path: Path, capsys: pytest.CaptureFixture[str], own_home: Path) -> None:
    path, record = tmp_path / "phone.json", own_home / "record.sqlite"
    with TrialCampaign(path, EMPTY, "tune") as campaign:
        campaign.add_layers(RECORDS.layers)
        for trial in RECORDS.trials[:2]:
            campaign.add(trial)
    (listed,) = asked(capsys, record, "list")["campaigns"]
    assert (listed["campaign"]["kind"], listed["finished"], listed["running"]) == ("tune", False, False)
    assert (listed["campaign"]["context"]["model_name"], listed["runs"]) == ("net", 2)
    with path.open("a") as file:  # of another results database
        print(json.dumps(trial_line(RECORDS.trials[2])), file=file)
    with TrialCampaign(path, EMPTY, "tune") as campaign:
        for trial in RECORDS.trials[3:]:
            campaign.add(trial)
        campaign.finish("all")
    (listed,) = asked(capsys, record, "list")["campaigns"]
    assert listed["finished"] and (listed["runs"], listed["failures"]) == (5, 1)
    shown = asked(capsys, record, "show", "last")["candidates"]
    assert [one["candidate"].partition("/")[0] for one in shown] == ["dense", "dense", "conv", "conv", "conv"]
    assert shown[2]["summary"]["n"] == 2 and shown[-1]["last_failure"]["kind"] == "hang"
    with TrialCampaign(path, EMPTY, "tune"):
        pass  # a third time, which is ended at once
    assert [(row["runs"], row["finished"]) for row in asked(capsys, record, "list")["campaigns"]] == [(5, False)]
    out = str(tmp_path / "out")
    assert run(["runs", "--record", str(record), "export", "last", "--format", "files", "--out", out]) == 0
    assert read_tuning_records((tmp_path / "out" / "phone.json").read_bytes()) == RECORDS
    capsys.readouterr()
    with TrialCampaign(path, EMPTY, "tune", fresh=True):
        pass
    assert [row["runs"] for row in asked(capsys, record, "list")["campaigns"]] == [0, 5]
