"""Why a runtime is missing: what is not there is told apart from what is there and does not load."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gnomon.core.sample import Failure
from gnomon.installing import pip_line
from gnomon.measure.link import AgentLink
from gnomon.runtimes.base import Runtime
from gnomon.runtimes.litert import LiteRt
from gnomon.runtimes.mnn import Mnn
from gnomon.runtimes.ncnn import Ncnn
from gnomon.runtimes.onnxruntime import OnnxRuntime
from gnomon.runtimes.openvino import OpenVino
from gnomon.runtimes.pytorch import PyTorch
from gnomon.session.targets import (
    BROKEN,
    NOT_INSTALLED,
    Missing,
    nothing_runs,
    probe_runtimes,
    reason_of,
    reasons_of,
)


def refused(message: str) -> Failure:
    return Failure(stage="probe", kind="refused", transient=False, message=message, log_tail="loading\nlast word\n")


@pytest.mark.parametrize(
    "message", ["ModuleNotFoundError: No module named 'onnxruntime'", "ImportError: ai-edge-litert is not installed"]
)
def test_what_is_not_there(message: str) -> None:
    assert reason_of(refused(message), OnnxRuntime()) == NOT_INSTALLED


@pytest.mark.parametrize(("module", "runtime"), [("MNN", Mnn()), ("torch", PyTorch()), ("numpy", LiteRt())])
def test_a_runtimes_own_module_is_not_named(module: str, runtime: Runtime) -> None:
    assert reason_of(refused(f"ModuleNotFoundError: No module named '{module}'"), runtime) == NOT_INSTALLED


@pytest.mark.parametrize("module", ["flatbuffers.table", "my_package"])
def test_a_module_that_a_driver_needs_is_named(module: str) -> None:
    told = reason_of(refused(f"ModuleNotFoundError: No module named '{module}'"), LiteRt())
    assert told == f"{NOT_INSTALLED}: there is no module '{module}'"


def test_what_is_there_and_lacks_a_library_is_not_said_to_be_absent() -> None:
    told = "ImportError: libvulkan.so.1: cannot open shared object file"
    assert reason_of(refused(told), Ncnn()) == f"{BROKEN}: {told}"


def test_anything_else_is_told_with_its_last_words() -> None:
    assert reason_of(refused("crashed"), Ncnn()) == "crashed (last word)"


KNOWS_NOT = "mmdeploy:DeformConv(-1) is not a registered function/op"


def test_an_operator_that_nothing_has_is_one_line() -> None:
    runtimes: Any = (Mnn(), OnnxRuntime(), OpenVino())
    missing = [
        Missing(name="mnn:cpu", reason="Refused: These Op Not Support: ONNX::DeformConv", hint="Leave it out."),
        Missing(name="onnxruntime", reason=f"Refused: Load model failed: {KNOWS_NOT}"),
        Missing(name="openvino", reason="Conv-17 failed\nNo conversion rule found for: mmdeploy.DeformConv"),
    ]
    error = nothing_runs("local", runtimes, missing)
    assert (
        error.message
        == "no runtime has the operator DeformConv of the domain mmdeploy (tried: mnn, onnxruntime and openvino)"
    )
    assert error.hint.startswith("Export the model without it") and "Leave it out" not in error.hint
    other = nothing_runs("local", runtimes, [*missing, Missing(name="onert", reason="it has no DeformConvolution")])
    assert "no runtime on this device runs the model (mnn:cpu: " in other.message


def test_a_reason_that_several_have_is_told_once() -> None:
    missing = [Missing(name=name, reason="no\n answer") for name in ("mnn", "ncnn[A=1,B=2]", "mnn")]
    assert reasons_of([*missing, Missing(name="tvm", reason="gone")]) == "mnn; ncnn[A=1,B=2]: no answer; tvm: gone"


class Bare:
    """A link to a device that has a Python, or none, and no runtime."""

    def __init__(self, python: str) -> None:
        self.info = SimpleNamespace(python=python)

    def ask(self, commands: Mapping[str, Any]) -> dict[str, Failure]:
        return {name: refused(f"ModuleNotFoundError: No module named {name!r}") for name in commands}


def test_each_line_that_installs_a_runtime_can_be_copied() -> None:
    runtimes: Any = (Mnn(), OpenVino())
    lost = Missing(name="onert", reason="it crashed", hint="Leave it out with --backend.")
    missing = [lost, *probe_runtimes(cast(AgentLink, Bare("/usr/bin/python3")), runtimes)[1]]
    hint = nothing_runs("local", runtimes, missing).hint
    assert hint.splitlines() == [
        "Leave it out with --backend. Install one:",
        *(pip_line(["numpy", *runtime.wheels], "/usr/bin/python3") for runtime in runtimes),
    ]
    none = nothing_runs("local", runtimes, probe_runtimes(cast(AgentLink, Bare("")), runtimes)[1]).hint
    assert none.endswith("docs/devices/without-python.md. Tried: mnn and openvino. Try another model or runtime.")
