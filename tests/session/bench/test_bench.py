"""Which configuration of a runtime a bench takes: one, and no other than was asked for."""

from __future__ import annotations

import pytest

from gnomon.errors import UsageError
from gnomon.runtimes.base import Probe, RunSettings
from gnomon.runtimes.openvino import OpenVino
from gnomon.session.bench.bench import _configuration
from gnomon.session.request import MeasureRequest

PROBE = Probe(version="1", backends=("CPU",), details={"precisions": ["FP32", "BF16"]})


def taken(**settings: object) -> str:
    request = MeasureRequest(settings=RunSettings(**settings))  # type: ignore[arg-type]
    return _configuration(OpenVino(), PROBE, request).name


def test_without_a_wish_it_is_the_plain_one() -> None:
    assert taken() == "openvino"


def test_one_environment_is_taken_and_several_are_refused() -> None:
    assert taken(environments=({"A": "1"},)) == "openvino[A=1]"
    with pytest.raises(UsageError, match=r"not openvino\[A=1\], openvino\[A=2\]"):
        taken(environments=({"A": "1"}, {"A": "2"}))


def test_options_of_its_sessions_are_taken_and_those_of_others_are_not() -> None:
    assert taken(options=(("openvino", {"A": "1"}),)) == "openvino[A=1]"
    with pytest.raises(UsageError, match="no configuration with these settings"):
        taken(options=(("onnxruntime", {"A": "1"}),))


def test_a_precision_that_is_not_there_is_refused() -> None:
    assert taken(precisions=("bfloat16",)) == "openvino[bf16]"
    with pytest.raises(UsageError, match="no configuration with these settings"):
        taken(precisions=("float16",))
