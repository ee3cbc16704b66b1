"""Values that others saved with PyTorch, read without running anything of them.

PyTorch's own reader of weights takes plain values and tensors. Scalars and arrays of numpy it takes by name only: what
stands for their makers here is read by this module, so that no file has a say in what numpy does with it.
"""

from __future__ import annotations

import io
import math
import struct
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gnomon.errors import ProblemError
from gnomon.system.files import read_file
from gnomon.training.network import torch_package

MOST_BYTES = 256 << 20
_LETTERS = {
    "i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q", "f2": "e", "f4": "f",
    "f8": "d",
}  # fmt: skip
"""Types of numpy's numbers, as `struct` knows them."""

Number = float | int
_MOST = 1 << 64


def load_saved(path: Path, *, hint: str) -> Any:
    """The values in a file of `torch.save`: plain values, tensors, and numpy's scalars as numbers; see `numbers`.

    `hint` is what to do about another file. UsageError where it cannot be read, or is longer than `MOST_BYTES`;
    ProblemError for a file that holds anything else, or unpacks to more; RuntimeMissingError without PyTorch.
    """
    torch = torch_package("reading a file of PyTorch")
    data = read_file(path, hint=hint, most_bytes=MOST_BYTES)
    if _unpacked(data) > MOST_BYTES:
        raise ProblemError(f"{path} holds more than the {MOST_BYTES >> 20} MiB that are read", hint=hint)
    try:
        try:
            return _load(torch, data)
        except Exception:
            # Only now: PyTorch before 2.6 does not know names of one's own.
            with torch.serialization.safe_globals(list(_STANDING_IN)):
                return _load(torch, data)
    except Exception as error:  # what PyTorch raises for a broken file is of any kind
        raise ProblemError(f"{path} cannot be read as a file of PyTorch: {_reason(error)}", hint=hint) from error


def numbers(value: Any, most: int) -> tuple[Number, ...] | None:
    """The numbers of a list, a tuple, a tensor or an array of at most `most`; None for anything else.

    A single number counts as a list of one.
    """
    if isinstance(value, torch_package().Tensor):
        if value.numel() > most or (value.dim() > 1 and value.numel() > 1):
            return None
        try:
            value = value.flatten().tolist()
        except Exception:  # a tensor without values, or of another kind of layout
            return None
    elif isinstance(value, _Array):
        value = value.values
    parts = value if isinstance(value, list | tuple) else (value,)
    if len(parts) > most:
        return None
    values = tuple(number for part in parts if (number := _number(part)) is not None)
    return values if len(values) == len(parts) else None


def _number(value: Any) -> Number | None:
    """A number of at most 64 bits that is not a truth value, out of a tensor or an array of one, too."""
    if isinstance(value, int | float):
        return None if isinstance(value, bool) or (isinstance(value, int) and abs(value) >= _MOST) else value
    if isinstance(value, _Array | torch_package().Tensor):
        return single[0] if (single := numbers(value, 1)) else None
    return None


def _load(torch: Any, data: bytes) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of another pickle than PyTorch's, which it then refuses
        return torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")


def _unpacked(data: bytes) -> int:
    """The bytes that an archive says it holds; 0 for any other file and a broken one, which PyTorch refuses."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error):
        return 0


def _reason(error: Exception) -> str:
    """The line of PyTorch's long message that names the refused value."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    line = next((line for line in lines if "Unsupported" in line or "unsupported" in line), lines[0])
    return line.partition(" Please use")[0][:200]


class _Type:
    """A stand-in for numpy's dtype: the letters of a type of numbers, and its order of bytes."""

    def __init__(self, letters: Any, *_: Any) -> None:
        if letters not in _LETTERS:
            raise ValueError(f"values of numpy's type {str(letters)[:20]!r} are not read")
        self.letter, self.order = _LETTERS[letters], "<"

    def __setstate__(self, state: Any) -> None:
        self.order = {"<": "<", ">": ">", "|": "<", "=": "<"}[state[1]]

    def read(self, data: Any) -> tuple[Number, ...]:
        """The numbers of some bytes. ValueError for others than bytes, or a number that was cut off."""
        size = struct.calcsize(self.order + self.letter)
        if not isinstance(data, bytes) or len(data) % size:
            raise ValueError("bytes of whole numbers expected")
        return struct.unpack(f"{self.order}{len(data) // size}{self.letter}", data)


class _Array:
    """A stand-in for an array of numpy, and its maker; one of several dimensions has no values, as none are needed."""

    def __init__(self, *_: Any) -> None:
        self.values: tuple[Number, ...] = ()

    def __setstate__(self, state: Sequence[Any]) -> None:
        _, shape, kind, _, data = state
        if not isinstance(kind, _Type):
            raise ValueError("an array of numbers expected")
        values = kind.read(data)
        if math.prod(shape) != len(values):
            raise ValueError("an array of another length expected")
        self.values = values if len(shape) <= 1 else ()


def _scalar(kind: Any, data: Any) -> Number:
    """A stand-in for the function that makes numpy's scalars."""
    if not isinstance(kind, _Type):
        raise ValueError("the type of a number expected")
    (number,) = kind.read(data)
    return number


_STANDING_IN = (
    (_Type, "numpy.dtype"),
    (_Array, "numpy.ndarray"),
    *(
        pair
        for package in ("numpy.core", "numpy._core")  # before numpy 2, and since
        for pair in ((_scalar, f"{package}.multiarray.scalar"), (_Array, f"{package}.multiarray._reconstruct"))
    ),
)
