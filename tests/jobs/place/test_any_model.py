"""Whatever a runtime loads is measured whole, and judged by what the user's own file computes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs onnx")
ort = pytest.importorskip("onnxruntime", reason="needs onnxruntime")

from onnx import TensorProto, helper  # noqa: E402
from tests.models.modelkit import model, node, save, value  # noqa: E402

from gnomon.errors import ModelError, UsageError  # noqa: E402
from gnomon.jobs.place.across import AcrossPlacer  # noqa: E402
from gnomon.jobs.place.document import PlaceDocument  # noqa: E402
from gnomon.jobs.place.job import place  # noqa: E402
from gnomon.jobs.place.shared_report import first_warnings  # noqa: E402
from gnomon.measure.effort import Effort  # noqa: E402
from gnomon.measure.environment import Caveat  # noqa: E402
from gnomon.models.load import load  # noqa: E402
from gnomon.models.onnx.static import fixed_copy  # noqa: E402
from gnomon.report.page import Page  # noqa: E402
from gnomon.runtimes.base import RunSettings  # noqa: E402
from gnomon.session.contender import profile_singles  # noqa: E402
from gnomon.session.model_session import open_session  # noqa: E402
from gnomon.session.package import write_package  # noqa: E402
from gnomon.session.prove import Verified, verify  # noqa: E402
from gnomon.session.reference import doubts, reference  # noqa: E402
from gnomon.session.request import ModelRequest  # noqa: E402

STRING, INT64 = TensorProto.STRING, TensorProto.INT64
W = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
Placed = Callable[..., PlaceDocument]


@pytest.fixture
def placed(small: Effort, tmp_path: Path) -> Placed:
    """Places a model on ONNX Runtime (and others that are named), with little effort."""

    def run(proto: Any, *others: str, feeds: dict[str, Any] | None = None, **more: Any) -> PlaceDocument:
        path = save(proto, tmp_path / "m.onnx")
        files = {}
        for name, array in (feeds or {}).items():
            files[name] = tmp_path / f"{name}.npy"
            np.save(files[name], array)
        request = ModelRequest(model=path, runtimes=("onnxruntime", *others), effort=small, feeds=files, **more)
        return place(request, tmp_path / f"out{len(list(tmp_path.iterdir()))}")

    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A package of a model whole, run from its own files, and what is doubtful of it."""

    package: Path
    verified: Verified
    doubts: tuple[Caveat, ...]


@pytest.fixture
def packed(small: Effort, tmp_path: Path) -> Callable[..., Packed]:
    """Writes the package of a model whole and runs it, with nothing measured before."""

    def run(proto: Any, *, feeds: dict[str, Any] | None = None, path: Path | None = None, **more: Any) -> Packed:
        files = {}
        for name, array in (feeds or {}).items():
            files[name] = tmp_path / f"{name}.npy"
            np.save(files[name], array)
        path = path or save(proto, tmp_path / "m.onnx")
        request = ModelRequest(model=path, runtimes=("onnxruntime",), effort=small, feeds=files, **more)
        with open_session(request, kind="test", question={}) as session:
            sensitivity = reference(session)
            whole = AcrossPlacer(session, session.targets, tmp_path).whole(session.targets[0])
            package = write_package(session, whole, tmp_path / f"out{len(list(tmp_path.iterdir()))}", overwrite=False)
            return Packed(
                package=package, verified=verify(session, package, whole)[0], doubts=doubts(session, sensitivity)
            )

    return run


def outputs(found: PlaceDocument | Packed, proto: Any, feeds: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Each output of the package, run from its own files, beside what the user's file computes."""
    import subprocess
    import sys

    package = Path(found.package or "")
    command = [sys.executable, "gnomon-agent.pyz", "run", "plan.json", "--output", "out.npz", "--seconds", "0"]
    for name, array in feeds.items():
        np.save(package / f"{name}.npy", array)
        command += ["--input", f"{name}={name}.npy"]
    done = subprocess.run(command, cwd=package, capture_output=True, text=True, check=True)
    told = json.loads(done.stdout.splitlines()[-1])["outputs"]
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, feeds)
    with np.load(package / "out.npz") as made:
        return [(made[told[o.name]["saved_as"]], e) for o, e in zip(session.get_outputs(), expected, strict=True)]


def branching() -> Any:
    """An If whose branches have unlike shapes: nobody can tell that of its result beforehand."""
    then = helper.make_graph([node("MatMul", ["x", "w"], ["t"])], "then", [], [value("t", None)])
    other = helper.make_graph([node("Flatten", ["x"], ["e"], axis=0)], "else", [], [value("e", None)])
    nodes = [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "far"], ["c"]),
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
        node("Relu", ["y"], ["z"]),
    ]
    return model(nodes, [value("x", ["n", 8])], [value("z", None)], {"w": W, "far": np.float32(-1e9)})


@pytest.mark.slow
def test_control_flow_is_measured_whole_and_not_cut(placed: Placed) -> None:
    proto = branching()
    found = placed(proto, shapes={"x": (2, 8)})
    assert found.verified.ok
    assert (found.reference or "").startswith(f"onnxruntime {ort.__version__} without optimisations")
    for made, expected in outputs(found, proto, {"x": np.ones((2, 8), np.float32)}):
        np.testing.assert_allclose(made, expected, rtol=1e-5)


@pytest.mark.slow
def test_a_cut_never_goes_through_an_unknown_shape(placed: Placed) -> None:
    pytest.importorskip("openvino", reason="needs openvino")
    nodes = [node("NonZero", ["x"], ["places"]), node("Cast", ["places"], ["f"], to=TensorProto.FLOAT)]
    nodes += [node("ReduceMean", ["f"], ["mean"], keepdims=1), node("Add", ["f", "mean"], ["y"])]
    found = placed(model(nodes, [value("x", [4, 8])], [value("y", None)]), "openvino")
    assert found.verified.ok
    assert sum(contender.failure is None for contender in found.contenders) == 2
    assert found.why_not_mixed == "not cut: the shape of 'places' is unknown"


Case = tuple[Any, "np.ndarray[Any, Any] | None", tuple[str, ...]]
"""A model, what it is fed where its outputs can be compared, and what is doubtful of it."""


def sized_by_values() -> Case:
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Greater", ["m", "zero"], ["g"]), node("NonZero", ["g"], ["y"])]
    proto = model(nodes, [value("x", ["n", 8])], [value("y", None, INT64)], {"w": W, "zero": np.float32(0)})
    return proto, np.random.default_rng(1).standard_normal((1, 8)).astype(np.float32), ("assumed-shape",)


def shape_told_wrongly() -> Case:
    ends = {"starts": np.array([0]), "ends": np.array([2])}
    proto = model([node("Slice", ["x", *ends], ["y"])], [value("x", [4, 8])], [value("y", [3, 8])], ends)
    return proto, np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32), ("other-shapes",)


def contrib() -> Case:
    nodes = [
        node("FusedMatMul", ["x", "w"], ["m"], domain="com.microsoft", alpha=0.5),
        node("Relu", ["m"], ["r"]),
        node("MatMul", ["r", "w"], ["y"]),
    ]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    proto = model(nodes, [value("x", [2, 8])], [value("y", None)], {"w": W}, opset_imports=imports)
    return proto, np.ones((2, 8), np.float32), ()


def softmax_of_opset_11() -> Case:
    """Each of the two rows is flattened there: six sums of 1 it would have by a newer opset."""
    table = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    nodes = [node("Softmax", ["table"], ["soft"]), node("Mul", ["x", "soft"], ["y"])]
    shape: list[int | str | None] = ["n", 3, 4]
    imports = [helper.make_opsetid("", 11)]
    proto = model(nodes, [value("x", shape)], [value("y", shape)], {"table": table}, opset_imports=imports)
    return proto, np.ones((2, 3, 4), np.float32), ()


def others_in_each_call() -> Case:
    nodes = [node("RandomNormalLike", ["x"], ["r"]), node("Add", ["x", "r"], ["y"])]
    return model(nodes, [value("x", [2, 8])], [value("y", [2, 8])]), None, ("unrepeatable",)


def noise_without_measure() -> Case:
    nodes = [node("RandomNormalLike", ["x"], ["r"], scale=3e38), node("Add", ["x", "r"], ["y"])]
    return model(nodes, [value("x", [2, 8])], [value("y", [2, 8])]), None, ("unrepeatable",)


def quantised_inside() -> Case:
    """ONNX Runtime computes a product of weights in four bits with its other factor in eight, where it optimises."""
    rng = np.random.default_rng(0)
    weights = helper.make_tensor("w", TensorProto.INT4, [16, 8], rng.integers(-8, 8, 128).tolist())
    scales = (0.1 * rng.standard_normal(8)).astype(np.float32)
    nodes = [node("DequantizeLinear", ["w", "scales"], ["d"], axis=1), node("MatMul", ["x", "d"], ["y"])]
    imports = [helper.make_opsetid("", 21)]
    proto = model(nodes, [value("x", [2, 16])], [value("y", [2, 8])], {"scales": scales}, opset_imports=imports)
    proto.graph.initializer.append(weights)
    proto.ir_version = 10
    return proto, None, ()


def no_operator() -> Case:
    return model([], [value("x", [8, 8])], [value("x", [8, 8])], {"w": W}), None, ()


def no_operator_but_a_constant() -> Case:
    return model([], [value("x", [8, 8])], [value("w", [8, 8])], {"w": W}), None, ()


def a_sequence_comes_out() -> Case:
    out = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("SequenceConstruct", ["m", "x"], ["y"])]
    return model(nodes, [value("x", [2, 8])], [out], {"w": W}), None, ()


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        sized_by_values,
        shape_told_wrongly,
        contrib,
        softmax_of_opset_11,
        others_in_each_call,
        noise_without_measure,
        quantised_inside,
        no_operator,
        no_operator_but_a_constant,
        a_sequence_comes_out,
    ],
)
def test_what_is_loaded_is_packed_and_computes_what_the_file_does(
    case: Callable[[], Case], packed: Callable[..., Packed]
) -> None:
    proto, x, kinds = case()
    found = packed(proto, shapes={} if x is None or kinds else {"x": x.shape})
    assert found.verified.ok
    told = [d.kind for d in found.doubts if d.kind in ("assumed-shape", "other-shapes", "unrepeatable")]
    assert tuple(told) == kinds
    if x is not None:
        for made, expected in outputs(found, proto, {"x": x}):
            np.testing.assert_allclose(made, expected, rtol=1e-5)


@pytest.mark.slow
def test_inputs_that_decide_what_is_computed_are_told(packed: Callable[..., Packed]) -> None:
    body = helper.make_graph(
        [node("MatMul", ["a", "w"], ["b"]), node("Identity", ["on"], ["goes"])],
        "body",
        [value("k", [], INT64), value("on", [], TensorProto.BOOL), value("a", [2, 8])],
        [value("goes", [], TensorProto.BOOL), value("b", [2, 8])],
    )
    branches = {
        f"{name}_branch": helper.make_graph([node(kind, ["m"], [name])], name, [], [value(name, [2, 8])])
        for name, kind in (("then", "Relu"), ("else", "Neg"))
    }
    nodes = [
        node("Cast", ["n"], ["count"], to=INT64),
        node("Loop", ["count", "", "x"], ["m"], body=body),
        node("If", ["past"], ["y"], **branches),
    ]
    inputs = [value("x", [2, 8]), value("n", [], TensorProto.INT32), value("past", [], TensorProto.BOOL)]
    proto = model(nodes, inputs, [value("y", [2, 8])], {"w": W})
    found = packed(proto)
    told = [d.message for d in found.doubts if d.kind == "drawn-steering"]
    decide = "decide how often a Loop repeats and which branch of an If is taken"
    assert [message.partition(":")[0] for message in told] == [f"the inputs 'n' (2) and 'past' (1) {decide}"]
    given = packed(proto, feeds={"n": np.int32(5), "past": np.bool_(True)})
    assert given.verified.ok
    assert not any(d.kind == "drawn-steering" for d in given.doubts)


@pytest.mark.slow
def test_text_is_fed_from_a_file(packed: Callable[..., Packed]) -> None:
    nodes = [
        node(
            "LabelEncoder",
            ["words"],
            ["y"],
            domain="ai.onnx.ml",
            keys_strings=["red", "green"],
            values_floats=[1.0, 2.0],
            default_float=-1.0,
        )
    ]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 2)]
    proto = model(nodes, [value("words", [3], STRING)], [value("y", [3])], opset_imports=imports)
    drawn = packed(proto)
    assert drawn.verified.ok
    assert ["'words' holds text" in d.message for d in drawn.doubts if d.kind == "drawn-text"] == [True]
    words = np.array(["green", "blue", "red"])
    found = packed(proto, feeds={"words": words})
    assert found.verified.ok
    ((made, expected),) = outputs(found, proto, {"words": words})
    np.testing.assert_array_equal(made, expected)


@pytest.mark.slow
def test_an_input_without_elements_is_doubted(packed: Callable[..., Packed]) -> None:
    proto = model([node("Relu", ["x"], ["y"])], [value("x", [0, 4])], [value("y", [0, 4])])
    (told,) = [d for d in packed(proto).doubts if d.kind == "empty-input"]
    assert "there are inputs without elements, 'x' (0,4): nothing is computed" in told.message
    out = io.StringIO()
    first_warnings((told,), Page(file=out, brief=True))
    assert "nothing is computed" in out.getvalue()


@pytest.mark.slow
def test_no_sequence_of_tensors_may_go_in(packed: Callable[..., Packed]) -> None:
    taken = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    at = model([node("SequenceAt", ["s", "k"], ["y"])], [taken], [value("y", None)], {"k": np.array(0)})
    with pytest.raises(ModelError, match=r"'s' is a sequence, a map or optional"):
        packed(at)


@pytest.mark.slow
def test_weights_beside_the_file_are_found(packed: Callable[..., Packed], tmp_path: Path) -> None:
    proto = model([node("MatMul", ["x", "w"], ["y"])], [value("x", ["n", 8])], [value("y", ["n", 8])], {"w": W})
    own = tmp_path / "own"
    own.mkdir()
    beside = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)  # saving empties the weights of what is saved
    onnx.save_model(copy, str(own / "m.onnx"), **beside)
    found = packed(proto, path=own / "m.onnx")
    assert found.verified.ok
    assert (found.package / "w.bin").read_bytes() == W.tobytes()
    for made, expected in outputs(found, proto, {"x": np.ones((1, 8), np.float32)}):
        np.testing.assert_allclose(made, expected, rtol=1e-5)


def test_a_file_that_changes_meanwhile_is_told(small: Effort, tmp_path: Path) -> None:
    def scaled(by: float, named: str = "p") -> Any:
        nodes = [node("MatMul", ["x", "w"], ["y"], named)]
        return model(nodes, [value("x", [2, 8])], [value("y", [2, 8])], {"w": by * W})

    path = save(scaled(1.0), tmp_path / "m.onnx")
    request = ModelRequest(model=path, runtimes=("onnxruntime",), effort=small)
    with (
        pytest.raises(ModelError, match="changed while it was read"),
        open_session(request, kind="test", question={}) as session,
    ):
        assert not session.model_changed
        sensitivity = reference(session)
        assert not any(d.kind == "model-changed" for d in doubts(session, sensitivity))
        save(scaled(2.0), path)
        assert doubts(session, sensitivity)[0].kind == "model-changed"
        profile_singles(session, [AcrossPlacer(session, session.targets, tmp_path).whole(session.targets[0])])
    before = load(save(scaled(1.0, ""), path))
    save(scaled(2.0, ""), path)
    with pytest.raises(ModelError, match="changed while it was read"):
        fixed_copy(before, {}, tmp_path)


def test_a_hint_fills_in_what_the_file_tells(small: Effort, tmp_path: Path) -> None:
    nodes = [node("Add", ["a", "b"], ["y"])]
    inputs = [value("a", ["n", "m", 3]), value("b", ["n", 1, 3])]
    path = save(model(nodes, inputs, [value("y", None)]), tmp_path / "m.onnx")
    with pytest.raises(UsageError, match=r"the shape of input 'a' is \(n, m, 3\), which leaves m open") as told:
        place(ModelRequest(model=path, effort=small), tmp_path / "out")
    assert told.value.hint == "Fix every dimension, for example: --dim m=64"


def test_the_judge_is_asked_though_another_runtime_is_named(small: Effort, tmp_path: Path) -> None:
    pytest.importorskip("openvino", reason="needs openvino")
    path = save(
        model([node("MatMul", ["x", "w"], ["y"])], [value("x", ["n", 8])], [value("y", None)], {"w": W}),
        tmp_path / "m.onnx",
    )
    few = replace(small, rounds=1)
    request = ModelRequest(model=path, runtimes=("openvino",), effort=few, settings=RunSettings())
    with open_session(request, kind="test", question={}) as session:
        assert [t.configuration.runtime for t in session.targets] == ["openvino"]
        assert (
            reference(session)["by"]
            == f"onnxruntime {ort.__version__} without optimisations on the model's file, unmodified"
        )
        assert session.read.own == path
        assert session.read.source != path
