"""Reads labelled images from npz archives, which may be hostile."""

from __future__ import annotations

import math
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import ProblemError, UsageError, system_errors
from gnomon.system.files import open_regular
from gnomon.training.data.dataset import Images

LIMIT_BYTES = 2 << 30
"""The largest memory that images may take."""

_NPZ = (
    "Save as x uint8 images (n, height, width) or with 1 or 3 channels, and as y classes from 0: np.savez(f, x=x, y=y)."
)
_KEYS = ({"x", "y"}, {"x_train", "y_train"}, {"x_train", "y_train", "x_test", "y_test"})
_MOST_CLASSES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Source:
    """The images of a source by part (train, and any other parts that the source defines), and the names of their
    classes.

    ProblemError for fewer than two classes.
    """

    parts: Mapping[str, Images]
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.classes) < 2:
            raise ProblemError("the images have fewer than two classes", hint="Give images of at least two classes.")


def numbered(parts: Mapping[str, Images]) -> Source:
    """A source whose classes are named by their numbers."""
    count = 1 + max(int(part.y.max()) for part in parts.values())
    return Source(parts=parts, classes=tuple(map(str, range(count))))


def regular_file(path: Path) -> BinaryIO:
    """An open file of any size. UsageError if it cannot be opened or is not a regular file."""
    with system_errors(UsageError, f"{path} cannot be opened", hint="Check the path and its permissions."):
        return open_regular(path, sys.maxsize)


def entries(folder: Path) -> list[Path]:
    """The sorted contents of a folder, without names that begin with a dot. UsageError if it cannot be listed."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{folder} is not a folder that can be listed", hint="Give a folder, and check its permissions."
        ) from error


def read_npz(path: Path) -> Source:
    """The images x and y in an archive, or x_train, y_train, x_test, y_test; `classes` may contain names.

    UsageError if the archive cannot be opened, ProblemError for any error in it.
    """
    arrays = _archive(path)
    names = arrays.pop("classes", None)
    if set(arrays) not in _KEYS:
        raise ProblemError(f"{path} needs x and y, but holds: {', '.join(sorted(arrays)) or 'nothing'}", hint=_NPZ)
    ends = {"train": ""} if "x" in arrays else {"train": "_train", "test": "_test"}
    parts = {
        part: _images(arrays[f"x{end}"], arrays[f"y{end}"], f"{path}: x{end}")
        for part, end in ends.items()
        if f"x{end}" in arrays
    }
    source = numbered(parts)
    if names is None:
        return source
    if names.ndim != 1 or names.dtype.kind != "U" or not len(source.classes) <= len(names) <= _MOST_CLASSES:
        raise ProblemError(f"{path}: the array classes does not name all {len(source.classes)} classes", hint=_NPZ)
    return Source(parts=parts, classes=tuple(map(str, names)))


def _archive(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays in an npz archive, at most `LIMIT_BYTES` in total."""
    with regular_file(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                size = sum(max(member.file_size, _stated_bytes(archive, member)) for member in archive.infolist())
            if size <= LIMIT_BYTES:
                file.seek(0)
                with np.load(file, allow_pickle=False) as arrays:
                    return {name: np.asarray(array) for name, array in arrays.items()}
        except Exception as error:  # zipfile, zlib and numpy's reader of headers raise many kinds of errors
            raise ProblemError(f"{path} is not an npz archive of arrays: {str(error)[:200]}", hint=_NPZ) from error
    raise ProblemError(f"{path} unpacks to more than {LIMIT_BYTES} bytes", hint=_NPZ)


def _stated_bytes(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """The memory that an array needs according to its header; numpy allocates it before reading."""
    with archive.open(member) as file:
        is_first = np.lib.format.read_magic(file) == (1, 0)
        header = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
        shape, _, dtype = header(file)
        return math.prod(shape) * dtype.itemsize


def _images(x: NDArray[Any], y: NDArray[Any], where: str) -> Images:
    """Images from an array (n, h, w), (n, c, h, w) or (n, h, w, c), where c is 1 or 3, and their classes from an array
    (n,) or (n, 1). ProblemError for other arrays.
    """
    wrong = ""
    if x.dtype != np.uint8:
        wrong = f"{x.dtype} pixels, but only uint8 is read"
    elif x.ndim == 4 and x.shape[1] in (1, 3) and x.shape[3] in (1, 3) and x.shape[2] not in (1, 3):
        wrong = f"images of {list(x.shape[1:])}, whose channels may be first or last"
    elif not (x.ndim == 3 or (x.ndim == 4 and {x.shape[1], x.shape[3]} & {1, 3})):
        wrong = f"images of {list(x.shape)}"
    elif y.dtype.kind not in "iu" or y.shape not in ((len(x),), (len(x), 1)):
        wrong = f"{len(x)} images, but classes of type {y.dtype} and shape {list(y.shape)}"
    elif 0 in x.shape:
        wrong = "no images, or images without pixels"
    elif int(y.min()) < 0 or int(y.max()) >= _MOST_CLASSES:
        wrong = f"a class outside 0 to {_MOST_CLASSES - 1}"
    if wrong:
        raise ProblemError(f"{where} has {wrong}", hint=_NPZ)
    if x.ndim == 3:
        x = x[:, None]
    elif x.shape[1] not in (1, 3):
        x = x.transpose(0, 3, 1, 2)
    return Images(x=np.ascontiguousarray(x), y=y.reshape(-1).astype(np.int64))
