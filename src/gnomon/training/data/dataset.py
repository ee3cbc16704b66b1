"""Labelled images: a data set in memory, as bytes that travel to workers, and stratified splits of it.

Images as batches of normalised tensors, in an order and with an augmentation of (seed, epoch) alone.

Images are kept as the bytes that they are, channels last, with a black border as wide as they may be moved; a batch is
gathered and normalised when it is its turn, which costs little beside a network and a quarter of the memory.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import mmap
import os
import struct
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import ProblemError
from gnomon.training.network import generator, torch_package
from gnomon.training.recipe import Recipe

PARTS = ("train", "validation", "test")
_HINT = "Pack the data set again."
_HEAD_BYTES, _LENGTHS_AT = 30, 26  # of an entry of a ZIP archive, and where the lengths of what follows stand in it
_NPY_HEAD_BYTES = 1 << 17  # the longest head of version 1, and more than numpy reads of version 2
_COUNTED = 1 << 18  # pixels that are counted at once
_KEPT = 2  # data sets that a process keeps unpacked


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Images:
    """Images `x`, uint8 (n, channels, height, width), and the number of each one's class, `y`, int64 (n,).

    ProblemError for other shapes or types, and for a class below 0.
    """

    x: NDArray[np.uint8]
    y: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.x.ndim != 4 or self.x.dtype != np.uint8 or self.y.dtype != np.int64 or self.y.shape != (len(self.x),):
            raise ProblemError(
                f"images are {self.x.dtype}{list(self.x.shape)} and classes {self.y.dtype}{list(self.y.shape)}",
                hint="Give uint8 (n, channels, height, width) and int64 (n,).",
            )
        if 0 in self.x.shape or self.y.min() < 0:
            raise ProblemError("images without a pixel, no image, or a class below 0", hint="Number classes from 0.")

    def __len__(self) -> int:
        """How many images there are."""
        return len(self.x)

    def take(self, rows: NDArray[np.int64]) -> Images:
        """Some of the images, in this order."""
        return Images(x=self.x[rows], y=self.y[rows])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dataset:
    """Images to train on, to choose by (validation), and to look at once at the end (test).

    `digest` is the SHA-256 of all contents. `mean` and `std` (a value a channel, of pixels from 0 to 255) are those of
    the training images alone; a channel that never changes has the standard deviation 1. ProblemError where images of
    the parts differ in shape, or a class is not below `classes`.
    """

    name: str
    classes: int
    train: Images
    validation: Images
    test: Images
    digest: str = field(init=False)
    mean: tuple[float, ...] = field(init=False)
    std: tuple[float, ...] = field(init=False)

    def __post_init__(self) -> None:
        parts = {name: getattr(self, name) for name in PARTS}
        if len({part.x.shape[1:] for part in parts.values()}) > 1:
            told = ", ".join(f"{name} {list(part.x.shape[1:])}" for name, part in parts.items())
            raise ProblemError(f"images differ in shape: {told}", hint="Give all of them one shape.")
        highest = max(int(part.y.max()) for part in parts.values())
        if highest >= self.classes:
            raise ProblemError(
                f"there is an image of class {highest}, and {self.classes} classes", hint="Number classes from 0."
            )
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
        """Sentences for who asked: none."""
        return ()

    def count(self, part: str) -> int:
        """How many images a part has."""
        return len(getattr(self, part))

    def some(self, part: str, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Some images of a part: uint8 (n, channels, height, width)."""
        images: Images = getattr(self, part)
        return images.x[rows]

    def supply(self, device: str, recipe: Recipe, *, seed: int) -> Supply:
        """The batches of a training on a device. ProblemError for an augmentation that these images cannot have."""
        if recipe.augment == "resized-crop":
            raise ProblemError(
                "the augmentation resized-crop is for pictures that are read as they are needed",
                hint="Give gnomon_cfg.resize with folder:, huggingface: or dataset:, or another gnomon_cfg.augment.",
            )
        return Supply(self, device, recipe, seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A data set as bytes, and its digest, by which a process that has it unpacked knows it again."""

    digest: str
    content: bytes = field(repr=False)

    def open(self) -> Dataset:
        """The data set; the last few of a process are kept. ProblemError for bytes that are not this data set's."""
        return _opened(self.digest, lambda: self.content)


class _Mapped(mmap.mmap):
    """A file mapped into memory, as zipfile reads it: before Python 3.13 a mapping does not say that it can seek."""

    def seekable(self) -> bool:
        """It can."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedFile:
    """A packed data set in a file, for workers that share a disk: it is not sent along with each job.

    The file is mapped, so that all processes of a machine that have it open hold its pages once.
    """

    digest: str
    path: str

    def open(self) -> Dataset:
        """The data set, as `Packed.open` has it. ProblemError also where the file cannot be read."""
        return _opened(self.digest, self._content)

    def _content(self) -> bytes | _Mapped:
        try:
            with Path(self.path).open("rb") as file:
                # An empty file cannot be mapped: `unpack` says what it lacks.
                return _Mapped(file.fileno(), 0, access=mmap.ACCESS_READ) if os.fstat(file.fileno()).st_size else b""
        except OSError as error:
            raise ProblemError(f"{self.path} cannot be read: {error.strerror}", hint=_HINT) from error


_unpacked: dict[str, Dataset] = {}
"""The data sets that this process has unpacked, by digest."""


def _opened(digest: str, content: Callable[[], bytes | _Mapped]) -> Dataset:
    if digest not in _unpacked:
        made = unpack(content())
        if made.digest != digest:
            raise ProblemError(f"the data set has the digest {made.digest[:12]}, not {digest[:12]}", hint=_HINT)
        while len(_unpacked) >= _KEPT:
            del _unpacked[next(iter(_unpacked))]
        _unpacked[digest] = made
    return _unpacked[digest]


def packed(dataset: Dataset) -> Packed:
    """A data set with its digest, ready to travel."""
    return Packed(digest=dataset.digest, content=pack(dataset))


def pack(dataset: Dataset) -> bytes:
    """A data set as an npz archive, uncompressed; `unpack` reads it."""
    head = json.dumps({"name": dataset.name, "classes": dataset.classes}).encode()
    arrays = {f"{name}_{axis}": getattr(getattr(dataset, name), axis) for name in PARTS for axis in "xy"}
    stream = io.BytesIO()
    np.savez(stream, head=np.frombuffer(head, np.uint8), **arrays)
    return stream.getvalue()


def unpack(content: bytes | _Mapped) -> Dataset:
    """The data set that `pack` wrote, its arrays views of these bytes.

    ProblemError, with what is wrong, for any other bytes. Nothing is unpickled, and nothing larger than the bytes
    themselves is made. Sums over entries are not compared: the data set's digest tells whether it is the one that was
    packed.
    """
    names = {"head", *(f"{name}_{axis}" for name in PARTS for axis in "xy")}
    try:
        file = io.BytesIO(content) if isinstance(content, bytes) else cast("IO[bytes]", content)
        with zipfile.ZipFile(file) as archive:
            found = archive.infolist()
            if {one.filename for one in found} != {f"{name}.npy" for name in names} or len(found) != len(names):
                raise ProblemError("this archive is not a data set", hint=_HINT)
            if any(one.compress_type != zipfile.ZIP_STORED for one in found):
                raise ProblemError("a packed data set is not compressed, and this one is", hint=_HINT)
            arrays = {name: npy(_stored(archive, f"{name}.npy", content)) for name in names}
        head = json.loads(arrays["head"].tobytes())
        name, classes = head["name"], head["classes"]
    except (zipfile.BadZipFile, ValueError, KeyError, TypeError, EOFError, NotImplementedError, RuntimeError) as error:
        raise ProblemError(f"this is not a packed data set: {error}", hint=_HINT) from error
    if type(name) is not str or type(classes) is not int:
        raise ProblemError("a packed data set has a name and a number of classes", hint=_HINT)
    parts = {part: Images(x=arrays[f"{part}_x"], y=arrays[f"{part}_y"]) for part in PARTS}
    return Dataset(name=name, classes=classes, **parts)


def _stored(archive: zipfile.ZipFile, name: str, content: bytes | _Mapped) -> memoryview:
    """An entry that is not compressed, where it stands in an archive's bytes. BadZipFile where it does not fit."""
    entry = archive.getinfo(name)
    archive.open(entry).close()  # compares the entry's own head with the archive's list
    lengths = struct.unpack_from("<HH", content, entry.header_offset + _LENGTHS_AT)
    begin = entry.header_offset + _HEAD_BYTES + sum(lengths)
    if begin + entry.file_size > len(content) or entry.file_size != entry.compress_size:
        raise zipfile.BadZipFile(f"{name} is not as long as the archive says")
    return memoryview(content)[begin : begin + entry.file_size]


def split(images: Images, shares: Sequence[float], *, seed: int) -> tuple[Images, ...]:
    """Disjoint parts of images, each with about its share of every class; what shares leave over is in none."""
    return tuple(images.take(rows) for rows in split_rows(images.y, shares, seed=seed))


def split_rows(y: NDArray[np.int64], shares: Sequence[float], *, seed: int) -> tuple[NDArray[np.int64], ...]:
    """Rows of disjoint parts, in ascending order: of each class as many as its share, to the next whole number.

    The draw depends on the seed, the classes and the shares alone. ProblemError for shares that are not positive or
    are more than 1 together, and for a part that would be empty.
    """
    if not shares or not all(share > 0 for share in shares) or math.fsum(shares) > 1 + 1e-9:
        raise ProblemError(f"{list(shares)} are not shares", hint="Give positive numbers whose sum is at most 1.")
    ends = np.minimum(np.cumsum(shares), 1.0)
    rng = np.random.default_rng(seed)
    parts: list[list[NDArray[np.int64]]] = [[] for _ in shares]
    for one in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == one))
        cuts = np.rint(ends * len(rows)).astype(np.int64)
        for part, start, end in zip(parts, [0, *cuts[:-1]], cuts, strict=True):
            part.append(rows[start:end])
    made = tuple(np.sort(np.concatenate(part)).astype(np.int64) if part else np.empty(0, np.int64) for part in parts)
    if any(not len(rows) for rows in made):
        raise ProblemError(
            f"{len(y)} images cannot be split by {list(shares)}", hint="Give more images, or fewer parts."
        )
    return made


def npy(content: bytes | memoryview) -> NDArray[Any]:
    """An array of numbers or text of an npy file, without any pickled object. ValueError for anything else.

    numpy's own reader sets aside what a header says before it looks whether there is so much.
    """
    stream = io.BytesIO(content[:_NPY_HEAD_BYTES])
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(stream)
    if version not in readers:
        raise ValueError(f"npy version {version}")
    try:
        shape, fortran, dtype = readers[version](stream)
    except Exception as error:  # a broken header: numpy passes on what Python's own parsers raise
        raise ValueError(f"a broken header: {error}") from error
    if dtype.hasobject:
        raise ValueError("it holds pickled objects, which are not read")
    left = memoryview(content)[stream.tell() :]
    if any(n < 0 for n in shape) or math.prod(shape) * dtype.itemsize != len(left):
        raise ValueError("an array is not as long as its header says")
    return np.frombuffer(left, dtype).reshape(shape, order="F" if fortran else "C")


def _digest(dataset: Dataset) -> str:
    digest = hashlib.sha256(json.dumps([dataset.name, dataset.classes]).encode())
    for name in PARTS:
        for axis in "xy":
            array = getattr(getattr(dataset, name), axis)
            digest.update(json.dumps([name, axis, list(array.shape)]).encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def moments(x: NDArray[np.uint8]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, from how often each value occurs: exact, and a part at a time."""
    means, stds, values = [], [], np.arange(256.0)
    for channel in range(x.shape[1]):
        counts = np.zeros(256)
        for rows in np.array_split(x[:, channel], max(1, x.size // _COUNTED)):  # each is counted as int64
            counts += np.bincount(rows.ravel(), minlength=256)
        counts /= x.size / x.shape[1]
        mean = float(counts @ values)
        std = math.sqrt(float(counts @ (values - mean) ** 2))
        means.append(mean)
        stds.append(std or 1.0)
    return tuple(means), tuple(stds)


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


class Supply:
    """The batches of a data set in memory, on a device."""

    def __init__(self, dataset: Dataset, device: str, recipe: Recipe, seed: int) -> None:
        self._dataset, self._device, self._recipe, self._seed = dataset, device, recipe, seed
        self._feeds: dict[str, Feed] = {}

    def training(self, epoch: int) -> Iterator[tuple[Any, Any]]:
        """See `training_batches`."""
        border = border_of(self._recipe, self._dataset.shape[1])
        return training_batches(self._feed("train", border), self._recipe, seed=self._seed, epoch=epoch)

    def evaluation(self, part: str) -> Iterator[tuple[Any, Any]]:
        """See `evaluation_batches`."""
        return evaluation_batches(self._feed(part, 0))

    def close(self) -> None:
        """Let go of the images on the device."""
        self._feeds.clear()

    def _feed(self, part: str, border: int) -> Feed:
        if part not in self._feeds:
            self._feeds[part] = feed(self._dataset, getattr(self._dataset, part), self._device, border=border)
        return self._feeds[part]


def border_of(recipe: Recipe, height: int) -> int:
    """By how many pixels images are moved at most, each way."""
    return 0 if recipe.augment == "none" else moved_most(height)


def moved_most(height: int) -> int:
    """By how many pixels images of a height are moved at most: an eighth of it."""
    return max(1, height // 8)


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
