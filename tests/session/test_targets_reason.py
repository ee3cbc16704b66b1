"""Why a runtime is missing: what is not there is told apart from what is there and does not load."""

from __future__ import annotations

import pytest

from gnomon.core.sample import Failure
from gnomon.session.targets import BROKEN, NOT_INSTALLED, reason_of


def refused(message: str) -> Failure:
    return Failure(stage="probe", kind="refused", transient=False, message=message, log_tail="loading\nlast word\n")


@pytest.mark.parametrize(
    "message", ["ModuleNotFoundError: No module named 'onnxruntime'", "ImportError: ai-edge-litert is not installed"]
)
def test_what_is_not_there(message: str) -> None:
    assert reason_of(refused(message)) == NOT_INSTALLED


def test_what_is_there_and_lacks_a_library_is_not_said_to_be_absent() -> None:
    told = "ImportError: libvulkan.so.1: cannot open shared object file"
    assert reason_of(refused(told)) == f"{BROKEN}: {told}"


def test_anything_else_is_told_with_its_last_words() -> None:
    assert reason_of(refused("crashed")) == "crashed (last word)"
