"""A small made-up data set and small networks to train on it."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from gnomon.spaces.cells.primitives import published_primitives
from gnomon.spaces.cells.space import CellLayout, CellSpace, TaggedNet, tagged_net
from gnomon.training import Dataset, Images, Packed, Recipe, TrainJob, packed, split

SIZE = 12
CLASSES = 4
LAYOUT = CellLayout(
    input_shape=(1, 1, SIZE, SIZE), groups=(0, 1, 2), widths=(4, 8, 8), reduces=frozenset({1, 2}), classes=CLASSES
)
PRIMITIVES = published_primitives()
FAMILIES = ("Mobileblock_1", "Resblock_1", "VGGblock_2")


@functools.cache
def shapes(count: int = 400) -> Dataset:
    """Noisy images of a horizontal bar, a vertical bar, a cross, or a square, anywhere."""
    rng = np.random.default_rng(5)
    y = rng.integers(0, CLASSES, count)
    x = rng.integers(0, 90, (count, 1, SIZE, SIZE))
    for image, kind, (top, left) in zip(x[:, 0], y, rng.integers(0, SIZE - 6, (count, 2)), strict=True):
        if kind in (0, 2):
            image[top + 3, left : left + 7] = 250
        if kind in (1, 2):
            image[top : top + 7, left + 3] = 250
        if kind == 3:
            image[top : top + 6, left : left + 6] = 250
    images = Images(x=x.astype(np.uint8), y=y.astype(np.int64))
    train, validation, test = split(images, (0.6, 0.2, 0.2), seed=0)
    return Dataset(name="shapes", classes=CLASSES, train=train, validation=validation, test=test)


@functools.cache
def data() -> Packed:
    return packed(shapes())


def net(names: str | Sequence[str]) -> TaggedNet:
    """The network of a primitive everywhere, or of one a cell group."""
    groups = [names] * 3 if isinstance(names, str) else names
    return tagged_net(LAYOUT, [PRIMITIVES[name] for name in groups])


def space(*names: str) -> CellSpace:
    return CellSpace(name="small", layout=LAYOUT, choices=(tuple(PRIMITIVES[name] for name in names),) * 3)


def job(names: str | Sequence[str] = "VGGblock_1", epochs: int = 3, *, lr: float = 0.05) -> TrainJob:
    recipe = Recipe(
        epochs=epochs,
        optimizer={"type": "SGD", "lr": lr, "momentum": 0.9, "weight_decay": 1e-4},
        scheduler={"type": "CosineAnnealingLR", "T_max": epochs},
        batch_size=32,
    )
    return TrainJob(key=str(names), tagged=net(names), recipe=recipe, data=data(), seed=1)
