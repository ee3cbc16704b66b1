"""MNN's adapter: the shipped contract with the real runtime, and its one backend."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnomon.runtimes.base import Probe, RunSettings, Runtime
from gnomon.runtimes.mnn import Mnn
from gnomon.testing.runtime import RuntimeContract

PROBE = Probe(version="3.6.1", backends=("cpu",))


class TestMnn(RuntimeContract):
    @pytest.fixture
    def adapter(self) -> Runtime:
        return Mnn()

    @pytest.fixture
    def path(self) -> Path:
        return Path(__file__).parents[2] / "docs" / "examples" / "digits.onnx"


def test_its_one_backend() -> None:
    for settings in (RunSettings(), RunSettings(backends=("cpu",)), RunSettings(backends=("mnn",))):
        (made,) = Mnn().configurations(PROBE, settings)
        assert (made.name, made.backends, made.options) == ("mnn", ("cpu",), {"threads": 1})
        assert made.reported == {"cpu": "cpu"}
