"""Runtimes that crash, hang, are killed, compute wrongly or are not there: each is left out, and the rest goes on."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.bad_days.livekit import (
    endless_onnx,
    matmul_onnx,
    model_in,
    nan_onnx,
    python_with,
    runs_in,
    start_job,
    wait_for_line,
    workers,
)
from tests.processkit import becomes

from gnomon.devices.base import DeviceInfo
from gnomon.devices.local import LocalDevice
from gnomon.errors import MeasurementError
from gnomon.jobs.place.job import place, profile
from gnomon.measure.effort import Effort
from gnomon.measure.progress import Progress
from gnomon.runtimes.base import RunSettings
from gnomon.runtimes.mnn import Mnn
from gnomon.runtimes.ncnn import Ncnn
from gnomon.runtimes.onnxruntime import OnnxRuntime
from gnomon.session.request import ModelRequest

Zoo = Callable[[str], Path]
RUNTIMES = ("onnxruntime", "openvino")
LONG = Effort(processes_least=1, processes_most=1, rounds=6, block_s=0.1, warm_s=0.01, laggard=1e9, timeout_s=4.0)


def test_a_backend_that_segfaults_is_left_out_with_the_reason(zoo_model: Zoo, small: Effort) -> None:
    found = profile(ModelRequest(model=zoo_model("mix.circle"), effort=small))
    reasons = {m.name: m.reason for m in found.missing}
    if "onert:train" not in reasons:
        pytest.skip("this onert has no backend that segfaults")
    assert "SIGSEGV" in reasons["onert:train"]
    assert [c.label.partition(" ")[0] for c in found.columns] == ["onert:cpu", "onert:ruy"]


def test_when_all_runtimes_hang_it_ends_and_says_so(tmp_path: Path, small: Effort) -> None:
    model = model_in(tmp_path, endless_onnx())
    # Without ncnn: its converter works on this model for minutes before it is given up.
    with pytest.raises(MeasurementError) as refused:
        place(ModelRequest(model=model, runtimes=RUNTIMES, effort=replace(small, timeout_s=2.0)), tmp_path / "out")
    for runtime in RUNTIMES:
        assert re.search(rf"{runtime} .*: hang", refused.value.message)
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
    settings = RunSettings(environments=({"PYTHONPATH": str(tmp_path / "stuck")},))
    model = model_in(tmp_path, matmul_onnx())
    record = tmp_path / "record.sqlite"
    found = profile(
        ModelRequest(
            model=model, effort=replace(small, timeout_s=4.0), settings=settings, record=record, runtimes=RUNTIMES
        )
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
    settings = RunSettings(backends=("cpu", "ruy"), environments=({"RUY_PATHS": "16"},))
    found = profile(ModelRequest(model=zoo_model("mix.circle"), effort=small, settings=settings))
    columns = {c.label.partition(" ")[0]: c for c in found.columns}
    if "onert[RUY_PATHS=16]:ruy" in columns:
        pytest.skip("RUY_PATHS=16 computes rightly on this processor")
    clean = columns["onert:ruy"].difference
    assert clean and clean.relative == pytest.approx(0, abs=1e-3)
    refused = [m for m in found.missing if m.name.startswith("onert[RUY_PATHS=16]:ruy")]
    assert len(refused) == 1
    assert "outputs differ" in refused[0].reason


def test_runtimes_that_disagree_are_not_compared(tmp_path: Path, small: Effort) -> None:
    model, record = model_in(tmp_path, nan_onnx()), tmp_path / "record.sqlite"
    placed = place(ModelRequest(model=model, effort=small, record=record, runtimes=RUNTIMES), tmp_path / "out")
    assert [m.name for m in placed.missing] == ["openvino"]
    assert "outputs differ" in placed.missing[0].reason
    runs = runs_in(record)  # the store refuses NaN and infinity: reading it all shows that none was written
    # In the profile, and once more where what is nearly right would be timed.
    assert [(r.candidate, r.failure.kind) for r in runs if r.failure] == [
        ("openvino", "wrong-output"),
        ("nearly/openvino", "wrong-output"),
    ]
    assert [contender.label for contender in placed.contenders] == ["onnxruntime"]
    assert placed.decision.chosen == "onnxruntime"
    assert placed.verified.ok


def use_python(monkeypatch: pytest.MonkeyPatch, python: Path) -> None:
    true = LocalDevice.describe

    def describe(self: LocalDevice) -> DeviceInfo:
        return replace(true(self), python=str(python))

    monkeypatch.setattr(LocalDevice, "describe", describe)


def test_a_runtime_that_is_not_installed_is_named_with_the_line_that_installs_it(
    tmp_path: Path, small: Effort, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = python_with(tmp_path / "venv", ("numpy", "openvino"))
    use_python(monkeypatch, python)
    found = profile(ModelRequest(model=model_in(tmp_path, matmul_onnx()), effort=small))
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
        ("tvm", "it takes minutes, so it is tried only if requested", "To try it: --runtime tvm"),
    ]


def test_a_library_that_is_away_for_a_while_is_back_in_the_next_call(
    tmp_path: Path, small: Effort, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = python_with(tmp_path / "venv", ("numpy", *RUNTIMES))
    use_python(monkeypatch, python)
    library = next(tmp_path.glob("venv/lib/python3*/site-packages/onnxruntime"))
    away = library.with_name("away")
    effort = replace(small, processes_least=2, processes_most=2)
    request = ModelRequest(model=model_in(tmp_path, matmul_onnx()), effort=effort, record=tmp_path / "record.sqlite")
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
@pytest.mark.parametrize(("number", "kind"), [(signal.SIGKILL, "memory"), (signal.SIGTERM, "crash")])
def test_what_befalls_workers_is_tried_again(tmp_path: Path, number: signal.Signals, kind: str) -> None:
    """One that is killed, as for want of memory; all, as by an operator whose fault it is."""
    model, temporary = model_in(tmp_path), tmp_path / "tmp"
    with start_job(tmp_path, model, LONG, runtimes=RUNTIMES) as gnomon:
        wait_for_line(gnomon, "progress profile 2")
        assert becomes(lambda: workers(temporary))
        pids = workers(temporary)
        for pid in pids if number == signal.SIGTERM else pids[:1]:
            os.kill(pid, number)
        out, errors = gnomon.communicate(timeout=180)
    assert gnomon.returncode == 0, errors
    assert "new" in out.splitlines()
    runs = runs_in(tmp_path / "record.sqlite")
    failed = [index for index, run in enumerate(runs) if run.failure]
    assert failed and {run.failure.kind for run in runs if run.failure} == {kind}
    for index in failed:
        assert any(run.samples for run in runs[index:] if run.candidate == runs[index].candidate)
