"""LiteRT and ncnn on a real GPU: the contract of runtimes. Skipped where there is none; `scripts/on_gpu` runs them."""

from __future__ import annotations

import pytest
from scripts.gpu import gpus
from tests.runtimes import test_software_gpu as software

from gnomon.runtimes.base import Probe


class OnARealGpu:
    """What both have in common."""

    @pytest.fixture(autouse=True)
    def real(self, request: pytest.FixtureRequest) -> None:
        if not gpus():
            pytest.skip("there is no GPU here: scripts/on_gpu, on a machine with one, runs this")
        probe: Probe = request.getfixturevalue("probe")
        if all(a.software for a in probe.accelerators):
            pytest.skip("the runtime finds no GPU here that is none of the processor's programs")


class TestLiteRt(OnARealGpu, software.TestLiteRtOnGpu):
    pass


class TestNcnn(OnARealGpu, software.TestNcnnOnVulkan):
    pass
