"""`gnomon tune` with real TVM, here and over RPC: what it writes, how it ends, and what is left when it is ended."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from tests.bad_days.livekit import interrupt, nothing_left
from tests.jobs.tune.tunekit import (
    QUICK,
    children,  # noqa: F401
    counts,
    layerless_net,
    one_core,
    pooled,  # noqa: F401
    pooling,
    tiny_net,
    trials_of,
)
from tests.tuning.tvmkit import Tracked, needs_tvm, rpc_devices  # noqa: F401

from gnomon.api import tune as api
from gnomon.core.overlay.records import UNTUNED
from gnomon.core.overlay.trials import by_layer
from gnomon.devices.lease import lease, lease_folder
from gnomon.errors import DeviceError, MeasurementError, ModelError, RecordError, UsageError
from gnomon.formats.tuning.records import read_tuning_records
from gnomon.jobs.documents import read_document
from gnomon.jobs.place.document import ProfileDocument
from gnomon.jobs.place.job import profile
from gnomon.jobs.tune.records import RecordFile, pooled_trials
from gnomon.jobs.tune.report import tune_report
from gnomon.measure.effort import Effort
from gnomon.measure.progress import Progress
from gnomon.report.page import Page
from gnomon.session.request import ModelRequest
from gnomon.store.base import CampaignQuery, RunQuery
from gnomon.store.sqlite import SqliteStore
from gnomon.system import locks

pytestmark = needs_tvm

COMMAND = [sys.executable, "-c", "from gnomon.cli.main import main; main()", "tune"]
REPLAY = {"strategy": "replay-trace", "per_round": 2}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Soon compiled; few of its configurations are faster than none."""
    path = tmp_path_factory.mktemp("model") / "tiny.onnx"
    path.write_bytes(tiny_net(4, 4))
    return path


@pytest.fixture(scope="module")
def larger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("larger") / "tiny.onnx"
    path.write_bytes(tiny_net())
    return path


@pytest.fixture(scope="module")
def first(larger: Path, tmp_path_factory: pytest.TempPathFactory, children: None) -> dict[str, Any]:  # noqa: F811
    """The network tuned here with the search that is the default; the folder is `out`."""
    out = tmp_path_factory.mktemp("first")
    with pooling() as patch:
        patch.setenv("GNOMON_LEASES", str(tmp_path_factory.mktemp("leases")))
        document = api.tune(larger, trials=5, per_round=2, out=out, compare=False, **QUICK).document()
    return document | {"out": out}


def text_of(document: dict[str, Any]) -> str:
    file = StringIO()
    tune_report(read_document({key: value for key, value in document.items() if key != "out"}), Page(file))
    return file.getvalue()


def tune(model: Path, out: Path, trials: int = 4, **options: Any) -> dict[str, Any]:
    how: dict[str, Any] = {"compare": False, **REPLAY, **QUICK, **options}
    return api.tune(model, trials=trials, out=out, **how).document()


def seem_faster(records: Path) -> None:
    """Untuned layers take a second: what was found counts as faster, also where the machine is too busy to tell."""
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    for line in lines:
        if line.get("trial") == UNTUNED:
            line["times_s"] = [1.0] * len(line["times_s"])
    records.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_records_and_library_are_there_and_right(first: dict[str, Any], larger: Path) -> None:
    records = read_tuning_records(Path(first["records"]).read_bytes())
    assert (records.device.key, records.model.name) == ("local", "tiny")
    assert {layer.layer for layer in records.layers} == {layer["layer"] for layer in first["layers"]}
    assert len(records.layers) == 2
    assert all(layer.workload and layer.arguments for layer in records.layers)
    assert len({(line["layer"], line["trial"]) for line in trials_of(Path(first["records"]))}) == 5
    assert sum(trial.configuration == UNTUNED for trial in records.trials) == 2
    assert all(trial.error is None or trial.error <= 1e-3 for trial in records.trials)
    network = first["network"]
    assert network["failure"] is None
    assert network["max_error"] <= 1e-3
    assert network["compared_with"].startswith("ONNX Runtime")
    assert network["scheduled"] == sum(1 for layer in first["layers"] if (layer["speedup"] or 0) > 1)
    library = Path(first["library"])
    assert {path.name for path in library.parent.iterdir()} == {
        *(f"local.tiny.float32{end}" for end in (".so", ".so.json", ".in.npz", ".out.npz", ".layers.so", ".untuned.so"))
    }
    (kept,) = (first["out"] / "models").iterdir()
    assert kept.read_bytes() == larger.read_bytes()


def test_the_document_says_what_was_done(first: dict[str, Any]) -> None:
    assert json.loads(json.dumps(first | {"out": ""}, allow_nan=False))
    assert counts(first) == {"asked": 5, "measured": 5, "failed": 0, "before": 0}
    assert first["stopped"] == "trials"
    assert first["failures"] == []
    assert sum(layer["trials"] for layer in first["layers"]) == 5
    assert sum(layer["share"] for layer in first["layers"]) == pytest.approx(1)
    for layer in first["layers"]:
        if layer["best"] is not None:
            assert layer["speedup"] == pytest.approx(layer["untuned"]["median_s"] / layer["best"]["median_s"])
            assert len(layer["configuration"]) == 16
    told = text_of(first)
    assert "2 layers" in told and "5 of 5 trials" in told and "gnomon exec" in told


@pytest.mark.usefixtures("pooled")
def test_asked_again_nothing_is_repeated_and_more_is_added(first: dict[str, Any], larger: Path) -> None:
    said: list[str] = []
    path = Path(first["records"])
    before = path.read_bytes()
    tune(larger, first["out"], 5, on_message=said.append)
    assert path.read_bytes() == before
    assert len(said) == 1 and said[0].startswith("continuing with 5 earlier trials of these layers in")
    stages: list[Progress] = []
    document = tune(larger, first["out"], 7, on_progress=stages.append)
    assert path.read_bytes().startswith(before)
    lines = trials_of(path)
    assert len({(line["layer"], line["trial"]) for line in lines}) == 7
    assert counts(document) == {"asked": 7, "measured": 7, "failed": 0, "before": 5}
    assert next(one for one in stages if one.stage == "trials").total == 2  # what is left to do, not what there was


@pytest.mark.usefixtures("pooled")
def test_what_was_tuned_before_is_compiled_though_other_layers_are_asked_for(larger: Path, tmp_path: Path) -> None:
    whole = tune(larger, tmp_path, 4, plateau=0, per_round=2)
    seem_faster(tmp_path / "records" / "local.tiny.float32.json")
    names = [layer["name"] for layer in whole["layers"]]
    again = tune(larger, tmp_path, 3, layers=[names[0]])
    assert [layer["name"] for layer in again["layers"]] == [name for name in names if names[0] in name]
    assert again["network"]["scheduled"] == sum(1 for layer in whole["layers"] if layer["best"] is not None) == 2


@pytest.mark.usefixtures("pooled")
def test_what_other_logs_found_best_is_tried_first(first: dict[str, Any], larger: Path, tmp_path: Path) -> None:
    known = by_layer(read_tuning_records(Path(first["records"]).read_bytes()).trials)
    best: dict[str, str] = {}
    for layer, trials in known.items():
        timed = [t for t in pooled_trials(trials).values() if t.time_s and t.trace is not None]
        if timed:
            best[layer] = min(timed, key=lambda t: t.time_s or 0).configuration
    # Untuned layers take equally long, so that a busy moment cannot make one of them too short to be tuned.
    record = tmp_path / "records" / Path(first["records"]).name
    record.parent.mkdir()
    lines = Path(first["records"]).read_text().splitlines(keepends=True)
    record.write_text("".join(line for line in lines if json.loads(line).get("trial", UNTUNED) == UNTUNED))
    seem_faster(record)
    tune(larger, tmp_path, len(best), logs=[first["records"]], first_round=1)
    tried = [t for t in read_tuning_records(record.read_bytes()).trials if t.trace is not None]
    assert {t.layer: t.configuration for t in tried} == best
    with pytest.raises(UsageError, match="none"):
        tune(larger, tmp_path / "other", 2, logs=[tmp_path / "none"])
    assert not (tmp_path / "other").exists()


@pytest.mark.usefixtures("pooled", "short_visits")
def test_other_runtimes_are_measured_beside_the_tuned_network(
    first: dict[str, Any], larger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime and TVM with the records, each with its time; nothing where the budget leaves no time for it."""
    monkeypatch.setenv("GNOMON_RECORD", str(tmp_path / "record.sqlite"))
    assert first["beside"] is None, "it was not asked for"
    out = shutil.copytree(first["out"], tmp_path / "out")
    seem_faster(out / "records" / "local.tiny.float32.json")
    efforts: list[Effort] = []

    def noted(asked: ModelRequest, **how: Any) -> ProfileDocument:
        efforts.append(asked.effort)
        return profile(asked, **how)

    monkeypatch.setattr("gnomon.jobs.tune.beside.profile", noted)
    document = tune(larger, out, 5, compare=True)
    found = document["beside"]
    assert found["failure"] == ""
    tuned = next(row for row in found["columns"] if row["tuned"])
    assert document["network"]["tuned"]["median_s"] == tuned["time"]["median_s"], "one network, one time"
    assert document["network"]["tuned"]["clock"] == tuned["time"]["clock"] == found["clock"]
    (effort,) = efforts
    assert (effort.processes_least, effort.processes_most) == (1, 2), "as many as for the network alone"
    assert effort.laggard > 4, "what is usual behind the fastest runtime has all visits"
    columns = {row["label"]: row for row in found["columns"]}
    assert {"onnxruntime", "tvm"} <= set(columns) and [row["tuned"] for row in columns.values()].count(True) == 1
    times = [row["time"]["median_s"] for row in found["columns"]]
    assert all(time > 0 for time in times)
    assert [row["over_fastest"] is None for row in found["columns"]] == [True] + [False] * (len(columns) - 1)
    told = text_of(first | {"beside": found})
    assert "All runtimes, by" in told and "onnxruntime" in told
    assert all(win["tuned_s"] < win["other_s"] for win in found["wins"])
    monkeypatch.setattr("gnomon.jobs.tune.folder._MARGIN", 0.0)
    none = tune(larger, out, 5, compare=True)
    assert none["network"]["scheduled"] == 0
    assert none["beside"]["failure"] == "no layer became faster, so the network contains no tuned code"


@pytest.mark.usefixtures("pooled")
def test_fewer_trials_than_layers_and_a_filter(model: Path, tmp_path: Path) -> None:
    found = tune(model, tmp_path / "one", 1)
    assert sorted(layer["trials"] for layer in found["layers"]) == [0, 1]
    assert found["network"]["failure"] is None
    assert "1 of 1 trial" in text_of(found)
    with pytest.raises(UsageError, match="there is no layer 'softmax'") as raised:
        tune(model, tmp_path / "one", 1, layers=["softmax"])
    assert "conv2d" in raised.value.hint
    only = tune(model, tmp_path / "only", 2, layers="conv2d1")
    assert [(layer["name"], layer["trials"]) for layer in only["layers"]] == [("fused_conv2d1_add_relu", 2)]
    assert only["network"]["functions"] == 2


@pytest.mark.usefixtures("pooled")
def test_the_budget_and_the_plateau_end_it(model: Path, tmp_path: Path) -> None:
    found = tune(model, tmp_path, 1000, budget_s=0.001)
    assert (found["stopped"], found["trials"]["measured"]) == ("budget", 0)
    assert found["network"]["failure"] is None
    assert {layer["stopped"] for layer in found["layers"]} == {"budget"}
    assert re.search(r"left no time for trials: .* took [0-9]+ s\. Give --budget [0-9]+ or more", found["notes"][0])
    found = tune(model, tmp_path, 60, plateau=1, per_round=2)
    assert found["stopped"] == "plateau"
    assert found["trials"]["measured"] < 60
    assert {layer["stopped"] for layer in found["layers"]} == {"plateau"}


@pytest.mark.usefixtures("pooled")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs a processor of x86-64, for code of another one")
def test_a_device_that_lacks_the_target_s_instructions_is_told_with_their_names(model: Path, tmp_path: Path) -> None:
    """No processor that is sold today has AMD's FMA4 and XOP."""
    with pytest.raises(
        MeasurementError, match=r"first 2 layers, compiled for bdver4, crashed on local.*fma4.*xop"
    ) as raised:
        tune(model, tmp_path, 4, target='{"kind": "llvm", "mcpu": "bdver4"}')
    assert "--target" in raised.value.hint
    (record,) = (tmp_path / "records").glob("*.json")
    assert {trial.failure.kind for trial in read_tuning_records(record.read_bytes()).trials if trial.failure} == {
        "crash"
    }


@pytest.mark.usefixtures("pooled")
def test_layers_whose_every_candidate_fails_end_and_the_network_is_compiled_untuned(
    model: Path, tmp_path: Path
) -> None:
    """What links refuses the files of candidates."""
    linker = tmp_path / "linker"
    linker.write_text(
        "#!/bin/sh\n"
        'for word; do case "$word" in */untuned-*|*/libraries/*) ;; '
        '*.so) echo "no such luck" >&2; exit 7;; esac; done\nexec g++ "$@"\n'
    )
    linker.chmod(linker.stat().st_mode | stat.S_IXUSR)
    found = tune(model, tmp_path / "out", 40, linker=str(linker), plateau=1, per_round=2)
    assert found["trials"]["failed"] == found["trials"]["measured"] > 0
    assert found["stopped"] == "plateau"
    assert found["network"]["failure"] is None
    assert found["network"]["scheduled"] == 0
    assert all(layer["best"] is None and layer["failed"] for layer in found["layers"])
    assert found["failures"][0]["stage"] == "build"
    assert "no such luck" in json.dumps(found["failures"])
    assert "failed" in text_of(found)


@pytest.mark.usefixtures("pooled")
def test_an_untuned_time_that_is_missing_is_measured_another_time(model: Path, tmp_path: Path) -> None:
    linker = tmp_path / "linker"
    linker.write_text("#!/bin/sh\nexit 7\n")
    linker.chmod(0o700)
    found = tune(model, tmp_path, 2, linker=str(linker))
    assert (found["stopped"], found["trials"]["measured"], found["library"]) == ("failed", 0, None)
    assert {layer["stopped"] for layer in found["layers"]} == {"failed"}
    assert found["failures"][0]["stage"] == "build"
    assert found["network"]["failure"]["stage"] == "compile"
    assert text_of(found)
    again = tune(model, tmp_path, 2)
    assert all(layer["untuned"] is not None for layer in again["layers"])
    assert again["trials"]["measured"] == 2


@pytest.mark.usefixtures("pooled")
def test_float16(larger: Path, tmp_path: Path) -> None:
    found = tune(larger, tmp_path, 2, dtype="float16")
    assert found["model"]["dtype"] == "float16"
    assert found["network"]["failure"] is None
    assert 0 < found["network"]["max_error"] <= 2e-2
    assert Path(found["records"]).name == "local.tiny.float16.json"
    seem_faster(Path(found["records"]))
    again = tune(larger, tmp_path, 2, dtype="float16", compare=True)["beside"]
    assert "float16" in again["failure"], "what other runtimes compute is another thing"


@pytest.mark.usefixtures("pooled")
def test_open_shapes_are_told_and_can_be_given(tmp_path: Path) -> None:
    path, out = tmp_path / "open.onnx", tmp_path / "out"
    path.write_bytes(tiny_net(4, "n"))
    with pytest.raises(ModelError, match=r"'x' open: 1,3,\?,\?") as raised:
        tune(path, out)
    assert (raised.value.exit_code, "--shape x=1,3,1,1" in raised.value.hint) == (3, True)
    assert not out.exists()
    found = tune(path, out, 1, shapes={"x": (1, 3, 6, 6)})
    assert found["network"]["failure"] is None
    document = api.execute(found["records"], out=out, shapes={"x": (1, 3, 6, 6)}, layers=False, **QUICK)
    assert document.max_error is not None and document.max_error <= 1e-3


@pytest.mark.usefixtures("pooled")
def test_a_network_without_layers(tmp_path: Path) -> None:
    path = tmp_path / "none.onnx"
    path.write_bytes(layerless_net())
    found = tune(path, tmp_path / "out")
    assert (found["layers"], found["stopped"], found["trials"]["measured"]) == ([], "exhausted", 0)
    assert found["network"]["failure"] is None
    assert "This model has no layers that can be tuned." in " ".join(text_of(found).split())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"trials": 0}, "trials"),
        ({"patience": 3}, "patience"),
        ({"device": "phone"}, "there is no device named phone"),
        ({"target": "abacus"}, "abacus"),
        ({"device": "tvm://nowhere:x/phone"}, "port"),
    ],
)
def test_what_cannot_be_meant_is_told_before_anything_is_made(
    options: dict[str, Any], told: str, model: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=told) as raised:
        tune(model, tmp_path / "out", **options)
    assert raised.value.hint
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("pooled")
def test_two_at_once_into_one_file(
    first: dict[str, Any], larger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second is refused in words before it measures anything."""
    monkeypatch.setattr(locks, "_PATIENCE_S", 0.1)
    path = tmp_path / "records" / "local.tiny.float32.json"
    path.parent.mkdir()
    path.write_bytes(Path(first["records"]).read_bytes())
    before = path.read_bytes()
    held = RecordFile(path, read_tuning_records(before))
    for fresh in (False, True):
        with pytest.raises(RecordError, match="another gnomon process is writing"):
            tune(larger, tmp_path, 9, fresh=fresh)
    held.close()
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.usefixtures("pooled")
def test_this_machine_is_waited_for(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    class Waited(Exception):
        pass

    def tell(sentence: str) -> None:
        said.append(sentence)
        raise Waited

    with lease(lease_folder(), "local"), pytest.raises(Waited):
        tune(model, tmp_path, on_message=tell)
    assert "another gnomon" in said[0]


# Ended by force


def begin(model: Path, folder: Path, *options: str) -> subprocess.Popen[str]:
    """The real command in a process of its own, with all that it makes below `folder`."""
    (folder / "tmp").mkdir(exist_ok=True)
    quick = ("--no-compare", "--processes", "1", "--repeat", "2", "--min-repeat-ms", "1", "--search", "replay-trace")
    here = ("--threads", "1", "--target", "x86-64")
    return subprocess.Popen(
        [
            *COMMAND,
            str(model),
            "--out",
            str(folder / "out"),
            *quick,
            *here,
            "--per-round",
            "2",
            "--json",
            "--quiet",
            *options,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder / "tmp"), "GNOMON_HOME": str(folder)},
        preexec_fn=one_core,
    )


@pytest.mark.slow
@pytest.mark.parametrize("lines", [0, 3])
def test_kill_9_leaves_nothing_behind_and_the_same_command_goes_on(
    lines: int,
    model: Path,
    tmp_path: Path,
    pooled: None,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Killed when so many trials are written (0: only the header); the results database has them all."""
    path = tmp_path / "out" / "records" / "local.tiny.float32.json"
    with begin(model, tmp_path, "--trials", "6") as gnomon:
        while not path.exists() or not path.stat().st_size or len(trials_of(path)) < lines:
            assert gnomon.poll() is None, gnomon.communicate()
            time.sleep(0.01)
        interrupt(gnomon, signal.SIGKILL)
    assert nothing_left(tmp_path)
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path))
    with SqliteStore.open() as store:
        runs = [run for c in store.query(CampaignQuery()) for run in store.query(RunQuery(campaign=c.id))]
    before = [run.facts for run in runs if run.facts.get("trial", UNTUNED) != UNTUNED]
    content, kept = path.read_bytes(), trials_of(path)
    assert len(before) >= len(kept) >= lines and before[: len(kept)] == kept
    found = tune(model, tmp_path / "out", 6, threads=1, target="x86-64")
    after = trials_of(path)
    assert path.read_bytes().startswith(content) and after[: len(before)] == before
    names, known = ({(line["layer"], line["trial"]) for line in lines_then} for lines_then in (after, before))
    assert len(names) == 6, "what is best is measured once more, and all else once"
    assert counts(found) == {"asked": 6, "measured": 6, "failed": 0, "before": len(known)}
    assert found["network"]["failure"] is None


# Behind a tracker


def rpc(servers: Tracked, key: str = "narrow") -> dict[str, Any]:
    servers.revive()  # one that was killed in the middle of a message took its server along
    return {"device": servers.address(key), "target": servers.of(key).target}


@pytest.mark.usefixtures("pooled")
def test_over_rpc(model: Path, tmp_path: Path, rpc_devices: Tracked) -> None:  # noqa: F811
    found = tune(model, tmp_path, 2, **rpc(rpc_devices))
    assert found["device"] | {"linker": ""} == {
        "key": "narrow",
        "name": rpc_devices.address("narrow"),
        "target": {"kind": "llvm", "mcpu": "x86-64", "num-cores": 1},
        "threads": 0,
        "linker": "",
    }
    assert found["network"]["failure"] is None
    assert {line["server"] for line in trials_of(Path(found["records"]))} == {rpc_devices.of("narrow").address}
    assert found["notes"] == []


def killer(servers: Tracked, key: str, *, back: bool) -> tuple[Callable[[Progress], None], list[Any]]:
    """A watch that kills a server after the first trial; it comes back a little later, or not."""
    done: list[Any] = []

    def come_back() -> None:
        while servers.tracker.summary().of(key):  # a moment after its end it is listed still
            time.sleep(0.05)
        servers.revive()

    def watch(progress: Progress) -> None:
        if progress.stage == "trials" and progress.done == 1 and not done:
            os.killpg(servers.of(key).group, signal.SIGKILL)
            thread = threading.Thread(target=come_back)
            if back:
                thread.start()
            done.append(thread)

    return watch, done


@pytest.mark.usefixtures("pooled")
def test_a_server_that_dies_and_comes_back_costs_a_moment(
    model: Path,
    tmp_path: Path,
    rpc_devices: Tracked,  # noqa: F811
) -> None:
    watch, done = killer(rpc_devices, "narrow", back=True)
    found = tune(model, tmp_path, 4, on_progress=watch, **rpc(rpc_devices))
    done[0].join()
    assert counts(found) == {"asked": 4, "measured": 4, "failed": 0, "before": 0}
    assert found["network"]["failure"] is None


@pytest.mark.usefixtures("pooled")
def test_a_server_that_dies_for_good_is_an_error_and_what_was_measured_is_kept(
    model: Path,
    tmp_path: Path,
    rpc_devices: Tracked,  # noqa: F811
) -> None:
    watch, _ = killer(rpc_devices, "narrow", back=False)
    try:
        with pytest.raises(DeviceError) as raised:
            tune(model, tmp_path, 4, on_progress=watch, wait_s=1.0, **rpc(rpc_devices))
        assert raised.value.hint and "narrow" in raised.value.message
    finally:
        rpc_devices.revive()
    assert len(trials_of(tmp_path / "records" / "narrow.tiny.float32.json")) >= 1


def test_a_key_that_nobody_has_and_a_target_that_nobody_told(
    model: Path,
    tmp_path: Path,
    rpc_devices: Tracked,  # noqa: F811
) -> None:
    asked = rpc(rpc_devices)
    with pytest.raises(DeviceError, match="has the key 'narow'") as raised:
        tune(model, tmp_path / "out", wait_s=0.3, **asked | {"device": rpc_devices.address("narow")})
    assert "narrow" in raised.value.hint
    with pytest.raises(UsageError, match="the target of the device 'narrow' is unknown") as missing:
        tune(model, tmp_path / "out", **asked | {"target": None})
    assert "--target" in missing.value.hint
    assert not (tmp_path / "out").exists()
