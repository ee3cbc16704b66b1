"""The shipped contract of runtimes, held by the built-in adapters with the real runtimes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.agent.jobkit import placed_here
from tests.bad_days.livekit import add_circle, matmul_onnx
from tests.models.modelkit import write_package

from gnomon.agent.drivers.onert import OnertDriver
from gnomon.core.graph import Graph, Operator
from gnomon.core.sample import Failure
from gnomon.devices.local import LocalDevice
from gnomon.errors import ModelError, UsageError
from gnomon.measure.link import AgentLink
from gnomon.models.load import load
from gnomon.models.model import FORMATS
from gnomon.runtimes.base import Configuration, PlacedModel, Probe, RunSettings, Runtime, Support
from gnomon.runtimes.executorch import ExecuTorch
from gnomon.runtimes.litert import LiteRt
from gnomon.runtimes.mnn import Mnn
from gnomon.runtimes.ncnn import Ncnn
from gnomon.runtimes.onert import Onert, settings
from gnomon.runtimes.onnxruntime import OnnxRuntime
from gnomon.runtimes.openvino import OpenVino
from gnomon.runtimes.pytorch import PyTorch
from gnomon.runtimes.registry import all_runtimes, chosen_runtimes
from gnomon.runtimes.tvm import Tvm
from gnomon.testing.runtime import RuntimeContract, _run
from gnomon.wire import RuntimeModel

Build = Callable[[str], Path]
ADAPTERS: tuple[Callable[[], Runtime], ...]
ADAPTERS = (ExecuTorch, LiteRt, Mnn, Ncnn, Onert, OnnxRuntime, OpenVino, PyTorch, Tvm)
"""The built-in ones, which the type checker sees here to be adapters."""
VERSION = {"major-version": "1", "minor-version": "2", "patch-version": "0"}


def test_every_built_in_adapter_is_known_to_the_type_checker() -> None:
    built_in = {one.name for one in all_runtimes()[0] if type(one).__module__.startswith("gnomon.")}
    assert {adapter().name for adapter in ADAPTERS} == built_in


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


def test_a_file_that_is_no_model_is_answered_with_all_formats_that_runtimes_load(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("hello\n")
    with pytest.raises(ModelError, match="is not a model that gnomon reads") as told:
        load(tmp_path / "x.txt")
    loaded = {one for runtime in all_runtimes()[0] for one in runtime.formats}
    assert all(FORMATS[one] in told.value.hint for one in loaded)


PROBE = Probe(version="1", backends=("ruy", "cpu", "train"))


def onert(*backends: str) -> Configuration:
    return Onert().configurations(PROBE, RunSettings(backends=backends))[0]


def test_onerts_default_backend_comes_first() -> None:
    assert onert().backends == ("cpu", "ruy", "train")
    assert onert("ruy").backends == ("ruy",)


def test_onerts_gpu_computes_beside_the_processor() -> None:
    (found,) = Onert().configurations(replace(PROBE, backends=("acl_cl", "cpu")), RunSettings())
    assert [a.backend for a in found.accelerators] == ["acl_cl"]
    assert not onert().accelerators


def test_onerts_own_keys_for_an_assignment() -> None:
    assert settings(onert(), {}) == {"BACKENDS": "cpu"}
    assert settings(onert(), {1: "cpu", 0: "cpu"}) == {"BACKENDS": "cpu", "OP_BACKEND_MAP": "0=cpu;1=cpu;"}
    moved = settings(onert(), {2: "ruy", 0: "cpu", 1: "train"})
    assert moved == {"BACKENDS": "cpu;ruy;train", "OP_BACKEND_MAP": "0=cpu;1=train;2=ruy;"}


KINDS = {"CONV_2D": "Conv2D", "ADD": "BinaryArithmetic", "MUL": "BinaryArithmetic", "PRELU": "PReLU", "PAD": "Pad"}
CRASH = Failure(stage="probe", kind="crash", transient=False, message="crashed with SIGSEGV")


class FakeOnert(OnertDriver):
    """Backends that take kinds of operations, and stop as onert does; one that takes None crashes where it is used."""

    def __init__(self, types: tuple[str, ...], takes: Mapping[str, set[str] | None]) -> None:
        self.types, self.takes = types, takes
        self.trials: list[dict[int, str]] = []

    def _refusal(self, segment: RuntimeModel, default: str, placed: dict[int, str]) -> str:
        self.trials.append(placed)
        where = [placed.get(i, default) for i in range(len(self.types))]
        if any(self.takes[b] is None for b in where):
            raise RuntimeError("a crash")
        # onert makes the kernels of one backend after the other's, not in the order of the operators.
        for backend in sorted(set(where), reverse=True):
            for type_, there in zip(self.types, where, strict=True):
                if there == backend and KINDS[type_] not in (self.takes[backend] or ()):
                    return f"onert: nnfw_prepare failed: KernelGenerator: NYI for operation '{KINDS[type_]}'"
        return ""

    def ask(self, commands: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any] | Failure]:
        answers: dict[str, Mapping[str, Any] | Failure] = {}
        for key, command in commands.items():
            try:
                answers[key] = self.supports(command["segment"])
            except RuntimeError:
                answers[key] = CRASH
        return answers

    def support(self) -> Support:
        operators = tuple(
            Operator(index=i, name=f"n{i}", type=t, inputs=(), outputs=(), macs=0) for i, t in enumerate(self.types)
        )
        graph = Graph(name="g", format="circle", digest="", tensors=(), operators=operators, inputs=(), outputs=())
        model = PlacedModel(graph=graph, path="m", inputs=(), outputs=())
        backends = tuple(self.takes)
        return Onert().support(
            self.ask, model, Configuration(runtime="onert", name="onert", backends=backends, options={})
        )


TYPES = ("CONV_2D", "ADD", "PRELU", "MUL", "CONV_2D", "PAD")


def test_what_onerts_default_lacks_lies_elsewhere_while_others_are_tried() -> None:
    conv, add, pad, prelu = "Conv2D", "BinaryArithmetic", "Pad", "PReLU"
    takes: dict[str, set[str] | None] = {
        "cpu": {conv, pad},
        "bad": None,
        "ruy": {conv, prelu},
        "train": {conv, add},
    }
    found = FakeOnert(TYPES, takes).support()
    assert found.operators == {
        "cpu": frozenset({0, 4, 5}),
        "ruy": frozenset({0, 2, 4}),
        "train": frozenset({0, 1, 3, 4}),
    }
    assert found.failures["bad"] == CRASH
    said = found.failures["cpu"].message
    assert "operator 1 ('n1')" in said
    assert "does not take PRELU, operator 2 ('n2')" in said


@pytest.mark.parametrize("others", [(), ("ruy",), ("ruy", "bad")])
def test_what_no_backend_of_onert_takes_is_said_and_nothing_is_claimed(others: tuple[str, ...]) -> None:
    may: dict[str, set[str] | None] = {"cpu": {"Conv2D", "Pad"}, "ruy": {"Conv2D", "BinaryArithmetic"}, "bad": None}
    found = FakeOnert(TYPES, {"cpu": may["cpu"], **{b: may[b] for b in others}}).support()
    assert not any(found.operators.values())
    assert set(found.operators) == {"cpu", *others}
    assert ("PRELU" if others else "ADD") in found.failures["cpu"].message
    if others:
        assert f"nor does {' or '.join(others)}" in found.failures["cpu"].message


def test_a_default_of_onert_that_takes_all_is_asked_once_and_others_stay_beside_it() -> None:
    fake = FakeOnert(("CONV_2D", "ADD"), {"cpu": {"Conv2D", "BinaryArithmetic"}, "ruy": {"Conv2D"}})
    found = fake.support()
    assert found == Support(operators={"cpu": frozenset({0, 1}), "ruy": frozenset({0})})
    assert fake.trials == [{}, {0: "ruy"}, {1: "ruy"}]


def test_precisions_that_the_processor_lacks_are_left_out() -> None:
    probe = Probe(version="1", backends=("CPU",), details={"precisions": ["FP32", "BF16"]})
    made = OpenVino().configurations(probe, RunSettings(precisions=("bfloat16", "float16", "float32")))
    assert [(c.name, c.precision) for c in made] == [("openvino", "float32"), ("openvino[bf16]", "bfloat16")]
    assert made[1].tolerance > made[0].tolerance
    with pytest.raises(UsageError, match="float3"):
        OpenVino().configurations(probe, RunSettings(precisions=("float3",)))


def test_the_registry() -> None:
    good, broken = all_runtimes()
    assert [r.name for r in good] == [
        "executorch", "litert", "mnn", "ncnn", "onert", "onnxruntime", "openvino", "pytorch", "tvm",
    ]  # fmt: skip
    assert broken == ()
    assert [r.name for r in chosen_runtimes((), "onnx")] == ["mnn", "ncnn", "onnxruntime", "openvino"]
    assert [r.name for r in chosen_runtimes(("openvino", "openvino"), "onnx")] == ["openvino"]
    for names, kind in ((("nothing",), "onnx"), (("onert",), "onnx"), ((), "pickle")):
        with pytest.raises(UsageError) as refused:
            chosen_runtimes(names, kind)
        assert refused.value.hint


def test_onerts_default_is_an_nnpackage_as_it_runs_from_its_second_session_on(tmp_path: Path, zoo_model: Build) -> None:
    def usual_of(config: str) -> tuple[Support, set[str]]:
        files = {"m.circle": zoo_model("mix").read_bytes(), "metadata/config.cfg": config.encode()}
        manifest = json.dumps({"models": ["m.circle"], "model-types": ["circle"], "configs": ["config.cfg"], **VERSION})
        placed = placed_here(write_package(tmp_path / str(len(list(tmp_path.iterdir()))), manifest, files))
        default = Onert().usual(PROBE)
        with LocalDevice() as device, AgentLink(device) as link:
            found = Onert().support(link.ask, placed, default)
            if found.failures:
                return found, set()
            _, block = _run(link, placed, Onert().segment(placed, default, {}), default, profiled=True)
        return found, {row["backend"] for row in block["operators"]}

    assert usual_of("EXECUTOR=Parallel\n")[1] == {"cpu"}
    assert "ruy" in usual_of("EXECUTOR=Parallel\nBACKENDS=cpu;ruy\nOP_BACKEND_Conv2D=ruy\n")[1]
    refused, _ = usual_of("EXECUTOR=Nonsense\n")
    assert "nnfw_prepare failed" in refused.failures["default"].message


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("OpenVINO", "openvino"),
        ("onnx-runtime", "onnxruntime"),
        ("?", ""),
    ],
)
def test_the_runtime_that_is_meant_is_named(name: str, meant: str) -> None:
    with pytest.raises(UsageError, match="unknown runtime") as told:
        chosen_runtimes((name,), "onnx")
    assert told.value.hint.startswith(f"Did you mean '{meant}'? " if meant else "Runtimes for onnx models: ")
