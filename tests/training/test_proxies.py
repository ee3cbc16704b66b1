"""Scores of untrained networks, against formulas that are worked out another way."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.training.trainkit import CLASSES, FAMILIES, SIZE, net, shapes

from gnomon.errors import UsageError
from gnomon.spaces.cell_space import TaggedNet
from gnomon.spaces.symbol import Trace
from gnomon.training import Dataset, Images, build, counts
from gnomon.training.batches import feed, training_batches
from gnomon.training.proxies import PROXIES, score
from gnomon.training.recipe import Recipe

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def traced(width: int, activation: str = "Relu") -> TaggedNet:
    trace = Trace(((1, 1, SIZE, SIZE),))
    x = trace.input().conv(width, 3).layer(activation).global_average_pool().linear(CLASSES, bias=False)
    return TaggedNet(net=trace.net(x), tags=tuple("abcd"))


def batch(seed: int, size: int, count: int = 1) -> list[tuple[object, object]]:
    """The batches that `score` takes."""
    rows = np.random.default_rng(seed).permutation(len(shapes().train))[: 2 * size]
    source = feed(shapes(), shapes().train.take(rows), "cpu")
    return list(training_batches(source, Recipe(epochs=1, batch_size=size), seed=seed, epoch=0))[:count]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_score_is_a_number_that_depends_on_the_arguments_alone(name: str) -> None:
    made = score(net(name), shapes(), seed=1, inits=2, batch=32)
    assert tuple(made) == PROXIES
    assert all(value is not None and math.isfinite(value) for value in made.values())
    torch.manual_seed(9)
    assert score(net(name), shapes(), seed=1, inits=2, batch=32) == made
    assert score(net(name), shapes(), seed=2, inits=2, batch=32) != made
    assert made["params"] == counts.params(net(name).net) and made["macs"] == counts.macs(net(name).net)


def test_synflow_is_the_sum_over_paths() -> None:
    """Of absolute weights, a net without a gate in the way is linear: R, once for each of its two layers."""
    found = score(traced(6), shapes(), seed=3, inits=1)["synflow"]
    module = build(traced(6), None, seed=3)
    first, second = (layer.weight.detach().double().abs() for layer in module.by_tag.values())
    hidden = torch.nn.functional.conv2d(torch.ones(1, 1, SIZE, SIZE, dtype=torch.float64), first, padding=1)
    total = float((hidden.mean((2, 3)) @ second.T).sum())
    assert found == pytest.approx(math.log(2 * total))


def test_naswot_counts_gates_that_agree() -> None:
    found = score(traced(6), shapes(), seed=3, inits=1, batch=8)["naswot"]
    module, ((x, _),) = build(traced(6), None, seed=3), batch(3, 8)
    codes = (module.by_tag["a"](x) > 0).flatten(1).numpy()
    kernel = (codes[:, None] == codes[None, :]).sum(2)
    assert found == pytest.approx(np.linalg.slogdet(kernel.astype(float))[1])


def test_zico_compares_the_gradients_of_two_batches() -> None:
    found = score(traced(6), shapes(), seed=3, inits=1, batch=16)["zico"]
    module, total = build(traced(6), None, seed=3), 0.0
    gradients = []
    for x, y in batch(3, 16, 2):
        loss = torch.nn.functional.cross_entropy(module(x), y)
        gradients.append(torch.autograd.grad(loss, [one.weight for one in module.by_tag.values()]))
    for one, other in zip(*gradients, strict=True):
        a, b = one.abs().double(), other.abs().double()
        there = a != b
        total += math.log(float(((a + b)[there] / (a - b).abs()[there]).sum()))
    assert found == pytest.approx(total)


def test_jacov_prefers_images_that_are_told_apart() -> None:
    """A linear net has one gradient for all images; gates make them differ."""
    gated = score(traced(16), shapes(), seed=0, inits=1, batch=16)["jacov"]
    linear = score(traced(16, "Identity"), shapes(), seed=0, inits=1, batch=16)["jacov"]
    assert gated is not None and linear is not None and gated > linear


def test_what_cannot_be_told_is_none() -> None:
    assert score(traced(4, "Tanh"), shapes(), seed=0, inits=1, batch=8)["naswot"] is None
    x, y = np.full((16, 1, SIZE, SIZE), 9, np.uint8), np.zeros(16, np.int64)
    same = Images(x=x, y=y)
    alike = Dataset(name="s", classes=CLASSES, train=same, validation=same, test=same)
    made = score(net("VGGblock_1"), alike, seed=0, inits=1, batch=8)
    assert made["naswot"] is None and made["zico"] is None and made["synflow"] is not None
    dead = score(traced(4, "Zeros"), shapes(), seed=0, inits=1, batch=8)
    assert dead["jacov"] is None and dead["synflow"] is None and dead["params"] == 36 + 16


@pytest.mark.parametrize(("inits", "size"), [(0, 8), (1, 1), (1, 10_000)])
def test_numbers_that_cannot_be_meant_are_refused(inits: int, size: int) -> None:
    with pytest.raises(UsageError):
        score(net("VGGblock_1"), shapes(), seed=0, inits=inits, batch=size)
