"""Values that others saved with PyTorch, read without running anything of them.

PyTorch's own reader of weights takes plain values and tensors, and of numpy what is allowed here: numbers, and arrays
of such.
"""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.errors import ProblemError
from gnomon.system.files import read_file
from gnomon.training.network import torch_package

MOST_BYTES = 256 << 20
Number = float | int
_MOST = 1 << 64


def load_saved(path: Path, *, hint: str) -> Any:
    """What a file of `torch.save` holds: plain values, tensors, and numpy's numbers and arrays; see `numbers`.

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
            with torch.serialization.safe_globals(list(_NUMPY)):
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
    elif isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    parts = value if isinstance(value, list | tuple) else (value,)
    if len(parts) > most:
        return None
    values = tuple(number for part in parts if (number := _number(part)) is not None)
    return values if len(values) == len(parts) else None


def _number(value: Any) -> Number | None:
    """A number of at most 64 bits that is not a truth value, out of a tensor or an array of one, too."""
    if isinstance(value, int | float):
        return None if isinstance(value, bool) or (isinstance(value, int) and abs(value) >= _MOST) else value
    if isinstance(value, np.ndarray | np.generic | torch_package().Tensor):
        return single[0] if (single := numbers(value, 1)) else None
    return None


def _load(torch: Any, data: bytes) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of another pickle than PyTorch's, which it then refuses
        return torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")


def _unpacked(data: bytes) -> int:
    """The bytes that an archive says it holds; 0 for what is none, or a broken one, which PyTorch refuses."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error):
        return 0


def _reason(error: Exception) -> str:
    """What PyTorch says is wrong: of its many lines the one that names what it would not take."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    line = next((line for line in lines if "nsupported" in line or "but got" in line), lines[0])
    return line.partition(" Please use")[0][:200]


_MADE: tuple[Any, ...] = (np.ones(1).__reduce__()[0], np.float64().__reduce__()[0])
_NUMPY = (
    np.dtype,
    np.ndarray,
    *{type(np.dtype(letter)) for letter in "bBhHiIlLqQefd"},
    *(
        (made, f"{package}.multiarray.{made.__name__}")
        for package in ("numpy.core", "numpy._core")  # before numpy 2, and since
        for made in _MADE
    ),
)
"""What makes numpy's numbers and arrays of such, by the names that files have."""
