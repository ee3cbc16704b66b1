"""Whether a page may call outputs proved."""

from __future__ import annotations

from typing import Any

import pytest

from gnomon.jobs.place.shared_report import unproved
from gnomon.measure.environment import Caveat


@pytest.mark.parametrize(
    ("kinds", "checked_by", "said"),
    [
        ((), "openvino", ""),
        (("threads-undecided",), "openvino", ""),
        (("judges-undecided",), "openvino", "it is undecided which outputs are right"),
        (("unrepeatable",), "openvino", "its outputs prove nothing"),
        ((), "", "only onnxruntime computed the reference; nobody checked it"),
        ((), None, ""),
    ],
)
def test_only_what_another_runtime_computed_too_is_proved(kinds: Any, checked_by: str | None, said: str) -> None:
    doubts = [Caveat(kind=kind, message="", hint="") for kind in kinds]
    assert unproved(doubts, "onnxruntime 1.32.0 without optimisations", checked_by) == said
