"""Data sets that are read as they are needed: folders of pictures, Hugging Face's, and whatever a function returns.

Nothing is held in memory but the classes of the images. Each process opens the data set by itself, and PyTorch's
DataLoader reads it, in the process that trains or in others beside it. What an item is made of by chance depends on
(seed, epoch, item) alone, so that neither the number of these processes nor an interruption changes what is trained.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import GnomonError, ProblemError, UsageError
from gnomon.training.data.dataset import EVALUATED, PARTS, check_classes, moments, split_parts
from gnomon.training.data.items import ITEM, Key, Origin, open_origin, read_item
from gnomon.training.network import generator, torch_package
from gnomon.training.recipe import Recipe

_AGAIN = "Put the images back as they were, draw no random numbers but the global ones, or begin another profile."
_SAMPLED = 32  # items of each part by which a data set is known again
_MOMENTS = 256  # training images of which mean and standard deviation are taken
_NOT_AUGMENTED = -1  # in place of an epoch
_KNOWN: set[str] = set()
"""Digests of the data sets whose items this process has looked at."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Streamed:
    """A data set that is read as it is needed; see `Dataset`, whose place it takes.

    `digest` stands for its length, its classes, a sample of its items, and how it is split. `shape` is that of an
    image. Pixels from 0 to 255 are normalised by `mean` and `std` of a sample of the training images; floats (`floats`)
    are taken as they are, with the mean 0 and the deviation 1. `rows` says of each part which rows of which part of the
    origin it has, and `labels` the classes of these; `items` is by part of the origin what its length and sample were.
    `notes` are sentences for the report of the command.
    """

    name: str
    classes: int
    origin: Origin
    shape: tuple[int, int, int]
    floats: bool
    mean: tuple[float, ...]
    std: tuple[float, ...]
    rows: Mapping[str, tuple[str, NDArray[np.int64]]] = field(repr=False)
    labels: Mapping[str, NDArray[np.int64]] = field(repr=False)
    items: Mapping[str, str] = field(repr=False)
    digest: str
    notes: tuple[str, ...] = ()

    def count(self, part: str) -> int:
        """How many images a part has."""
        return len(self.rows[part][1])

    def open(self) -> Streamed:
        """Itself. ProblemError where this process finds other items than those that it was made of."""
        if self.digest not in _KNOWN:
            items = {name: _sample(self.origin, name)[0] for name in open_origin(self.origin).parts}
            if items != self.items:
                raise ProblemError(f"the images of {self.name} are others than they were", hint=_AGAIN)
            _KNOWN.add(self.digest)
        return self

    def supply(self, device: str, recipe: Recipe, *, seed: int) -> Supply:
        """The batches of a training on a device."""
        return Supply(self, device, recipe, seed)

    def some(self, part: str, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Some images of a part as they are before normalisation: uint8 or float32 (n, channels, height, width)."""
        origin, every = self.rows[part]
        return np.stack([np.asarray(_item(self.origin, origin, row)[0]) for row in every[rows]])


def open_streamed(
    source: str, origin: Origin, *, classes: int, shares: tuple[float, float], seed: int, augment: str = "none"
) -> Streamed:
    """The data set of an origin in three parts that share no image; what it does not have of them is split off train.

    `shares` are those of validation and test; `augment` is what trainings will do to its images. UsageError for an
    origin that cannot be opened, ProblemError for what is not such a data set, or cannot be augmented so,
    RuntimeMissingError where a package is missing.
    """
    open_origin.cache_clear()  # what it holds now counts
    opened = open_origin(origin)
    origin = replace(origin, mode=opened.mode)
    check_classes(source, opened.classes, classes)
    samples = {name: _sample(origin, name) for name in opened.parts}
    labels = {name: _labels(origin, name) for name in opened.parts}
    for name, y in labels.items():
        if not len(y) or int(y.min()) < 0 or int(y.max()) >= classes:
            numbers = f"classes from {int(y.min())} to {int(y.max())}" if len(y) else "no item"
            raise ProblemError(
                f"{source} has {numbers} in {name}, and the config's networks have {classes} classes",
                hint="Number classes from 0, and correct weights_manager_cfg.num_classes.",
            )
    rows = split_parts(labels, shares, seed=seed)
    first = read_item(origin, ("train", int(rows["train"][1][0]), 0), augment, seed)[0]
    shape = tuple(int(n) for n in first.shape)
    floats = bool(first.dtype != torch_package().uint8)
    items = {name: sample for name, (sample, _) in samples.items()}
    known = [source, origin.kind, origin.resize, classes, list(shape), dict(sorted(items.items())), opened.digest]
    digest = hashlib.sha256(json.dumps(known).encode())
    for array in (*(labels[name] for name in sorted(labels)), *(rows[name][1] for name in PARTS)):
        digest.update(array.tobytes())
    data = Streamed(
        name=source,
        classes=classes,
        origin=origin,
        shape=(shape[0], shape[1], shape[2]),
        floats=floats,
        mean=(0.0,) * shape[0],
        std=(1.0,) * shape[0],
        rows=rows,
        labels={name: labels[part][chosen] for name, (part, chosen) in rows.items()},
        items=items,
        digest=digest.hexdigest(),
        notes=tuple(
            f"{source}: {unlike} of {min(_SAMPLED, len(labels[name]))} items of {name} are other images each time they "
            "are read: the same training would not come out the same again"
            for name, (_, unlike) in samples.items()
            if unlike
        ),
    )
    if floats:
        return data
    mean, std = moments(data.some("train", _spread(data.count("train"), _MOMENTS)))
    return replace(data, mean=mean, std=std)


class Supply:
    """The batches of a data set that is read as it is needed, on a device. Closed when the training ends."""

    def __init__(self, dataset: Streamed, device: str, recipe: Recipe, seed: int) -> None:
        """UsageError where processes that read cannot be started."""
        self._dataset, self._device, self._recipe, self._seed = dataset, device, recipe, seed
        self._batches: list[Sequence[Key]] = []
        origin = dataset.origin
        if origin.loaders and multiprocessing.current_process().daemon:
            raise UsageError(
                "this process may start no others, and gnomon_cfg.loaders asks for such",
                hint="Leave gnomon_cfg.loaders out, or start Dask's workers with --no-nanny.",
            )
        self._loader: Any = torch_package().utils.data.DataLoader(
            _Items(origin, recipe.augment, seed),
            batch_sampler=self._batches,  # whose contents are others in each epoch
            num_workers=origin.loaders,
            collate_fn=_collated,
            pin_memory=device == "cuda",
            persistent_workers=origin.loaders > 0,
            # A fork of a process that has PyTorch's threads may hang.
            multiprocessing_context="spawn" if origin.loaders else None,
            generator=generator("loader", seed),
        )

    def training(self, epoch: int) -> Iterator[tuple[Any, Any]]:
        """The batches of an epoch, as `Dataset`'s: a last one of a single image is left out."""
        part, rows = self._dataset.rows["train"]
        order = torch_package().randperm(len(rows), generator=generator("order", self._seed, epoch)).tolist()
        batches = _batches([(part, int(rows[k]), epoch) for k in order], self._recipe.batch_size)
        return self._read([batch for batch in batches if len(batch) > 1])

    def evaluation(self, part: str) -> Iterator[tuple[Any, Any]]:
        """All images of a part in their order, none augmented."""
        origin, rows = self._dataset.rows[part]
        return self._read(_batches([(origin, int(row), _NOT_AUGMENTED) for row in rows], EVALUATED))

    def close(self) -> None:
        """End the processes that read."""
        self._loader = None

    def _read(self, batches: Sequence[Sequence[Key]]) -> Iterator[tuple[Any, Any]]:
        torch, data, device = torch_package(), self._dataset, self._device
        mean, std = (torch.tensor(v, device=device)[:, None, None] for v in (data.mean, data.std))
        self._batches[:] = batches
        for batch in self._loader:
            if isinstance(batch, str):
                raise ProblemError(batch, hint=ITEM)
            x, y = batch
            if tuple(x.shape[1:]) != data.shape or int(y.min()) < 0 or int(y.max()) >= data.classes:
                raise ProblemError(
                    f"{data.name} gave images {list(x.shape[1:])} of the classes {int(y.min())} to {int(y.max())}, "
                    f"where images are {list(data.shape)} and there are {data.classes} classes",
                    hint="Give all images one shape: gnomon_cfg.resize does so with pictures.",
                )
            x = x.to(device, non_blocking=True).to(torch.float32)
            if not data.floats:
                x = x.sub_(mean).div_(std)
            yield x.contiguous(memory_format=torch.channels_last), y.to(device, non_blocking=True)


def _batches(keys: Sequence[Key], size: int) -> list[Sequence[Key]]:
    return [keys[start : start + size] for start in range(0, len(keys), size)]


@dataclass(frozen=True, slots=True)
class _Items:
    """What a DataLoader reads from, here or in a process of its own, where the origin is opened by itself."""

    origin: Origin
    augment: str
    seed: int

    def __getitem__(self, key: Key) -> tuple[Any, int] | str:
        """An image and its class, or what is wrong with it: an exception would lose its text between processes."""
        part, row, epoch = key
        try:
            if epoch == _NOT_AUGMENTED:
                return _item(self.origin, part, row)
            return read_item(self.origin, key, self.augment, self.seed)
        except GnomonError as error:
            return error.message


def _collated(items: list[Any]) -> Any:
    """Items as a batch, or the first of what is wrong with them."""
    if wrong := [item for item in items if isinstance(item, str)]:
        return wrong[0]
    shapes = {tuple(image.shape) for image, _ in items}
    if len(shapes) > 1:
        return f"images differ in shape: {sorted(shapes)[:2]}; gnomon_cfg.resize makes pictures of any size one size"
    return torch_package().utils.data.default_collate(items)


def _item(origin: Origin, part: str, row: int) -> tuple[Any, int]:
    """An item as it is without augmentation."""
    return read_item(origin, (part, int(row), 0), "none", 0)


def _labels(origin: Origin, name: str) -> NDArray[np.int64]:
    """The classes of a part: as it tells them where its items bear that out, else read from all items."""
    opened = open_origin(origin)
    labels, count = opened.labels.get(name), len(opened.parts[name])
    if labels is not None and all(labels[k] == _item(origin, name, k)[1] for k in _spread(count, _SAMPLED)):
        return labels
    return np.array([_item(origin, name, k)[1] for k in range(count)], np.int64)


def _sample(origin: Origin, name: str) -> tuple[str, int]:
    """A digest of the length and of some items of a part, and how many of these are never the same twice."""
    count = len(open_origin(origin).parts[name])
    digest, contents, unlike = hashlib.sha256(str(count).encode()), hashlib.sha256(), 0
    for row in _spread(count, _SAMPLED):
        (image, label), (again, _) = (_item(origin, name, row) for _ in range(2))
        unlike += not (image.shape == again.shape and bool((image == again).all()))
        digest.update(json.dumps([int(row), label, str(image.dtype)]).encode())
        contents.update(json.dumps(list(image.shape)).encode() + image.contiguous().numpy().tobytes())
    # By the contents of images that are others each time nothing could be known again.
    return digest.hexdigest() + ("" if unlike else contents.hexdigest()), unlike


def _spread(count: int, most: int) -> NDArray[np.int64]:
    """At most so many rows, evenly over all."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))
