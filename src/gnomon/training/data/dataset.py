"""Labelled images in memory: a data set, stratified splits, and batches in an order that depends only on (seed, epoch).

Images are kept as bytes, channels last, with a black border as wide as their largest shift. Bytes need only a quarter
of the memory of floats, and gathering and normalising each batch when needed costs little compared with training.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.core.codec import fields_of
from gnomon.errors import ProblemError
from gnomon.training.network import generator, torch_package
from gnomon.training.recipe import Recipe

PARTS = ("train", "validation", "test")
EVALUATED = 256
"""The number of images in a batch for evaluation."""

_COUNTED = 1 << 18  # the number of pixels counted at once


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Images:
    """Images `x`, uint8 (n, channels, height, width), and the numbers of their classes `y`, int64 (n,)."""

    x: NDArray[np.uint8]
    y: NDArray[np.int64]

    def __len__(self) -> int:
        """The number of images."""
        return len(self.x)

    def take(self, rows: NDArray[np.int64]) -> Images:
        """The images in these rows, in this order."""
        return Images(x=self.x[rows], y=self.y[rows])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dataset:
    """Images for training, for choosing networks (validation), and for a single evaluation at the end (test).

    `digest` is the SHA-256 of all contents. `mean` and `std` (one value per channel, for pixels from 0 to 255) come
    from the training images only; a constant channel gets the standard deviation 1. ProblemError if the images of the
    parts differ in shape.
    """

    name: str
    classes: int
    train: Images = field(repr=False)
    validation: Images = field(repr=False)
    test: Images = field(repr=False)
    digest: str = field(init=False)
    mean: tuple[float, ...] = field(init=False)
    std: tuple[float, ...] = field(init=False)

    def __post_init__(self) -> None:
        shapes = {name: list(getattr(self, name).x.shape[1:]) for name in PARTS}
        if shapes["train"] != shapes["validation"] or shapes["train"] != shapes["test"]:
            raise ProblemError(f"images differ in shape: {shapes}", hint="Give all images the same shape.")
        object.__setattr__(self, "digest", _digest(self))
        mean, std = moments(self.train.x)
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "std", std)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        _, channels, height, width = self.train.x.shape
        return channels, height, width

    @property
    def labels(self) -> dict[str, NDArray[np.int64]]:
        """The classes of each part's images."""
        return {name: getattr(self, name).y for name in PARTS}

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the command's report; none for images in memory."""
        return ()

    def count(self, part: str) -> int:
        """The number of images in a part."""
        return len(getattr(self, part))

    def some(self, part: str, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The given rows of a part as images: uint8 (n, channels, height, width)."""
        images: Images = getattr(self, part)
        return images.x[rows]

    def open(self) -> Dataset:
        """Return the data set itself."""
        return self

    def supply(self, device: str, recipe: Recipe, *, seed: int) -> Supply:
        """The batches for a training on a device."""
        return Supply(self, device, recipe, seed)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MappedDataset:
    """A data set whose pixels are in a file, so that all processes of a machine share one copy.

    `labels` are the classes of each part's images; the file has the parts in the order of `PARTS`.
    """

    name: str
    classes: int
    digest: str
    labels: Mapping[str, NDArray[np.int64]] = field(repr=False)
    path: str

    def open(self) -> Dataset:
        """The data set with its pixels mapped into memory; a process keeps the data set that it opened last."""
        if self.digest not in _OPENED:
            ends = np.cumsum([len(self.labels[part]) for part in PARTS])
            pixels = np.split(np.load(self.path, mmap_mode="r"), ends[:-1])
            parts = {part: Images(x=x, y=self.labels[part]) for part, x in zip(PARTS, pixels, strict=True)}
            _OPENED.clear()
            _OPENED[self.digest] = Dataset(name=self.name, classes=self.classes, **parts)
        return _OPENED[self.digest]


_OPENED: dict[str, Dataset] = {}


def map_dataset(dataset: Dataset, path: Path) -> MappedDataset:
    """Write the pixels of a data set to a file, from which other processes can open it. OSError if that fails."""
    with path.open("wb") as file:
        np.save(file, np.concatenate([getattr(dataset, part).x for part in PARTS]))
    return MappedDataset(path=str(path.absolute()), **fields_of(MappedDataset, dataset))


def check_classes(source: str, names: Sequence[str], classes: int) -> None:
    """Raise ProblemError if a source of images has more classes than the networks."""
    if len(names) > classes:
        raise ProblemError(
            f"{source} has {len(names)} classes, but the config's networks have {classes}",
            hint="Correct weights_manager_cfg.num_classes.",
        )


def split_parts(
    labels: Mapping[str, NDArray[np.int64]], shares: tuple[float, float], *, seed: int
) -> dict[str, tuple[str, NDArray[np.int64]]]:
    """For each of the `PARTS`, the part of the source from which it is taken, and its rows.

    `labels` are the classes of the source's parts. A missing validation or test part gets its share of the training
    part.
    """
    parts = {name: (name, np.arange(len(y), dtype=np.int64)) for name, y in labels.items()}
    missing = {name: share for name, share in zip(PARTS[1:], shares, strict=True) if name not in labels}
    if missing:
        cuts = split_rows(labels["train"], (1 - sum(missing.values()), *missing.values()), seed=seed)
        parts |= {name: ("train", rows) for name, rows in zip(("train", *missing), cuts, strict=True)}
    return parts


def split_rows(y: NDArray[np.int64], shares: Sequence[float], *, seed: int) -> tuple[NDArray[np.int64], ...]:
    """The rows of disjoint parts, in ascending order. Each part gets its share of every class, in whole images.

    Shares are positive and at most 1 in total; the draw depends only on the seed, the classes and the shares.
    ProblemError for a part that would be empty.
    """
    ends = np.minimum(np.cumsum(shares), 1.0)
    rng = np.random.default_rng(seed)
    parts: list[list[NDArray[np.int64]]] = [[] for _ in shares]
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        cuts = np.rint(ends * len(rows)).astype(np.int64)
        for part, start, end in zip(parts, [0, *cuts[:-1]], cuts, strict=True):
            part.append(rows[start:end])
    if any(not sum(map(len, part)) for part in parts):
        raise ProblemError(
            f"{len(y)} images are too few for the shares {list(shares)}", hint="Give more images, or fewer parts."
        )
    return tuple(np.sort(np.concatenate(part)) for part in parts)


def moments(x: NDArray[np.uint8]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, computed exactly from counts of each value, one chunk at a time."""
    means, stds, values = [], [], np.arange(256.0)
    for channel in range(x.shape[1]):
        counts = np.zeros(256)
        for rows in np.array_split(x[:, channel], max(1, x.size // _COUNTED)):  # bincount makes each chunk int64
            counts += np.bincount(rows.ravel(), minlength=256)
        counts /= x.size / x.shape[1]
        mean = float(counts @ values)
        std = math.sqrt(float(counts @ (values - mean) ** 2))
        means.append(mean)
        stds.append(std or 1.0)
    return tuple(means), tuple(stds)


def moved_most(height: int) -> int:
    """The largest shift, in pixels, of images of this height: an eighth of the height, but at least 1."""
    return max(1, height // 8)


def trained_images(count: int, batch_size: int) -> int:
    """The number of images, out of `count`, that an epoch trains on."""
    return count - (count % batch_size == 1)


class Supply:
    """The batches of a data set in memory, on a device: normalised images (b, channels, height, width) and classes
    (b,).
    """

    def __init__(self, dataset: Dataset, device: str, recipe: Recipe, seed: int) -> None:
        torch = torch_package()
        self._dataset, self._device, self._recipe, self._seed = dataset, device, recipe, seed
        self._border = 0 if recipe.augment == "none" else moved_most(dataset.shape[1])
        self._moments = [torch.tensor(v, dtype=torch.float32, device=device) for v in (dataset.mean, dataset.std)]
        self._images: dict[str, tuple[Any, Any]] = {}

    def training(self, epoch: int) -> Iterator[tuple[Any, Any]]:
        """The batches of an epoch. A last batch of a single image is left out.

        With a single image, batch normalisation after global pooling would have no variance to divide by.
        """
        torch, size = torch_package(), self._recipe.batch_size
        x, y = self._part("train", self._border)
        random, count = generator("order", self._seed, epoch), len(y)
        order = torch.randperm(count, generator=random).to(self._device)
        moves = torch.randint(0, 2 * self._border + 1, (2, count), generator=random).to(self._device)
        mirrored = torch.randint(0, 2, (count,), generator=random).to(self._device)
        for rows in order.split(size):
            if len(rows) > 1:
                images = self._moved(x, rows, moves, mirrored) if self._border else x[rows]
                yield self._normalised(images), y[rows]

    def evaluation(self, part: str) -> Iterator[tuple[Any, Any]]:
        """All images of a part in order."""
        x, y = self._part(part, 0)
        for images, labels in zip(x.split(EVALUATED), y.split(EVALUATED), strict=True):
            yield self._normalised(images), labels

    def close(self) -> None:
        """Release the images on the device."""
        self._images.clear()

    def _part(self, part: str, border: int) -> tuple[Any, Any]:
        """The images of a part, (n, height + 2 border, width + 2 border, channels), and their classes."""
        if part not in self._images:
            torch, images = torch_package(), getattr(self._dataset, part)
            x = np.pad(images.x.transpose(0, 2, 3, 1), ((0, 0), (border, border), (border, border), (0, 0)))
            x, y = np.ascontiguousarray(x), np.array(images.y)
            self._images[part] = torch.from_numpy(x).to(self._device), torch.from_numpy(y).to(self._device)
        return self._images[part]

    def _moved(self, x: Any, rows: Any, moves: Any, mirrored: Any) -> Any:
        """A shifted window of each image, perhaps mirrored."""
        torch = torch_package()
        _, height, width = self._dataset.shape
        along = torch.arange(width, device=rows.device)
        if self._recipe.augment == "crop-flip":
            along = torch.where(mirrored[rows, None] == 1, width - 1 - along, along)
        across = along + moves[1, rows, None]
        down = torch.arange(height, device=rows.device) + moves[0, rows, None]
        return x[rows[:, None, None], down[:, :, None], across[:, None, :]]

    def _normalised(self, images: Any) -> Any:
        mean, std = self._moments
        return images.to(torch_package().float32).sub_(mean).div_(std).permute(0, 3, 1, 2)


def _digest(dataset: Dataset) -> str:
    digest = hashlib.sha256(json.dumps([dataset.name, dataset.classes]).encode())
    for name in PARTS:
        for axis in "xy":
            array = getattr(getattr(dataset, name), axis)
            digest.update(json.dumps([name, axis, list(array.shape)]).encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
