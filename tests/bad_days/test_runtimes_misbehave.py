"""Runtimes that crash, hang, are killed, compute wrongly or are not there: each is left out, and the rest goes on."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
import venv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.bad_days.livekit import (
    deaf_onnx,
    endless_onnx,
    matmul_onnx,
    nan_onnx,
    processes_in,
    start_place,
    wait_for_line,
)

from gnomon.core.sample import Run
from gnomon.devices.base import DeviceInfo
from gnomon.devices.local import LocalDevice
from gnomon.errors import MeasurementError, RuntimeMissingError
from gnomon.jobs.place.job import place, profile
from gnomon.measure.effort import Effort
from gnomon.measure.progress import Progress
from gnomon.runtimes.base import Wish
from gnomon.runtimes.mnn import Mnn
from gnomon.runtimes.ncnn import Ncnn
from gnomon.runtimes.onnxruntime import OnnxRuntime
from gnomon.session.request import ModelRequest
from gnomon.store.base import CampaignQuery, RunQuery
from gnomon.store.sqlite import SqliteStore

Zoo = Callable[[str], Path]
RUNTIMES = ("onnxruntime", "openvino")


def runs_in(record: Path) -> list[Run]:
    with SqliteStore.open(record) as store:
        return [r for c in store.query(CampaignQuery()) for r in store.query(RunQuery(campaign=c.id))]


def saved(folder: Path, data: bytes) -> Path:
    (folder / "m.onnx").write_bytes(data)
    return folder / "m.onnx"


def test_a_backend_that_segfaults_is_left_out_with_the_reason(zoo_model: Zoo, small: Effort) -> None:
    found = profile(ModelRequest(model=zoo_model("mix.circle"), effort=small))
    reasons = {m.name: m.reason for m in found.missing}
    if "onert:train" not in reasons:
        pytest.skip("this onert has no backend that segfaults")
    assert "SIGSEGV" in reasons["onert:train"]
    assert [c.label.partition(" ")[0] for c in found.columns] == ["onert:cpu", "onert:ruy"]


def test_when_all_runtimes_hang_it_ends_and_says_so(tmp_path: Path, small: Effort) -> None:
    model = saved(tmp_path, endless_onnx())
    # Without ncnn: its converter works on this model for minutes before it is given up.
    with pytest.raises(MeasurementError) as refused:
        place(ModelRequest(model=model, runtimes=RUNTIMES, effort=replace(small, timeout_s=2.0)), tmp_path / "out")
    for runtime in RUNTIMES:
        assert re.search(rf"{runtime} [^;]*: hang", refused.value.message)
    assert refused.value.hint


def test_a_configuration_that_hangs_does_not_spoil_the_others(tmp_path: Path, small: Effort) -> None:
    # A real ONNX Runtime in an environment in which it stops for ever when it is imported.
    (tmp_path / "stuck").mkdir()
    (tmp_path / "stuck" / "sitecustomize.py").write_text(
        "import sys, time\n"
        "class Stuck:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'onnxruntime':\n"
        "            time.sleep(3600)\n"
        "sys.meta_path.insert(0, Stuck())\n"
    )
    wish = Wish(environments=({"PYTHONPATH": str(tmp_path / "stuck")},))
    model = saved(tmp_path, matmul_onnx())
    record = tmp_path / "record.sqlite"
    found = profile(
        ModelRequest(model=model, effort=replace(small, timeout_s=4.0), wish=wish, record=record, runtimes=RUNTIMES)
    )
    labels = {c.label for c in found.columns}
    assert set(RUNTIMES) < labels
    hung = [m for m in found.missing if m.name.startswith("onnxruntime[PYTHONPATH")]
    assert len(hung) == 1
    assert "hang" in hung[0].reason
    assert [r.failure.kind for r in runs_in(record) if r.failure] == ["hang"]
    assert "insensitive" not in {d.kind for d in found.doubts}  # its outputs depend on its input


@pytest.mark.slow
def test_a_setting_that_computes_wrongly_is_refused_and_the_users_own_does_not_leak(
    zoo_model: Zoo, small: Effort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUY_PATHS", "16")  # what the user's shell has must not reach the processes
    wish = Wish(backends=("cpu", "ruy"), environments=({"RUY_PATHS": "16"},))
    found = profile(ModelRequest(model=zoo_model("mix.circle"), effort=small, wish=wish))
    columns = {c.label.partition(" ")[0]: c for c in found.columns}
    if "onert[RUY_PATHS=16]:ruy" in columns:
        pytest.skip("RUY_PATHS=16 computes rightly on this processor")
    assert columns["onert:ruy"].difference["relative"] < 1e-3  # the clean one is right
    refused = [m for m in found.missing if m.name.startswith("onert[RUY_PATHS=16]:ruy")]
    assert len(refused) == 1
    assert "outputs differ" in refused[0].reason


def test_runtimes_that_disagree_are_not_compared(tmp_path: Path, small: Effort) -> None:
    model, record = saved(tmp_path, nan_onnx()), tmp_path / "record.sqlite"
    placed = place(ModelRequest(model=model, effort=small, record=record, runtimes=RUNTIMES), tmp_path / "out")
    assert [m.name for m in placed.missing] == ["openvino"]
    assert "outputs differ" in placed.missing[0].reason
    runs = runs_in(record)  # the store refuses NaN and infinity: reading it all shows that none was written
    # In the profile, and once more where what is nearly right would be timed.
    assert [(r.candidate, r.failure.kind) for r in runs if r.failure] == [
        ("openvino", "wrong-output"),
        ("nearly/openvino", "wrong-output"),
    ]
    assert [p.contender.label for p in placed.verdict.proved] == ["onnxruntime"]
    assert placed.verdict.chosen.contender.label == "onnxruntime"
    assert placed.verified.ok


def test_outputs_that_ignore_the_input_are_a_doubt(tmp_path: Path, small: Effort) -> None:
    deaf = profile(ModelRequest(model=saved(tmp_path, deaf_onnx()), effort=small, runtimes=("onnxruntime",)))
    assert "insensitive" in {d.kind for d in deaf.doubts}


def other_python(folder: Path, packages: tuple[str, ...]) -> Path:
    """A Python of its own that has only these of the packages that are installed here."""
    venv.create(folder, symlinks=True)
    site = next(folder.glob("lib/python3*/site-packages"))
    for package in packages:
        home = next(Path(p) / package for p in sys.path if (Path(p) / package).exists())
        for entry in (home, home.with_name(f"{package}.libs")):
            if entry.exists():
                (site / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


def use_python(monkeypatch: pytest.MonkeyPatch, python: Path) -> None:
    true = LocalDevice.describe

    def describe(self: LocalDevice) -> DeviceInfo:
        return replace(true(self), python=str(python))

    monkeypatch.setattr(LocalDevice, "describe", describe)


def test_a_runtime_that_is_not_installed_is_named_with_the_line_that_installs_it(
    tmp_path: Path, small: Effort, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = other_python(tmp_path / "venv", ("numpy", "openvino"))
    use_python(monkeypatch, python)
    found = profile(ModelRequest(model=saved(tmp_path, matmul_onnx()), effort=small))
    assert [c.label for c in found.columns] == ["openvino"]
    assert [(m.name, m.reason, m.hint) for m in found.missing] == [
        *(
            (name, "not installed", f"{python} -m pip install numpy '{wheel}'")
            for name, wheel in (
                ("mnn", Mnn.wheels[0]),
                ("ncnn", Ncnn.wheels[0]),
                ("onnxruntime", OnnxRuntime.wheels[0]),
            )
        ),
        ("tvm", "it was not tried, as it takes minutes", "--runtime tvm tries it."),
    ]


def test_no_runtime_at_all(tmp_path: Path, small: Effort, monkeypatch: pytest.MonkeyPatch, zoo_model: Zoo) -> None:
    use_python(monkeypatch, other_python(tmp_path / "venv", ("numpy",)))
    with pytest.raises(RuntimeMissingError) as refused:
        place(ModelRequest(model=zoo_model("mix.circle"), effort=small), tmp_path / "out")
    assert "not installed" in refused.value.message
    assert "-m pip install numpy 'onert>=0.1.0'" in refused.value.hint


def all_workers(folder: Path) -> list[int]:
    """The numbers of the processes that measure, once there are any."""
    for _ in range(3000):
        found = []
        for pid in processes_in(folder):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"work" in words:
                found.append(pid)
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError("no worker was seen")


def a_worker(folder: Path) -> int:
    """The number of a process that measures, once there is one."""
    return all_workers(folder)[0]


LONG = Effort(processes_least=1, processes_most=1, rounds=6, block_s=0.1, warm_s=0.01, laggard=1e9, timeout_s=4.0)


@pytest.mark.slow
def test_a_worker_killed_for_want_of_memory_is_tried_once_more(tmp_path: Path) -> None:
    model, record = saved(tmp_path, matmul_onnx(depth=1)), tmp_path / "record.sqlite"
    with start_place(tmp_path, model, LONG, runtimes=RUNTIMES[:1]) as gnomon:
        wait_for_line(gnomon, "progress profile 2")
        os.kill(a_worker(tmp_path), signal.SIGKILL)
        told, errors = gnomon.communicate(timeout=180)
    assert gnomon.returncode == 0, errors
    assert "new True" in told
    failures = [r.failure for r in runs_in(record) if r.failure]
    assert [(f.kind, f.transient, f.stage) for f in failures] == [("memory", True, "run")]


@pytest.mark.slow
def test_what_ends_all_workers_is_nobodys_fault(tmp_path: Path) -> None:
    model, record = saved(tmp_path, matmul_onnx(depth=1)), tmp_path / "record.sqlite"
    with start_place(tmp_path, model, LONG, runtimes=RUNTIMES) as gnomon:
        wait_for_line(gnomon, "progress profile 2")
        for pid in all_workers(tmp_path):
            os.kill(pid, signal.SIGTERM)
        told, errors = gnomon.communicate(timeout=180)
    assert gnomon.returncode == 0, errors
    assert "new True" in told
    runs = runs_in(record)
    ended = {r.candidate for r in runs if r.failure}
    assert ended and {r.facts["signal"] for r in runs if r.failure} == {"SIGTERM"}
    proved = {r.candidate for r in runs if r.samples and r.candidate.startswith("proof/")}
    assert {f"proof/{name}" for name in ended} <= proved


def test_a_library_that_is_away_for_a_while_is_back_in_the_next_call(
    tmp_path: Path, small: Effort, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = other_python(tmp_path / "venv", ("numpy", *RUNTIMES))
    use_python(monkeypatch, python)
    library = next(tmp_path.glob("venv/lib/python3*/site-packages/onnxruntime"))
    away = library.with_name("away")
    effort = replace(small, processes_least=2, processes_most=2)
    request = ModelRequest(model=saved(tmp_path, matmul_onnx()), effort=effort, record=tmp_path / "record.sqlite")
    request = replace(request, runtimes=RUNTIMES)

    def take_away(seen: Progress) -> None:
        if seen.stage == "profile" and seen.done >= 2 and library.exists():
            library.rename(away)
        if seen.stage == "profile, traced" and seen.done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        profile(request, watch=take_away)
    assert any(r.failure and "onnxruntime" in r.failure.message for r in runs_in(tmp_path / "record.sqlite"))
    away.rename(library)
    found = profile(request)
    assert found.resumed
    assert {c.label for c in found.columns} == set(RUNTIMES)
    assert "not-compared" not in {d.kind for d in found.doubts}


@pytest.mark.slow
def test_a_stopped_worker_counts_as_hanging(tmp_path: Path) -> None:
    model, record = saved(tmp_path, matmul_onnx(depth=1)), tmp_path / "record.sqlite"
    with start_place(tmp_path, model, LONG, runtimes=RUNTIMES) as gnomon:
        wait_for_line(gnomon, "progress profile 2")
        os.kill(a_worker(tmp_path), signal.SIGSTOP)
        told, errors = gnomon.communicate(timeout=180)
    assert gnomon.returncode == 0, errors
    assert "new True" in told
    runs = runs_in(record)
    (hung,) = (r for r in runs if r.failure)
    assert hung.failure is not None and (hung.failure.kind, hung.failure.transient) == ("hang", False)
    assert any(r.samples for r in runs[runs.index(hung) :] if r.candidate == hung.candidate)  # it was tried again
