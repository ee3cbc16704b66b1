"""Data sets that are read as they are needed: folders of pictures, Hugging Face's, and whatever a function returns.

Nothing is held in memory but the classes of the images. Each process opens the data set by itself, and PyTorch's
DataLoader reads it, in the process that trains or in others beside it. What an item is made of by chance depends on
(seed, epoch, item) alone, so that neither the number of these processes nor an interruption changes what is trained.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import GnomonError, ProblemError, UsageError
from gnomon.training.data.dataset import PARTS, moments, split_rows
from gnomon.training.data.items import ITEM, Key, Origin, open_origin, opened_anew, read_item
from gnomon.training.network import generator, torch_package
from gnomon.training.recipe import Recipe

_AGAIN = "Put the images back as they were, draw no random numbers but the global ones, or begin another profile."
_SAMPLED = 32  # items of each part by which a data set is known again
_MOMENTS = 256  # training images of which mean and standard deviation are taken
_EVALUATED = 256
_KNOWN: set[str] = set()
"""Digests of the data sets whose items this process has looked at."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Streamed:
    """A data set that is read as it is needed; see `Dataset`, whose place it takes.

    `digest` stands for its length, its classes, a sample of its items, and how it is split. `shape` is that of an
    image. Pixels from 0 to 255 are normalised by `mean` and `std` of a sample of the training images; floats (`floats`)
    are taken as they are, with the mean 0 and the deviation 1. `rows` says of each part which rows of which part of the
    origin it has, and `labels` the classes of these; `items` is by part of the origin what its length and sample were.
    `notes` are sentences for who asked.
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
            opened = open_origin(self.origin)
            found = {name: _sample(self.origin, name)[0] for name in opened.parts}
            if found != dict(self.items):
                unlike = sorted(name for name, told in found.items() if self.items.get(name) != told)
                raise ProblemError(
                    f"the images of {self.name} are others than they were ({', '.join(unlike)})", hint=_AGAIN
                )
            _KNOWN.add(self.digest)
        return self

    def supply(self, device: str, recipe: Recipe, *, seed: int) -> Supply:
        """The batches of a training on a device."""
        return Supply(self, device, recipe, seed)

    def some(self, part: str, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Some images of a part as they are before normalisation: uint8 or float32 (n, channels, height, width)."""
        origin, every = self.rows[part]
        found = [read_item(self.origin, (origin, int(row), 0), "none", 0)[0] for row in every[rows]]
        return np.stack([np.asarray(one) for one in found])


def open_streamed(
    source: str,
    origin: Origin,
    *,
    classes: int,
    shares: tuple[float, float],
    seed: int,
    augment: str = "none",
) -> Streamed:
    """The data set of an origin in three parts that share no image; what it does not have of them is split off train.

    `shares` are those of validation and test; `augment` is what trainings will do to its images. UsageError for an
    origin that cannot be opened, ProblemError for what is not such a data set, or cannot be augmented so,
    RuntimeMissingError where a package is missing.
    """
    origin, opened = opened_anew(origin)
    if len(opened.classes) > classes:
        raise ProblemError(
            f"{source} has {len(opened.classes)} classes, and the config's networks have {classes}",
            hint="Correct weights_manager_cfg.num_classes.",
        )
    samples = {name: _sample(origin, name) for name in opened.parts}
    labels = {name: _labels(origin, name) for name in opened.parts}
    for name, y in labels.items():
        if not len(y) or int(y.min()) < 0 or int(y.max()) >= classes:
            told = f"classes from {int(y.min())} to {int(y.max())}" if len(y) else "no item"
            raise ProblemError(
                f"{source} has {told} in {name}, and the config's networks have {classes} classes",
                hint="Number classes from 0, and correct weights_manager_cfg.num_classes.",
            )
    rows = _split(labels, shares, seed)
    first = read_item(origin, ("train", int(rows["train"][1][0]), 0), augment, seed)[0]
    shape = tuple(int(n) for n in first.shape)
    floats = bool(first.dtype != torch_package().uint8)
    items = {name: told for name, (told, _) in samples.items()}
    known = [source, origin.kind, origin.resize, classes, list(shape), dict(sorted(items.items())), opened.digest]
    digest = hashlib.sha256(json.dumps(known).encode())
    for array in (*(labels[name] for name in sorted(labels)), *(rows[name][1] for name in PARTS)):
        digest.update(array.tobytes())
    made = Streamed(
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
        return made
    mean, std = moments(made.some("train", _spread(made.count("train"), _MOMENTS)))
    return replace(made, mean=mean, std=std)


def _split(
    labels: Mapping[str, NDArray[np.int64]], shares: tuple[float, float], seed: int
) -> dict[str, tuple[str, NDArray[np.int64]]]:
    """Of each part the part of the origin and the rows of it."""
    made = {name: (name, np.arange(len(y), dtype=np.int64)) for name, y in labels.items()}
    missing = {name: share for name, share in zip(PARTS[1:], shares, strict=True) if name not in labels}
    if missing:
        cuts = split_rows(labels["train"], (1 - sum(missing.values()), *missing.values()), seed=seed)
        made |= {name: ("train", rows) for name, rows in zip(("train", *missing), cuts, strict=True)}
    return made


class Supply:
    """The batches of a data set that is read as it is needed, on a device. Closed when the training ends."""

    def __init__(self, dataset: Streamed, device: str, recipe: Recipe, seed: int) -> None:
        self._dataset, self._device, self._recipe, self._seed = dataset, device, recipe, seed
        self._keys = _Keys()
        self._loader = _loader(dataset.origin, recipe.augment, seed, self._keys, device)

    def training(self, epoch: int) -> Iterator[tuple[Any, Any]]:
        """The batches of an epoch, as `Dataset`'s: a last one of a single image is left out."""
        part, rows = self._dataset.rows["train"]
        order = torch_package().randperm(len(rows), generator=generator("order", self._seed, epoch)).tolist()
        size = self._recipe.batch_size
        batches = [order[start : start + size] for start in range(0, len(order), size)]
        return self._read([[(part, int(rows[k]), epoch) for k in ks] for ks in batches if len(ks) > 1])

    def evaluation(self, part: str) -> Iterator[tuple[Any, Any]]:
        """All images of a part in their order, none augmented."""
        origin, rows = self._dataset.rows[part]
        keys = [(origin, int(row), _NOT_AUGMENTED) for row in rows]
        return self._read([keys[start : start + _EVALUATED] for start in range(0, len(keys), _EVALUATED)])

    def close(self) -> None:
        """End the processes that read."""
        self._loader = None

    def _read(self, batches: list[list[Key]]) -> Iterator[tuple[Any, Any]]:
        torch, data, device = torch_package(), self._dataset, self._device
        mean, std = (torch.tensor(v, device=device)[:, None, None] for v in (data.mean, data.std))
        self._keys.batches = batches
        for found in self._loader:
            if isinstance(found, str):
                raise ProblemError(found, hint=ITEM)
            x, y = found
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


_NOT_AUGMENTED = -1


class _Keys:
    """What a DataLoader asks for next; it is in the process that trains, so that it can be changed between epochs."""

    def __init__(self) -> None:
        self.batches: list[list[Key]] = []

    def __iter__(self) -> Iterator[list[Key]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


@dataclass(frozen=True, slots=True)
class _Items:
    """What a DataLoader reads from, here or in a process of its own, where the origin is opened by itself."""

    origin: Origin
    augment: str
    seed: int

    def __getitem__(self, key: Key) -> tuple[Any, int] | str:
        """An image and its class, or what is wrong with it: an exception would lose its text between processes."""
        try:
            if key[2] == _NOT_AUGMENTED:
                return read_item(self.origin, (*key[:2], 0), "none", 0)
            return read_item(self.origin, key, self.augment, self.seed)
        except GnomonError as error:
            return error.message


def _loader(origin: Origin, augment: str, seed: int, keys: _Keys, device: str) -> Any:
    torch = torch_package()
    if origin.loaders and multiprocessing.current_process().daemon:
        raise UsageError(
            "this process may start no others, and gnomon_cfg.loaders asks for such",
            hint="Leave gnomon_cfg.loaders out, or start Dask's workers with --no-nanny.",
        )
    return torch.utils.data.DataLoader(
        _Items(origin, augment, seed),
        batch_sampler=keys,
        num_workers=origin.loaders,
        collate_fn=_collated,
        pin_memory=device == "cuda",
        persistent_workers=origin.loaders > 0,
        # A fork of a process that has PyTorch's threads may hang.
        multiprocessing_context="spawn" if origin.loaders else None,
        generator=generator("loader", seed),
    )


def _collated(found: list[tuple[Any, int] | str]) -> tuple[Any, Any] | str:
    """Items as a batch, or the first of what is wrong with them."""
    torch, images, labels = torch_package(), [], []
    for one in found:
        if isinstance(one, str):
            return one
        images.append(one[0])
        labels.append(one[1])
    if len(kinds := {(str(one.dtype), tuple(one.shape)) for one in images}) > 1:
        told = " and ".join(f"{kind} {list(shape)}" for kind, shape in sorted(kinds)[:2])
        return f"images differ: {told}; gnomon_cfg.resize makes pictures of any size one size"
    return torch.stack(images), torch.tensor(labels, dtype=torch.int64)


def _labels(origin: Origin, name: str) -> NDArray[np.int64]:
    """The classes of a part: as it tells them where its items bear that out, else read from all items."""
    opened, count = open_origin(origin), len(open_origin(origin).parts[name])
    told = opened.labels.get(name)
    rows = _spread(count, _SAMPLED)
    if told is not None and all(told[k] == read_item(origin, (name, int(k), 0), "none", 0)[1] for k in rows):
        return told
    return np.array([read_item(origin, (name, k, 0), "none", 0)[1] for k in range(count)], np.int64)


def _sample(origin: Origin, name: str) -> tuple[str, int]:
    """A digest of the length and of some items of a part, and how many of these are never the same twice."""
    count = len(open_origin(origin).parts[name])
    digest, contents, unlike = hashlib.sha256(str(count).encode()), hashlib.sha256(), 0
    for row in _spread(count, _SAMPLED):
        (image, label), (again, _) = (read_item(origin, (name, int(row), 0), "none", 0) for _ in range(2))
        unlike += not (image.shape == again.shape and bool((image == again).all()))
        digest.update(json.dumps([int(row), label, str(image.dtype)]).encode())
        contents.update(json.dumps(list(image.shape)).encode() + image.contiguous().numpy().tobytes())
    # By the contents of images that are others each time nothing could be known again.
    return digest.hexdigest() + ("" if unlike else contents.hexdigest()), unlike


def _spread(count: int, most: int) -> NDArray[np.int64]:
    """At most so many rows, evenly over all."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))
