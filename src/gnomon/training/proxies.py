"""Scores of a network that is not trained, from a batch or two.

Sources: jacov, Mellor et al., "Neural architecture search without training", arXiv 2006.04647v1 (2020); naswot, the
same, ICML 2021; synflow, Tanaka et al., "Pruning neural networks without any data", NeurIPS 2020, as a score of whole
networks by Abdelfattah et al., "Zero-cost proxies for lightweight NAS", ICLR 2021; zico, Li et al., "ZiCo: zero-shot
NAS via inverse coefficient of variation on gradients", ICLR 2023. Higher is meant to be better for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gnomon.errors import UsageError
from gnomon.spaces.cell_space import TaggedNet
from gnomon.training import counts
from gnomon.training.batches import feed, training_batches
from gnomon.training.data import Dataset
from gnomon.training.loop import threads
from gnomon.training.package import torch_package
from gnomon.training.recipe import Recipe
from gnomon.training.torch_net import assemble, build, make_layers

_EPSILON = 1e-5  # of jacov, as published
_GATES = frozenset({"Relu", "Relu6", "HardSwish"})
"""Activations that let through what is positive."""

PROXIES = ("jacov", "naswot", "synflow", "zico", "params", "macs")
"""The names of all scores."""


def score(tagged: TaggedNet, data: Dataset, *, seed: int, inits: int = 3, batch: int = 64) -> dict[str, float | None]:
    """All scores of a net: the mean over fresh parameters of `inits` seeds, on images of the training part.

    None for a score that is not finite, or that the net or the batch has not (no gate for naswot, say). `zico` takes
    two batches, the others the first of them; `synflow` is the natural logarithm of the published sum. `macs` are of
    one image. `jacov` means little where a batch has as many images as an image has values. UsageError for numbers
    that cannot be meant; RuntimeMissingError without PyTorch.
    """
    if inits < 1 or batch < 2 or len(data.train) < 2 * batch:
        raise UsageError(
            f"{inits} initialisations and two batches of {batch} of {len(data.train)} images cannot be meant",
            hint="Give at least one initialisation, and a batch of 2 to half of the training images.",
        )
    rows = np.random.default_rng(seed).permutation(len(data.train))[: 2 * batch]
    source = feed(data, data.train.take(rows), "cpu")
    pairs = list(training_batches(source, Recipe(epochs=1, batch_size=batch), seed=seed, epoch=0))
    found: dict[str, float | None] = {}
    with threads(1):
        for name, proxy in _PROXIES.items():
            values = [_finite(proxy, tagged, pairs, seed * inits + k) for k in range(inits)]
            known = [value for value in values if value is not None]
            found[name] = math.fsum(known) / inits if len(known) == inits else None
    found["params"] = float(counts.params(tagged.net))
    found["macs"] = counts.macs(tagged.net) / tagged.net.inputs[0][0]
    return found


_Proxy = Callable[[TaggedNet, list[tuple[Any, Any]], int], float | None]


def _finite(proxy: _Proxy, tagged: TaggedNet, pairs: list[tuple[Any, Any]], seed: int) -> float | None:
    """A score, or None where it cannot be told."""
    try:
        with np.errstate(all="ignore"):
            value = proxy(tagged, pairs, seed)
    except (np.linalg.LinAlgError, RuntimeError, ValueError):
        return None
    return value if value is not None and math.isfinite(value) else None


def _jacov(tagged: TaggedNet, pairs: list[tuple[Any, Any]], seed: int) -> float:
    """How little the gradients of images, by their pixels, are correlated."""
    module = build(tagged, None, seed=seed)
    x = pairs[0][0].clone().requires_grad_(True)
    module(x).sum().backward()
    jacobian = x.grad.flatten(1).double().numpy()
    values = np.linalg.eigvalsh(np.corrcoef(jacobian)) + _EPSILON
    return -float((np.log(values) + 1 / values).sum())


def _naswot(tagged: TaggedNet, pairs: list[tuple[Any, Any]], seed: int) -> float | None:
    """The log-determinant of how many gates two images open alike."""
    torch = torch_package()
    module, x = build(tagged, None, seed=seed), pairs[0][0]
    gates = {index for index, node in enumerate(tagged.net.nodes) if node.unit.kinds[-1] in _GATES}
    kernel = np.zeros((len(x), len(x)))

    def watch(index: int, value: Any) -> None:
        if index in gates:
            opened = (value > 0).flatten(1).to(torch.float32)
            closed = 1 - opened
            kernel[:] += (opened @ opened.T + closed @ closed.T).double().numpy()

    module.watch = watch
    with torch.no_grad():
        module(x)
    sign, logarithm = np.linalg.slogdet(kernel)
    return float(logarithm) if gates and sign > 0 else None


def _synflow(tagged: TaggedNet, pairs: list[tuple[Any, Any]], seed: int) -> float | None:
    """The logarithm of the sum of |weight x gradient| of the net of absolute weights, without batch normalisation."""
    torch = torch_package()
    layers = make_layers((tagged,), None, seed=seed)
    weights = []
    for tag, one in layers.items():
        if one.gnomon_kind == "BatchNormalization":
            layers[tag] = torch.nn.Identity()
        else:
            weights.append(one.double().weight.requires_grad_(True))
    with torch.no_grad():
        for weight in weights:
            weight.abs_()
    x = torch.ones((1, *pairs[0][0].shape[1:]), dtype=torch.float64)
    assemble(tagged, layers)(x).sum().backward()
    total = sum(float((weight.detach() * weight.grad).abs().sum()) for weight in weights if weight.grad is not None)
    return math.log(total) if 0 < total < math.inf else None


def _zico(tagged: TaggedNet, pairs: list[tuple[Any, Any]], seed: int) -> float | None:
    """Over layers, the log of the sum over weights of mean |gradient| by its standard deviation, over batches."""
    torch = torch_package()
    module = build(tagged, None, seed=seed)
    kept = [one.weight for one in module.by_tag.values() if one.gnomon_kind != "BatchNormalization"]
    seen: list[list[Any]] = [[] for _ in kept]
    for x, y in pairs[:2]:
        module.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(module(x), y).backward()
        for gradients, weight in zip(seen, kept, strict=True):
            if weight.grad is not None:
                gradients.append(weight.grad.abs().double())
    logs = []
    for gradients in (torch.stack(one) for one in seen if one):
        deviation = gradients.std(0, correction=0)
        there = deviation > 0
        total = float((gradients.mean(0)[there] / deviation[there]).sum())
        if total > 0:
            logs.append(math.log(total))
    return math.fsum(logs) if logs else None


_PROXIES: dict[str, _Proxy] = {"jacov": _jacov, "naswot": _naswot, "synflow": _synflow, "zico": _zico}
