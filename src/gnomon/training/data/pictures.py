"""Images in folders, with one folder for each class, and lists of images for calibrating quantisers.

Pillow decodes only PNG and JPEG here; a picture's size is checked before its pixels are unpacked. `fitted` cuts and
scales pictures of any size to one size, as PyTorch's own recipes for ImageNet do (pytorch/vision,
references/classification).
"""

from __future__ import annotations

import hashlib
import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from gnomon.core.strict_json import Complaints
from gnomon.errors import ProblemError, UsageError, problems_of
from gnomon.installing import needed
from gnomon.training.data import readers
from gnomon.training.data.dataset import Images
from gnomon.training.data.readers import Source, entries, regular_file

_ENDINGS = (".png", ".jpg", ".jpeg")
_HINT = "Give PNG or JPEG images, grey or colour, a folder per class; all of one size, or set gnomon_cfg.resize."
_MOST_PICTURE = 256 << 20
"""The largest accepted size of an unpacked picture, in bytes."""
_GREY = ("1", "L")
_COLOUR = ("RGB", "P", "CMYK", "YCbCr")
_PARTS = {"train": "train", "val": "validation", "validation": "validation", "test": "test"}
"""The part that a folder holds, by the folder's name."""
_AREA, _RATIO, _TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pictures:
    """Pictures as a map-style data set: item k is a Pillow picture, decoded on access, and its class.

    `names` are the paths of their files.
    """

    names: Sequence[str]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        """The number of pictures."""
        return len(self.names)

    def __getitem__(self, k: int) -> tuple[Any, int]:
        """A picture of mode L or RGB, and its class. ProblemError for a file of another kind; UsageError for a missing
        file.
        """
        with problems_of(self.names[k]), regular_file(Path(self.names[k])) as file, _picture(file) as picture:
            return picture.convert("L" if picture.mode in _GREY else "RGB"), int(self.labels[k])

    def sizes(self, complaints: Complaints) -> dict[str, tuple[bool, int, int]]:
        """For each name, whether the picture is grey, its height and its width, all read from its header alone.

        A file that cannot be read becomes a complaint.
        """
        sizes = {}
        for name in self.names:
            try:
                with regular_file(Path(name)) as file, _picture(file) as picture:
                    sizes[name] = picture.mode in _GREY, picture.height, picture.width
            except (ProblemError, UsageError) as error:
                complaints.tell(name, error.message.removeprefix(f"{name} "))
        return sizes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Opened:
    """Images by part as map-style data sets, and the names and numbers of their classes if these are known.

    `mode` is the mode of all pictures, "L" or "RGB", and `digest` identifies all items.
    """

    parts: Mapping[str, Any]
    labels: Mapping[str, NDArray[np.int64]]
    classes: tuple[str, ...] = ()
    mode: str = ""
    digest: str = ""


def open_folder(folder: Path, mode: str = "") -> Opened:
    """The pictures in a folder with one subfolder per class, or with one such folder per part.

    Parts are ``train`` and optionally ``val`` or ``validation``, and ``test``. Classes are sorted by name. Without a
    `mode`, the header of each file is read, but no pixels; the digest then covers the files' names and lengths.
    UsageError if there is no such folder; ProblemError with all errors; RuntimeMissingError without Pillow.
    """
    complaints = Complaints(what=f"folder of images {folder}", hint=_HINT)
    parts, classes = _parts(folder, complaints)
    digest = hashlib.sha256()
    if not mode:
        grey = [size[0] for part in parts.values() for size in part.sizes(complaints).values()]
        complaints.raise_any()
        mode = "L" if all(grey) else "RGB"
        for path in (Path(name) for part in parts.values() for name in part.names):
            digest.update(f"{path.name}\n{path.stat().st_size}\n".encode("utf-8", "surrogateescape"))
    labels = {name: part.labels for name, part in parts.items()}
    return Opened(parts=parts, labels=labels, classes=classes, mode=mode, digest=digest.hexdigest())


def read_folder(folder: Path) -> Source:
    """The images of a folder laid out as for `open_folder`, in memory and all of one size; grey if all are grey,
    otherwise RGB. Raises the errors of `open_folder`.
    """
    complaints = Complaints(what=f"folder of images {folder}", hint=_HINT)
    parts, classes = _parts(folder, complaints)
    x = _stacked(_of_files([name for part in parts.values() for name in part.names]), complaints)
    pixels = np.split(x, np.cumsum([len(part) for part in parts.values()])[:-1])
    images = {name: Images(x=x, y=part.labels) for (name, part), x in zip(parts.items(), pixels, strict=True)}
    return Source(parts=images, classes=classes)


def load_calibration(source: Path, root_folder: Path, *, channels: int, resize: int | None = None) -> NDArray[np.uint8]:
    """The images in a folder that a text file names, one per line: uint8 (n, channels, height, width).

    With `resize` the images may have any size, and `fitted` brings them to `resize` by `resize` pixels; otherwise all
    must have one size. Text after a name, as in Caffe's lists of images with labels, is ignored. UsageError if a file
    or folder is missing; ProblemError with all errors; RuntimeMissingError without Pillow.
    """
    entries(root_folder)  # UsageError without a folder
    complaints = Complaints(
        what=f"list of images {source}", hint="Give a text file with the names of images in the folder, one per line."
    )
    with regular_file(source) as file:
        content = file.read()
    try:
        lines = [line.strip() for line in content.decode("utf-8-sig").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise ProblemError(f"{source} is not UTF-8 text (byte {error.start})", hint=complaints.hint) from error
    if not lines:
        complaints.tell("line 1", "no image is named")
    # A name may contain spaces, or be followed by a label.
    exists = os.path.exists  # pathlib's version raises if a name is too long
    names = [line if exists(root_folder / line) else line.split()[0] for line in lines]
    x = _stacked(_of_files([str(root_folder / name) for name in names]), complaints, resize)
    if x.shape[1] == 1 and channels == 3:
        return np.repeat(x, 3, axis=1)
    if x.shape[1] != channels:
        raise ProblemError(
            f"the images of {source} have {x.shape[1]} channel{'' if x.shape[1] == 1 else 's'}, but the networks take "
            f"{channels}",
            hint="Give images with as many channels as the networks take.",
        )
    return x


def fitted(picture: Any, size: int, random: np.random.Generator | None) -> Any:
    """A Pillow picture of `size` by `size` pixels: the middle of the picture after scaling its shorter side to `size`.

    With `random` the result is instead a window of 8 to 100 % of the area, with an aspect ratio of 3:4 to 4:3, mirrored
    half of the time ("Inception-style": Szegedy et al., "Going deeper with convolutions", 2015).
    """
    from PIL import Image, ImageOps

    window = random and _window(picture.width, picture.height, random)
    if window is None:
        scaled = ImageOps.fit(picture, (size, size), Image.Resampling.BILINEAR)
    else:
        scaled = picture.resize((size, size), Image.Resampling.BILINEAR, box=window)
    return ImageOps.mirror(scaled) if random is not None and random.random() < 0.5 else scaled


def as_array(picture: Any) -> NDArray[np.uint8]:
    """The pixels of a Pillow picture: (channels, height, width)."""
    pixels = np.asarray(picture)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _window(width: int, height: int, random: np.random.Generator) -> tuple[float, float, float, float] | None:
    """A window of random area and aspect ratio inside the picture; None if none of a few draws fits."""
    for _ in range(_TRIES):
        area = width * height * random.uniform(_AREA[0], _AREA[1])
        ratio = math.exp(random.uniform(math.log(_RATIO[0]), math.log(_RATIO[1])))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            left, top = int(random.integers(0, width - wide + 1)), int(random.integers(0, height - high + 1))
            return left, top, left + wide, top + high
    return None


def _of_files(files: Sequence[str], labels: Sequence[int] = ()) -> Pictures:
    """The pictures in these files, of class 0 unless labels are given."""
    classes = np.array(labels or [0] * len(files), np.int64)
    return Pictures(names=files, labels=classes)


def _parts(folder: Path, complaints: Complaints) -> tuple[dict[str, Pictures], tuple[str, ...]]:
    """The pictures in a folder by part, and the names of all classes. ProblemError for any other content."""
    roots = {_PARTS.get(path.name, ""): path for path in entries(folder)}
    if "train" not in roots or "" in roots or len(roots) < len(entries(folder)):
        roots = {"train": folder}
    listed = {part: list(_listed(root, complaints)) for part, root in roots.items()}
    for part, files in listed.items():
        if not files and not complaints.sentences:
            complaints.tell(str(roots[part]), "no folder in it holds an image")
    complaints.raise_any()
    classes = sorted({name for files in listed.values() for name, _ in files})
    numbers = {name: number for number, name in enumerate(classes)}
    parts = {
        part: _of_files([str(path) for _, path in files], [numbers[name] for name, _ in files])
        for part, files in listed.items()
    }
    return parts, tuple(classes)


def _listed(root: Path, complaints: Complaints) -> Iterator[tuple[str, Path]]:
    """The class and path of each image, in order; anything else becomes a complaint."""
    for folder in entries(root):
        if not folder.is_dir():
            complaints.tell(str(folder), "a folder with the images of a class expected")
            continue
        for file in entries(folder):
            if file.is_dir() or file.suffix.lower() not in _ENDINGS:
                complaints.tell(str(file), f"an image expected ({', '.join(_ENDINGS)})")
            else:
                yield folder.name, file


def _stacked(pictures: Pictures, complaints: Complaints, resize: int | None = None) -> NDArray[np.uint8]:
    """The pixels of images of one size: (n, 1, h, w) if all are grey, otherwise (n, 3, h, w)."""
    sizes = pictures.sizes(complaints)
    _, height, width = next(iter(sizes.values()), (True, 0, 0))
    others = [(name, size) for name, size in sizes.items() if size[1:] != (height, width)]
    if others and resize is None:
        name, size = others[0]
        more = f"; likewise {len(others) - 1} more" if len(others) > 1 else ""
        complaints.tell(name, f"{size[1]}x{size[2]} pixels, but the first image has {height}x{width}{more}")
    complaints.raise_any()
    grey = all(size[0] for size in sizes.values())
    shape = (len(pictures), 1 if grey else 3, resize or height, resize or width)
    if math.prod(shape) > readers.LIMIT_BYTES:
        raise ProblemError(
            f"the images take more than the limit of {readers.LIMIT_BYTES} bytes", hint="Give fewer images."
        )
    x = np.empty(shape, np.uint8)
    for k in range(len(pictures)):
        picture = pictures[k][0].convert("L" if grey else "RGB")
        x[k] = as_array(picture if resize is None else fitted(picture, resize, None))
    return x


@contextmanager
def _picture(file: BinaryIO) -> Iterator[Any]:
    """A picture of which only the header has been read. ProblemError for another kind of file, or a picture of more
    than `_MOST_PICTURE` bytes.
    """
    with needed(
        "images in folders are decoded by Pillow, which cannot be loaded",
        "pillow",
        instead=", or give the images as npz:FILE.",
    ):
        from PIL import Image
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Pillow only warns about pictures larger than its own limit
            with Image.open(file, formats=("PNG", "JPEG")) as image:
                if image.width * image.height * 3 > _MOST_PICTURE:
                    raise ProblemError(
                        f"an image of {image.width}x{image.height} pixels is too large", hint="Give smaller images."
                    )
                if image.mode not in (*_GREY, *_COLOUR) or "transparency" in image.info:
                    raise ProblemError(f"an image of mode {image.mode} or with transparency is not read", hint=_HINT)
                yield image
    except ProblemError:
        raise
    except Exception as error:  # a broken or hostile picture may fail in many ways
        # Pillow's message names the Python object that it could not identify.
        reason = str(error).partition(" <")[0][:100] or type(error).__name__
        raise ProblemError(f"the image cannot be read: {reason}", hint=_HINT) from error
