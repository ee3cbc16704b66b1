"""The shipped contract of runtimes, held by the built-in adapters with the real runtimes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.bad_days.livekit import add_circle, matmul_onnx

from gnomon.errors import UsageError
from gnomon.runtimes.base import Configuration, Probe, Runtime, Wish
from gnomon.runtimes.onert import Onert, settings
from gnomon.runtimes.onnxruntime import OnnxRuntime
from gnomon.runtimes.openvino import OpenVino
from gnomon.runtimes.registry import all_runtimes, chosen_runtimes
from gnomon.testing.runtime import RuntimeContract


class TestOnert(RuntimeContract):
    @pytest.fixture
    def adapter(self) -> Runtime:
        return Onert()

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "a.circle"
        path.write_bytes(add_circle())
        return path


class OnnxContract(RuntimeContract):
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "m.onnx"
        path.write_bytes(matmul_onnx())
        return path


class TestOnnxRuntime(OnnxContract):
    @pytest.fixture
    def adapter(self) -> Runtime:
        return OnnxRuntime()


class TestOpenVino(OnnxContract):
    @pytest.fixture
    def adapter(self) -> Runtime:
        return OpenVino()


PROBE = Probe(version="1", backends=("ruy", "cpu", "train"))


def onert(*backends: str) -> Configuration:
    return Onert().configurations(PROBE, Wish(backends=backends))[0]


def test_onerts_default_backend_comes_first() -> None:
    assert onert().backends == ("cpu", "ruy", "train")
    assert onert("ruy").backends == ("ruy",)


def test_onerts_own_keys_for_an_assignment() -> None:
    assert settings(onert(), {}) == {"BACKENDS": "cpu"}
    assert settings(onert(), {1: "cpu", 0: "cpu"}) == {"BACKENDS": "cpu", "OP_BACKEND_MAP": "0=cpu;1=cpu;"}
    moved = settings(onert(), {2: "ruy", 0: "cpu", 1: "train"})
    assert moved == {"BACKENDS": "cpu;ruy;train", "OP_BACKEND_MAP": "0=cpu;1=train;2=ruy;"}


def test_precisions_that_the_processor_lacks_are_left_out() -> None:
    probe = Probe(version="1", backends=("CPU",), details={"precisions": ["FP32", "BF16"]})
    made = OpenVino().configurations(probe, Wish(precisions=("bfloat16", "float16", "float32")))
    assert [(c.name, c.precision) for c in made] == [("openvino", "float32"), ("openvino[bf16]", "bfloat16")]
    assert made[1].tolerance > made[0].tolerance
    with pytest.raises(UsageError, match="float3"):
        OpenVino().configurations(probe, Wish(precisions=("float3",)))


def test_the_registry() -> None:
    good, broken = all_runtimes()
    assert [r.name for r in good] == ["onert", "onnxruntime", "openvino"]
    assert broken == ()
    assert [r.name for r in chosen_runtimes((), "onnx")] == ["onnxruntime", "openvino"]
    assert [r.name for r in chosen_runtimes(("openvino", "openvino"), "onnx")] == ["openvino"]
    for names, kind in ((("nothing",), "onnx"), (("onert",), "onnx"), ((), "pickle")):
        with pytest.raises(UsageError) as refused:
            chosen_runtimes(names, kind)
        assert refused.value.hint
