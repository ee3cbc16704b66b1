"""TFLite files whose open shapes are fixed in place."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("circle_schema", reason="needs circle-schema")

from tests.agent.drivers.litertkit import tflite

from gnomon.models.load import load
from gnomon.models.model import Model, all_known, dynamic_inputs
from gnomon.models.tflite.fix import fixed_flat


def opened(folder: Path, signature: tuple[int, ...] = (-1, 4, 4, 8)) -> Model:
    path = folder / "m.tflite"
    path.write_bytes(tflite("conv", "softmax", signature=signature))
    return load(path)


def fixed(model: Model, shape: tuple[int, ...], folder: Path) -> Model:
    (folder / "fixed").mkdir()
    made, path = fixed_flat(model, {"input": shape}, folder / "fixed")
    assert path.name == model.path.name
    assert load(path).graph.tensors == made.graph.tensors
    return made


def test_the_shapes_that_the_converter_wrote_fix_every_tensor(tmp_path: Path) -> None:
    model = opened(tmp_path)
    assert [t.name for t in dynamic_inputs(model.graph)] == ["input"]
    made = fixed(model, (1, 4, 4, 8), tmp_path)
    assert all_known(made.graph)
    assert made.graph.digest == model.graph.digest
    assert all(made.graph.tensors[i].shape == (1, 4, 4, 8) for i in (*made.graph.inputs, *made.graph.outputs))


def test_other_shapes_fix_the_inputs_and_leave_open_what_only_a_runtime_computes(tmp_path: Path) -> None:
    made = fixed(opened(tmp_path), (3, 4, 4, 8), tmp_path)
    assert not dynamic_inputs(made.graph)
    assert made.graph.tensors[made.graph.inputs[0]].shape == (3, 4, 4, 8)
    assert made.graph.tensors[made.graph.outputs[0]].shape == (-1, 4, 4, 8)


@pytest.mark.skipif(find_spec("ai_edge_litert") is None, reason="ai-edge-litert is not installed")
def test_only_shapes_change(tmp_path: Path) -> None:
    model = opened(tmp_path)
    made = fixed(model, (1, 4, 4, 8), tmp_path)
    before, after = model.path.read_bytes(), made.path.read_bytes()
    assert len(before) == len(after)
    changed = [k for k, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    # Each open dimension is four bytes of -1 in one vector a tensor, which becomes 1.
    assert all(before[k] == 0xFF and after[k] in (0, 1) for k in changed)
