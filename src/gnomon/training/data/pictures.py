"""Images in folders: a folder a class, and the lists of images that quantisers are calibrated with.

Pillow decodes PNG and JPEG, and nothing else; a picture's size is looked at before its pixels are unpacked. Pictures of
any size are cut and scaled to one by `fitted`, as PyTorch's own recipes for ImageNet do (pytorch/vision,
references/classification).
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from gnomon.core.installing import needed
from gnomon.core.strict_json import Complaints
from gnomon.errors import ProblemError, UsageError
from gnomon.training.data.dataset import Images
from gnomon.training.data.readers import (
    LIMIT_BYTES,
    MOST_CLASSES,
    Found,
    checked_folder,
    inside,
    read_bytes,
    regular_file,
)

_ENDINGS = (".png", ".jpg", ".jpeg")
_HINT = "Give PNG or JPEG images, grey or in colour, a folder a class; of one size, or with gnomon_cfg.resize."
_MOST_FILE = 64 << 20
_MOST_LIST = 16 << 20
_MOST_PICTURE = 256 << 20
"""Bytes that one picture may unpack to where pictures are read one by one."""
_GREY = ("1", "L")
_COLOUR = ("RGB", "P", "CMYK", "YCbCr")
_PARTS = {"train": "train", "val": "validation", "validation": "validation", "test": "test"}
"""What folders of parts are called, and the part that each is."""
_AREA, _RATIO, _TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pictures:
    """Pictures in files, as a map-style data set: item k is a Pillow picture, decoded when it is asked for, and its
    class."""

    files: Sequence[str]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        """How many there are."""
        return len(self.files)

    def __getitem__(self, k: int) -> tuple[Any, int]:
        """A picture of mode L or RGB, and its class. ProblemError for what is none; UsageError for a file that left."""
        return decoded(read_bytes(Path(self.files[k]), _MOST_FILE), self.files[k]), int(self.labels[k])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PictureFolder:
    """The pictures of a folder by part, and the names of the classes.

    Where their heads were looked at, whether all are grey, and a digest of the files' names and lengths.
    """

    parts: Mapping[str, Pictures]
    classes: tuple[str, ...]
    grey: bool
    digest: str


def open_folder(folder: Path, *, look: bool) -> PictureFolder:
    """The pictures of a folder that has a folder a class, or such folders in parts.

    Parts are ``train`` and, where they are there, ``val`` or ``validation``, and ``test``. With `look` the head of each
    file is looked at, and no pixel. UsageError where there is no such folder; ProblemError with
    everything that is wrong; RuntimeMissingError without Pillow.
    """
    checked_folder(folder)
    names = _names(folder)
    parts = [_PARTS.get(name, "") for name in names]
    parted = "train" in parts and all(parts) and len(set(parts)) == len(parts)
    roots = {part: folder / name for part, name in zip(parts, names, strict=True)} if parted else {"train": folder}
    listed, classes, complaints = _whole(folder, roots)
    grey, digest = True, hashlib.sha256()
    for path in (path for files in listed.values() for _, path in files if look):
        try:
            with regular_file(path) as file, _picture(file, _MOST_PICTURE) as picture:
                grey = grey and picture.mode in _GREY
                digest.update(f"{path.name}\n{os.fstat(file.fileno()).st_size}\n".encode("utf-8", "surrogateescape"))
        except (ProblemError, UsageError) as error:
            complaints.tell(str(path), error.message)
    complaints.raise_any()
    if empty := [part for part, files in listed.items() if not files]:
        raise ProblemError(f"{folder} has no image in {', '.join(empty)}", hint=_HINT)
    numbers = {name: number for number, name in enumerate(classes)}
    made = {
        part: Pictures(
            files=[str(path) for _, path in files], labels=np.array([numbers[name] for name, _ in files], np.int64)
        )
        for part, files in listed.items()
    }
    return PictureFolder(parts=made, classes=classes, grey=grey, digest=digest.hexdigest())


def decoded(content: bytes, name: str) -> Any:
    """A Pillow picture of mode L or RGB, of a file's content. ProblemError, with the name, for what is none."""
    try:
        with _picture(io.BytesIO(content), _MOST_PICTURE) as picture:
            return picture.convert("L" if picture.mode in _GREY else "RGB")
    except ProblemError as error:
        raise ProblemError(f"{name}: {error.message}", hint=error.hint) from error


def is_grey(content: bytes) -> bool:
    """Whether a picture is grey, by the head of a file. ProblemError for what is not a picture."""
    with _picture(io.BytesIO(content), _MOST_PICTURE) as picture:
        return picture.mode in _GREY


def fitted(picture: Any, size: int, random: np.random.Generator | None) -> Any:
    """A Pillow picture of `size` by `size` pixels: the middle of one whose shorter side was scaled to `size`.

    With random numbers a window instead, of 8 to 100 % of the area, 3:4 to 4:3, and mirrored half of the time
    ("Inception-style": Szegedy et al., "Going deeper with convolutions", 2015).
    """
    image = _pillow()
    width, height = picture.size
    side = min(width, height)
    box = ((width - side) / 2, (height - side) / 2, (width + side) / 2, (height + side) / 2)
    if random is not None:
        box = _window(width, height, random) or box
    made = picture.resize((size, size), image.Resampling.BILINEAR, box=box)
    mirrored = random is not None and random.random() < 0.5
    return made.transpose(image.Transpose.FLIP_LEFT_RIGHT) if mirrored else made


def _window(width: int, height: int, random: np.random.Generator) -> tuple[float, float, float, float] | None:
    """A window of random area and ratio that lies within; None where a few draws gave none."""
    for _ in range(_TRIES):
        area = width * height * random.uniform(_AREA[0], _AREA[1])
        ratio = math.exp(random.uniform(math.log(_RATIO[0]), math.log(_RATIO[1])))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            left, top = int(random.integers(0, width - wide + 1)), int(random.integers(0, height - high + 1))
            return left, top, left + wide, top + high
    return None


def read_folder(folder: Path, most: int) -> Found:
    """Images of a folder a class, or of such folders in ``train`` and ``test``; grey if all are, else RGB.

    Classes are in the order of their names. Files that begin with a dot are passed over. UsageError where there is no
    such folder; ProblemError with everything that is wrong; RuntimeMissingError without Pillow.
    """
    checked_folder(folder)
    parted = _names(folder) == ["test", "train"]
    listed, classes, complaints = _whole(
        folder, {name: folder / name for name in ("train", "test")} if parted else {"train": folder}
    )
    every = [one for files in listed.values() for one in files]
    files = [path for _, path in every]
    x = _decoded(files, most, complaints)
    numbers = {name: number for number, name in enumerate(classes)}
    y = np.array([numbers[name] for name, _ in every], np.int64)
    cut = len(listed["train"])
    if parted and not 0 < cut < len(files):
        raise ProblemError(f"{folder} has no image in train, or none in test", hint=_HINT)
    test = Images(x=x[cut:], y=y[cut:]) if parted else None
    return x[:cut], y[:cut], classes, test


def _whole(
    folder: Path, roots: dict[str, Path]
) -> tuple[dict[str, list[tuple[str, Path]]], tuple[str, ...], Complaints]:
    """The class and the path of each image by part, and the names of all classes. ProblemError for what else is there.

    Complaints are those that the images themselves may still give.
    """
    complaints = Complaints(what=f"folder of images {folder}", hint=_HINT)
    listed = {part: list(_listed(root, folder, complaints)) for part, root in roots.items()}
    classes = tuple(sorted({name for files in listed.values() for name, _ in files}))
    if not classes and not complaints.told:
        complaints.tell(str(folder), "no folder with an image in it")
    complaints.raise_any()
    return listed, classes, complaints


def load_calibration(
    source: Path, root_folder: Path, *, channels: int, limit_bytes: int = LIMIT_BYTES, resize: int | None = None
) -> NDArray[np.uint8]:
    """The images that a text file names, a line each, in a folder: uint8 (n, channels, height, width).

    Those of any size where all are to be made `resize` by `resize` pixels, as `fitted` does, else of one size.

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
    x = _decoded(files, limit_bytes, complaints, resize)
    if x.shape[1] == channels:
        return x
    if x.shape[1] == 1 and channels == 3:
        return np.repeat(x, 3, axis=1)
    raise ProblemError(
        f"the images of {source} have {x.shape[1]} channel{'' if x.shape[1] == 1 else 's'}, and the networks take "
        f"{channels}",
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
    if len(names) > MOST_CLASSES:
        complaints.tell(str(root), f"more than {MOST_CLASSES} folders")
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


def _decoded(files: Sequence[Path], most: int, complaints: Complaints, resize: int | None = None) -> NDArray[np.uint8]:
    """The pixels of images of one size: (n, 1, h, w) where all are grey, else (n, 3, h, w)."""
    found: list[NDArray[np.uint8]] = []
    taken = 0
    first: tuple[int, int] | None = None
    others: list[tuple[Path, tuple[int, int]]] = []
    for path in files:
        try:
            pixels = _image(path, most - taken, resize)
        except ProblemError as error:
            complaints.tell(str(path), error.message)
            continue
        first = first or pixels.shape[:2]
        if pixels.shape[:2] != first:
            others.append((path, pixels.shape[:2]))
            continue
        taken += pixels.nbytes
        found.append(pixels)
    if first and others:
        path, size = others[0]
        more = f"; so it is with {len(others) - 1} more" if len(others) > 1 else ""
        complaints.tell(str(path), f"{_size(size)} pixels, and the first image has {_size(first)}{more}")
    complaints.raise_any()
    grey = all(pixels.ndim == 2 for pixels in found)
    height, width = first or (0, 0)
    made = np.empty((len(found), 1 if grey else 3, height, width), np.uint8)
    if made.nbytes > most:
        raise ProblemError(f"the images take {made.nbytes} bytes, and the limit is {most}", hint="Give fewer images.")
    for k, pixels in enumerate(found):
        made[k] = pixels if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return made


def _image(path: Path, most: int, resize: int | None) -> NDArray[np.uint8]:
    """One image as (h, w) or (h, w, 3). ProblemError for what is none, or would take more than `most` bytes."""
    with _picture(io.BytesIO(read_bytes(path, _MOST_FILE)), most) as picture:
        made = picture.convert("L" if picture.mode in _GREY else "RGB")
        return np.asarray(made if resize is None else fitted(made, resize, None), np.uint8)


@contextmanager
def _picture(file: BinaryIO, most: int) -> Iterator[Any]:
    """A picture whose head was read. ProblemError for what is none, or would take more than `most` bytes."""
    pillow = _pillow()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Pillow only warns of pictures that are larger than its own limit
            with pillow.open(file, formats=("PNG", "JPEG")) as image:
                if image.width * image.height * 3 > most:
                    raise ProblemError(
                        f"{image.width}x{image.height} pixels are more than memory allows", hint="Give smaller images."
                    )
                if image.mode not in (*_GREY, *_COLOUR) or "transparency" in image.info:
                    raise ProblemError(f"a picture of mode {image.mode}, or a transparent one", hint=_HINT)
                yield image
    except ProblemError:
        raise
    except Exception as error:  # a broken or hostile picture finds many ways to fail
        # What Pillow cannot identify it calls by the Python object that it read from.
        told = str(error).partition(" <")[0][:100] or type(error).__name__
        raise ProblemError(f"no image that can be read: {told}", hint=_HINT) from error


def _pillow() -> Any:
    """Pillow's module Image. RuntimeMissingError where it cannot be loaded."""
    sentence = "images in folders are decoded by Pillow, which cannot be loaded"
    with needed(sentence, "pillow", python=sys.executable, instead=", or give the images as npz:FILE."):
        from PIL import Image
    return Image


def _size(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
