"""Images in folders: a folder a class, and the lists of images that quantisers are calibrated with.

Pillow decodes PNG and JPEG, and nothing else; a picture's size is looked at before its pixels are unpacked.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.core.installing import install_line
from gnomon.errors import ProblemError, RuntimeMissingError
from gnomon.formats.complaints import Complaints
from gnomon.training.data import Images
from gnomon.training.source_arrays import Found
from gnomon.training.source_files import LIMIT_BYTES, checked_folder, inside, read_bytes

_ENDINGS = (".png", ".jpg", ".jpeg")
_HINT = "Give PNG or JPEG images of one size, grey or in colour, a folder a class."
_MOST_FILE = 64 << 20
_MOST_CLASSES = 100_000
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
        raise ProblemError(f"{source} is no UTF-8 text (byte {error.start})", hint=complaints.hint) from error
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
