"""Readers of texts and models read what is damaged, or refuse it with a hint; what they write, they read again."""

from __future__ import annotations

from random import Random

import pytest
from fuzz.mutate import mutated
from fuzz.targets import TARGETS
from hypothesis import given
from hypothesis import strategies as st

from gnomon.errors import GnomonError

OTHERS = (
    *("metaschedule workloads", "metaschedule records", "tuning log", "unit", "selection"),
    *("declared commands", "printed times"),
    *("profile", "profile accuracy", "profile latency", "table manifest", "table rows"),
    *("npz", "npz member", "weights"),
)
MODELS = (
    *("onnx", "flatbuffers", "OpenVINO model", "ncnn model", "nnpackage", "nnpackage config"),
    *("ExecuTorch program", "exported program", "exported program's graph"),
)


@pytest.mark.parametrize("name", [*(t.name for t in TARGETS.values() if t.lines), *OTHERS, *MODELS])
@given(number=st.integers(0, 1 << 64))
def test_a_damaged_input_is_read_or_refused_with_a_hint(name: str, number: int) -> None:
    """The attack of `python -m fuzz`, with few inputs."""
    target = TARGETS[name]
    data = mutated(Random(number), target.made())
    try:
        target.read(data)
    except GnomonError as error:
        assert error.hint, data
    except target.refuses:
        pass
