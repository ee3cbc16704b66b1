"""ONNX models read as nets of layers: what was written comes back, patterns are joined, and nothing is silent."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon.errors import GnomonError, ModelError
from gnomon.models.net import LeftOut, net_of_onnx
from gnomon.models.units import write_net
from gnomon.session.model import read_model
from gnomon.session.request import ModelRequest
from gnomon.spaces.fuse import UNFUSED
from gnomon.spaces.loading import draw, load_space
from gnomon.spaces.unit import Net, net_of

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
from onnx import helper  # noqa: E402
from tests.models import modelkit  # noqa: E402
from tests.models.modelkit import value  # noqa: E402


def read(path: Path) -> tuple[Net, tuple[LeftOut, ...]]:
    with ExitStack() as stack:
        found = net_of_onnx(read_model(ModelRequest(model=path), stack).model)
        assert all(0 <= number < len(found.net.nodes) for number in found.nodes.values())
        return found.net, found.left_out


def model(
    folder: Path,
    nodes: list[Any],
    inputs: dict[str, tuple[int, ...]],
    output: tuple[str, tuple[int, ...]],
    constants: dict[str, Any] | None = None,
    *,
    opset: int = 17,
    domain: str = "",
) -> Path:
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    ends = [value(*one) for one in inputs.items()], [value(*output)]
    return modelkit.save(modelkit.model(nodes, *ends, constants, opset_imports=opsets), folder / "m.onnx")


def node(kind: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(kind, inputs.split(), [output], **attributes)


def chains(net: Net) -> list[str]:
    return [one.unit.chain for one in net.nodes]


@pytest.mark.parametrize("name", ["mobilenetv2-cifar10", "fbnet", "ofa-mobilenetv3"])
def test_a_written_net_comes_back(name: str, tmp_path: Path) -> None:
    space = load_space(name)
    for assignment in draw(space.tables(UNFUSED), 3, seed=4):
        net = space.net(assignment.tolist())
        again, left_out = read(write_net(net, tmp_path / "net.onnx"))
        assert left_out == ()
        # A shuffle is written as a view, a transposition and a view.
        known = {unit: n for unit, n in net.counts().items() if unit.kinds != ("ChannelShuffle",)}
        assert {unit: n for unit, n in again.counts().items() if unit.kinds != ("Transpose",)} == known
        assert again.shape(again.output) == net.shape(net.output)


def test_all_operators_of_the_shipped_space_come_back(tmp_path: Path) -> None:
    space, seen = load_space("operators"), set[str]()
    for choice in reversed(range(space.space.size)):
        net = space.net((choice,))
        kinds = {kind for unit in net.counts() for kind in unit.kinds}
        if kinds <= seen:
            continue
        seen |= kinds
        again, _ = read(write_net(net, tmp_path / "net.onnx"))
        gone = {"ChannelShuffle"}  # written as several operators
        expected = Counter({u: n for u, n in net.counts().items() if not gone & set(u.kinds)})
        assert not expected - Counter(again.counts()), space.space.names((choice,))


def test_gelu_is_one_layer_in_both_orders(tmp_path: Path) -> None:
    constants = {"r": np.float32(1.414), "one": np.float32(1), "half": np.float32(0.5)}
    head = [node("Div", "x r", "a"), node("Erf", "a", "b"), node("Add", "b one", "c")]
    shape = (1, 4, 8)
    late = [*head, node("Mul", "x c", "d"), node("Mul", "d half", "y")]
    early = [*head, node("Mul", "x half", "d"), node("Mul", "d c", "y")]
    for nodes in (late, early):
        assert chains(read(model(tmp_path, nodes, {"x": shape}, ("y", shape), constants))[0]) == ["Gelu"]


def test_a_layer_normalisation_that_was_taken_apart_is_one_layer(tmp_path: Path) -> None:
    constants = {
        "two": np.float32(2),
        "e": np.float32(1e-5),
        "w": np.ones(8, np.float32),
        "b": np.ones(8, np.float32),
    }
    nodes = [
        node("ReduceMean", "x", "m", axes=[-1]),
        node("Sub", "x m", "d"),
        node("Pow", "d two", "s"),
        node("ReduceMean", "s", "v", axes=[-1]),
        node("Add", "v e", "ve"),
        node("Sqrt", "ve", "q"),
        node("Div", "d q", "n"),
        node("Mul", "n w", "nw"),
        node("Add", "nw b", "y"),
    ]
    shape = (1, 4, 8)
    assert chains(read(model(tmp_path, nodes, {"x": shape}, ("y", shape), constants))[0]) == ["LayerNormalization"]
    # Along another axis it is no such layer.
    nodes[0] = node("ReduceMean", "x", "m", axes=[1])
    assert len(chains(read(model(tmp_path, nodes, {"x": shape}, ("y", shape), constants))[0])) == 9


def test_gates_are_one_layer(tmp_path: Path) -> None:
    shape = (1, 4, 8, 8)
    nodes = [
        node("Sigmoid", "x", "a"),
        node("Mul", "a x", "b"),
        node("HardSigmoid", "b", "c", alpha=1 / 6),
        node("Mul", "b c", "y"),
    ]
    assert chains(read(model(tmp_path, nodes, {"x": shape}, ("y", shape)))[0]) == ["Swish", "HardSwish"]
    # What is read twice stays what it is.
    nodes[1] = node("Mul", "a a", "b")
    assert chains(read(model(tmp_path, nodes, {"x": shape}, ("y", shape)))[0])[0] == "Sigmoid"


def test_uneven_padding_is_told_as_work_that_is_alike(tmp_path: Path) -> None:
    constants = {"w": np.ones((6, 3, 3, 3), np.float32)}
    nodes = [node("Conv", "x w", "y", strides=[2, 2], pads=[0, 0, 1, 1])]
    net, _ = read(model(tmp_path, nodes, {"x": (1, 3, 16, 16)}, ("y", (1, 6, 8, 8)), constants))
    (one,) = net.nodes
    assert one.unit.chain == "Conv" and one.unit.output == (1, 6, 8, 8)


def test_an_operator_without_a_kind_stands_for_itself_and_can_be_written(tmp_path: Path) -> None:
    constants = {"w": np.ones((4, 2, 3), np.float32), "roi": np.zeros(0, np.float32)}
    nodes = [node("Conv", "x w", "a", pads=[1, 1]), node("LpNormalization", "a", "y", axis=1)]
    net, _ = read(model(tmp_path, nodes, {"x": (1, 2, 10)}, ("y", (1, 4, 10)), constants))
    assert chains(net) == ["onnx.Conv", "onnx.LpNormalization"]
    assert net.nodes[0].unit.layers[0].integer("macs") == 4 * 2 * 3 * 10
    again, _ = read(write_net(net, tmp_path / "again.onnx"))
    assert again.counts() == net.counts()


def test_a_split_is_slices(tmp_path: Path) -> None:
    split = helper.make_node("Split", ["x", "parts"], ["a", "b"], axis=1)
    nodes = [split, node("Relu", "a", "c"), node("Concat", "c b", "y", axis=1)]
    constants = {"parts": np.array([1, 3])}
    net, _ = read(model(tmp_path, nodes, {"x": (1, 4, 5, 5)}, ("y", (1, 4, 5, 5)), constants))
    assert chains(net) == ["onnx.Slice", "onnx.Slice", "Relu", "Concat"]
    assert [one.unit.output[1] for one in net.nodes] == [1, 3, 1, 4]


def test_what_is_no_unit_is_told(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Own", ["x"], ["a"], domain="com.example"),
        node("Relu", "x", "b"),
        node("ArgMax", "b", "c", axis=1),
        node("NonZero", "b", "d"),
        helper.make_node("Own", ["a", "c", "d"], ["e"], domain="com.example"),
        node("Relu", "b", "f"),
        helper.make_node("Own", ["e", "f"], ["y"], domain="com.example"),
    ]
    net, left_out = read(model(tmp_path, nodes, {"x": (1, 4)}, ("y", (1, 4)), domain="com.example"))
    assert chains(net) == ["Relu", "Relu"]
    assert [(one.type, one.reason) for one in left_out] == [
        ("Own", "of the domain com.example"),
        ("ArgMax", "its result is not floating-point"),
        ("NonZero", "its result is not floating-point"),
        ("Own", "of the domain com.example"),
        ("Own", "of the domain com.example"),
    ]


def test_a_model_without_a_unit_is_refused(tmp_path: Path) -> None:
    path = model(tmp_path, [helper.make_node("Own", ["x"], ["y"], domain="o")], {"x": (1,)}, ("y", (1,)), domain="o")
    with pytest.raises(ModelError, match=r"predict the time of any operator of .*: Own \(of the domain o\)"):
        read(path)


def test_an_old_operator_set_is_read_as_the_new_one(tmp_path: Path) -> None:
    nodes = [node("Clip", "x", "a", min=0.0, max=6.0), node("Squeeze", "a", "y", axes=[0])]
    assert chains(read(model(tmp_path, nodes, {"x": (1, 4, 4)}, ("y", (4, 4)), opset=9))[0]) == ["Relu6", "Reshape"]


@pytest.mark.parametrize(("opset", "axes"), [(17, "attribute"), (18, "input")])
def test_units_are_written_in_the_operator_set_of_their_model(tmp_path: Path, opset: int, axes: str) -> None:
    """A mean over height and width is the pool; what changed since is written as the model has it."""
    constants = {"w": np.ones((4, 4, 3, 3), np.float32)}
    given, inputs = ({"axes": [2, 3]}, "r") if axes == "attribute" else ({}, "r hw")
    if axes == "input":
        constants["hw"] = np.array([2, 3])
    nodes = [node("Conv", "x w", "r", pads=[1] * 4), node("ReduceMean", inputs, "m", keepdims=0, **given)]
    net, _ = read(model(tmp_path, nodes, {"x": (1, 4, 8, 8)}, ("m", (1, 4)), constants, opset=opset))
    assert chains(net) == ["Conv", "GlobalAveragePool", "Reshape"]
    nodes = [node("ReduceMean", inputs.replace("r", "x"), "y", keepdims=1, **{name: [1] for name in given})]
    constants = {"hw": np.array([1])} if axes == "input" else {}
    net, _ = read(model(tmp_path, nodes, {"x": (1, 4, 8, 8)}, ("y", (1, 1, 8, 8)), constants, opset=opset))
    assert chains(net) == ["onnx.ReduceMean"]
    written = onnx.load(write_net(net, tmp_path / "again.onnx"))
    onnx.checker.check_model(written, full_check=True)
    assert written.opset_import[0].version == opset


_SCALES = {"s": np.float32(0.1), "u": np.uint8(7), "i": np.int8(0)}


def quantised(folder: Path, kinds: Sequence[str], channels: int) -> Path:
    """A chain of operators on whole numbers over one shape, from floats to floats."""
    rng, shape = np.random.default_rng(0), (1, channels, 5, 5)
    constants: dict[str, Any] = {**_SCALES, "shape": np.array([1, channels, 25])}
    constants["w"] = rng.integers(-9, 9, (channels, channels, 3, 3)).astype(np.int8)
    constants["b"] = np.ones(channels, np.int32)
    nodes, last = [node("QuantizeLinear", "x s u", "q")], "q"
    for number, kind in enumerate(kinds):
        made = f"v{number}"
        if kind == "QLinearConv":
            nodes.append(node(kind, f"{last} s u w s i s u b", made, pads=[1] * 4))
        elif kind == "ConvInteger":
            nodes += [
                node(kind, f"{last} w u i", f"{made}.sums", pads=[1] * 4),
                node("Cast", f"{made}.sums", made, to=2),
            ]
        elif kind == "DynamicQuantizeLinear":
            nodes.append(node("DequantizeLinear", f"{last} s u", f"{made}.x"))
            nodes.append(helper.make_node(kind, [f"{made}.x"], [made, f"{made}.scale", f"{made}.zero"]))
        elif kind == "MaxPool":
            nodes.append(node(kind, last, made, kernel_shape=[3, 3], pads=[1] * 4))
        else:
            nodes += [node("Reshape", f"{last} shape", f"{made}.flat"), node("Reshape", f"{made}.flat back", made)]
            constants["back"] = np.array(shape)
        last = made
    nodes.append(node("DequantizeLinear", f"{last} s u", "y"))
    return model(folder, nodes, {"x": shape}, ("y", shape), constants, opset=13)


_WHOLE = ("QLinearConv", "ConvInteger", "DynamicQuantizeLinear", "MaxPool", "Reshape")


@settings(max_examples=15, deadline=None)
@given(kinds=st.lists(st.sampled_from(_WHOLE), max_size=4), channels=st.integers(1, 6))
def test_operators_on_whole_numbers_are_units_that_are_written_in_their_types(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[str], channels: int
) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    folder = tmp_path_factory.mktemp("q")
    path = quantised(folder, kinds, channels)
    net, left_out = read(path)
    assert not left_out
    assert len(net.nodes) == len(onnx.load(path).graph.node)
    again, _ = read(write_net(net, folder / "again.onnx"))
    assert again.counts() == net.counts()
    for number, one in enumerate(net.counts()):
        file = write_net(net_of(one), folder / f"{number}.onnx")
        written = onnx.load(file)
        onnx.checker.check_model(written, full_check=True)
        assert len(written.graph.node) == 1  # no cast beside the operator
        session = runtime.InferenceSession(file, providers=["CPUExecutionProvider"])
        types = {"tensor(uint8)": np.uint8, "tensor(int32)": np.int32, "tensor(float)": np.float32}
        session.run(None, {x.name: np.ones(x.shape, types[x.type]) for x in session.get_inputs()})
        assert read(file)[0].counts() == {one: 1}


def test_small_weights_and_zero_points_of_whole_numbers_make_no_other_unit(tmp_path: Path) -> None:
    first = read(quantised(tmp_path, ["QLinearConv"], 2))[0]
    changed = onnx.load(tmp_path / "m.onnx")
    for tensor in changed.graph.initializer:
        tensor.raw_data = bytes(b ^ 1 for b in tensor.raw_data)
    onnx.save(changed, tmp_path / "changed.onnx")
    assert read(tmp_path / "changed.onnx")[0].counts() == first.counts()


def test_models_that_onnx_itself_ships_are_read_or_refused_by_name() -> None:
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data"
    files = sorted((*folder.glob("simple/*/model.onnx"), *folder.glob("pytorch-*/*/model.onnx")))[::3]
    if not files:
        pytest.skip("this onnx ships no models")
    outcomes: Counter[str] = Counter()
    for path in files:
        try:
            _, left_out = read(path)
            assert all(os.fspath(path) and one.reason for one in left_out)
            outcomes["read"] += 1
        except GnomonError as error:
            assert error.hint
            outcomes["refused"] += 1
    assert outcomes["read"] > outcomes["refused"]
