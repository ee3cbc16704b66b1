"""A small made-up data set and small networks to train on it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnomon.spaces.cells.primitives import published_primitives
from gnomon.spaces.cells.space import CellLayout, TaggedNet, tagged_net
from gnomon.training import loop
from gnomon.training.data.dataset import PARTS, Dataset, Images, split_parts
from gnomon.training.loop import Trained, TrainJob
from gnomon.training.recipe import Recipe

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
    return dataset_of("shapes", images, seed=0)


def dataset_of(name: str, images: Images, *, seed: int) -> Dataset:
    """Images in three parts."""
    rows = split_parts({"train": images.y}, (0.2, 0.2), seed=seed)
    train, validation, test = (images.take(rows[part][1]) for part in PARTS)
    return Dataset(name=name, classes=CLASSES, train=train, validation=validation, test=test)


def net(names: str | Sequence[str]) -> TaggedNet:
    """The network of a primitive everywhere, or of one a cell group."""
    groups = [names] * 3 if isinstance(names, str) else names
    return tagged_net(LAYOUT, [PRIMITIVES[name] for name in groups])


def job(names: str | Sequence[str] = "VGGblock_1", epochs: int = 3, *, lr: float = 0.05) -> TrainJob:
    recipe = Recipe(
        epochs=epochs,
        optimizer={"type": "SGD", "lr": lr, "momentum": 0.9, "weight_decay": 1e-4},
        scheduler={"type": "CosineAnnealingLR", "T_max": epochs},
        batch_size=32,
    )
    return TrainJob(tagged=net(names), recipe=recipe, data=shapes(), seed=1)


class Killed(Exception):
    """A training was ended after an epoch."""


def kill_after(patch: pytest.MonkeyPatch, *epochs: int) -> None:
    """End trainings in this process once they have kept so many epochs."""
    keep = loop._keep

    def kill(run: loop._Run, partial: Path) -> None:
        keep(run, partial)
        if len(run.history) in epochs:
            raise Killed

    patch.setattr(loop, "_keep", kill)


def check_same(one: Trained, other: Trained) -> None:
    """Equal to the last bit in all that is not a time."""
    assert one.failure is None and other.failure is None
    assert one.state is not None and other.state is not None
    assert one.state.keys() == other.state.keys()
    assert all(np.array_equal(one.state[name], other.state[name]) for name in one.state)
    assert (one.losses, one.accuracies, one.test_accuracy) == (other.losses, other.accuracies, other.test_accuracy)
    assert one.correct is not None and other.correct is not None
    assert np.array_equal(one.correct, other.correct)
    assert (one.epochs, one.samples, one.macs) == (other.epochs, other.samples, other.macs)


def by_onnx(content: bytes, x: Any) -> Any:
    """What ONNX Runtime makes of images by a model's bytes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return session.run(["y"], {"x0": x})[0]
