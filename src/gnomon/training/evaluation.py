"""How many images a network has right: as it is, or with the parameters of a supernet and statistics of its own.

Batch normalisation in a supernet has the statistics of a mixture, so that a network's own are taken from training
images before its accuracy is (Yu and Huang, "Universally slimmable networks and improved training techniques", ICCV
2019; Guo et al., "Single path one-shot neural architecture search", ECCV 2020).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import ProblemError
from gnomon.spaces.cell_space import TaggedNet
from gnomon.spaces.weights import State, shared
from gnomon.training.batches import Feed, evaluation_batches, feed, training_batches
from gnomon.training.data import Dataset
from gnomon.training.package import torch_package
from gnomon.training.recipe import Recipe
from gnomon.training.torch_net import build

RECALIBRATE = 16
"""Batches that the statistics of batch normalisations are taken from, unless told otherwise."""


def right(module: Any, source: Feed) -> NDArray[np.uint8]:
    """For each image 1 where the module, in evaluation mode, has its class right, else 0."""
    torch = torch_package()
    module.eval()
    with torch.no_grad():
        found = [(module(x).argmax(1) == y) for x, y in evaluation_batches(source)]
    return np.asarray(torch.cat(found).to(torch.uint8).cpu().numpy())


def evaluate(
    pool: State,
    tagged: TaggedNet,
    data: Dataset,
    *,
    seed: int = 0,
    recalibrate: int = RECALIBRATE,
    batch: int = 64,
    device: str = "cpu",
) -> NDArray[np.uint8]:
    """For each validation image 1 where a network with a pool's parameters is right, else 0; the pool stays as it is.

    Statistics of batch normalisations are the mean over `recalibrate` batches of training images, drawn by the seed; 0
    leaves the pool's. ProblemError where the pool lacks a parameter of the network.
    """
    missing = [
        tag
        for tag, node in zip(tagged.tags, tagged.net.nodes, strict=True)
        if node.unit.kinds[0] in {"Conv", "Linear"} and f"{tag}.w" not in pool
    ]
    if missing:
        raise ProblemError(
            f"the pool has no parameters {', '.join(missing[:20])}", hint="Train a supernet of this network's space."
        )
    torch = torch_package()
    module = build(tagged, shared(pool, tagged), seed=seed).to(device, memory_format=torch.channels_last)
    if recalibrate:
        rows = np.random.default_rng(seed).permutation(len(data.train))[: recalibrate * batch]
        source = feed(data, data.train.take(rows), device)
        recalibrate_statistics(module, source, Recipe(epochs=1, batch_size=batch), seed)
    return right(module, feed(data, data.validation, device))


def recalibrate_statistics(module: Any, source: Feed, recipe: Recipe, seed: int) -> None:
    """Sets statistics of batch normalisations to their mean over all batches."""
    normalisations = [one for one in module.by_tag.values() if one.gnomon_kind == "BatchNormalization"]
    module.train()
    with torch_package().no_grad():
        for k, (x, _) in enumerate(training_batches(source, recipe, seed=seed, epoch=0)):
            for one in normalisations:
                one.momentum = 1 / (k + 1)
            module(x)
    for one in normalisations:
        one.momentum = 0.1
