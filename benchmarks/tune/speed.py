"""How long tuning takes on this machine, and what it gains. No reference data is needed.

A convolution with ReLU (64 channels of 28x28, 3x3) is tuned with 32 trials, and a small network with 64. Each run
begins from scratch, with its own seed. The document has the wall seconds of the whole job (reading, untuned layers,
trials, compiling, the proof), failed trials, and the ratio of the untuned network's time to the tuned one's,
interleaved in fresh processes. Targets: the convolution within 60 s, without a failed build, and at least 10 times as
fast as the unscheduled loop nest; the small network of 8 tasks within 90 s.
"""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.common import parser, publish, spread
from gnomon.api.tune import tune

OPSET = helper.make_opsetid("", 17)


class Drawn:
    """A network that is written node by node, with random weights."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._nodes: list[Any] = []
        self._weights: list[Any] = []

    def weight(self, *shape: int) -> str:
        """Add a weight and return its name."""
        name = f"w{len(self._weights)}"
        scale = math.sqrt(math.prod(shape[1:]))
        values = (self._rng.standard_normal(shape) / scale).astype(np.float32)
        self._weights.append(numpy_helper.from_array(values, name))
        return name

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node and return its output."""
        name = f"t{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def conv(self, x: str, sizes: tuple[int, int, int], stride: int = 1, group: int = 1) -> str:
        """A convolution with ReLU: input channels, output channels, kernel."""
        before, after, kernel = sizes
        weights = self.weight(after, before // group, kernel, kernel)
        pads, strides = [kernel // 2] * 4, [stride] * 2
        y = self.node("Conv", x, weights, self.weight(after), pads=pads, strides=strides, group=group)
        return self.node("Relu", y)

    def save(self, path: Path, shape: tuple[int, ...], output: str) -> None:
        """Write the network, with one input x."""
        values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
        last = [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)]
        graph = helper.make_graph(self._nodes, path.stem, values, last, self._weights)
        model = helper.make_model(graph, opset_imports=[OPSET])
        model.ir_version = 10
        onnx.save(onnx.shape_inference.infer_shapes(model), str(path))


def convolution(path: Path) -> None:
    """One convolution with ReLU."""
    net = Drawn(0)
    net.save(path, (1, 64, 28, 28), net.conv("x", (64, 64, 3)))


def network(path: Path) -> None:
    """Five convolutions, one of them depthwise, a sum, pooling and a dense layer."""
    net = Drawn(1)
    x = net.conv("x", (3, 16, 3), stride=2)
    x = net.conv(x, (16, 16, 3), group=16)
    x = net.conv(x, (16, 32, 1))
    x = net.conv(x, (32, 64, 3), stride=2)
    x = net.node("Add", x, net.conv(x, (64, 64, 3)))
    x = net.node("Flatten", net.node("GlobalAveragePool", x))
    x = net.node("Gemm", x, net.weight(64, 10), net.weight(10))
    net.save(path, (1, 3, 64, 64), net.node("Softmax", x))


def runs(path: Path, trials: int, count: int, folder: Path) -> dict[str, Any]:
    """Several runs of one network."""
    seconds, ratios, failed, layers = [], [], 0, 0
    for seed in range(count):
        began_s = time.monotonic()
        out = folder / f"{path.stem}{seed}"
        done = tune(path, trials=trials, out=out, seed=seed).document()
        seconds.append(time.monotonic() - began_s)
        ratio = done["network"]["ratio"]
        ratios.append({"ratio": ratio["ratio"], "low": ratio["low"], "high": ratio["high"]})
        failed += done["trials"]["failed"]
        layers = len(done["layers"])
    return {
        "trials": trials,
        "layers": layers,
        "seconds": spread(seconds),
        "failed_trials": failed,
        "times_as_fast_as_untuned": ratios,
    }


def main() -> None:
    """Measure and print."""
    options = parser(__doc__)
    options.add_argument("--runs", type=int, default=3, help="runs of each")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        convolution(folder / "convolution.onnx")
        network(folder / "network.onnx")
        result = {
            "convolution": runs(folder / "convolution.onnx", 32, arguments.runs, folder),
            "network": runs(folder / "network.onnx", 64, arguments.runs, folder),
        }
    publish({"benchmark": "tune_speed", **result}, arguments)


if __name__ == "__main__":
    main()
