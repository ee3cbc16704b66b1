"""Opening files of images, which may be hostile: regular files only, within a size, and within their folder.

Labelled images in array files: npz archives, the idx files of MNIST, and tables of pixels.

An npz archive is looked at before anything is unpacked: its members' sizes, and the shapes and types in their headers.
Source of idx: "The MNIST database of handwritten digits", Y. LeCun, C. Cortes, C. Burges.

Images in folders: a folder a class, and the lists of images that quantisers are calibrated with.

Pillow decodes PNG and JPEG, and nothing else; a picture's size is looked at before its pixels are unpacked.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import stat
import struct
import sys
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from gnomon.core.installing import install_line
from gnomon.core.strict_json import Complaints
from gnomon.errors import ProblemError, RuntimeMissingError, UsageError
from gnomon.training.data.dataset import Images

LIMIT_BYTES = 2 << 30
"""What images may take in memory unless more is allowed."""
_PIECE = 1 << 20


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a regular file of at most `most` bytes; one that ends in .gz is unpacked.

    UsageError where it cannot be opened; ProblemError for what is not a regular file, is broken, or is larger.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or error
        raise UsageError(f"{path} cannot be opened: {told}", hint="Check the path and its rights.") from error
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ProblemError(f"{path} is not a regular file", hint="Give a file.")
        try:
            content = _read(gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file, most + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise ProblemError(f"{path} cannot be read: {error}", hint="Copy or make the file again.") from error
    if len(content) > most:
        raise ProblemError(
            f"{path} holds more than {most} bytes", hint="Give fewer or smaller images, or allow more memory."
        )
    return content


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
                arrays[name] = _npy(archive.read(one))
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise ProblemError(f"{path} is not an npz archive of arrays: {str(error)[:200]}", hint=_NPZ) from error
    return arrays


def _npy(content: bytes) -> NDArray[np.generic]:
    """An array of numbers or text, without any pickled object. ValueError for anything else."""
    stream = io.BytesIO(content)
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
        raise ProblemError(f"{path} is not an idx file of bytes", hint=_IDX)
    shape = struct.unpack(f">{content[3]}I", content[4 : 4 + 4 * content[3]])
    pixels = np.frombuffer(content, np.uint8, offset=4 + 4 * content[3])
    if math.prod(shape) != len(pixels):
        raise ProblemError(f"{path} holds {len(pixels)} bytes, and its head says {list(shape)}", hint=_IDX)
    return pixels.reshape(shape)


_ENDINGS = (".png", ".jpg", ".jpeg")
_HINT = "Give PNG or JPEG images of one size, grey or in colour, a folder a class."
_MOST_FILE = 64 << 20
_MOST_LIST = 16 << 20
_GREY = ("1", "L")
_COLOUR = ("RGB", "P", "CMYK", "YCbCr")


def read_folder(folder: Path, most: int) -> Found:
    """Images of a folder a class, or of such folders in ``train`` and ``test``; grey if all are, else RGB.

    Classes are in the order of their names. Files that begin with a dot are passed over. UsageError where there is no
    such folder; ProblemError with everything that is wrong; RuntimeMissingError without Pillow.
    """
    checked_folder(folder)
    complaints = Complaints(what=f"folder of images {folder}", hint=_HINT)
    parted = _names(folder) == ["test", "train"]
    roots = [folder / "train", folder / "test"] if parted else [folder]
    listed = [list(_listed(root, folder, complaints)) for root in roots]
    classes = sorted({name for one in listed for name, _ in one})
    if not classes and not complaints.told:
        complaints.tell(str(folder), "no folder with an image in it")
    complaints.raise_any()
    files = [path for one in listed for _, path in one]
    x = _decoded(files, most, complaints)
    numbers = {name: number for number, name in enumerate(classes)}
    y = np.array([numbers[name] for one in listed for name, _ in one], np.int64)
    cut = len(listed[0])
    if parted and not 0 < cut < len(files):
        raise ProblemError(f"{folder} has no image in train, or none in test", hint=_HINT)
    test = Images(x=x[cut:], y=y[cut:]) if parted else None
    return x[:cut], y[:cut], tuple(classes), test


def load_calibration(
    source: Path, root_folder: Path, *, channels: int, limit_bytes: int = LIMIT_BYTES
) -> NDArray[np.uint8]:
    """The images that a text file names, a line each, in a folder: uint8 (n, channels, height, width).

    What stands behind a name, as in Caffe's lists of images with labels, is passed over. UsageError where a file or
    folder is not there; ProblemError with everything that is wrong; RuntimeMissingError without Pillow.
    """
    checked_folder(root_folder)
    complaints = Complaints(
        what=f"list of images {source}", hint="Give a text file of names in the folder, a line each."
    )
    try:
        lines = read_bytes(source, _MOST_LIST).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ProblemError(f"{source} is not UTF-8 text (byte {error.start})", hint=complaints.hint) from error
    files = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            name = next((n for n in (line.strip(), line.split()[0]) if (root_folder / n).exists()), line.strip())
            files.append(inside(root_folder / name, root_folder))
        except (ProblemError, OSError, ValueError) as error:
            complaints.tell(f"line {number}", str(error))
    if not files and not complaints.told:
        complaints.tell("line 1", "no name at all")
    complaints.raise_any()
    x = _decoded(files, limit_bytes, complaints)
    if x.shape[1] == channels:
        return x
    if x.shape[1] == 1 and channels == 3:
        return np.repeat(x, 3, axis=1)
    raise ProblemError(
        f"the images of {source} have {x.shape[1]} channels, and the networks take {channels}",
        hint="Give images of the kind that the networks are trained on.",
    )


def _names(folder: Path) -> list[str]:
    """The names in a folder in order, without those that begin with a dot."""
    try:
        return sorted(entry.name for entry in os.scandir(folder) if not entry.name.startswith("."))
    except OSError as error:
        raise ProblemError(f"{folder} cannot be listed: {error.strerror}", hint="Check its rights.") from error


def _listed(root: Path, whole: Path, complaints: Complaints) -> Iterator[tuple[str, Path]]:
    """The class and the path of each image, in order; what else is there is told."""
    names = _names(root)
    if len(names) > _MOST_CLASSES:
        complaints.tell(str(root), f"more than {_MOST_CLASSES} folders")
        return
    for name in names:
        try:
            folder = inside(root / name, whole)
            if not folder.is_dir():
                complaints.tell(str(root / name), "a folder of the images of one class expected")
                continue
            for file in _names(folder):
                real = inside(folder / file, whole)
                if real.is_dir() or not file.lower().endswith(_ENDINGS):
                    complaints.tell(str(root / name / file), f"an image expected ({', '.join(_ENDINGS)})")
                else:
                    yield name, real
        except ProblemError as error:
            complaints.tell(str(root / name), error.message)


def _decoded(files: Sequence[Path], most: int, complaints: Complaints) -> NDArray[np.uint8]:
    """The pixels of images of one size: (n, 1, h, w) where all are grey, else (n, 3, h, w)."""
    pillow = _pillow()
    found: list[NDArray[np.uint8]] = []
    taken = 0
    first: tuple[int, int] | None = None
    for path in files:
        try:
            pixels = _image(pillow, path, most - taken)
        except ProblemError as error:
            complaints.tell(str(path), error.message)
            continue
        first = first or pixels.shape[:2]
        if pixels.shape[:2] != first:
            complaints.tell(str(path), f"{_size(pixels.shape[:2])} pixels, and the first image has {_size(first)}")
            continue
        taken += pixels.nbytes
        found.append(pixels)
    complaints.raise_any()
    grey = all(pixels.ndim == 2 for pixels in found)
    height, width = first or (0, 0)
    made = np.empty((len(found), 1 if grey else 3, height, width), np.uint8)
    if made.nbytes > most:
        raise ProblemError(f"the images take {made.nbytes} bytes, and the limit is {most}", hint="Give fewer images.")
    for k, pixels in enumerate(found):
        made[k] = pixels if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return made


def _image(pillow: Any, path: Path, most: int) -> NDArray[np.uint8]:
    """One image as (h, w) or (h, w, 3). ProblemError for what is none, or would take more than `most` bytes."""
    content = read_bytes(path, _MOST_FILE)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Pillow only warns of pictures that are larger than its own limit
            with pillow.open(io.BytesIO(content), formats=("PNG", "JPEG")) as image:
                if image.width * image.height * 3 > most:
                    raise ProblemError(
                        f"{image.width}x{image.height} pixels are more than memory allows", hint="Give smaller images."
                    )
                if image.mode not in (*_GREY, *_COLOUR) or "transparency" in image.info:
                    raise ProblemError(f"a picture of mode {image.mode}, or a transparent one", hint=_HINT)
                return np.asarray(image.convert("L" if image.mode in _GREY else "RGB"), np.uint8)
    except ProblemError:
        raise
    except Exception as error:  # a broken or hostile picture finds many ways to fail
        raise ProblemError(
            f"no image that can be read: {str(error)[:100] or type(error).__name__}", hint=_HINT
        ) from error


def _pillow() -> Any:
    """Pillow's module Image. RuntimeMissingError where it cannot be loaded."""
    try:
        from PIL import Image
    except (ImportError, OSError) as error:
        raise RuntimeMissingError(
            f"images in folders are decoded by Pillow, which cannot be loaded: {error}",
            hint=f"{install_line('pillow', python=sys.executable)}, or give the images as npz:FILE.",
        ) from error
    return Image


def _size(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
