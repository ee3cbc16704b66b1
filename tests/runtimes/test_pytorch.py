"""PyTorch's adapter: the shipped contract with the real runtime, and its two ways to run."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnomon.errors import UsageError
from gnomon.runtimes.base import Probe, Runtime, Wish
from gnomon.runtimes.pytorch import PyTorch
from gnomon.testing.runtime import RuntimeContract

GOLDEN = Path(__file__).parents[1] / "models" / "golden"
PROBE = Probe(version="2.13.0", backends=("eager", "inductor"))


class TestPyTorch(RuntimeContract):
    @pytest.fixture
    def adapter(self) -> Runtime:
        return PyTorch()

    @pytest.fixture
    def path(self) -> Path:
        return GOLDEN / "small.pt2"


def names(*backends: str) -> list[str]:
    return [c.name for c in PyTorch().configurations(PROBE, Wish(backends=backends))]


def test_it_is_compiled_only_where_that_is_asked_for() -> None:
    assert names() == names("eager") == names("pytorch") == ["pytorch"]
    assert names("inductor") == ["pytorch[inductor]"]
    assert names("inductor", "eager") == ["pytorch", "pytorch[inductor]"]
    with pytest.raises(UsageError, match="cudagraphs") as refused:
        names("cudagraphs")
    assert "inductor" in refused.value.hint
