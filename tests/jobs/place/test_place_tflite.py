"""Placement of TFLite models with LiteRT: whole, and cut into a chain. No times are judged."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.agent.drivers.litertkit import tflite

from gnomon.jobs.place.across import AcrossPlacer
from gnomon.jobs.place.document import PlaceDocument
from gnomon.jobs.place.job import place
from gnomon.measure.effort import Effort
from gnomon.models.load import load
from gnomon.runtimes.base import RunSettings
from gnomon.session.contender import choose_clock, profile_singles
from gnomon.session.model_session import open_session
from gnomon.session.reference import reference
from gnomon.session.request import ModelRequest

pytestmark = [
    pytest.mark.skipif(find_spec("ai_edge_litert") is None, reason="ai-edge-litert is not installed"),
    pytest.mark.usefixtures("few_blocks"),
]

KERNELS = {"litert[xnnpack]", "litert[builtin]", "litert[reference]"}


@pytest.mark.slow
def test_place_of_a_tflite_model(small: Effort, tmp_path: Path) -> None:
    model = tmp_path / "m.tflite"
    model.write_bytes(tflite("conv", "floor_mod", "conv", "softmax"))
    settings = RunSettings(backends=("xnnpack", "builtin", "reference"))  # and no GPU, where there is one
    found = place(ModelRequest(model=model, effort=small, runtimes=("litert",), settings=settings), tmp_path / "out")
    assert {contender.label for contender in found.contenders if contender.kind == "single"} == KERNELS
    assert found.verified.ok, found.verified
    assert all(row.ran_on == row.planned for row in found.operators)
    for row in found.operators:
        assert set(row.times_s) == KERNELS
        assert row.times_s["litert[reference]"] is None  # it has no profiler
        assert all((row.times_s[name] is None) == (name in row.within) for name in KERNELS - {"litert[reference]"})
    (whole,) = [contender for contender in found.contenders if contender.label == "litert[reference]"]
    assert [kernel.name for kernel in whole.kernels] == ["whole graph"]
    (segment,) = _job(found)["segments"]
    assert Path(found.package or "", segment["model"]).read_bytes() == model.read_bytes()


@pytest.mark.slow
def test_a_chain_of_tflite_segments_computes_what_the_whole_does(small: Effort, tmp_path: Path) -> None:
    model = tmp_path / "m.tflite"
    model.write_bytes(tflite(*["conv"] * 6))
    with open_session(
        ModelRequest(model=model, effort=small, runtimes=("litert",)), kind="test", question={}
    ) as session:
        reference(session)
        targets = [t for t in session.targets if t.configuration.name != "litert[reference]"]
        placer = AcrossPlacer(session, targets, tmp_path, most_blocks=3)
        alive = profile_singles(session, [placer.whole(target) for target in targets])
        found = placer.run(alive, choose_clock(session, (session.runner.known(c.key) for c in alive)), always=True)
        assert found.solution is not None, found.why
        count = len(placer.files.places) - 1
        chain = placer.chain("plan", "by hand", tuple((k, k + 1, k % 2) for k in range(count)), None)
        measured = session.runner.measure("test", [chain.candidate], small)[chain.key]
        assert measured.ok, measured.failure
        assert measured.fact("difference")["relative"] < 1e-3
        planned = sorted(i for part in chain.parts for i in part.operators)
        assert planned == list(range(6))
        for segment in chain.candidate.job["segments"]:
            assert segment["model"].endswith(".tflite")
            assert load(segment["model"]).kind == "tflite"
        told = [{row["backend"] for row in rows} for rows in measured.fact("where")]
        assert told == [{("xnnpack", "builtin")[k % 2]} for k in range(count)]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("openvino") is None, reason="openvino is not installed")
def test_an_open_batch_is_measured_on_all_that_load_the_file(small: Effort, tmp_path: Path) -> None:
    """Every Keras export leaves its batch open; OpenVINO reads TFLite too."""
    model = tmp_path / "m.tflite"
    model.write_bytes(tflite("conv", signature=(-1, 4, 4, 8)))
    found = place(ModelRequest(model=model, effort=small, runtimes=("litert", "openvino")), tmp_path / "out")
    singles = {contender.label: contender for contender in found.contenders if contender.kind == "single"}
    assert set(singles) == KERNELS | {"openvino"}
    assert [contender.failure for contender in singles.values()] == [None] * 4
    assert found.verified.ok, found.verified
    assert "reference kernels on the model's file, unmodified" in (found.reference or "")
    assert [d.kind for d in found.doubts if d.kind == "assumed-shape"] == ["assumed-shape"]
    assert all(row.times_s["openvino"] is not None or "openvino" in row.within for row in found.operators)
    (tensor,) = {tuple(t["shape"]) for t in _job(found)["tensors"].values() if -1 not in t["shape"]}
    assert tensor == (1, 4, 4, 8)


def _job(found: PlaceDocument) -> dict[str, Any]:
    job: dict[str, Any] = json.loads(Path(found.package or "", "plan.json").read_text())["job"]
    return job


@pytest.mark.slow
@pytest.mark.usefixtures("on_software_gpu")
def test_what_a_program_that_plays_a_gpu_takes_is_measured_and_no_base_of_a_claim(
    small: Effort, tmp_path: Path
) -> None:
    model = tmp_path / "m.tflite"
    model.write_bytes(tflite("conv", "conv", "softmax"))
    settings = RunSettings(backends=("gpu", "xnnpack"))
    request = ModelRequest(model=model, effort=small, runtimes=("litert",), settings=settings)
    found = place(request, tmp_path / "out")
    gpu = next(contender for contender in found.contenders if contender.label == "litert[gpu]")
    assert gpu.failure is None, gpu.failure
    assert found.verified.ok
    assert found.clock == "wall"  # the processor waits while a device computes
    told = {doubt.kind: doubt.message for doubt in found.doubts}
    assert "SwiftShader" in told["software-device"]
    assert "litert[gpu]" in told["first-run"]
    assert "MiB of the device's memory" in told["first-run"]
    assert gpu.against_best is None
    assert "times as fast" not in found.decision.reason
    assert ("no ratio is reported" in found.decision.reason) == (found.decision.chosen == "litert[gpu]")
    assert found.decision.speedup_vs_best_single is None
    assert gpu.accelerators[0].software and (gpu.device_memory_bytes or 0) > 0
    assert all(seconds and seconds > 0 for seconds in gpu.runs.processes.load_s)
