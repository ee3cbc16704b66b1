"""ExecuTorch's adapter: the shipped contract with the real runtime, and exported programs that are placed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.agent.jobkit import placed_here

from gnomon.core.sample import Failure
from gnomon.devices.local import LocalDevice
from gnomon.errors import UsageError
from gnomon.measure.link import AgentLink
from gnomon.runtimes.base import Configuration, Probe, RunSettings, Runtime
from gnomon.runtimes.executorch import ExecuTorch
from gnomon.runtimes.registry import chosen_runtimes
from gnomon.testing.runtime import RuntimeContract

GOLDEN = Path(__file__).parents[1] / "models" / "golden"
PROBE = Probe(version="1.5.1", backends=("portable", "XnnpackBackend"))
LACKING = [name for name in ("executorch", "torchao", "ruamel") if find_spec(name) is None]
lowers = pytest.mark.skipif(bool(LACKING), reason=f"{', '.join(LACKING)}: not installed")


class TestExecuTorch(RuntimeContract):
    """A program with instructions of both backends."""

    @pytest.fixture
    def adapter(self) -> Runtime:
        return ExecuTorch()

    @pytest.fixture
    def path(self) -> Path:
        return GOLDEN / "small-xnnpack.pte"


def configuration(*backends: str) -> Configuration:
    return ExecuTorch().configurations(PROBE, RunSettings(backends=backends))[0]


def test_backends_are_those_found_or_wished() -> None:
    assert configuration().backends == ("portable", "XnnpackBackend")
    assert configuration("XnnpackBackend").backends == ("XnnpackBackend",)
    with pytest.raises(UsageError, match="QnnBackend") as refused:
        configuration("QnnBackend")
    assert "XnnpackBackend" in refused.value.hint


def test_a_program_says_itself_where_its_instructions_run() -> None:
    model = placed_here(GOLDEN / "small-xnnpack.pte")
    found = ExecuTorch().support(lambda asked: {k: {"taken": []} for k in asked}, model, configuration())
    assert found.operators == {"portable": frozenset({1, 2, 3}), "XnnpackBackend": frozenset({0, 4})}
    segment = ExecuTorch().segment(model, configuration(), {})
    assert segment["options"]["delegates"] == {"0": "XnnpackBackend", "4": "XnnpackBackend"}


def test_what_xnnpack_is_given_goes_into_the_options() -> None:
    assigned = {0: "XnnpackBackend", 1: "portable", 7: "XnnpackBackend"}
    segment = ExecuTorch().segment(placed_here(GOLDEN / "small.pt2"), configuration(), assigned)
    assert segment["options"] == {"threads": 1, "xnnpack": [0, 7]}


def test_both_kinds_of_programs_find_it() -> None:
    assert [r.name for r in chosen_runtimes((), "pte")] == ["executorch"]
    assert [r.name for r in chosen_runtimes((), "pt2")] == ["executorch", "pytorch"]


@lowers
def test_a_delegate_that_the_build_lacks_is_named_and_a_placement_is_exactly_what_was_asked_for() -> None:
    pte, pt2 = placed_here(GOLDEN / "small-portable.pte"), placed_here(GOLDEN / "small.pt2")
    lacking = ExecuTorch().segment(pte, configuration(), {})
    lacking["options"] = {**lacking["options"], "delegates": {"0": "VulkanBackend"}}
    exact, wrong = (
        ExecuTorch().segment(pt2, configuration(), dict.fromkeys(those, "XnnpackBackend")) for those in ((0,), (2,))
    )
    segments = {"lacking": lacking, "exact": exact, "wrong": wrong}
    with LocalDevice() as device, AgentLink(device) as link:
        found = link.ask(
            {key: {"do": "supports", "segment": segment, "process": "executorch"} for key, segment in segments.items()},
            timeout_s=900,
        )
    assert found["exact"] == {"taken": [0]}
    assert isinstance(found["lacking"], Failure)
    assert "no VulkanBackend; it has" in found["lacking"].message
    assert isinstance(found["wrong"], Failure)
    assert "different: erf" in found["wrong"].message
