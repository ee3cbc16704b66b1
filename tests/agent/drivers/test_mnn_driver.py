"""MNN's driver with the real converter and runtime: values, types, times of operators, refusals, and no network."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.models.modelkit import model, node, save, value

from gnomon.agent.arrays import Array, Buffers, make_buffers
from gnomon.agent.driver import Refused
from gnomon.agent.drivers.mnn import MnnDriver, MnnModel, convert

pytest.importorskip("MNN", reason="MNN is not installed")

pytestmark = pytest.mark.usefixtures("folder")

RNG = np.random.default_rng(0)
F, B, I64 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64
DIGITS = Path(__file__).parents[3] / "docs" / "examples" / "digits.onnx"
Shape = tuple[int | None, ...]


def floats(*shape: int) -> Array:
    return (RNG.standard_normal(shape) * 0.3).astype(np.float32)


def written(
    folder: Path,
    nodes: list[Any],
    inputs: Mapping[str, tuple[int, Shape]],
    outputs: Mapping[str, tuple[int, Shape]],
    weights: Mapping[str, Array] | None = None,
) -> Path:
    read, made = ([value(name, shape, kind) for name, (kind, shape) in ends.items()] for ends in (inputs, outputs))
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return save(model(nodes, read, made, weights, opset_imports=domains), folder / "m.onnx")


def loaded(path: Path, *, profiled: bool = False, threads: int = 1) -> tuple[MnnModel, Buffers, dict[str, Array]]:
    """The model with drawn inputs in its buffers, those buffers, and what ONNX Runtime makes of them."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    graph = onnx.load(path).graph
    kinds = {k: helper.tensor_dtype_to_np_dtype(k) for k in (F, B, I64, TensorProto.DOUBLE, TensorProto.UINT8)}
    buffers = make_buffers(
        {
            v.name: {
                "shape": [d.dim_value for d in v.type.tensor_type.shape.dim],
                "dtype": kinds[v.type.tensor_type.elem_type].name,
            }
            for v in (*graph.input, *graph.output)
        }
    )
    for end in session.get_inputs():
        array = buffers[end.name]
        array[...] = RNG.standard_normal(array.shape) if array.dtype.kind == "f" else RNG.integers(0, 2, array.shape)
    outputs = [v.name for v in session.get_outputs()]
    expected = session.run(outputs, {v.name: buffers[v.name] for v in session.get_inputs()})
    segment: Any = {
        "model": str(path),
        "options": {"threads": threads},
        "inputs": [[v.name, v.name] for v in session.get_inputs()],
        "outputs": [[name, name] for name in outputs],
    }
    assert MnnDriver().supports(segment) == {"whole": True}
    model = MnnDriver().load(segment, buffers, profiled=profiled)
    return model, buffers, dict(zip(outputs, expected, strict=True))


LSTM = {"w": floats(1, 16, 3), "r": floats(1, 16, 4)}
GRU = {"w": floats(1, 12, 3), "r": floats(1, 12, 4)}
MODELS: dict[str, tuple[Any, ...]] = {
    "a convolution that is an output": (
        [node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])],
        {"x": (F, (1, 3, 8, 8))},
        {"y": (F, (1, 5, 8, 8))},
        {"w": floats(5, 3, 3, 3)},
    ),
    "whole numbers of 64 bits": (
        [node("Gather", ["t", "i"], ["y"]), node("Cast", ["y"], ["z"], to=I64)],
        {"i": (I64, (2, 3))},
        {"y": (F, (2, 3, 4)), "z": (I64, (2, 3, 4))},
        {"t": floats(9, 4)},
    ),
    "bytes": (
        [node("Cast", ["x"], ["y"], to=F)],
        {"x": (TensorProto.UINT8, (2, 3))},
        {"y": (F, (2, 3))},
    ),
    "two inputs, and truths in the file's order": (
        [node("Greater", ["b", "a"], ["z"]), node("Not", ["z"], ["n"])],
        {"b": (F, (2, 3)), "a": (F, (2, 3))},
        {"z": (B, (2, 3)), "n": (B, (2, 3))},
    ),
    "doubles": (
        [node("Add", ["x", "x"], ["y"])],
        {"x": (TensorProto.DOUBLE, (2, 3))},
        {"y": (TensorProto.DOUBLE, (2, 3))},
    ),
    "no axes": ([node("ReduceSum", ["x"], ["y"], keepdims=0)], {"x": (F, (2, 3))}, {"y": (F, ())}),
    "names": ([node("Relu", ["a b:0"], ["y/z"])], {"a b:0": (F, (4,))}, {"y/z": (F, (4,))}),
    "LSTM": (
        [node("LSTM", ["x", "w", "r"], ["y", "yh"], hidden_size=4)],
        {"x": (F, (5, 1, 3))},
        {"y": (F, (5, 1, 1, 4)), "yh": (F, (1, 1, 4))},
        LSTM,
    ),
    "GRU": (
        [node("GRU", ["x", "w", "r"], ["y"], hidden_size=4, linear_before_reset=1)],
        {"x": (F, (5, 1, 3))},
        {"y": (F, (5, 1, 1, 4))},
        GRU,
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_it_computes_what_onnxruntime_does_call_after_call(tmp_path: Path, name: str) -> None:
    model, buffers, expected = loaded(written(tmp_path, *MODELS[name]))
    for _ in range(2):  # MNN writes over its inputs
        for array in (buffers[output] for output in expected):
            array[...] = 0
        model.call()
        for output, wanted in expected.items():
            np.testing.assert_allclose(buffers[output], wanted, rtol=1e-4, atol=1e-5)
    model.close()
    model.close()
    with pytest.raises(RuntimeError, match="closed"):
        model.call()


def test_gelu_is_not_approximated(tmp_path: Path) -> None:
    constants = {name: np.array(number, np.float32) for name, number in (("r", 2**0.5), ("one", 1), ("half", 0.5))}
    steps = [("Div", "x", "r", "d"), ("Erf", "d", "", "e"), ("Add", "e", "one", "a"), ("Mul", "x", "a", "m")]
    nodes = [node(kind, [n for n in (a, b) if n], [c]) for kind, a, b, c in (*steps, ("Mul", "m", "half", "y"))]
    model, buffers, expected = loaded(written(tmp_path, nodes, {"x": (F, (4, 64))}, {"y": (F, (4, 64))}, constants))
    model.call()
    np.testing.assert_allclose(buffers["y"], expected["y"], atol=2e-6)


def test_weights_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(onnx.load(DIGITS), path, save_as_external_data=True, location="m.bin", size_threshold=0)
    model, buffers, expected = loaded(path)
    model.call()
    np.testing.assert_allclose(buffers["logits"], expected["logits"], rtol=1e-4, atol=1e-4)


def test_its_operators_have_times_under_the_names_of_the_files_tensors(tmp_path: Path) -> None:
    model, buffers, expected = loaded(DIGITS, profiled=True, threads=2)
    for _ in range(3):
        model.call()
    np.testing.assert_allclose(buffers["logits"], expected["logits"], rtol=1e-4, atol=1e-4)
    (told,) = model.where()
    assert (told["backend"], told["mnn_backend"] in (0, 13)) == ("cpu", True)
    rows = model.operators(1)
    assert {"name": "Convolution /last/Conv_output_0", "sources": ["/last/Conv_output_0"]}.items() <= rows[4].items()
    assert [row["backend"] for row in rows] == ["cpu"] * len(rows)
    assert all(len(row["wall_ns"]) == 2 and min(row["wall_ns"]) > 0 for row in rows)
    known = [name for node in onnx.load(DIGITS).graph.node for name in node.output]
    assert all(any(str(row["sources"][0]).startswith(name) for name in known) for row in rows)


def test_a_model_is_converted_once_for_all_processes(folder: Path) -> None:
    loaded(DIGITS)
    (kept,) = folder.iterdir()
    assert [path.name for path in kept.iterdir()] == ["model.mnn"]
    made = (kept / "model.mnn").stat()
    loaded(DIGITS)
    assert (kept / "model.mnn").stat() == made


def branches() -> tuple[Any, ...]:
    then, other = (
        helper.make_graph([node(kind, ["x"], [to])], to, [], [value(to, (4,))])
        for kind, to in (("Relu", "t"), ("Neg", "e"))
    )
    nodes = [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["c"]),
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    return nodes, {"x": (F, (4,))}, {"y": (F, (4,))}, {"zero": np.float32(0).reshape(())}


REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "operator": (
        ([node("Frobnicate", ["x"], ["y"], domain="own")], {"x": (F, (4,))}, {"y": (F, (4,))}),
        "cannot convert m.onnx: These Op Not Support: ONNX::Frobnicate",
    ),
    "shape by value": (
        ([node("NonZero", ["x"], ["y"])], {"x": (F, (4,))}, {"y": (I64, (1, None))}),
        "MNN cannot load m.onnx",
    ),
    "branches": (branches(), "MNN: the run failed with status 3"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(tmp_path: Path, name: str) -> None:
    parts, said = REFUSED[name]
    with pytest.raises(Refused, match=said):
        MnnDriver().supports({"runtime": "mnn", "model": str(written(tmp_path, *parts)), "options": {}})


@pytest.mark.parametrize("content", [b"this is not a model" * 100, b""])
def test_a_file_that_is_no_model_leaves_nothing(tmp_path: Path, folder: Path, content: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(Refused, match=r"MNN cannot convert m\.onnx: .*(not onnx|Invalid ONNX)"):
        MnnDriver().supports({"runtime": "mnn", "model": str(path), "options": {}})
    assert list(folder.iterdir()) == []


def test_a_converter_that_crashes_ends_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "_tools.py").write_text(
        "import os, signal\n\n\ndef mnnconvert(words):\n    print('nearly', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with pytest.raises(Refused, match=r"MNN cannot convert digits\.onnx: nearly; it was killed by signal 11"):
        MnnDriver().supports({"runtime": "mnn", "model": str(DIGITS), "options": {}})


def test_an_input_or_output_that_the_model_does_not_have_is_refused(tmp_path: Path) -> None:
    buffers = make_buffers({"b": {"shape": [1, 1, 16, 16], "dtype": "float32"}})
    segment: Any = {"model": str(DIGITS), "inputs": [["picture", "b"]], "outputs": []}
    with pytest.raises(Refused, match="the converted model has no 'picture'; it has image"):
        MnnDriver().load(segment, buffers, profiled=False)
    buffers |= make_buffers({"wide": {"shape": [2, 10], "dtype": "float32"}})
    segment = {"model": str(DIGITS), "inputs": [["image", "b"]], "outputs": [["logits", "wide"]]}
    model = MnnDriver().load(segment, buffers, profiled=False)
    with pytest.raises(Refused, match=r"the shape \(1, 10\) instead of \(2, 10\)"):
        model.call()


def test_a_batch_that_the_file_does_not_say_is_taken_from_what_is_bound(tmp_path: Path) -> None:
    model = onnx.load(DIGITS)
    for end in (*model.graph.input, *model.graph.output):
        end.type.tensor_type.shape.dim[0].dim_param = "n"
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    buffers = make_buffers(
        {n: {"shape": [3, *s], "dtype": "float32"} for n, s in (("image", (1, 16, 16)), ("logits", (10,)))}
    )
    segment: Any = {"model": str(path), "inputs": [["image", "image"]], "outputs": [["logits", "logits"]]}
    buffers["image"][...] = RNG.standard_normal(buffers["image"].shape)
    MnnDriver().load(segment, buffers, profiled=False).call()
    import onnxruntime

    (expected,) = onnxruntime.InferenceSession(path).run(None, {"image": buffers["image"]})
    np.testing.assert_allclose(buffers["logits"], expected, rtol=1e-4, atol=1e-4)


def test_the_converted_file_can_be_had(tmp_path: Path) -> None:
    target = tmp_path / "m.mnn"
    target.write_bytes(b"what was there before")
    with pytest.raises(Refused):
        convert(str(tmp_path / "nothing.onnx"), str(target))
    assert target.read_bytes() == b"what was there before"
    command = [sys.executable, "-m", "gnomon.agent.drivers.mnn"]
    subprocess.run([*command, str(DIGITS), str(target)], check=True, capture_output=True)
    assert target.stat().st_size > 40_000
    failed = subprocess.run([*command, str(tmp_path / "no.onnx"), str(target)], capture_output=True, text=True)
    assert (failed.returncode, failed.stderr.startswith("MNN cannot convert no.onnx")) == (1, True)
