"""Silhouettes of ten kinds of animals, 1,000 of each, in grey, 28x28: as small as digits, but harder.

They come from the wheel of animal-mnist (MIT), which has two compressed pickles of one array each. These are not
unpickled: the files are identified by their SHA-256, so the positions of the arrays' bytes are known.
"""

from __future__ import annotations

import gzip
import io
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zoo.wheels import WheelFile, Wheels, ZooError

CLASSES = ("bear", "bird", "cat", "cow", "dog", "elephant", "giraffe", "horse", "sheep", "zebra")
_EACH = 1000
_PIXELS = (28, 28)


@dataclass(frozen=True, slots=True, kw_only=True)
class PickledArray:
    """A compressed file, its uncompressed length, and the position in it where the array's bytes begin."""

    file: WheelFile
    unpacked_bytes: int
    offset: int


def _member(name: str, sha256: str) -> WheelFile:
    return WheelFile(
        distribution="animal-mnist",
        version="0.4",
        member=f"animal_mnist/data/Animal_MNIST/{name}",
        sha256=sha256,
    )


_X = PickledArray(
    file=_member("animal_data_version_3.gz", "68a30346781a0984f839463a4615d2decb899d1ce65091bb92586311754a34ce"),
    unpacked_bytes=7_840_164,
    offset=150,
)
_Y = PickledArray(
    file=_member("animal_label_version_3.gz", "dec8dba7c469830989fbab46825021a08a38470753a512f27ada847eced97b57"),
    unpacked_bytes=80_160,
    offset=146,
)


def silhouettes_npz(wheels: Wheels) -> bytes:
    """An npz archive of x, uint8 (10000, 28, 28), y, int64 (10000,), and the names of the classes. Raises ZooError."""
    count = len(CLASSES) * _EACH
    x = np.frombuffer(_bytes(wheels, _X), np.uint8, count * math.prod(_PIXELS), _X.offset)
    y = np.frombuffer(_bytes(wheels, _Y), "<i8", count, _Y.offset)
    return packed(x.reshape(count, *_PIXELS), y.astype(np.int64))


def packed(x: NDArray[np.uint8], y: NDArray[np.int64]) -> bytes:
    """The archive of these images. Raises ZooError unless there are 1,000 of each kind."""
    if len(x) != len(y) or np.bincount(y, minlength=len(CLASSES)).tolist() != [_EACH] * len(CLASSES):
        raise ZooError(f"the silhouettes are not {_EACH} of each of {len(CLASSES)} kinds")
    stream = io.BytesIO()
    np.savez_compressed(stream, x=x, y=y, classes=np.array(CLASSES))
    return stream.getvalue()


def _bytes(wheels: Wheels, one: PickledArray) -> bytes:
    """The uncompressed content of a file."""
    with gzip.open(io.BytesIO(wheels.read(one.file))) as file:
        content = file.read(one.unpacked_bytes + 1)
    if len(content) != one.unpacked_bytes:
        raise ZooError(f"{one.file.member} is not {one.unpacked_bytes} bytes long")
    return content
