"""Data sets that are read as needed: folders of pictures, and data sets returned by a function.

Only the classes of the images are kept in memory. Each process opens the data set itself, and PyTorch's DataLoader
reads it, in the training process or in additional ones. Random choices for an item depend only on (seed, epoch, item),
so neither the number of processes nor an interruption changes the training.
"""

from __future__ import annotations

import functools
import hashlib
import json
import multiprocessing
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import GnomonError, ProblemError, UsageError
from gnomon.spaces.loading import called, load_attribute, reason
from gnomon.training.data.dataset import EVALUATED, PARTS, check_classes, moments, moved_most, split_parts
from gnomon.training.data.pictures import Opened, as_array, fitted, open_folder
from gnomon.training.network import generator, torch_package
from gnomon.training.recipe import Recipe

STREAMED = ("folder", "dataset")
"""Kinds of sources that can be read as needed; a folder only if pictures are resized to one size."""

ITEM = "An item is (image, class): a Pillow picture, a tensor (channels, height, width), or uint8 (height, width[, 3])."
_OWN = "Return a torch.utils.data.Dataset with a length, or a dict of data sets: train, optionally validation and test."

Key = tuple[str, int, int]
"""A part of the origin, a row in it, and the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The origin of images and how they are processed: everything that a process needs to open them.

    `kind` is one of `STREAMED`, and `place` is a path or a function (``file.py:function``). Pictures are resized to
    `resize` by `resize` pixels. `loaders` is the number of additional reading processes for each training process.
    `mode` is the mode of all pictures, "L" or "RGB", once their headers have been read.
    """

    kind: str
    place: str
    resize: int | None = None
    loaders: int = 0
    mode: str = ""


@functools.lru_cache(maxsize=2)
def open_origin(origin: Origin) -> Opened:
    """The images of an origin; a process keeps the last two origins open.

    UsageError if the origin cannot be opened, ProblemError if it is not a data set, RuntimeMissingError if a package is
    missing.
    """
    if origin.kind == "folder":
        return open_folder(Path(origin.place), origin.mode)
    return _of_function(origin.place)


def read_item(origin: Origin, key: Key, augment: str, seed: int) -> tuple[Any, int]:
    """An image as a tensor, uint8 or float32 (channels, height, width), and its class.

    ProblemError if a data set returns anything else or raises an error.
    """
    part, row, _ = key
    opened = open_origin(origin)
    digest = hashlib.sha256(json.dumps([seed, *key]).encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
    where = f"item {row} of {part}"
    try:
        with _seeded(digest) if origin.kind == "dataset" else nullcontext():
            image, label = opened.parts[part][row]
        return _tensor(image, origin.resize, opened.mode, augment, rng), int(label)
    except GnomonError as error:
        raise ProblemError(f"{where}: {error.message}", hint=error.hint) from error
    except MemoryError:
        raise  # a failure of this training, not of the images
    except Exception as error:  # a user's data set may raise anything
        raise ProblemError(f"{where} cannot be read: {reason(error)}", hint=ITEM) from error


def _of_function(place: str) -> Opened:
    """The data set that a user's function returns. UsageError if the function fails, ProblemError for any other
    result.
    """
    returned = called(load_attribute(place), f"dataset:{place}", f" {_OWN}")
    parts = dict(returned) if isinstance(returned, Mapping) else {"train": returned}
    if "train" not in parts or not set(parts) <= set(PARTS):
        raise ProblemError(f"dataset:{place} returns the wrong parts: {', '.join(map(str, parts))[:200]}", hint=_OWN)
    for name, part in parts.items():
        try:
            count = len(part)
        except Exception:  # torch's own data sets raise several kinds of errors if they have no length
            count = 0
        if not hasattr(part, "__getitem__") or count < 1 or isinstance(part, str | bytes):
            raise ProblemError(
                f"dataset:{place} returns a {type(part).__name__} as {name}, which has no items or no length", hint=_OWN
            )
    classes = getattr(parts["train"], "classes", ())
    return Opened(
        parts=parts,
        labels={name: y for name, part in parts.items() if (y := _targets(part)) is not None},
        classes=tuple(map(str, classes)) if isinstance(classes, list | tuple) else (),
    )


def _targets(part: Any) -> NDArray[np.int64] | None:
    """The classes that a data set lists in an attribute, as torchvision's data sets do; None if it lists none."""
    data = torch_package().utils.data
    if isinstance(part, data.Subset):
        whole = _targets(part.dataset)
        return None if whole is None else whole[np.asarray(part.indices, np.int64)]
    for name in ("targets", "labels"):
        with suppress(Exception):  # no such attribute, or one with another meaning
            labels = np.asarray(getattr(part, name))
            if labels.shape == (len(part),) and labels.dtype.kind in "iu":
                return labels.astype(np.int64)
    return None


def _tensor(image: Any, resize: int | None, mode: str, augment: str, rng: np.random.Generator) -> Any:
    """An image as a tensor (channels, height, width)."""
    torch = torch_package()
    if augment == "resized-crop" and resize is None:
        raise ProblemError("the augmentation resized-crop has no size", hint="Give gnomon_cfg.resize.")
    if isinstance(image, torch.Tensor):
        if resize is not None or augment != "none":
            raise ProblemError(
                "gnomon_cfg.resize and augment are for pictures, but the data set returns tensors",
                hint="Leave both out, and let the data set transform its images.",
            )
        tensor = image if image.dim() == 3 else image[None]
        if tensor.dim() != 3 or 0 in tensor.shape or not (tensor.dtype == torch.uint8 or tensor.is_floating_point()):
            raise ProblemError(f"a {image.dtype} tensor of shape {list(image.shape)} is not an image", hint=ITEM)
        return tensor if tensor.dtype == torch.uint8 else tensor.to(torch.float32)
    if hasattr(image, "convert") and hasattr(image, "size"):
        picture = image.convert(mode or ("L" if image.mode in ("1", "L") else "RGB"))
        if resize is not None:
            picture = fitted(picture, resize, rng if augment == "resized-crop" else None)
        image = np.asarray(picture)
    elif resize is not None:
        raise ProblemError("gnomon_cfg.resize is for pictures, but the data set returns arrays", hint=ITEM)
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim not in (2, 3) or 0 in image.shape:
        kind = f"{image.dtype}{list(image.shape)}" if isinstance(image, np.ndarray) else type(image).__name__
        raise ProblemError(f"{kind[:100]} is not an image", hint=ITEM)
    pixels = as_array(image)
    if augment in ("shift", "crop-flip"):
        pixels = _moved(pixels, augment, rng)
    return torch.from_numpy(np.array(pixels, order="C"))


def _moved(pixels: NDArray[np.uint8], augment: str, rng: np.random.Generator) -> NDArray[np.uint8]:
    """An image moved by a few pixels, with a black border, and perhaps mirrored."""
    _, height, width = pixels.shape
    border = moved_most(height)
    top, left = rng.integers(0, 2 * border + 1, 2)
    moved = np.pad(pixels, ((0, 0), (border, border), (border, border)))[:, top : top + height, left : left + width]
    return moved[..., ::-1] if augment == "crop-flip" and rng.random() < 0.5 else moved


@contextmanager
def _seeded(digest: bytes) -> Iterator[None]:
    """Seed the global random generators of Python, numpy and PyTorch with these bytes for the block, and restore their
    states afterwards.
    """
    torch, number = torch_package(), int.from_bytes(digest[8:16], "big")
    python, legacy = random.getstate(), np.random.get_state()  # transforms use them
    with torch.random.fork_rng(devices=[]):
        random.seed(number)
        np.random.seed(number % (1 << 32))
        torch.default_generator.manual_seed(number >> 1)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(legacy)


_AGAIN = "Restore the images, use only the global random generators, or start another profile."
_SAMPLED = 32  # the number of items of each part by which a data set is recognised
_MOMENTS = 256  # the number of training images for the mean and standard deviation
_NOT_AUGMENTED = -1  # in place of an epoch
_KNOWN: set[str] = set()
"""Digests of the data sets whose items this process has checked."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Streamed:
    """A data set that is read as needed, used in place of a `Dataset`.

    `digest` covers its length, its classes, a sample of its items, and its split. `shape` is the shape of an image.
    Pixels from 0 to 255 are normalised by `mean` and `std`, which come from a sample of the training images. If
    `floats` is true, images are floats and used unchanged, with a mean of 0 and a deviation of 1. For each part, `rows`
    has its rows and the part of the origin from which they come, and `labels` has their classes. For each part of the
    origin, `items` has a digest of its length and a sample of its items. `notes` are sentences for the command's
    report.
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
        """The number of images in a part."""
        return len(self.rows[part][1])

    def open(self) -> Streamed:
        """Return the data set itself. ProblemError if its items have changed since it was created."""
        if self.digest not in _KNOWN:
            items = {name: _sample(self.origin, name)[0] for name in open_origin(self.origin).parts}
            if items != self.items:
                raise ProblemError(f"the images of {self.name} have changed", hint=_AGAIN)
            _KNOWN.add(self.digest)
        return self

    def supply(self, device: str, recipe: Recipe, *, seed: int) -> Supply:
        """The batches for a training on a device."""
        return Supply(self, device, recipe, seed)

    def some(self, part: str, rows: NDArray[np.int64]) -> NDArray[Any]:
        """The given rows of a part as images before normalisation: uint8 or float32 (n, channels, height, width)."""
        origin, every = self.rows[part]
        return np.stack([np.asarray(_item(self.origin, origin, row)[0]) for row in every[rows]])


def open_streamed(
    source: str, origin: Origin, *, classes: int, shares: tuple[float, float], seed: int, augment: str = "none"
) -> Streamed:
    """The data set of an origin in three disjoint parts; parts that the origin lacks are split off the training part.

    `shares` are the shares of validation and test; `augment` is the augmentation of later trainings. UsageError if the
    origin cannot be opened, ProblemError if it is not a data set or cannot be augmented in this way,
    RuntimeMissingError if a package is missing.
    """
    open_origin.cache_clear()  # read the current content again
    opened = open_origin(origin)
    origin = replace(origin, mode=opened.mode)
    check_classes(source, opened.classes, classes)
    samples = {name: _sample(origin, name) for name in opened.parts}
    labels = {name: _labels(origin, name) for name in opened.parts}
    for name, y in labels.items():
        if not len(y) or int(y.min()) < 0 or int(y.max()) >= classes:
            numbers = f"classes from {int(y.min())} to {int(y.max())}" if len(y) else "no item"
            raise ProblemError(
                f"{source} has {numbers} in {name}, but the config's networks have {classes} classes",
                hint="Number classes from 0, and correct weights_manager_cfg.num_classes.",
            )
    rows = split_parts(labels, shares, seed=seed)
    first = read_item(origin, ("train", int(rows["train"][1][0]), 0), augment, seed)[0]
    shape = tuple(int(n) for n in first.shape)
    floats = bool(first.dtype != torch_package().uint8)
    items = {name: sample for name, (sample, _) in samples.items()}
    decisive = [source, origin.kind, origin.resize, classes, list(shape), dict(sorted(items.items())), opened.digest]
    digest = hashlib.sha256(json.dumps(decisive).encode())
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
            f"{source}: {unlike} of {min(_SAMPLED, len(labels[name]))} items of {name} differ each time they are read, "
            "so the same training would give another result"
            for name, (_, unlike) in samples.items()
            if unlike
        ),
    )
    if floats:
        return data
    mean, std = moments(data.some("train", _spread(data.count("train"), _MOMENTS)))
    return replace(data, mean=mean, std=std)


class Supply:
    """The batches, on a device, of a data set that is read as needed. A supply is closed when the training ends."""

    def __init__(self, dataset: Streamed, device: str, recipe: Recipe, seed: int) -> None:
        """UsageError if reading processes cannot be started."""
        self._dataset, self._device, self._recipe, self._seed = dataset, device, recipe, seed
        self._batches: list[Sequence[Key]] = []
        origin = dataset.origin
        if origin.loaders and multiprocessing.current_process().daemon:
            raise UsageError(
                "gnomon_cfg.loaders needs more processes, but this process may not start any",
                hint="Leave gnomon_cfg.loaders out, or start Dask's workers with --no-nanny.",
            )
        self._loader: Any = torch_package().utils.data.DataLoader(
            _Items(origin, recipe.augment, seed),
            batch_sampler=self._batches,  # its contents change in each epoch
            num_workers=origin.loaders,
            collate_fn=_collated,
            pin_memory=device == "cuda",
            persistent_workers=origin.loaders > 0,
            # Forking a process that has PyTorch's threads may hang.
            multiprocessing_context="spawn" if origin.loaders else None,
            generator=generator("loader", seed),
        )

    def training(self, epoch: int) -> Iterator[tuple[Any, Any]]:
        """The batches of an epoch. As for a `Dataset`, a last batch of a single image is left out."""
        part, rows = self._dataset.rows["train"]
        order = torch_package().randperm(len(rows), generator=generator("order", self._seed, epoch)).tolist()
        batches = _batches([(part, int(rows[k]), epoch) for k in order], self._recipe.batch_size)
        return self._read([batch for batch in batches if len(batch) > 1])

    def evaluation(self, part: str) -> Iterator[tuple[Any, Any]]:
        """All images of a part in order, without augmentation."""
        origin, rows = self._dataset.rows[part]
        return self._read(_batches([(origin, int(row), _NOT_AUGMENTED) for row in rows], EVALUATED))

    def close(self) -> None:
        """End the reading processes."""
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
                    f"{data.name} gave images of {list(x.shape[1:])} and classes {int(y.min())} to {int(y.max())}, "
                    f"but images have the shape {list(data.shape)} and there are {data.classes} classes",
                    hint="Give all images the same shape; gnomon_cfg.resize does this for pictures.",
                )
            x = x.to(device, non_blocking=True).to(torch.float32)
            if not data.floats:
                x = x.sub_(mean).div_(std)
            yield x.contiguous(memory_format=torch.channels_last), y.to(device, non_blocking=True)


def _batches(keys: Sequence[Key], size: int) -> list[Sequence[Key]]:
    return [keys[start : start + size] for start in range(0, len(keys), size)]


@dataclass(frozen=True, slots=True)
class _Items:
    """The data set that a DataLoader reads. It opens the origin itself, even in another process."""

    origin: Origin
    augment: str
    seed: int

    def __getitem__(self, key: Key) -> tuple[Any, int] | str:
        """An image and its class, or an error message, because an exception would lose its text between processes."""
        part, row, epoch = key
        try:
            if epoch == _NOT_AUGMENTED:
                return _item(self.origin, part, row)
            return read_item(self.origin, key, self.augment, self.seed)
        except GnomonError as error:
            return error.message


def _collated(items: list[Any]) -> Any:
    """Items as a batch, or the first error message among them."""
    if wrong := [item for item in items if isinstance(item, str)]:
        return wrong[0]
    shapes = {tuple(image.shape) for image, _ in items}
    if len(shapes) > 1:
        return f"images differ in shape: {sorted(shapes)[:2]}; gnomon_cfg.resize brings pictures to one size"
    return torch_package().utils.data.default_collate(items)


def _item(origin: Origin, part: str, row: int) -> tuple[Any, int]:
    """An item without augmentation."""
    return read_item(origin, (part, int(row), 0), "none", 0)


def _labels(origin: Origin, name: str) -> NDArray[np.int64]:
    """The classes of a part: those that it lists if a sample of items confirms them, otherwise read from all items."""
    opened = open_origin(origin)
    labels, count = opened.labels.get(name), len(opened.parts[name])
    if labels is not None and all(labels[k] == _item(origin, name, k)[1] for k in _spread(count, _SAMPLED)):
        return labels
    return np.array([_item(origin, name, k)[1] for k in range(count)], np.int64)


def _sample(origin: Origin, name: str) -> tuple[str, int]:
    """A digest of the length and some items of a part, and the number of these items that differ on a second
    reading.
    """
    count = len(open_origin(origin).parts[name])
    digest, contents, unlike = hashlib.sha256(str(count).encode()), hashlib.sha256(), 0
    for row in _spread(count, _SAMPLED):
        (image, label), (again, _) = (_item(origin, name, row) for _ in range(2))
        unlike += not (image.shape == again.shape and bool((image == again).all()))
        digest.update(json.dumps([int(row), label, str(image.dtype)]).encode())
        contents.update(json.dumps(list(image.shape)).encode() + image.contiguous().numpy().tobytes())
    # Images that change each time cannot be recognised by their contents.
    return digest.hexdigest() + ("" if unlike else contents.hexdigest()), unlike


def _spread(count: int, most: int) -> NDArray[np.int64]:
    """At most `most` rows, spread evenly over all."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))
