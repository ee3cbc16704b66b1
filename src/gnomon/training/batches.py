"""Images as batches of normalised tensors, in an order and with an augmentation of (seed, epoch) alone.

Images are kept as the bytes that they are, channels last, with a black border as wide as they may be moved; a batch is
gathered and normalised when it is its turn, which costs little beside a network and a quarter of the memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnomon.training.data import Dataset, Images
from gnomon.training.package import torch_package
from gnomon.training.recipe import Recipe
from gnomon.training.torch_net import generator

_EVALUATED = 256
"""Images in a batch that is only evaluated."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Feed:
    """One part of a data set on a device.

    `x` is uint8 (n, height + 2 border, width + 2 border, channels), `y` int64 (n,); `mean` and `std` (channels,).
    """

    x: Any
    y: Any
    mean: Any
    std: Any
    border: int

    def __len__(self) -> int:
        """How many images there are."""
        return int(self.y.shape[0])


def feed(dataset: Dataset, part: Images, device: str, *, border: int = 0) -> Feed:
    """A part of a data set on a device, normalised by the data set's mean and standard deviation."""
    torch = torch_package()
    edge = ((0, 0), (border, border), (border, border), (0, 0))
    x = np.pad(part.x.transpose(0, 2, 3, 1), edge)
    return Feed(
        x=torch.from_numpy(np.ascontiguousarray(x)).to(device),
        y=torch.from_numpy(np.array(part.y)).to(device),
        mean=torch.tensor(dataset.mean, dtype=torch.float32, device=device),
        std=torch.tensor(dataset.std, dtype=torch.float32, device=device),
        border=border,
    )


def border_of(recipe: Recipe, height: int) -> int:
    """By how many pixels images are moved at most."""
    return 0 if recipe.augment == "none" else max(1, height // 8)


def training_batches(source: Feed, recipe: Recipe, *, seed: int, epoch: int) -> Iterator[tuple[Any, Any]]:
    """The batches of an epoch: (b, channels, height, width) and (b,). A last one of a single image is left out.

    Batch normalisation has no variance of a single image behind a global pooling.
    """
    torch = torch_package()
    random, device, count = generator("order", seed, epoch), source.y.device, len(source)
    order = torch.randperm(count, generator=random).to(device)
    moves = torch.randint(0, 2 * source.border + 1, (2, count), generator=random).to(device)
    mirrored = (torch.randint(0, 2, (count,), generator=random) * (recipe.augment == "crop-flip")).to(device)
    for start in range(0, count, recipe.batch_size):
        rows = order[start : start + recipe.batch_size]
        if len(rows) > 1:
            images = source.x[rows] if not source.border else _moved(source, rows, moves, mirrored)
            yield _normalised(source, images), source.y[rows]


def evaluation_batches(source: Feed) -> Iterator[tuple[Any, Any]]:
    """All images in their order."""
    for start in range(0, len(source), _EVALUATED):
        rows = slice(start, start + _EVALUATED)
        yield _normalised(source, source.x[rows]), source.y[rows]


def trained_images(count: int, batch_size: int) -> int:
    """How many of so many images an epoch trains on."""
    return count - (count % batch_size == 1)


def _moved(source: Feed, rows: Any, moves: Any, mirrored: Any) -> Any:
    """A window of each image, mirrored or not."""
    torch = torch_package()
    height, width = (n - 2 * source.border for n in source.x.shape[1:3])
    along = torch.arange(width, device=rows.device)
    across = torch.where(mirrored[rows, None] == 1, width - 1 - along, along) + moves[1, rows, None]
    down = torch.arange(height, device=rows.device) + moves[0, rows, None]
    return source.x[rows[:, None, None], down[:, :, None], across[:, None, :]]


def _normalised(source: Feed, images: Any) -> Any:
    torch = torch_package()
    return images.to(torch.float32).sub_(source.mean).div_(source.std).permute(0, 3, 1, 2)
