"""TFLite files whose open shapes are fixed in place."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("circle_schema", reason="needs circle-schema")

from tests.agent.drivers.litertkit import tflite, with_signatures

from gnomon.errors import ModelError, UsageError
from gnomon.models.load import load
from gnomon.models.model import Model, all_known, dynamic_inputs
from gnomon.models.tflite.fix import fixed_flat, with_signature


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


def several(folder: Path, *, calls: tuple[int, int] | None = None) -> Model:
    path = folder / "m.tflite"
    path.write_bytes(with_signatures({"first": tflite("conv"), "second": tflite("softmax", "conv")}, calls=calls))
    return load(path)


def test_a_copy_runs_another_signature_and_has_that_alone(tmp_path: Path) -> None:
    model = several(tmp_path)
    assert (model.signatures, model.subgraphs) == ({"first": 0, "second": 1}, 2)
    assert with_signature(model, "first", tmp_path) is model
    (tmp_path / "copy").mkdir()
    made = with_signature(model, "second", tmp_path / "copy")
    assert [op.type for op in made.graph.operators] == ["SOFTMAX", "CONV_2D"]
    assert made.graph.digest == model.graph.digest and made.signatures == model.signatures
    again = load(made.path)
    assert (again.signatures, again.subgraphs) == ({"second": 0}, 1)
    assert again.graph.operators == made.graph.operators and again.path.name == model.path.name
    with pytest.raises(UsageError, match="'third'") as caught:
        with_signature(model, "third", tmp_path)
    assert "first, second" in caught.value.hint


@pytest.mark.parametrize(("called", "refused"), [((2, 2), False), ((0, 2), True), ((2, 1), True)])
def test_a_signature_whose_subgraph_is_called_by_number_does_not_move(
    called: tuple[int, int], refused: bool, tmp_path: Path
) -> None:
    model = several(tmp_path, calls=called)
    (tmp_path / "copy").mkdir()
    if refused:
        with pytest.raises(ModelError, match="call it by number"):
            with_signature(model, "second", tmp_path / "copy")
        return
    made = load(with_signature(model, "second", tmp_path / "copy").path)
    assert (made.signatures, made.subgraphs) == ({"second": 0}, 4), "the bodies stay where they are"
    assert [op.type for op in made.graph.operators] == ["SOFTMAX", "CONV_2D"]
