"""Reads values that others saved with PyTorch, without running any code in the file.

PyTorch's own reader of weights accepts plain values and tensors. It accepts numpy's scalars and arrays only if their
constructors are allowed by name. This module provides substitutes for these constructors, so that a file cannot control
what numpy does.
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

import numpy as np

from gnomon.errors import ProblemError
from gnomon.system.files import read_file
from gnomon.training.network import torch_package

MOST_BYTES = 256 << 20
_TYPES = frozenset(("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"))
"""The number types that are read, by numpy's names for them."""

Number = float | int
_MOST = 1 << 64


def load_saved(path: Path, *, hint: str) -> Any:
    """The values in a file written by `torch.save`: plain values, tensors, and numpy's scalars as plain numbers;
    numpy's arrays can be read with `numbers`.

    `hint` tells users what to do about an unsuitable file. UsageError if the file cannot be read or is longer than
    `MOST_BYTES`; ProblemError if it contains anything else or unpacks to more than that; RuntimeMissingError without
    PyTorch.
    """
    torch = torch_package("reading a PyTorch file")
    data = read_file(path, hint=hint, most_bytes=MOST_BYTES)
    if _unpacked(data) > MOST_BYTES:
        raise ProblemError(f"{path} unpacks to more than {MOST_BYTES >> 20} MiB, the limit", hint=hint)
    try:
        try:
            return _load(torch, data)
        except Exception:
            # Only on the second try, because PyTorch before 2.6 does not support custom names.
            with torch.serialization.safe_globals(list(_STANDING_IN)):
                return _load(torch, data)
    except Exception as error:  # PyTorch may raise anything for a broken file
        raise ProblemError(f"{path} cannot be read as a PyTorch file: {_reason(error)}", hint=hint) from error


def numbers(value: Any, most: int) -> tuple[Number, ...] | None:
    """The numbers in a list, tuple, tensor or array of at most `most` items; None for anything else.

    A single number counts as a list of one.
    """
    if isinstance(value, torch_package().Tensor):
        if value.numel() > most or (value.dim() > 1 and value.numel() > 1):
            return None
        try:
            value = value.flatten().tolist()
        except Exception:  # a tensor without values, or with another layout
            return None
    elif isinstance(value, _Array):
        value = value.values
    parts = value if isinstance(value, list | tuple) else (value,)
    if len(parts) > most:
        return None
    values = tuple(number for part in parts if (number := _number(part)) is not None)
    return values if len(values) == len(parts) else None


def _number(value: Any) -> Number | None:
    """The value as a number, even if it is in a tensor or array with a single item; None for a boolean, an integer of
    more than 64 bits, or anything else.
    """
    if isinstance(value, int | float):
        return None if isinstance(value, bool) or (isinstance(value, int) and abs(value) >= _MOST) else value
    if isinstance(value, _Array | torch_package().Tensor):
        return single[0] if (single := numbers(value, 1)) else None
    return None


def _load(torch: Any, data: bytes) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns of a pickle that it did not write, and then refuses it
        return torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")


def _unpacked(data: bytes) -> int:
    """The unpacked size that an archive declares, in bytes; 0 for another kind of file, and for a broken archive, which
    PyTorch refuses.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error):
        return 0


def _reason(error: Exception) -> str:
    """The line of PyTorch's long message that names the refused value; the first line if none does."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    line = next((line for line in lines if "Unsupported" in line or "unsupported" in line), lines[0])
    return line.partition(" Please use")[0][:200]


class _Type:
    """A substitute for numpy's dtype: a number type and its byte order."""

    def __init__(self, name: Any, *_: Any) -> None:
        if name not in _TYPES:
            raise ValueError(f"values of numpy's type {str(name)[:20]!r} are not read")
        self.type = np.dtype(name)

    def __setstate__(self, state: Any) -> None:
        self.type = self.type.newbyteorder({"<": "<", ">": ">", "|": "<", "=": "<"}[state[1]])

    def read(self, data: Any) -> tuple[Number, ...]:
        """The numbers that some bytes encode. ValueError for anything but bytes, and for an incomplete number."""
        if not isinstance(data, bytes) or len(data) % self.type.itemsize:
            raise ValueError("bytes of whole numbers expected")
        return tuple(np.frombuffer(data, self.type).tolist())


class _Array:
    """A substitute for numpy's array and its constructor; an array of several dimensions gets no values, because none
    are needed.
    """

    def __init__(self, *_: Any) -> None:
        self.values: tuple[Number, ...] = ()

    def __setstate__(self, state: Sequence[Any]) -> None:
        _, shape, kind, _, data = state
        if not isinstance(kind, _Type):
            raise ValueError("an array of numbers expected")
        values = kind.read(data)
        if math.prod(shape) != len(values):
            raise ValueError("an array whose length fits its shape expected")
        self.values = values if len(shape) <= 1 else ()


def _scalar(kind: Any, data: Any) -> Number:
    """A substitute for the function that creates numpy's scalars."""
    if not isinstance(kind, _Type):
        raise ValueError("the type of a number expected")
    (number,) = kind.read(data)
    return number


_STANDING_IN = (
    (_Type, "numpy.dtype"),
    (_Array, "numpy.ndarray"),
    *(
        pair
        for package in ("numpy.core", "numpy._core")  # before numpy 2, and since numpy 2
        for pair in ((_scalar, f"{package}.multiarray.scalar"), (_Array, f"{package}.multiarray._reconstruct"))
    ),
)
