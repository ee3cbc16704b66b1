"""The whole way from two tuned devices to one library: through the command line, on two devices of this machine."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.bad_days.livekit import interrupt, nothing_left
from tests.jobs.tune.tunekit import QUICK, children, one_core, pooled, pooling, tiny_net, trials_of  # noqa: F401
from tests.tuning.tvmkit import needs_tvm, wide_and_narrow

from gnomon.api import tune as api
from gnomon.cli.main import run
from gnomon.core.overlay.pool import pool, side_by_side
from gnomon.core.overlay.records import UNTUNED
from gnomon.errors import UsageError
from gnomon.formats.tuning.logs import FOLDER_FILES
from gnomon.formats.tuning.metaschedule import read_metaschedule_database, write_metaschedule_database
from gnomon.formats.tuning.records import read_tuning_records
from gnomon.jobs.overlay.job import analyze
from gnomon.jobs.runs.answers import answer_of
from gnomon.jobs.tune.folder import read_logs
from gnomon.jobs.tune.records import pooled_trials
from gnomon.store.base import CampaignQuery, RunQuery
from gnomon.store.sqlite import SqliteStore

pytestmark = needs_tvm

CARE = ("--processes", "2", "--repeat", "2", "--min-repeat-ms", "1", "--json", "--quiet")
TRIALS = 4
KEYS = ("wide", "narrow")
TINY_SHAPE = ("1", "3", "8", "8")


@dataclass(kw_only=True)
class Flow:
    """What each command said."""

    out: Path
    tuned: dict[str, dict[str, Any]]
    collected: dict[str, list[dict[str, Any]]]
    analyzed: dict[str, Any]
    logs: list[str]


def said(*words: str | Path) -> Any:
    """The JSON document of a command that must succeed."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        code = run([str(word) for word in words])
    assert code == 0, (code, errors.getvalue())
    return json.loads(out.getvalue(), parse_constant=lambda text: pytest.fail(text))


@pytest.fixture(scope="module")
def flow(
    tmp_path_factory: pytest.TempPathFactory,
    children: None,  # noqa: F811
) -> Iterator[Flow]:
    out, pictures = tmp_path_factory.mktemp("flow"), tmp_path_factory.mktemp("pictures")
    model = out / "tiny.onnx"
    model.write_bytes(tiny_net())
    on = ("--device", "wide", "--device", "narrow", "--out", out)
    with pooling() as patch:
        patch.setenv("GNOMON_HOME", str(name_devices(tmp_path_factory.mktemp("home"))))
        search = ("--trials", TRIALS, "--per-round", "2", "--search", "replay-trace")
        both = said("tune", model, "--no-compare", *map(str, search), *on, *CARE)["tuned"]
        tuned = {document["device"]["key"]: document for document in both}
        own = [tuned[key]["records"] for key in KEYS]
        four = said("overlay", "collect", *own, *on, *CARE)["collected"]
        collected = {key: [one for one in four if one["device"]["key"] == key] for key in KEYS}
        logs = [*own, *(one["records"] for key in KEYS for one in collected[key])]
        analyzed = said(
            "overlay", "analyze", *logs, "--prove", "--portfolio", "2", "--plot", pictures, "--out", out, *CARE
        )
    yield Flow(out=out, tuned=tuned, collected=collected, analyzed=analyzed, logs=logs)


def name_devices(home: Path) -> Path:
    """Two devices of this machine in the file of devices."""
    home.mkdir(exist_ok=True)
    lines = [
        f'[devices.{d.key}]\naddress = "local"\nthreads = {d.threads}\ntarget = "{d.target}"\n'
        for d in wide_and_narrow()
    ]
    (home / "devices.toml").write_text("".join(lines))
    return home


@pytest.fixture(autouse=True)
def named_devices(own_home: Path) -> None:
    """Each test has a home of its own, and in all of them the devices have their names."""
    name_devices(own_home)


@pytest.mark.slow
def test_every_configuration_runs_on_the_other_device_and_computes_the_same(flow: Flow) -> None:
    for device in wide_and_narrow():
        assert flow.tuned[device.key]["device"]["threads"] == device.threads
        assert (flow.tuned[device.key]["device"]["target"]["mcpu"] == device.target) is (device.key == "narrow")
    for key in KEYS:
        assert [one["host"] for one in flow.collected[key]] == list(KEYS)
        for one in flow.collected[key]:
            assert one["device"]["key"] == key
            assert one["device"]["target"] == flow.tuned[key]["device"]["target"]
            assert one["failures"] == []
            assert sum(layer["measured"] for layer in one["layers"]) == TRIALS
            assert all(layer["measured"] == layer["configurations"] for layer in one["layers"])
            records = read_tuning_records(Path(one["records"]).read_bytes())
            assert (records.device.key, records.host) == (key, one["host"])
            assert Path(one["records"]).name == f"{key}_{one['host']}.tiny.float32.json"
            counts: dict[tuple[str, str], int] = {}
            for trial in records.trials:
                counts[trial.layer, trial.configuration] = counts.get((trial.layer, trial.configuration), 0) + 1
                assert trial.configuration == UNTUNED or (trial.error is not None and trial.error <= 1e-3)
            assert set(counts.values()) == {2}  # a trial a process


@pytest.mark.slow
def test_the_choice_is_as_documented(flow: Flow) -> None:
    document = flow.analyzed
    assert (document["devices"], document["hosts"]) == (sorted(KEYS), sorted(KEYS))
    assert document["undecided"] == []
    assert len(document["layers"]) == 2
    for row in document["layers"]:
        fields = {"name", "M", "host", "configuration", "times", "worst_regret", "worst_device", "theta", "share"}
        assert fields <= set(row)
        assert set(row["times"]) == set(KEYS)
        assert row["M"] == pytest.approx(sum(row["regret"].values()))
        assert row["worst_regret"] == pytest.approx(max(row["regret"].values()))
        assert 0 <= row["M_low"] <= row["M_high"]
        assert 0 < row["confidence"] <= 1
        assert row["configurations"] <= TRIALS * 2 + 1
    assert sum(row["share"] for row in document["layers"]) == pytest.approx(1)
    assert all(document["total"]["M"] <= own["M"] + 1e-9 for own in document["own"].values())
    assert document["portfolio"]["M"] <= document["total"]["M"] + 1e-9
    for path in document["pictures"]:
        assert Path(path).stat().st_size > 1000
    assert {Path(path).suffix for path in document["pictures"]} == {".svg", ".png"}
    names = {Path(path).name for path in document["pictures"]}
    assert {"network.svg", "network.png"} < names
    assert len(names) == len(document["pictures"]) >= 6


@pytest.mark.slow
def test_the_proof_has_each_choice_on_each_device(flow: Flow) -> None:
    rows = {(row["device"], row["choice"]): row for row in flow.analyzed["network"]}
    assert set(rows) == {(key, c) for key in KEYS for c in ("untuned", "overlay", "own:wide", "own:narrow")}
    for row in rows.values():
        assert row["failure"] is None
        assert row["max_error"] <= 1e-3
        assert 2 <= row["time"]["processes"] <= 4
        assert (row["to_own"] is None) == (row["choice"] == f"own:{row['device']}")
        assert (row["to_overlay"] is None) == (row["choice"] == "overlay")


@pytest.mark.slow
def test_what_is_written_is_read_back(flow: Flow) -> None:
    written = flow.analyzed["written"]
    chosen = {row["layer"]: row["configuration"] for row in flow.analyzed["layers"]}
    for key in KEYS:
        records = read_tuning_records(Path(written["records"][key]).read_bytes())
        assert (records.device.key, records.found_on) == (key, "overlay")
        assert {t.layer: t.configuration for t in records.trials} == chosen
        folder = Path(written["databases"][key])
        texts = [(folder / name).read_bytes() for name in FOLDER_FILES]
        database = read_metaschedule_database(*texts)
        tuned = {layer: name for layer, name in chosen.items() if name != UNTUNED}
        assert {t.layer: t.configuration for t in database.trials if t.trace is not None} == tuned
        assert Path(written["libraries"][key]).name == f"{key}_overlay.tiny.float32.so"
    rows = api.tuned_files(flow.out).records
    assert len(rows) == 2 + 4 + 2
    assert {row.found_on for row in rows} == {*KEYS, "overlay"}


def parts_of_the_readme(flow: Flow, folder: Path) -> dict[str, Path]:
    """The programs that are written beside the libraries, as files."""
    (readme,) = {Path(path).parent / "README.txt" for path in flow.analyzed["written"]["libraries"].values()}
    names = []
    for part in readme.read_text().split("--- ")[1:]:
        head, _, text = part.partition("\n")
        names.append(head.partition(":")[0])
        shell, text = text.split("#include", 1) if "#include" in text else ("", text)
        (folder / f"{names[-1]}.sh").write_text(shell)
        (folder / names[-1]).write_text(f"#include{text}" if shell else text)
    assert names == ["run.py", "run.cc", "schedule.py"]
    return {name: folder / name for name in names}


def plain(*words: str | Path) -> list[str]:
    """The lines that a program says without gnomon."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.slow
def test_plain_tvm_schedules_all_layers_and_runs_the_library(flow: Flow, tmp_path: Path) -> None:
    written, programs = flow.analyzed["written"], parts_of_the_readme(flow, tmp_path)
    outputs = plain(sys.executable, programs["run.py"], written["libraries"]["narrow"], *TINY_SHAPE)
    assert len(outputs) > 1
    # The choice may be to leave layers of so small a network untuned; a database of all trials has every layer.
    every = tmp_path / "every"
    every.mkdir()
    tuned = read_tuning_records(Path(flow.tuned["narrow"]["records"]).read_bytes())
    for name, text in zip(FOLDER_FILES, write_metaschedule_database(tuned), strict=True):
        (every / name).write_text(text)
    for folder in (*written["databases"].values(), written["whole"], every):
        records = (Path(folder) / FOLDER_FILES[1]).read_text().splitlines()
        (scheduled,) = plain(sys.executable, programs["schedule.py"], written["module"], folder, tmp_path / "new.so")
        assert int(scheduled) == len({json.loads(line)[0] for line in records})
        again = plain(sys.executable, programs["run.py"], tmp_path / "new.so", *TINY_SHAPE)
        assert list(map(float, again)) == pytest.approx(list(map(float, outputs)), rel=1e-3, abs=1e-5)
    assert int(scheduled) == 2
    select = json.loads(Path(written["selection"]).read_text())["devices"]
    for key in KEYS:
        library = Path(written["selection"]).parent / select[key]["library"]
        assert len(plain(sys.executable, programs["run.py"], library.resolve(), *TINY_SHAPE)) == len(outputs)


@pytest.mark.slow
def test_a_program_in_cpp_runs_the_library(flow: Flow, tmp_path: Path) -> None:
    programs = parts_of_the_readme(flow, tmp_path)
    site = Path(sysconfig.get_path("platlib"))
    needed = [site / "tvm_ffi/include/tvm/ffi/extra/module.h", site / "tvm/lib/libtvm_runtime.so"]
    if missing := [str(path) for path in needed if not path.exists()] + ([] if shutil.which("g++") else ["g++"]):
        pytest.skip(f"not here: {', '.join(missing)}")
    script = (tmp_path / "run.cc.sh").read_text().replace("$(python ", f"$({sys.executable} ")
    subprocess.run(["sh", "-c", script], cwd=tmp_path, check=True)
    library = Path(flow.analyzed["written"]["libraries"]["narrow"])
    outputs = plain(tmp_path / "run", library, *TINY_SHAPE)
    wanted = plain(sys.executable, programs["run.py"], library, *TINY_SHAPE)
    assert list(map(float, outputs)) == pytest.approx(list(map(float, wanted)), rel=1e-3, abs=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("pooled")
def test_the_library_runs_there_and_the_records_anywhere(flow: Flow) -> None:
    at = ("--out", flow.out, *CARE)
    library = flow.analyzed["written"]["libraries"]["narrow"]
    found = said("exec", library, "--device", "narrow", *at)
    assert (found["device"]["key"], found["failure"]) == ("narrow", None)
    assert found["max_error"] <= 1e-3
    assert len(found["layers"]) == 2
    assert all(row["time"] for row in found["layers"])
    assert found["layers_sum_s"] == pytest.approx(
        sum(row["weight"] * row["time"]["median_s"] for row in found["layers"])
    )
    assert found["unaccounted_s"] == pytest.approx(found["network"]["median_s"] - found["layers_sum_s"])
    records = flow.analyzed["written"]["records"]["narrow"]
    again = said("exec", records, "--device", "wide", "--no-layers", *at)
    assert (again["device"]["key"], again["failure"], again["layers"]) == ("wide", None, [])
    assert again["max_error"] <= 1e-3
    database = flow.analyzed["written"]["databases"]["narrow"]
    here = said("exec", database, "--model", flow.out / "tiny.onnx", "--no-layers", *at)
    assert (here["device"]["key"], here["failure"]) == ("local", None)
    assert here["max_error"] <= 1e-3


@pytest.mark.slow
@pytest.mark.usefixtures("pooled")
def test_collected_again_nothing_is_measured_again_but_what_is_missing(flow: Flow, own_home: Path) -> None:
    path, record = Path(flow.collected["narrow"][0]["records"]), own_home / "record.sqlite"
    before = path.read_bytes()
    lines = before.splitlines(keepends=True)
    cut = b"".join(lines[:-3]) + lines[-3][:100]
    asked = {"device": "narrow", "out": flow.out, **QUICK, "processes": 2}
    try:
        for beginning in (before, cut, None):  # the results database has it all from the first time on
            path.unlink() if beginning is None else path.write_bytes(beginning)
            api.overlay_collect([flow.tuned["wide"]["records"]], **asked)
            assert path.read_bytes() == before
        with SqliteStore.open(record) as store:
            (campaign,) = store.query(CampaignQuery(kind="overlay-collect", finished=True))
            facts = [run.facts for run in store.query(RunQuery(campaign=campaign.id))]
            answer = answer_of(store, campaign)
        assert [line for line in facts if line["trial"] != UNTUNED] == trials_of(path)
        assert answer.records == str(path)
        for file in own_home.glob("record.sqlite*"):
            file.unlink()
        path.write_bytes(cut)
        known = trials_of(path)
        assert TRIALS * 2 - 3 <= len(known) < TRIALS * 2
        api.overlay_collect([flow.tuned["wide"]["records"]], **asked)
        after = trials_of(path)
        assert after[: len(known)] == known
        assert set(Counter((line["layer"], line["trial"]) for line in after).values()) == {2}
        assert len(after) == TRIALS * 2 and path.read_bytes() != before  # what was lacking was measured, and no more
    finally:
        path.write_bytes(before)


@pytest.mark.slow
@pytest.mark.usefixtures("pooled")
def test_only_the_best_of_some_layers_are_carried_over(flow: Flow, tmp_path: Path) -> None:
    log = flow.tuned["wide"]["records"]
    asked = {"device": "narrow", "out": tmp_path, **QUICK}
    (found,) = api.overlay_collect([log], best=1, layers=["0"], **asked).collected
    (row,) = found.layers
    first = read_tuning_records(Path(log).read_bytes())
    assert row.name == first.layers[0].name
    together = pooled_trials(t for t in first.trials if t.layer == row.layer)  # the best was measured several times
    tried = [t for name, t in together.items() if t.time_s and name != UNTUNED]
    assert row.measured == min(1, len(tried))
    if tried:
        best = min(tried, key=lambda trial: trial.time_s or 0.0)
        assert {line["trial"] for line in trials_of(Path(found.records))} == {best.configuration}


@pytest.mark.slow
@pytest.mark.usefixtures("pooled")
def test_what_is_close_is_measured_again_by_itself(flow: Flow, tmp_path: Path) -> None:
    """From all logs at once, as many times as is asked for, and never more."""
    analysis = analyze(list(map(Path, flow.logs)), resamples=10)
    layer = next(choice.times for choice in analysis.network.layers if len(choice.times.configurations) > 2)
    one, other = [name for name in layer.configurations if name != UNTUNED][:2]
    asked = {"device": "narrow", "out": tmp_path, "close": {layer.layer: [one, other]}, **QUICK, "processes": 2}
    found = api.overlay_collect(flow.logs, **asked).collected
    assert [document.host for document in found] == sorted(KEYS, key=KEYS.index)
    assert {document.source for document in found} == {flow.tuned[key]["records"] for key in KEYS}
    counts: dict[str, int] = {}
    for document in found:
        for line in trials_of(Path(document.records)):
            assert line["layer"] == layer.layer
            counts[line["trial"]] = counts.get(line["trial"], 0) + 1
        assert sum(row.measured for row in document.layers) <= 2
    assert counts == {one: 8, other: 8}
    api.overlay_collect(flow.logs, **asked)
    records = [document.records for document in found]
    assert sum(len(trials_of(Path(path))) for path in records) == 16
    paths = [*map(Path, flow.logs), *map(Path, records)]
    after = pool(side_by_side(tuple(read_logs(paths))), list(map(str, paths)))
    (now,) = [(t, samples) for t, samples in zip(after.layers, after.samples, strict=True) if t.layer == layer.layer]
    times, samples = now
    place = (times.configurations.index(one), times.devices.index("narrow"))
    assert len(samples[place]) == 2 + 8


@pytest.mark.slow
@pytest.mark.usefixtures("pooled")
def test_without_outputs_to_compare_with_nothing_is_called_a_failure_of_its_own(flow: Flow, tmp_path: Path) -> None:
    """The untuned layers cannot be built: their configurations are left for another time."""
    linker = tmp_path / "linker"
    linker.write_text('#!/bin/sh\nfor word; do case "$word" in */untuned-*) exit 7;; esac; done\nexec g++ "$@"\n')
    linker.chmod(0o700)
    asked = {"device": "local", "target": "x86-64", "out": tmp_path, **QUICK}
    log = flow.tuned["wide"]["records"]
    (found,) = api.overlay_collect([log], linker=str(linker), **asked).collected
    assert all(row.measured == row.failed == 0 for row in found.layers)
    assert [failure.stage for failure in found.failures] == ["build"]
    assert trials_of(Path(found.records)) == []


@pytest.mark.slow
def test_a_device_that_nobody_knows_cannot_prove(flow: Flow, tmp_path: Path, own_home: Path) -> None:
    (own_home / "devices.toml").unlink()
    with pytest.raises(UsageError, match="the address of the device 'narrow' in these records"):
        api.overlay_analyze(flow.logs, resamples=10, prove=True, model=flow.out / "tiny.onnx", out=tmp_path)
    found = api.overlay_analyze(flow.logs, resamples=10, out=tmp_path)
    assert found.written.libraries == {}
    assert "the network tiny is not in" in found.notes[-1]
    again = api.overlay_analyze(flow.logs, resamples=10, out=tmp_path, compile=False)
    assert again.notes == found.notes[:-1]
    assert len(list((tmp_path / "overlay").glob("*.json"))) == 2  # written again, and nothing put aside


@pytest.mark.slow
def test_kill_9_of_collect(
    flow: Flow,
    tmp_path: Path,
    pooled: None,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "out" / "records" / "local_wide.tiny.float32.json"
    (tmp_path / "tmp").mkdir()
    command = [sys.executable, "-c", "from gnomon.cli.main import main; main()", "overlay", "collect"]
    here = ("--threads", "1", "--target", "x86-64")
    command += [flow.tuned["wide"]["records"], "--out", str(tmp_path / "out"), *here, *CARE]
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "GNOMON_HOME": str(tmp_path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=environment, preexec_fn=one_core, **pipes) as gnomon:  # type: ignore[call-overload]
        while len(trials_of(path)) < 2:
            assert gnomon.poll() is None, gnomon.communicate()
            time.sleep(0.005)
        interrupt(gnomon, signal.SIGKILL)
    assert nothing_left(tmp_path)
    kept = path.read_bytes()
    with SqliteStore.open(tmp_path / "record.sqlite") as store:
        (campaign,) = store.query(CampaignQuery(kind="overlay-collect"))
        facts = [run.facts for run in store.query(RunQuery(campaign=campaign.id))]
    before = [line for line in facts if line["trial"] != UNTUNED]
    assert len(before) >= len(trials_of(path)) >= 2
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path))
    asked: dict[str, Any] = {"out": tmp_path / "out", "threads": 1, "target": "x86-64", **QUICK}
    asked["processes"] = 2
    (found,) = api.overlay_collect([flow.tuned["wide"]["records"]], **asked).collected
    after = trials_of(path)
    assert path.read_bytes().startswith(kept) and after[: len(before)] == before
    assert len(after) == TRIALS * 2
    assert sum(row.measured for row in found.layers) == TRIALS
