"""Units and nets of search spaces as ONNX models, with made-up or given weights, run by ONNX Runtime."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.models.modelkit import session

from gnomon.errors import ModelError, UsageError
from gnomon.models.load import load
from gnomon.models.units import Job, Writer, net_model, write_layer, write_net, write_unit
from gnomon.spaces import FusionRules, Net, SearchSpace, Unit, draw, empty, fuse, layer, load_space, net_of, rules
from gnomon.spaces.catalogue.nasbench201 import NasBench201
from gnomon.spaces.catalogue.transformers import hat_step
from gnomon.spaces.fuse import UNFUSED
from gnomon.spaces.layers import Layer
from gnomon.spaces.unit import Trace, layer_name

TINY = 2.0**-126  # below it a float32 is denormal
USUAL = rules(["Conv+BatchNormalization+Relu6", "Conv+BatchNormalization+Add", "Conv+BatchNormalization+Relu"])


@functools.cache
def space(name: str) -> SearchSpace:
    return load_space(name)


def run(net: Net, *, seed: int = 0, optimise: bool = True) -> NDArray[Any]:
    """The output of a net for made-up inputs, after checking the model and its shape."""
    model = net_model(net, seed=seed)
    onnx.checker.check_model(model, full_check=True)
    rng = np.random.default_rng(1)
    feeds = {f"x{k}": rng.standard_normal(shape).astype(np.float32) for k, shape in enumerate(net.inputs)}
    (made,) = session(model, optimise=optimise).run(["y"], feeds)
    assert made.shape == net.shape(net.output)
    return np.asarray(made)


def units_of(name: str, in_force: FusionRules) -> list[Unit]:
    """The smallest of the units of a space that differ in their shapes alone."""
    found: dict[tuple[Layer, ...], Unit] = {}
    for unit in sorted(space(name).tables(in_force).units, key=lambda one: -math.prod(one.inputs[0])):
        found[unit.layers] = unit
    return list(found.values())


@pytest.mark.parametrize(
    ("name", "in_force"),
    [("mobilenetv2-cifar10", UNFUSED), ("mobilenetv2-cifar10", USUAL), ("nasbench201", UNFUSED), ("fbnet", USUAL)],
)
def test_every_unit_of_a_space_runs(name: str, in_force: FusionRules) -> None:
    for unit in units_of(name, in_force):
        made = run(net_of(unit))
        assert np.isfinite(made).all()
        assert unit.kinds == ("Zeros",) or np.abs(made).max() > 1e-3


@pytest.mark.parametrize("name", ["mobilenetv2-cifar10", "nasbench201", "fbnet", "ofa-mobilenetv3"])
def test_nets_run_and_their_values_neither_vanish_nor_explode(name: str) -> None:
    (assignment,) = draw(space(name).tables(UNFUSED), 1, seed=2)
    check_sizes(space(name).net(assignment), most=1e4)


def test_transformers_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.spaces.catalogue.transformers._WORDS", 500)
    fewer_words = hat_step()  # not by its name: that one is kept for the whole process
    (assignment,) = draw(fewer_words.tables(UNFUSED), 1, seed=2)
    assert 0.1 < run(fewer_words.net(assignment)).std() < 10


def test_sums_of_sums_stay_finite() -> None:
    """Cells of skips alone make four of one, fifteen times: no batch normalisation is between."""
    check_sizes(NasBench201().net((1,) * 6), most=1e10)


def check_sizes(net: Net, most: float) -> None:
    model = net_model(net)
    onnx.checker.check_model(model, full_check=True)
    inner = [node.output[0] for node in model.graph.node[:-1]]
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(value) for value in inner)
    x = np.random.default_rng(0).standard_normal(net.inputs[0]).astype(np.float32)
    values = session(model, optimise=False).run(None, {"x0": x})
    assert values[0].shape == net.shape(net.output)
    for value in values:
        size = float(np.sqrt(np.mean(np.square(value, dtype=np.float64))))
        assert size == 0.0 or 1e-2 < size < most
        assert not ((np.abs(value) < TINY) & (value != 0)).any()
    assert values[0].any()


def test_shapes_of_all_values_are_those_that_the_space_says() -> None:
    (assignment,) = draw(space("mobilenetv2-cifar10").tables(UNFUSED), 1, seed=3)
    net = space("mobilenetv2-cifar10").net(assignment)
    inferred = onnx.shape_inference.infer_shapes(net_model(net), strict_mode=True)
    known = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in inferred.graph.value_info}
    for index, one in enumerate(net.nodes):
        assert known.get(layer_name(index, 0, one.unit.chain), net.shape(net.output)) == net.shape(index)


def test_a_fused_net_is_written_with_the_same_operators() -> None:
    (assignment,) = draw(space("fbnet").tables(UNFUSED), 1, seed=4)
    net = space("fbnet").net(assignment)
    assert sorted(n.op_type for n in net_model(fuse(net, USUAL)).graph.node) == sorted(
        n.op_type for n in net_model(net).graph.node
    )
    assert run(fuse(space("nasbench201").net((3, 1, 2, 4, 0, 3)), USUAL)).shape == (1, 10)


def test_every_kind_is_written_and_computes_what_it_says() -> None:
    """Each kind without weights against numpy; those with weights against the shapes alone, above."""
    x = np.random.default_rng(1).standard_normal((1, 4, 6, 6)).astype(np.float32)
    expected = {
        "Relu": np.maximum(x, 0),
        "Relu6": np.clip(x, 0, 6),
        "HardSwish": x * np.clip(x / 6 + 0.5, 0, 1),
        "HardSigmoid": np.clip(x / 6 + 0.5, 0, 1),
        "Sigmoid": 1 / (1 + np.exp(-x)),
        "Tanh": np.tanh(x),
        "Identity": x,
        "Zeros": 0 * x,
        "GlobalAveragePool": x.mean(axis=(2, 3), keepdims=True),
        "Swish": x / (1 + np.exp(-x)),
        "Gelu": x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2,
        "Softmax": np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True),
    }
    for kind, array in expected.items():
        made = run(net_of(Unit(layers=(layer(kind),), inputs=(x.shape,))))
        np.testing.assert_allclose(made, array, rtol=1e-5, atol=1e-6)
    shuffled = run(net_of(Unit(layers=(layer("ChannelShuffle", groups=2),), inputs=(x.shape,))))
    np.testing.assert_array_equal(shuffled, x[:, [0, 2, 1, 3]])
    mean = run(net_of(Unit(layers=(layer("AveragePool", kernel=3, pad=1),), inputs=(x.shape,))))
    np.testing.assert_allclose(mean[0, 0, 0, 0], x[0, 0, :2, :2].mean(), rtol=1e-5)
    turned = run(net_of(Unit(layers=(layer("Transpose", perm=(0, 2, 3, 1)),), inputs=(x.shape,))))
    np.testing.assert_array_equal(turned, x.transpose(0, 2, 3, 1))
    seen = run(net_of(Unit(layers=(layer("Reshape", shape=(2, 72)),), inputs=(x.shape,))))
    np.testing.assert_array_equal(seen, x.reshape(2, 72))
    product = run(net_of(Unit(layers=(layer("MatMul"),), inputs=((2, 3, 4), (2, 4, 5)))))
    assert product.shape == (2, 3, 5) and product.std() > 0.5
    rows = run(net_of(Unit(layers=(layer("Embedding", rows=9, width=5),), inputs=((1, 7),))))
    assert rows.shape == (1, 7, 5) and rows.std() > 0.3
    mixed = run(net_of(Unit(layers=(layer("Attention", heads=2),), inputs=((1, 3, 8), (1, 5, 8), (1, 5, 8)))))
    assert mixed.shape == (1, 3, 8) and np.isfinite(mixed).all()
    step = ((1, 1, 8),)
    for one, shapes in (
        (layer("Attention", heads=2, past=6), step * 3),
        (layer("CachedAttention", heads=2, past=6), step),
        (layer("Scale"), (x.shape,)),
        (layer("Bias"), (x.shape,)),
    ):
        found = run(net_of(Unit(layers=(one,), inputs=shapes)))
        assert found.shape == shapes[0] and np.isfinite(found).all() and found.std() > 0.01
    most = run(net_of(Unit(layers=(layer("MaxPool", kernel=2, stride=2),), inputs=(x.shape,))))
    np.testing.assert_array_equal(most[0, 0, 0, 0], x[0, 0, :2, :2].max())


def test_chains_take_their_inputs_in_order() -> None:
    unit = Unit(layers=(layer("Add"), layer("Concat"), layer("Mul")), inputs=((1, 2, 3, 3),) * 3 + ((1, 4, 1, 1),))
    rng = np.random.default_rng(1)
    a, b, c, d = (rng.standard_normal(shape).astype(np.float32) for shape in unit.inputs)
    np.testing.assert_allclose(run(net_of(unit)), np.concatenate([a + b, c], axis=1) * d, rtol=1e-5)


def test_a_net_of_nothing_and_the_empty_graph_hand_their_input_on() -> None:
    shape = (1, 3, 32, 32)
    for net in (Net(inputs=(shape,), nodes=(), output=-1), net_of(empty(shape))):
        model = net_model(net)
        assert [node.op_type for node in model.graph.node] == ["Identity"]
        x = np.random.default_rng(1).standard_normal((1, 3, 32, 32)).astype(np.float32)
        np.testing.assert_array_equal(run(net), x)


def test_files_are_the_same_each_time_and_differ_by_seed(tmp_path: Path) -> None:
    unit = Unit(layers=(layer("Conv", out_channels=8, kernel=3, bias=True), layer("Relu")), inputs=((1, 3, 8, 8),))
    first = write_unit(unit, tmp_path / "a.onnx").read_bytes()
    assert write_unit(unit, tmp_path / "b.onnx").read_bytes() == first
    assert write_unit(unit, tmp_path / "c.onnx", seed=1).read_bytes() != first


def test_operators_have_the_names_of_their_layers(tmp_path: Path) -> None:
    net = fuse(NasBench201().net((3, 1, 2, 4, 0, 3)), USUAL)
    graph = load(write_net(net, tmp_path / "net.onnx")).graph
    names = [operator.name for operator in graph.operators]
    for index, one in enumerate(net.nodes):
        assert {layer_name(index, place, kind) for place, kind in enumerate(one.unit.kinds)} <= set(names)
    assert {name.rsplit(".", 1)[0] for name in names if name.count(".") == 3} <= set(names)


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    unit = Unit(layers=(layer("Relu"),), inputs=((1, 3, 8, 8),))
    with pytest.raises(UsageError, match="no folder"):
        write_unit(unit, tmp_path / "none" / "a.onnx")
    job = Job(layer=Layer("Unheard"), name="s", number=0, inputs=("x0",), shapes=((1, 3),), output=(1, 3))
    with pytest.raises(ModelError, match="the layer Unheard cannot be written"):
        write_layer(Writer(onnx=onnx, dtype=np.dtype("float32"), seed=0), job)


def test_half_precision_is_written() -> None:
    unit = Unit(
        layers=(layer("Conv", out_channels=4, kernel=1), layer("Relu6")), inputs=((1, 3, 4, 4),), dtype="float16"
    )
    model = net_model(net_of(unit))
    onnx.checker.check_model(model, full_check=True)
    assert {tensor.data_type for tensor in model.graph.initializer} == {onnx.TensorProto.FLOAT16}


def net() -> Net:
    trace = Trace(((1, 2, 4, 4),))
    x = trace.input().conv(3, 3, bias=True).batch_norm().relu()
    return trace.net(x.global_average_pool().linear(2, bias=True))


def values(model: onnx.ModelProto) -> dict[str, NDArray[np.float32]]:
    return {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}


@given(st.sets(st.integers(0, 7), max_size=8))
def test_what_is_given_is_there_and_the_rest_as_the_seed_makes_it(chosen: set[int]) -> None:
    usual = values(net_model(net(), seed=3))
    assert len(usual) == 8
    given_ones = {name: array + np.float32(1) for k, (name, array) in enumerate(usual.items()) if k in chosen}
    found = values(net_model(net(), seed=3, weights=given_ones))
    assert found.keys() == usual.keys()
    for name, array in found.items():
        assert np.array_equal(array, given_ones.get(name, usual[name]))


def test_the_model_computes_with_them() -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    weights = {name: np.zeros_like(array) for name, array in values(net_model(net())).items()}
    last = next(name for name in weights if name.endswith(".b") and "Conv" not in name)
    weights[last] = np.array([5, -7], np.float32)
    weights[next(name for name in weights if name.endswith(".var"))] += 1
    model = net_model(net(), weights=weights)
    onnx.checker.check_model(model, full_check=True)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(["y"], {"x0": np.ones((1, 2, 4, 4), np.float32)})
    assert y.ravel().tolist() == [5, -7]


@pytest.mark.parametrize("name", ["n0.0.Conv.q", "n9.0.Conv.w", "y", ""])
def test_a_name_that_the_net_does_not_have_is_told(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no layer of the net has the weights") as told:
        write_net(net(), tmp_path / "m.onnx", weights={name: np.zeros(1, np.float32)})
    assert name in told.value.message and told.value.hint
    assert list(tmp_path.iterdir()) == []


@given(st.integers(0, 7), st.sampled_from(["more", "flat", "nan", "text", "whole"]))
def test_an_array_that_does_not_fit_is_told(place: int, way: str) -> None:
    name, array = list(values(net_model(net())).items())[place]
    wrong = {
        "more": np.concatenate([array, array]),
        "flat": array[None],
        "nan": np.where(np.arange(array.size).reshape(array.shape) == 0, np.float32(np.nan), array),
        "text": array.astype(str),
        "whole": array.astype(np.int32),
    }[way]
    with pytest.raises(ModelError) as told:
        net_model(net(), weights={name: wrong})
    assert name in told.value.message


def test_what_was_given_stays_as_it_was() -> None:
    weights = values(net_model(net()))
    kept = {name: array.copy() for name, array in weights.items()}
    first, second = (net_model(net(), weights=weights).SerializeToString() for _ in range(2))
    assert first == second
    assert weights.keys() == kept.keys() and all(np.array_equal(weights[name], kept[name]) for name in kept)
