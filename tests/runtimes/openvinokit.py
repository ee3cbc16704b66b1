"""A small network whose operators OpenVINO partly fuses, folds away and names anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tests.bad_days.livekit import onnx_bytes


def net(path: Path) -> Path:
    """A convolution with its normalisation and activation, a pointwise chain, two branches, and a weight of both."""
    from onnx import helper

    rng = np.random.default_rng(3)

    def some(*shape: int) -> np.ndarray[Any, Any]:
        return (0.2 * rng.standard_normal(shape)).astype(np.float32)

    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "one", "some", "some", "one"], ["n"], "norm"),
        helper.make_node("Relu", ["n"], ["r"], "relu"),
        helper.make_node("Exp", ["r"], ["e"], "exp"),
        helper.make_node("MatMul", ["e", "m"], ["left"], "left"),
        helper.make_node("MatMul", ["r", "m"], ["right"], "right"),
        helper.make_node("Softmax", ["left"], ["soft"], "soft", axis=3),
        helper.make_node("Identity", ["right"], ["same"], "same"),
        helper.make_node("Mul", ["soft", "same"], ["y"], "product"),
    ]
    one, few = np.ones(8, np.float32), np.abs(some(8))
    constants = {"w": some(8, 8, 3, 3), "one": one, "some": few, "m": some(16, 16)}
    path.write_bytes(onnx_bytes(nodes, constants, (1, 8, 16, 16)))
    return path
