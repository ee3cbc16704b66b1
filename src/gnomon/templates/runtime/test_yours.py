"""The contract of runtimes, tested with the real runtime."""

from pathlib import Path

import pytest

from gnomon.testing.runtime import RuntimeContract

from .adapter import Yours


class TestYours(RuntimeContract):
    """The contract for a model of one Relu."""

    @pytest.fixture
    def adapter(self) -> Yours:
        """The runtime."""
        return Yours()

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        """A small model that the runtime loads."""
        onnx = pytest.importorskip("onnx")
        x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 64]) for name in "xy")
        graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"], name="relu")], "small", [x], [y])
        opset = [onnx.helper.make_opsetid("", 17)]
        onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "small.onnx")
        return tmp_path / "small.onnx"
