"""LiteRT, ncnn and ONNX Runtime on a real GPU. Skipped where there is none; `scripts/on_gpu` runs them."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts.gpu import gpus
from tests.runtimes import test_software_gpu as software
from tests.runtimes.providerskit import lies_where_planned, linked, plugins, probed

from gnomon.runtimes.base import Probe


def needs_a_gpu() -> None:
    """Skip where the kernel shows none."""
    if not gpus():
        pytest.skip("there is no GPU here: scripts/on_gpu, on a machine with one, runs this")


class OnARealGpu:
    """What both have in common."""

    @pytest.fixture(autouse=True)
    def real(self, request: pytest.FixtureRequest) -> None:
        needs_a_gpu()
        probe: Probe = request.getfixturevalue("probe")
        if all(a.software for a in probe.accelerators):
            pytest.skip("the runtime finds no GPU here that is none of the processor's programs")


class TestLiteRt(OnARealGpu, software.TestLiteRtOnGpu):
    pass


class TestNcnn(OnARealGpu, software.TestNcnnOnVulkan):
    pass


@pytest.mark.parametrize("backend", ["webgpu", "cuda"])
def test_nodes_of_onnxruntime_lie_on_the_gpu_where_planned(tmp_path: Path, backend: str) -> None:
    needs_a_gpu()
    pytest.importorskip("onnxruntime")
    with linked(plugins(backend) if backend == "webgpu" else {}) as link:
        found = probed(link)
        own = found.details.get("accelerators", {}).get(backend)
        if own is None or own["software"]:
            why = found.details.get("lacking", {}).get(backend, "it is not among its backends")
            pytest.skip(f"onnxruntime:{backend}: {'a program on the processor' if own else why}")
        support = lies_where_planned(link, found, backend, tmp_path)
    assert not support.failures
    assert support.operators[backend]
