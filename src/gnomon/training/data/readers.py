"""Opening files of images, which may be hostile: regular files only, within a size, and within their folder.

Labelled images in array files: npz archives, the idx files of MNIST, and tables of pixels.

An npz archive is looked at before anything is unpacked: its members' sizes, and the shapes and types in their headers.
Source of idx: "The MNIST database of handwritten digits", Y. LeCun, C. Cortes, C. Burges.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import ProblemError, UsageError
from gnomon.training.data.dataset import Images, npy

LIMIT_BYTES = 2 << 30
"""What images may take in memory unless more is allowed."""
_PIECE = 1 << 20


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a regular file of at most `most` bytes; one that ends in .gz is unpacked.

    UsageError where it cannot be opened; ProblemError for what is not a regular file, is broken, or is larger.
    """
    with regular_file(path) as file:
        try:
            content = _read(gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file, most + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise ProblemError(f"{path} cannot be read: {error}", hint="Copy or make the file again.") from error
    if len(content) > most:
        raise ProblemError(
            f"{path} holds more than {most} bytes", hint="Give fewer or smaller images, or allow more memory."
        )
    return content


@contextmanager
def regular_file(path: Path) -> Iterator[BinaryIO]:
    """An open file. UsageError where it cannot be opened, ProblemError for what is not a regular file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or error
        raise UsageError(f"{path} cannot be opened: {told}", hint="Check the path and its rights.") from error
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ProblemError(f"{path} is not a regular file", hint="Give a file.")
        yield file


def _read(file: gzip.GzipFile | BinaryIO, most: int) -> bytes:
    """At most so many bytes, in pieces: what is asked for at once is set aside at once."""
    content = bytearray()
    while len(content) < most and (piece := file.read(min(_PIECE, most - len(content)))):
        content += piece
    return bytes(content)


def inside(path: Path, root: Path) -> Path:
    """The path with its links followed. ProblemError where that leads out of the folder `root`."""
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links in a circle
        raise ProblemError(f"{path} cannot be found", hint="Check the name, and where links lead.") from error
    if not real.is_relative_to(root.resolve()):
        raise ProblemError(f"{path} leads out of {root}", hint="Copy the file into the folder.")
    return real


def checked_folder(path: Path) -> Path:
    """The path of a folder. UsageError where there is none."""
    if not path.is_dir():
        raise UsageError(f"there is no folder {path}", hint="Give the path of a folder that is there.")
    return path


Found = tuple[NDArray[np.uint8], NDArray[np.int64], tuple[str, ...], Images | None]
"""Images, their classes, the names of the classes, and an official test part."""

_NPZ = (
    "Save uint8 images (n, height, width) or with 1 or 3 channels as x, and classes from 0 as y: np.savez(f, x=x, y=y)."
)
_IDX = "Give the folder with train-images-idx3-ubyte and train-labels-idx1-ubyte, packed (.gz) or not."
_KEYS = ({"x", "y"}, {"x_train", "y_train"}, {"x_train", "y_train", "x_test", "y_test"})
MOST_CLASSES = 100_000
_MOST_MEMBERS = 16


def read_npz(path: Path, most: int) -> Found:
    """x and y of an archive, or x_train, y_train, x_test, y_test; names may stand in `classes`.

    UsageError where it cannot be opened, ProblemError for whatever is wrong with it.
    """
    arrays = _archive(path, most)
    names = arrays.pop("classes", None)
    if set(arrays) not in _KEYS:
        raise ProblemError(f"{path} holds {', '.join(sorted(arrays)) or 'nothing'}", hint=_NPZ)
    end = "" if "x" in arrays else "_train"
    images = _images(arrays[f"x{end}"], arrays[f"y{end}"], f"{path}: x{end}")
    test = _images(arrays["x_test"], arrays["y_test"], f"{path}: x_test") if "x_test" in arrays else None
    count = 1 + max(int(part.y.max()) for part in (images, test) if part is not None)
    if names is not None and (names.ndim != 1 or names.dtype.kind != "U" or not count <= len(names) <= MOST_CLASSES):
        raise ProblemError(f"{path}: classes are not names, one for each of {count} classes", hint=_NPZ)
    classes = tuple(str(name) for name in (names if names is not None else range(count)))
    return images.x, images.y, classes, test


def read_idx_folder(path: Path, most: int) -> Found:
    """The training and, where it is there, the test part of a folder of idx files.

    UsageError where there is none, ProblemError for whatever is wrong with its files.
    """
    checked_folder(path)
    parts: list[Images | None] = []
    for part in ("train", "t10k"):
        files = [_idx_file(path, part, kind) for kind in ("images-idx3", "labels-idx1")]
        if not any(files) and part == "t10k":
            parts.append(None)
            continue
        missing = [kind for kind, file in zip(("images", "labels"), files, strict=True) if file is None]
        if missing:
            raise ProblemError(f"{path} has no {part} {' and '.join(missing)}", hint=_IDX)
        x, y = (_idx(file, most) for file in files if file is not None)
        if x.ndim != 3 or y.ndim != 1:
            raise ProblemError(f"{path}: the {part} files are {x.ndim}- and {y.ndim}-dimensional", hint=_IDX)
        parts.append(_images(x, y, f"{path}: {part}"))
    train, test = parts
    if train is None:
        raise ProblemError(f"{path} has no training images", hint=_IDX)
    count = 1 + max(int(part.y.max()) for part in (train, test) if part is not None)
    return train.x, train.y, tuple(str(k) for k in range(count)), test


def read_table(
    path: Path, shape: tuple[int, int, int], highest: int, most: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Images of a table, a line each: pixels from 0 to `highest`, then the class. ProblemError for anything else."""
    columns = math.prod(shape) + 1
    try:
        rows = np.loadtxt(io.BytesIO(read_bytes(path, most)), delimiter=",", ndmin=2)
    except ValueError as error:
        raise ProblemError(f"{path} is not a table of numbers: {error}", hint="Install its package again.") from error
    whole = rows.shape[1] == columns and bool((rows == np.floor(rows)).all())
    if not whole or not len(rows) or rows.min() < 0 or rows[:, :-1].max() > highest or rows[:, -1].max() > 255:
        raise ProblemError(f"{path} is not a table of images of {list(shape)}", hint="Install its package again.")
    return rows[:, :-1].reshape(-1, *shape), rows[:, -1].astype(np.int64)


def _archive(path: Path, most: int) -> dict[str, NDArray[np.generic]]:
    """The arrays of an npz archive, none larger than its header says, together at most `most` bytes."""
    content = read_bytes(path, most)
    arrays: dict[str, NDArray[np.generic]] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            if len(members) > _MOST_MEMBERS or sum(one.file_size for one in members) > most:
                raise ProblemError(f"{path} unpacks to more than {most} bytes, or too many arrays", hint=_NPZ)
            for one in members:
                name = one.filename.removesuffix(".npy")
                if name in arrays:
                    raise ProblemError(f"{path} holds {name[:60]!r} twice", hint=_NPZ)
                arrays[name] = npy(archive.read(one))
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise ProblemError(f"{path} is not an npz archive of arrays: {str(error)[:200]}", hint=_NPZ) from error
    return arrays


def _images(x: NDArray[np.generic], y: NDArray[np.generic], where: str) -> Images:
    """Images of (n, h, w), (n, c, h, w) or (n, h, w, c), with c 1 or 3, and their classes of (n,) or (n, 1)."""
    wrong = ""
    if x.dtype != np.uint8:
        wrong = f"{x.dtype} pixels, and uint8 is read"
    elif x.ndim == 4 and x.shape[1] in (1, 3) and x.shape[3] in (1, 3) and x.shape[2] not in (1, 3):
        wrong = f"images of {list(x.shape[1:])}, which have their channels first or last"
    elif not (x.ndim == 3 or (x.ndim == 4 and {x.shape[1], x.shape[3]} & {1, 3})):
        wrong = f"images of {list(x.shape)}"
    elif y.dtype.kind not in "iu" or y.shape not in ((len(x),), (len(x), 1)):
        wrong = f"{y.dtype}{list(y.shape)} classes of {len(x)} images"
    elif 0 in x.shape:
        wrong = "no image, or images without a pixel"
    elif int(y.min()) < 0 or int(y.max()) >= MOST_CLASSES:
        wrong = f"a class that is not from 0 to {MOST_CLASSES - 1}"
    if wrong:
        raise ProblemError(f"{where} has {wrong}", hint=_NPZ)
    pixels = np.asarray(x, np.uint8)
    if pixels.ndim == 3:
        pixels = pixels[:, None]
    elif pixels.shape[1] not in (1, 3):
        pixels = pixels.transpose(0, 3, 1, 2)
    return Images(x=np.ascontiguousarray(pixels), y=y.reshape(-1).astype(np.int64))


def _idx_file(folder: Path, part: str, kind: str) -> Path | None:
    """A file by one of the names that it goes by."""
    names = [f"{part}-{form}-ubyte" for form in (kind, kind.replace("-idx", ".idx"))]
    return next((p for name in names for end in ("", ".gz") if (p := folder / (name + end)).is_file()), None)


def _idx(path: Path, most: int) -> NDArray[np.uint8]:
    """An idx file of bytes."""
    content = read_bytes(path, most)
    if len(content) < 4 or content[:3] != b"\0\0\x08" or not 1 <= content[3] <= 4 or len(content) < 4 + 4 * content[3]:
        raise ProblemError(f"{path} is not an idx file of bytes", hint=_IDX)
    shape = struct.unpack(f">{content[3]}I", content[4 : 4 + 4 * content[3]])
    pixels = np.frombuffer(content, np.uint8, offset=4 + 4 * content[3])
    if math.prod(shape) != len(pixels):
        raise ProblemError(f"{path} holds {len(pixels)} bytes, and its head says {list(shape)}", hint=_IDX)
    return pixels.reshape(shape)
