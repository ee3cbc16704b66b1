"""Weights by tag: a state that a model file is written with comes back from it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from gnomon.errors import ModelError
from gnomon.models.units import write_net
from gnomon.spaces.cells.primitives import named, published_primitives
from gnomon.spaces.cells.space import (
    PARTS,
    CellLayout,
    TaggedNet,
    model_weights,
    shared,
    state_prefix,
    tagged_net,
)
from gnomon.spaces.unit import layer_name

LAYOUT = CellLayout(input_shape=(1, 1, 8, 8), groups=(0, 1), widths=(4, 8), reduces=frozenset({1}), classes=3)
State = dict[str, NDArray[np.float32]]


def tagged(*names: str) -> TaggedNet:
    return tagged_net(LAYOUT, named(published_primitives(), names))


def values(path: Path) -> dict[str, NDArray[np.float32]]:
    """The constants of a model by name."""
    return {one.name: onnx.numpy_helper.to_array(one) for one in onnx.load(path).graph.initializer}


def state_of(net: TaggedNet, path: Path) -> State:
    """A state of all parameters, of other values than any seed makes: by what a model file has."""
    write_net(net.net, path)
    names = {
        f"{layer_name(k, 0, kind)}.{part}": f"{state_prefix(tag)}{own}"
        for k, (node, tag) in enumerate(zip(net.net.nodes, net.tags, strict=True))
        for kind in node.unit.kinds
        for own, part in PARTS.get(kind, {}).items()
    }
    rng = np.random.default_rng(5)
    made = {}
    for name, array in values(path).items():
        turned = array.T if array.ndim == 2 else array  # PyTorch has linear layers as (out, in)
        made[names[name]] = rng.uniform(0.5, 2, turned.shape).astype(np.float32)
    return made


def test_a_state_comes_back_from_the_file_it_was_written_into(tmp_path: Path) -> None:
    net = tagged("Resblock_1", "Mobileblock_4")
    state = state_of(net, tmp_path / "made.onnx")
    assert {name.rpartition(".")[2] for name in state} == {"weight", "bias", "running_mean", "running_var"}
    weights = model_weights(net, state)
    found = values(write_net(net.net, tmp_path / "net.onnx", seed=1, weights=weights))
    assert found.keys() == weights.keys()
    assert all(np.array_equal(found[name], weights[name]) for name in weights)


def test_what_belongs_to_other_networks_stays_out(tmp_path: Path) -> None:
    one, other = tagged("VGGblock_0", "VGGblock_1"), tagged("VGGblock_0", "VGGblock_2")
    state = state_of(one, tmp_path / "one.onnx")
    common = shared(state, other)
    assert common.keys() == {name for name in state if not name.startswith("l1.")}
    assert all(common[name] is state[name] for name in common)
    assert set(model_weights(other, state)) == set(model_weights(other, common))
    assert shared({"l0": state["head.1.weight"], "x.w": state["head.1.weight"], "": state["head.1.weight"]}, one) == {}


@pytest.mark.parametrize("wrong", ["shape", "nan", "integers", "part"])
def test_what_does_not_fit_is_told_by_its_name(wrong: str, tmp_path: Path) -> None:
    net = tagged("VGGblock_0", "VGGblock_1")
    state: dict[str, NDArray[np.generic]] = dict(state_of(net, tmp_path / "made.onnx"))
    name = "l1.VGGblock_1.0.weight"
    array = state[name]
    state |= {
        "shape": {name: array[:-1]},
        "nan": {name: np.full_like(array, np.nan)},
        "integers": {name: array.astype(np.int64)},
        "part": {"l1.VGGblock_1.0.spice": array},
    }[wrong]
    where = tmp_path / "net.onnx"
    with pytest.raises(ModelError) as told:
        write_net(net.net, where, weights=model_weights(net, state))
    assert ("spice" if wrong == "part" else "Conv.w") in told.value.message
    assert told.value.hint
    assert not where.exists()
