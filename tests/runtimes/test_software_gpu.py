"""LiteRT and ncnn on a Vulkan device that is a program, SwiftShader: the code that a real GPU would run through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.agent.drivers.litertkit import SHAPE, tflite
from tests.runtimes.test_ncnn import TestNcnn as NcnnContract
from tests.runtimes.test_ncnn import written

from gnomon.core.sample import Failure
from gnomon.measure.effort import Effort
from gnomon.measure.link import REFERENCE, AgentLink, compute_reference
from gnomon.runtimes.base import Configuration, Probe, RunSettings, Runtime
from gnomon.runtimes.litert import LiteRt
from gnomon.runtimes.ncnn import Ncnn
from gnomon.testing.runtime import RuntimeContract

MESA = Path("/usr/share/vulkan/icd.d")
NAME = "SwiftShader Device (Subzero)"

pytestmark = pytest.mark.usefixtures("on_software_gpu")


class OnGpu(LiteRt):
    """The adapter as if its user had named the backend gpu."""

    def configurations(self, probe: Probe, settings: RunSettings) -> tuple[Configuration, ...]:
        return super().configurations(probe, replace(settings, backends=settings.backends or ("gpu",)))


class OnVulkan(Ncnn):
    """The adapter as if its user had named the backends cpu and vulkan."""

    def configurations(self, probe: Probe, settings: RunSettings) -> tuple[Configuration, ...]:
        return super().configurations(probe, replace(settings, backends=settings.backends or ("cpu", "vulkan")))


@pytest.mark.slow
class TestLiteRtOnGpu(RuntimeContract):
    @pytest.fixture
    def adapter(self) -> Runtime:
        pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
        return OnGpu()

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "m.tflite"
        path.write_bytes(tflite("conv", "conv", "softmax"))
        return path


@pytest.mark.slow
class TestNcnnOnVulkan(NcnnContract):
    @pytest.fixture
    def adapter(self) -> Runtime:
        pytest.importorskip("ncnn", reason="ncnn is not installed")
        return OnVulkan()


def probed(link: AgentLink, runtime: Runtime) -> Probe:
    answer = link.ask({"p": {"do": "probe", "runtime": runtime.name}})["p"]
    if isinstance(answer, Failure):
        pytest.skip(f"{runtime.name}: {answer.message}")
    return Probe.of(answer)


def test_the_device_is_named_and_told_to_be_a_program(link: AgentLink) -> None:
    for runtime, backend in ((LiteRt(), "gpu"), (Ncnn(), "vulkan")):
        probe = probed(link, runtime)
        assert backend in probe.backends
        assert {(a.backend, a.name, a.software) for a in probe.accelerators} == {(backend, NAME, True)}
        assert not any(a.software for c in runtime.configurations(probe, RunSettings()) for a in c.accelerators)


def test_without_a_device_the_reason_is_told(link: AgentLink, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        monkeypatch.setenv(variable, "/nowhere.json")
    assert "No adapters found" in probed(link, LiteRt()).details["lacking"]["gpu"]
    assert "no Vulkan device" in probed(link, Ncnn()).details["lacking"]["vulkan"]


def job(path: Path, kernels: str, **options: Any) -> Any:
    tensor = {"shape": list(SHAPE), "dtype": "float32"}
    ends: dict[str, Any] = {"tensors": {"x": tensor, "y": tensor}, "feeds": {"x": {}}, "outputs": ["y"]}
    segment = {"runtime": "litert", "model": str(path), "inputs": [["i", "x"]], "outputs": [["o", "y"]]}
    return {**ends, "seed": 0, "segments": [{**segment, "options": {"threads": 1, "kernels": kernels, **options}}]}


def opened(link: AgentLink, wanted: Any, seeds: list[int]) -> Any:
    """The event of a job that was opened and, with seeds, checked against the reference; or of its failure."""
    opening = {"job": wanted, **({"check": REFERENCE, "seeds": seeds} if seeds else {})}
    request: Any = {
        **Effort(rounds=0, timeout_s=60.0).request(),
        "seed": 0,
        "candidates": [{"key": "k", "tolerance": 1e-3, "open": opening}],
    }
    events: list[Any] = []
    link.request(request, events.append, timeout_s=180.0)
    return next(e for e in events if e["event"] in ("opened", "failure"))


def test_each_call_waits_for_the_device_and_hands_out_its_own_outputs(link: AgentLink, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
    path, seeds = tmp_path / "m.tflite", list(range(10))
    path.write_bytes(tflite("conv", "floor_mod", "conv"))
    assert compute_reference(link, job(path, "reference"), seeds, timeout_s=60.0)[1] is None
    found = opened(link, job(path, "gpu", adapter=NAME), seeds)
    assert found["event"] == "opened", found
    assert found["difference"]["relative"] < 1e-5
    (row,) = found["where"][0]
    assert (row["backend"], row["operators"], row["device"]) == ("gpu", [0, 1, 2], NAME)
    assert row["device_memory_bytes"] > 0
    other = opened(link, job(path, "gpu", adapter="Card"), seeds)
    assert f"computes on {NAME} here instead of the requested Card" in other["message"]


def test_a_model_with_an_operator_that_the_gpu_lacks_is_refused_by_its_name(link: AgentLink, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
    path = tmp_path / "m.tflite"
    path.write_bytes(tflite("conv", "log_softmax", "conv"))
    answer = link.ask({"s": {"do": "supports", "segment": job(path, "gpu")["segments"][0]}})["s"]
    assert isinstance(answer, Failure)
    assert "LOG_SOFTMAX: Operation is not supported" in answer.message
    open_shape = tmp_path / "open.tflite"
    open_shape.write_bytes(tflite("conv", signature=(1, -1, 4, 8)))
    (segment,) = job(open_shape, "gpu", interpreted=True)["segments"]
    answer = link.ask({"s": {"do": "supports", "segment": segment}})["s"]
    assert isinstance(answer, Failure)
    assert "cannot run a model with an open output shape on a GPU" in answer.message


def test_of_two_vulkan_devices_ncnn_takes_the_one_that_is_chosen(
    link: AgentLink, on_software_gpu: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesa = next(MESA.glob("lvp_icd*.json"), None)
    if mesa is None:
        pytest.skip("Mesa's Vulkan on the CPU is not installed (Debian: mesa-vulkan-drivers)")
    for variable in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        monkeypatch.setenv(variable, f"{on_software_gpu[variable]}:{mesa}")
    probe = probed(link, Ncnn())
    assert probe.backends == ("cpu", "vulkan", "vulkan0", "vulkan1")
    path = written(tmp_path)
    for part in ("swiftshader", "llvmpipe"):
        (made,) = Ncnn().configurations(probe, RunSettings(backends=("cpu", f"vulkan:{part}")))
        options = {**made.options, "vulkan": [2, 3], "shapes": [[3, 4, 5]]}
        segment: Any = {"runtime": "ncnn", "model": str(path), "options": options}
        segment |= {"inputs": [["in0", "x"]], "outputs": [["out0", "y"]]}
        tensor = {"shape": [1, 3, 4, 5], "dtype": "float32"}
        wanted = {**job(path, ""), "tensors": {"x": tensor, "y": tensor}, "segments": [segment]}
        found = opened(link, wanted, [])
        assert found["event"] == "opened", found
        rows = {row["backend"]: row for row in found["where"][0]}
        assert rows["vulkan"]["operators"] == [2, 3]
        assert part in rows["vulkan"]["device"].lower()
