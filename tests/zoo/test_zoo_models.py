"""The zoo's models compute what they should: other runtimes, other formats and numpy are the oracles."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from zoo.minilm import EPSILON, HEADS, read_layer
from zoo.published import PUBLISHED
from zoo.wheels import Wheels

import zoo

Build = Callable[[str], Path]
Array = NDArray[np.float32]


def run_onnxruntime(model: str | bytes, feed: Array) -> list[Array]:
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return [np.asarray(y) for y in session.run(None, {session.get_inputs()[0].name: feed})]


def run_onert(path: Path, feed: Array) -> Array:
    onert = pytest.importorskip("onert")
    result: Any = onert.infer.session(str(path), backends="cpu").infer([feed])
    return np.asarray(result[0])


def noise(*shape: int) -> Array:
    return np.random.default_rng(7).uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("kind", ["circle", "tflite"])
def test_efficientnet_is_the_same_in_every_format(kind: str, zoo_model: Build) -> None:
    image = noise(1, 224, 224, 3)
    flat = run_onert(zoo_model(f"efficientnet-lite0.{kind}"), image)
    planar = image.transpose(0, 3, 1, 2).copy()
    (onnx,) = run_onnxruntime(str(zoo_model("efficientnet-lite0.onnx")), planar)
    assert flat.shape == onnx.shape == (1, 1000)
    assert np.ptp(onnx) > 0.05, "an output that is flat would prove nothing"
    np.testing.assert_allclose(flat, onnx, atol=2e-6)


def test_mix_is_what_numpy_computes(zoo_model: Build) -> None:
    image = noise(1, 64, 64, 3)
    random = np.random.default_rng(0)

    def convolve(x: Array, outputs: int, kernel: int, stride: int) -> Array:
        inputs, size = x.shape[2], -(-x.shape[0] // stride)
        weights = random.standard_normal((outputs, kernel, kernel, inputs)) * math.sqrt(2 / (kernel**2 * inputs))
        total = max((size - 1) * stride + kernel - x.shape[0], 0)
        before = total // 2
        padded = np.pad(x, ((before, total - before), (before, total - before), (0, 0)))
        y = np.zeros((size, size, outputs))
        for i in range(size):
            for j in range(size):
                window = padded[i * stride : i * stride + kernel, j * stride : j * stride + kernel]
                y[i, j] = np.tensordot(weights.astype(np.float32), window, axes=([1, 2, 3], [0, 1, 2]))
        return np.maximum(y, 0).astype(np.float32)

    x = convolve(convolve(image[0], 16, 3, 2), 16, 3, 2)
    x = x.reshape(2, 8, 2, 8, 16).max(axis=(1, 3))
    for _ in range(24):
        x = convolve(x, 16, 1, 1)
    expected = (random.standard_normal((10, 64)) * 0.1).astype(np.float32) @ x.ravel()
    np.testing.assert_allclose(run_onert(zoo_model("mix"), image)[0], expected, rtol=1e-4, atol=1e-5)


def test_minilm_layer_is_what_numpy_computes(zoo_model: Build) -> None:
    path = zoo_model("minilm-layer")
    w = {k: v.astype(np.float64) for k, v in read_layer(Wheels(path.parents[1] / "wheels")).items()}
    x = noise(1, 128, 384).astype(np.float64)[0]

    def linear(x: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        return np.asarray(x @ w[f"{name}.weight"].T + w[f"{name}.bias"])

    def norm(x: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON)
        return np.asarray(scaled * w[f"{name}.weight"] + w[f"{name}.bias"])

    q, k, v = (
        linear(x, f"attention.self.{n}").reshape(128, HEADS, 32).transpose(1, 0, 2) for n in ("query", "key", "value")
    )
    scores = np.exp(q @ k.transpose(0, 2, 1) / math.sqrt(32))
    context = (scores / scores.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(128, 384)
    attended = norm(linear(context, "attention.output.dense") + x, "attention.output.LayerNorm")
    wide = linear(attended, "intermediate.dense")
    wide = wide * 0.5 * (1 + np.vectorize(math.erf)(wide / math.sqrt(2)))
    expected = norm(linear(wide, "output.dense") + attended, "output.LayerNorm")
    (got,) = run_onnxruntime(str(path), x[None].astype(np.float32))
    np.testing.assert_allclose(got[0], expected, atol=2e-5)


@pytest.mark.parametrize("stem", PUBLISHED)
def test_a_published_model_computes_what_its_original_does(stem: str, zoo_model: Build) -> None:
    path = zoo_model(stem)
    feed = noise(*PUBLISHED[stem].shape)
    original = Wheels(path.parents[1] / "wheels").read(PUBLISHED[stem].file)
    for got, expected in zip(run_onnxruntime(str(path), feed), run_onnxruntime(original, feed), strict=True):
        assert np.ptp(expected) > 0
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("stem", [*PUBLISHED, "minilm-layer", "efficientnet-lite0.onnx"])
def test_every_shape_is_known_and_openvino_agrees(stem: str, zoo_model: Build) -> None:
    onnx = pytest.importorskip("onnx")
    openvino = pytest.importorskip("openvino")
    path = zoo_model(stem)
    graph = onnx.load(path).graph
    known = {
        v.name
        for v in (*graph.input, *graph.output, *graph.value_info)
        if all(d.HasField("dim_value") for d in v.type.tensor_type.shape.dim)
    }
    assert {name for node in graph.node for name in node.output if name} <= known
    assert {node.domain for node in graph.node} == {""}
    feed = noise(*[d.dim_value for d in graph.input[0].type.tensor_type.shape.dim])
    compiled = openvino.Core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    (expected,) = run_onnxruntime(str(path), feed)
    np.testing.assert_allclose(compiled(feed)[0], expected, rtol=1e-3, atol=2e-5)


def test_names_resolve_and_unknown_ones_name_the_known() -> None:
    assert zoo.resolve("mix") == "mix.circle"
    for name in zoo.NAMES:
        assert zoo.resolve(name) == name
    with pytest.raises(zoo.ZooError, match=r"mix\.circle"):
        zoo.resolve("nothing")
    with pytest.raises(zoo.ZooError, match=r"choose one of efficientnet-lite0\.circle"):
        zoo.resolve("efficientnet-lite0")
