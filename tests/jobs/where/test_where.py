"""`gnomon where` with the real runtimes: what it reads of them, and that nothing falls back without a word."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs onnx")

from onnx import TensorProto
from tests.agent.drivers.litertkit import tflite
from tests.models.modelkit import model, node, save, value
from tests.runtimes import openvinokit, providerskit

import gnomon
from gnomon.cli.main import run
from gnomon.devices.address import parse_address
from gnomon.devices.config import DeviceConfig
from gnomon.errors import RuntimeMissingError, UsageError
from gnomon.jobs.where.document import LoadedPart, WhereDocument
from gnomon.jobs.where.job import where
from gnomon.runtimes.base import RunSettings
from gnomon.session.request import ModelRequest


def lying(part: LoadedPart) -> dict[str, list[str]]:
    return {backend: [node.name for node in nodes] for backend, nodes in part.backends.items()}


def provided(path: Path, backend: str) -> LoadedPart:
    """What ONNX Runtime does with a plugin's provider on this machine."""
    device = DeviceConfig(name="plugins", address=parse_address("local"), environment=providerskit.environment(backend))
    settings = RunSettings(backends=(backend,))
    (part,) = where(ModelRequest(model=path, device=device, runtimes=("onnxruntime",), settings=settings)).loaded
    return part


def flat(folder: Path, *kinds: str) -> Path:
    path = folder / "m.tflite"
    path.write_bytes(tflite(*kinds))
    return path


def nodes_in(folder: Path, dtype: int) -> Path:
    """Two products between casts, computed in a type."""
    nodes = [
        node("Cast", ["x"], ["a"], "in", to=dtype),
        node("Sin", ["a"], ["b"], "sin"),
        node("Cast", ["b"], ["c"], "out", to=TensorProto.FLOAT),
        node("MatMul", ["c", "w"], ["y"], "fc"),
    ]
    made = model(nodes, [value("x", [1, 8])], [value("y", [1, 4])], {"w": np.ones((8, 4), np.float32)})
    return save(made, folder / "typed.onnx")


def test_what_a_plugin_leaves_to_the_cpu_has_its_reason(tmp_path: Path) -> None:
    part = provided(providerskit.net(tmp_path), "qnn")
    assert part.asked == ("qnn",)
    assert lying(part)["qnn"] == ["sigmoid", "swish", "mul", "relu"]
    erf = next(node for node in part.nodes if node.name == "erf")
    assert erf.backend == "cpu"
    assert "Operators of type `Erf` are not supported" in erf.reason
    assert part.crossings == 2
    assert part.share == pytest.approx(4 / 6)  # there are no multiply-accumulates to go by


def test_a_type_that_a_provider_lacks_stays_on_the_cpu(tmp_path: Path) -> None:
    part = provided(nodes_in(tmp_path, TensorProto.DOUBLE), "webgpu")
    assert lying(part)["webgpu"] == ["fc"]
    assert part.share == 1.0
    left = {node.name: node for node in part.nodes if node.backend not in part.asked}
    assert left.keys() == {"in", "sin", "out"}
    assert "kernel not found" in left["in"].reason
    assert left["sin"].data == "float64 (1, 8)"


def test_what_follows_an_open_shape_stays_on_the_cpu(tmp_path: Path) -> None:
    nodes = [
        node("Sigmoid", ["x"], ["a"], "still"),
        node("NonZero", ["a"], ["i"], "which"),
        node("Cast", ["i"], ["f"], "cast", to=TensorProto.FLOAT),
        node("Sigmoid", ["f"], ["s"], "moving"),
        node("ReduceMax", ["s"], ["y"], "top", keepdims=0),
    ]
    made = model(nodes, [value("x", [4, 4])], [value("y", [])])
    part = provided(save(made, tmp_path / "open.onnx"), "qnn")
    assert lying(part) == {"qnn": ["still"], "cpu": ["which", "cast", "moving", "top"]}
    assert next(node.data for node in part.nodes if node.name == "moving") == "float32 (2, ?)"


def test_a_provider_that_takes_nothing_is_said(tmp_path: Path) -> None:
    path = save(
        model([node("Det", ["x"], ["y"], "det")], [value("x", [4, 4])], [value("y", [])]), tmp_path / "det.onnx"
    )
    part = provided(path, "webgpu")
    assert (part.share, lying(part)) == (0.0, {"cpu": ["det"]})
    assert part.fallback.startswith("onnxruntime[order]: webgpu runs 0 of 1 operators; the first on cpu is Det 'det'")


def test_a_backend_that_is_not_here_is_refused_with_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no runtime on this device has a backend 'cuda'"):
        gnomon.where(providerskit.net(tmp_path), runtimes=["onnxruntime"], backends=["cuda"])


def test_an_operator_that_xnnpack_lacks_is_on_the_builtin_kernels(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
    path = flat(tmp_path, "conv", "floor_mod", "conv")
    (part,) = gnomon.where(path, runtimes=["litert"]).loaded
    assert lying(part) == {"xnnpack": ["t0", "t2"], "builtin": ["t1"]}
    assert (part.share, part.crossings) == (1.0, 2)
    assert "litert does not report why; no FLOOR_MOD ran there" in part.fallback


def test_xnnpack_that_takes_nothing_is_an_error(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
    with pytest.raises(RuntimeMissingError, match="XNNPACK supports no operator of this model"):
        gnomon.where(flat(tmp_path, "floor_mod"), runtimes=["litert"])


def test_a_custom_operator_that_nobody_has_is_named(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
    with pytest.raises(RuntimeMissingError, match="NoSuchOperator"):
        gnomon.where(flat(tmp_path, "conv", "custom"), runtimes=["litert"])


def test_openvino_says_what_it_chooses_of_several_devices(tmp_path: Path) -> None:
    pytest.importorskip("openvino", reason="openvino is not installed")
    found = gnomon.where(openvinokit.net(tmp_path / "net.onnx"), runtimes=["openvino"], backends=["cpu-f32"])
    assert {part.name: [*part.backends] for part in found.loaded} == {
        "openvino[auto]": ["cpu-f32"],
        "openvino[hetero]": ["cpu-f32"],
    }
    assert {part.share for part in found.loaded} == {1.0}


def test_onert_tells_by_its_trace(tmp_path: Path) -> None:
    pytest.importorskip("onert", reason="onert is not installed")
    path = flat(tmp_path, "conv", "softmax")
    (alone,) = gnomon.where(path, runtimes=["onert"]).loaded
    assert lying(alone) == {"cpu": ["t0", "t1"]}
    (both,) = gnomon.where(path, runtimes=["onert"], backends=["ruy"]).loaded
    assert (both.asked, lying(both)) == (("ruy",), {"ruy": ["t0"], "cpu": ["t1"]})


def test_the_command_fails_a_build_below_its_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
    words = ["where", str(flat(tmp_path, "softmax", "floor_mod")), "--runtime", "litert"]
    assert run([*words, "--fail-below", "50%"]) == 0
    assert len(capsys.readouterr().out.splitlines()) <= 15
    assert run([*words, "--fail-below", "95%", "--json"]) == 1
    document = gnomon.read_document(json.loads(capsys.readouterr().out))
    assert isinstance(document, WhereDocument)
    assert [node.backend for node in document.loaded[0].nodes] == ["xnnpack", "builtin"]
    assert run([*words, "-v"]) == 0
    assert "FLOOR_MOD  float32 (1, 4, 4, 8)  builtin" in capsys.readouterr().out


def test_what_check_finds_is_told_too(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["x", "w"], ["y"])]
    kind = TensorProto.DOUBLE
    made = model(nodes, [value("x", [1, 4], kind)], [value("y", [1, 4], kind)], {"w": np.eye(4)})
    found = gnomon.where(save(made, tmp_path / "f64.onnx"), runtimes=["onnxruntime"])
    assert any("computes in float64" in doubt.message for doubt in found.doubts)
