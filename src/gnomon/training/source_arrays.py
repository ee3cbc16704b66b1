"""Labelled images in array files: npz archives, the idx files of MNIST, and tables of pixels.

An npz archive is looked at before anything is unpacked: its members' sizes, and the shapes and types in their headers.
Source of idx: "The MNIST database of handwritten digits", Y. LeCun, C. Cortes, C. Burges.
"""

from __future__ import annotations

import io
import math
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnomon.errors import ProblemError
from gnomon.training.data import Images
from gnomon.training.source_files import checked_folder, read_bytes

Found = tuple[NDArray[np.uint8], NDArray[np.int64], tuple[str, ...], Images | None]
"""Images, their classes, the names of the classes, and an official test part."""

_NPZ = (
    "Save uint8 images (n, height, width) or with 1 or 3 channels as x, and classes from 0 as y: np.savez(f, x=x, y=y)."
)
_IDX = "Give the folder with train-images-idx3-ubyte and train-labels-idx1-ubyte, packed (.gz) or not."
_KEYS = ({"x", "y"}, {"x_train", "y_train"}, {"x_train", "y_train", "x_test", "y_test"})
_MOST_CLASSES = 100_000
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
    if names is not None and (names.ndim != 1 or names.dtype.kind != "U" or not count <= len(names) <= _MOST_CLASSES):
        raise ProblemError(f"{path}: classes are no names, one for each of {count} classes", hint=_NPZ)
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
        raise ProblemError(f"{path} is no table of numbers: {error}", hint="Install its package again.") from error
    whole = rows.shape[1] == columns and bool((rows == np.floor(rows)).all())
    if not whole or not len(rows) or rows.min() < 0 or rows[:, :-1].max() > highest or rows[:, -1].max() > 255:
        raise ProblemError(f"{path} is no table of images of {list(shape)}", hint="Install its package again.")
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
                arrays[name] = _npy(archive.read(one))
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise ProblemError(f"{path} is no npz archive of arrays: {str(error)[:200]}", hint=_NPZ) from error
    return arrays


def _npy(content: bytes) -> NDArray[np.generic]:
    """An array of numbers or text, without any pickled object. ValueError for anything else."""
    stream = io.BytesIO(content)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(stream)
    if version not in readers:
        raise ValueError(f"npy version {version}")
    shape, fortran, dtype = readers[version](stream)
    if dtype.hasobject:
        raise ValueError("it holds pickled objects, which are not read")
    left = memoryview(content)[stream.tell() :]
    if any(n < 0 for n in shape) or math.prod(shape) * dtype.itemsize != len(left):
        raise ValueError("an array is not as long as its header says")
    return np.frombuffer(left, dtype).reshape(shape, order="F" if fortran else "C")


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
    elif int(y.min()) < 0 or int(y.max()) >= _MOST_CLASSES:
        wrong = f"a class that is not from 0 to {_MOST_CLASSES - 1}"
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
        raise ProblemError(f"{path} is no idx file of bytes", hint=_IDX)
    shape = struct.unpack(f">{content[3]}I", content[4 : 4 + 4 * content[3]])
    pixels = np.frombuffer(content, np.uint8, offset=4 + 4 * content[3])
    if math.prod(shape) != len(pixels):
        raise ProblemError(f"{path} holds {len(pixels)} bytes, and its head says {list(shape)}", hint=_IDX)
    return pixels.reshape(shape)
