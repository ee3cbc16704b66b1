"""Nets as PyTorch modules, against ONNX Runtime, PyTorch's own layers, and arithmetic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.training.trainkit import PRIMITIVES, by_onnx, net

from gnomon.errors import ProblemError
from gnomon.models.load import load
from gnomon.models.units import net_model, write_net
from gnomon.spaces import UNFUSED, Net, draw, load_space
from gnomon.spaces.cells.space import TaggedNet, model_weights, shared
from gnomon.spaces.layers import KINDS
from gnomon.spaces.unit import Symbol, Trace
from gnomon.spaces.work import size_of
from gnomon.training.network import build, state_of

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

State = dict[str, NDArray[np.float32]]
PUBLISHED = sorted(PRIMITIVES)


def plain(found: Net) -> TaggedNet:
    return TaggedNet(net=found, tags=tuple(f"n/{k}" for k in range(len(found.nodes))))


def drawn(name: str, seed: int) -> TaggedNet:
    loaded = load_space(name)
    (assignment,) = draw(loaded.tables(UNFUSED), 1, seed=seed)
    return plain(loaded.net(assignment))


def traced(shape: tuple[int, ...], write: Any) -> TaggedNet:
    trace = Trace((shape,))
    return plain(trace.net(write(trace.input())))


def lively(tagged: TaggedNet, seed: int) -> State:
    """Parameters of a net in which no part has its first value, and values keep their size, as in a trained one."""
    rng = np.random.default_rng(seed)
    module = build(tagged, None, seed=seed)
    for layer in module.modules():
        layer.momentum = 1.0
    with torch.no_grad():
        module(torch.from_numpy(rng.standard_normal((2, *tagged.net.inputs[0][1:])).astype(np.float32)))
    state = state_of(module)
    for name, array in state.items():
        if array.ndim == 1:
            state[name] = (array * rng.uniform(0.9, 1.1, array.shape)).astype(np.float32)
        if name.endswith(".bias"):
            state[name] = (0.1 * rng.standard_normal(array.shape)).astype(np.float32)
    return state


def check_equal(tagged: TaggedNet, seed: int = 3) -> None:
    """PyTorch and ONNX Runtime make the same of an image, relative to the largest value."""
    state = lively(tagged, seed)
    x = np.random.default_rng(seed).standard_normal(tagged.net.inputs[0]).astype(np.float32)
    module = build(tagged, state, seed=0).eval()
    with torch.no_grad():
        made = module(torch.from_numpy(x)).numpy()
    wanted = by_onnx(net_model(tagged.net, weights=model_weights(tagged, state)).SerializeToString(), x)
    assert made.shape == wanted.shape
    assert np.abs(made - wanted).max() <= 1e-4 * max(1.0, np.abs(wanted).max())


@settings(max_examples=15)
@given(st.lists(st.sampled_from(PUBLISHED), min_size=3, max_size=3), st.integers(0, 99))
def test_mixed_nets_of_the_published_primitives_compute_what_their_model_file_does(names: list[str], seed: int) -> None:
    check_equal(net(names), seed)


@pytest.mark.parametrize("name", ["mobilenetv2-cifar10", "nasbench201", "fbnet", "ofa-mobilenetv3"])
def test_nets_of_shipped_spaces_compute_what_their_model_file_does(name: str) -> None:
    check_equal(drawn(name, 4))


def _every_kind(x: Symbol) -> Symbol:
    y = x.conv(8, 3, stride=2, bias=True, dilation=2, group=2).layer("Tanh").hard_swish()
    z = y.channel_shuffle(4).layer("Sigmoid").layer("Identity").relu6()
    gate = y.global_average_pool().conv(8, 1, bias=True).hard_sigmoid()
    y = (y * gate).concat(z.layer("Zeros") + z).batch_norm().relu()
    y = y.max_pool((3, 2), stride=(2, 1), pad=(1, 1)).average_pool((2, 3), stride=(1, 2), pad=(1, 1))
    z = y.reshape(1, y.channels, y.shape[2] * y.shape[3]).transpose(0, 2, 1).linear(12).layer_norm()
    z = z.attention(z.linear(12, bias=False).gelu(), z.swish(), heads=3)
    z = z.matmul(z.transpose(0, 2, 1)).softmax()
    return y.global_average_pool().linear(5) + z.linear(5).reshape(1, z.shape[1], 5, 1).global_average_pool().linear(5)


def test_every_kind_of_layer_computes_what_its_operator_does() -> None:
    tagged = traced((1, 4, 13, 10), _every_kind)
    assert {node.unit.kinds[0] for node in tagged.net.nodes} == set(KINDS) - {
        "Embedding",
        "Scale",
        "Bias",
        "CachedAttention",
        "Module",
    }
    check_equal(tagged)


def test_nets_that_share_a_tag_begin_alike_and_the_seed_matters() -> None:
    one = state_of(build(net("VGGblock_1"), None, seed=3))
    other_net = net(["VGGblock_1", "Mobileblock_2", "VGGblock_1"])
    other = state_of(build(other_net, None, seed=3))
    common = shared(one, other_net)
    assert {name.split(".")[0] for name in common} == {"l0", "l2", "head"}
    assert all(np.array_equal(other[name], array) for name, array in common.items())
    different = state_of(build(net("VGGblock_1"), None, seed=4))
    assert not np.array_equal(one["l0.VGGblock_1.0.weight"], different["l0.VGGblock_1.0.weight"])


def test_a_state_of_part_of_a_net_is_taken_and_the_rest_made() -> None:
    whole = net(["VGGblock_1", "Mobileblock_2", "VGGblock_1"])
    given_part: State = {"l1.Mobileblock_2.0.weight": np.full((4 * 6, 4, 1, 1), 0.5, np.float32)}
    given_part["l9.Other_1.0.weight"] = np.zeros(3, np.float32)
    made, fresh = state_of(build(whole, given_part, seed=3)), state_of(build(whole, None, seed=3))
    assert (made["l1.Mobileblock_2.0.weight"] == 0.5).all()
    assert all(np.array_equal(made[name], fresh[name]) for name in fresh if name != "l1.Mobileblock_2.0.weight")


def test_the_global_random_numbers_neither_matter_nor_move() -> None:
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    one = state_of(build(net("Resblock_1"), None, seed=3))
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(2)
    assert all(np.array_equal(a, one[k]) for k, a in state_of(build(net("Resblock_1"), None, seed=3)).items())


def test_fresh_convolutions_keep_the_size_of_what_follows_a_relu() -> None:
    state = state_of(build(traced((1, 64, 4, 4), lambda x: x.conv(256, 3)), None, seed=0))
    assert state["n.0.weight"].std() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.02)


def test_statistics_move_as_those_of_pytorchs_own_layer_do() -> None:
    module = build(traced((1, 3, 5, 5), lambda x: x.batch_norm()), None, seed=0)
    own, x = torch.nn.BatchNorm2d(3), torch.randn(6, 3, 5, 5)
    for _ in range(3):
        assert torch.equal(module(x), own(x))
    state = state_of(module)
    assert np.array_equal(state["n.0.running_mean"], own.running_mean.numpy())
    assert np.array_equal(state["n.0.running_var"], own.running_var.numpy())
    assert state["n.0.running_var"] == pytest.approx(0.9**3 + (1 - 0.9**3) * x.var((0, 2, 3)).numpy(), rel=1e-5)


def test_all_parameters_that_do_not_fit_are_named() -> None:
    wrong = {"l0.VGGblock_1.0.weight": np.zeros((1, 2), np.float32), "head.1.weight": np.zeros((8, 4), np.int64)}
    with pytest.raises(ProblemError, match=r"l0\.VGGblock_1\.0\.weight.*head\.1\.weight.*int64"):
        build(net("VGGblock_1"), wrong, seed=0)  # type: ignore[arg-type]


def test_padding_that_pytorch_does_not_do_is_refused() -> None:
    with pytest.raises(ProblemError, match="padded"):
        build(traced((1, 3, 8, 8), lambda x: x.max_pool(3, pad=2)), None, seed=0)


def test_counts_are_those_of_the_model(tmp_path: Path) -> None:
    for tagged in (drawn("mobilenetv2-cifar10", 1), drawn("nasbench201", 2), net("Mobileblock_5")):
        write_net(tagged.net, tmp_path / "m.onnx")
        assert size_of(tagged.net).macs == load(tmp_path / "m.onnx").graph.macs
        assert size_of(tagged.net).parameters == sum(one.numel() for one in build(tagged, None, seed=0).parameters())
