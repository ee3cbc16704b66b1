"""Nets as ONNX models with given weights: they count, what is missing is made up, what does not fit is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gnomon.errors import ModelError
from gnomon.models.units import net_model, write_net
from gnomon.spaces import Net
from gnomon.spaces.unit import Trace


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
    with pytest.raises(ModelError, match="no weights") as told:
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
