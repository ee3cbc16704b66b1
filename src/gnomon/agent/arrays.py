"""Buffers that models read and write, inputs generated from a seed, and the comparison of outputs."""

from __future__ import annotations

import math
import os
import stat
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from gnomon.wire import Difference, Feed, Tensor

Array = np.ndarray[Any, np.dtype[Any]]
Buffers = dict[str, Array]


_ALIGNMENT, _SPARE = 64, 128
STRINGS = "string"
"""The name that jobs use for the dtype of text tensors."""
BFLOAT16 = np.dtype([("bfloat16", "<u2")])
"""The dtype that buffers use for bfloat16, which numpy lacks: the upper half of a float32, in a named field."""


class InputError(ValueError):
    """An input file cannot be used; the message names the input and says what to do."""


def make_buffers(tensors: Mapping[str, Tensor]) -> Buffers:
    """An array for each tensor of a job.

    A tensor with an open shape (null, or a dimension of -1) gets no array: it is an output, whose array is created once
    the runtime reports its shape. Text tensors become arrays of objects. Tensors of the same `slab` are never in use
    together and share memory, so that a chain reuses warm buffers just as a whole model reuses its arena. bfloat16
    tensors have the dtype `BFLOAT16`.
    """
    sizes: dict[int, int] = {}
    tensors = {name: spec for name, spec in tensors.items() if not is_open(spec)}
    for spec in tensors.values():
        if (slab := spec.get("slab")) is not None:
            size = math.prod(spec["shape"] or ()) * dtype_of(spec["dtype"]).itemsize
            sizes[slab] = max(sizes.get(slab, 0), size)
    slabs = {slab: _aligned(size) for slab, size in sizes.items()}
    buffers: Buffers = {}
    for name, spec in tensors.items():
        shape = tuple(spec["shape"] or ())
        if spec["dtype"] == STRINGS:
            buffers[name] = np.full(shape, "", dtype=object)
            continue
        dtype, slab = dtype_of(spec["dtype"]), spec.get("slab")
        size = math.prod(shape) * dtype.itemsize
        memory = _aligned(size) if slab is None else slabs[slab]
        buffers[name] = memory[:size].view(dtype).reshape(shape)
    return buffers


def dtype_of(name: str) -> np.dtype[Any]:
    """The dtype with this name in jobs: numpy's own, or `BFLOAT16`."""
    return BFLOAT16 if name == "bfloat16" else np.dtype(name)


def name_of(dtype: np.dtype[Any]) -> str:
    """The name of a dtype in jobs."""
    return "bfloat16" if dtype == BFLOAT16 else dtype.name


def widened(array: Array) -> Array:
    """The same numbers in a dtype that numpy can compute with: bfloat16 becomes float32; all other arrays are returned
    unchanged.
    """
    if array.dtype != BFLOAT16:
        return array
    bits = np.left_shift(array["bfloat16"], 16, dtype=np.uint32)
    return np.asarray(bits).view(np.float32)


def rounded(array: Array) -> Array:
    """The numbers rounded to bfloat16: to nearest, ties to even, as in IEEE 754; NaN stays NaN."""
    wide = np.asarray(array, np.float32).reshape(-1)
    bits = wide.view(np.uint32)
    nearest = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    # Rounding could turn a NaN into infinity, so its bits are truncated instead and the NaN is made quiet.
    kept = np.where(np.isnan(wide), bits >> 16 | 0x40, nearest)
    return kept.astype(np.uint16).view(BFLOAT16).reshape(np.shape(array))


def is_open(spec: Tensor) -> bool:
    """Return True if a tensor's shape is unknown until the runtime reports it."""
    shape = spec.get("shape")
    return shape is None or -1 in shape


def output_array(buffers: Buffers, name: str, shape: tuple[int, ...], dtype: str) -> Array:
    """The array of an output: the job's own, or a new one with the shape and dtype that the runtime reports."""
    if name not in buffers:
        buffers.update(make_buffers({name: {"shape": list(shape), "dtype": dtype}}))
    return buffers[name]


def as_array(value: Any) -> Array:
    """A runtime's result as one array; a sequence of tensors or of maps (name -> number) is concatenated."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, dict):
        return np.asarray([value[key] for key in sorted(value)])
    if isinstance(value, (list, tuple)):
        parts = [as_array(item).reshape(-1) for item in value]
        return np.concatenate(parts) if parts else np.zeros(0, np.float32)
    return np.asarray(value)


def _aligned(size: int) -> Array:
    """Zeroed bytes, aligned so that every runtime can read and write them in place, with spare room at the end for wide
    loads.
    """
    memory = np.zeros(size + _ALIGNMENT + _SPARE, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT
    return memory[begin : begin + size]


def fill(buffers: Buffers, feeds: Mapping[str, Feed], seed: int, *, varied: bool = False) -> None:
    """Fill each input from its feed's file or values, if it has any, and otherwise with random numbers from `seed`.

    By default, floating-point inputs are drawn from a standard normal distribution, integer inputs are 0 or 1, and text
    is "0" or "1". With `varied`, a file's numbers are first changed by `vary`. Raises InputError for an unusable file
    before any part of its input is written.
    """
    for position, (name, feed) in enumerate(sorted(feeds.items())):
        bound = buffers[name]
        rng = np.random.default_rng([seed, position])
        target = np.zeros(bound.shape, np.float32) if bound.dtype == BFLOAT16 else bound
        value: Array
        if feed.get("file"):
            value = (
                _strings(name, feed["file"], bound) if target.dtype == object else _converted(name, feed["file"], bound)
            )
            value = vary(value, rng) if varied and target.dtype != object else value
        elif target.dtype == object:
            value = rng.integers(0, 2, target.shape).astype(str)
        elif "values" in feed:
            value = np.asarray(feed["values"]).reshape(target.shape)
        elif "least" in feed and target.dtype.kind in "fc":
            value = rng.uniform(feed["least"], feed["most"], target.shape)
        elif "least" in feed:
            value = rng.integers(math.ceil(feed["least"]), math.floor(feed["most"]) + 1, target.shape)
        elif target.dtype.kind == "f":
            value = np.asarray(rng.standard_normal(target.shape), np.float32)
        else:
            value = rng.integers(0, 2, target.shape)
        np.copyto(target, value, casting="unsafe")
        if target is not bound:
            np.copyto(bound, rounded(target))


def vary(value: Array, rng: np.random.Generator) -> Array:
    """Another valid input of the same shape and dtype, identical to `value` only if all values are equal integers.

    Each value is moved to the place of another value, all in one cycle (Sattolo 1986). Each floating value is also
    multiplied by a factor of 0.9 to 1. A moved integer is capped at the value that its new place had before, so that an
    index remains inside its table.
    """
    flat = value.reshape(-1)
    order = rng.permutation(flat.size)
    moved = np.empty_like(flat)
    moved[order] = flat[np.roll(order, 1)]
    if value.dtype.kind in "fc":
        moved = (moved * rng.uniform(0.9, 1.0, flat.size)).astype(value.dtype)
    else:
        moved = np.minimum(moved, flat)
    return moved.reshape(value.shape)


def _converted(name: str, path: str, target: Array) -> Array:
    """The array in a .npy file, converted to the dtype of `target` and widened; InputError unless its shape and values
    fit.
    """
    half = target.dtype == BFLOAT16
    value, file = _opened(name, path, target.shape, kinds="biufcV" if half else "biufc"), os.path.basename(path)
    if value.dtype.kind == "V":
        # This is how numpy reads bfloat16 saved by other packages (ml_dtypes).
        if value.dtype.itemsize != BFLOAT16.itemsize:
            raise InputError(f"input {name!r}: {file} holds {value.dtype}, which is not bfloat16")
        value = widened(np.asarray(value).view(BFLOAT16))
    wanted = "bfloat16" if half else target.dtype.name
    with np.errstate(all="ignore"):
        if not _survives(value, target.dtype):
            raise InputError(
                f"input {name!r}: {file} holds {value.dtype}, the model needs {wanted}, and the conversion would "
                f"change values; convert the array yourself, and save it as {'float32' if half else wanted}"
            )
        return _cast(value, target.dtype)


def _cast(value: Array, wanted: np.dtype[Any]) -> Array:
    """The values converted to the `wanted` dtype, in a dtype that numpy can compute with."""
    return widened(rounded(value)) if wanted == BFLOAT16 else value.astype(wanted)


def _strings(name: str, path: str, target: Array) -> Array:
    """The strings in a .npy file (of dtype ``<U..``)."""
    value, file = _opened(name, path, target.shape, kinds="U"), os.path.basename(path)
    codes = np.ascontiguousarray(value).view(value.dtype.byteorder.replace("|", "=") + "u4")
    if codes.size and int(codes.max()) > sys.maxunicode:
        raise InputError(f"input {name!r}: {file} holds text with a character code that Unicode does not define")
    return value.astype(object)


def _opened(name: str, path: str, shape: tuple[int, ...], *, kinds: str) -> Array:
    """The array of this shape in a .npy file, mapped but not read, so that a header that claims a huge array costs
    nothing.
    """
    file, wanted = os.path.basename(path), "save one array of numbers with numpy.save"
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would block
            raise InputError(f"input {name!r}: {file} is not a regular file; {wanted}")
        with open(path, "rb") as stream:
            magic = stream.read(6)
        if magic[:2] == b"PK":
            raise InputError(f"input {name!r}: {file} is a .npz file; {wanted}")
        if magic != b"\x93NUMPY":
            raise InputError(f"input {name!r}: {file} is not a .npy file; {wanted}")
        value: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"input {name!r}: {file} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # a broken header: numpy passes on exceptions from Python's own parsers
        raise InputError(f"input {name!r}: {file} is not a usable .npy file ({error}); {wanted}") from error
    if value.dtype.kind not in kinds:
        wanted = wanted if kinds != "U" else "save an array of strings with numpy.save"
        what = "numbers" if kinds != "U" else "strings"
        raise InputError(f"input {name!r}: {file} holds {value.dtype}, not {what}; {wanted}")
    if value.shape != shape:
        raise InputError(f"input {name!r}: {file} has the shape {value.shape}, but the model needs {shape}")
    return value


def _survives(value: Array, wanted: np.dtype[Any]) -> bool:
    """Return True if the conversion keeps the values; floating values may be rounded, but must not overflow."""
    if not value.size or value.dtype == wanted:
        return True
    floating = value.dtype.kind in "fc", wanted.kind in "fcV"
    if all(floating):
        if value.dtype.kind == "c" and wanted.kind != "c":
            return False
        return bool((np.isfinite(_cast(value, wanted)) == np.isfinite(value)).all())
    if not any(floating):
        low, high = _limits(wanted)
        return low <= int(value.min()) and int(value.max()) <= high
    if "c" in (value.dtype.kind, wanted.kind):
        return False
    # Converting values outside an integer's range is undefined, so the range is checked separately.
    cast = _cast(value, wanted)
    low, high = _limits(wanted if floating[0] else value.dtype)
    wide = (value if floating[0] else cast).astype(np.float64)
    fits = (wide >= float(low)) & (wide < float(high + 1))
    return bool(fits.all() and (cast.astype(value.dtype) == value).all())


def _limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The least and the largest value of an integer or boolean dtype."""
    if dtype.kind == "b":
        return 0, 1
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def largest_difference(outputs: dict[str, Array], reference: dict[str, Array]) -> Difference:
    """The largest absolute difference, and the largest difference relative to the largest magnitude of the same output
    in the reference.

    Values that are not finite where the reference is finite count as an infinite difference.
    """
    absolute = relative = 0.0
    for name, expected in reference.items():
        if expected.dtype.kind not in "biufc" or outputs[name].dtype.kind not in "biufc":
            if not np.array_equal(expected.astype(str), outputs[name].astype(str)):
                return {"absolute": math.inf, "relative": math.inf}
            continue
        wide = expected.astype(np.float64)
        got = outputs[name].astype(np.float64)
        if got.shape != wide.shape:
            return {"absolute": math.inf, "relative": math.inf}
        if not got.size:
            continue
        same = (got == wide) | (np.isnan(got) & np.isnan(wide))
        with np.errstate(invalid="ignore"):
            difference = np.where(same, 0.0, np.abs(got - wide))
        worst = float(np.nan_to_num(difference, nan=math.inf, posinf=math.inf).max())
        finite = np.abs(wide[np.isfinite(wide)])
        scale = float(finite.max()) if finite.size else 0.0
        absolute = max(absolute, worst)
        relative = max(relative, worst / scale if scale > 0 else (math.inf if worst > 0 else 0.0))
    return {"absolute": absolute, "relative": relative}


def finite_share(outputs: dict[str, Array]) -> float:
    """The lowest share of finite values among the outputs, from 0 to 1."""
    numbers = (v for v in outputs.values() if v.size and v.dtype.kind in "biufc")
    return min((float(np.isfinite(v).mean()) for v in numbers), default=1.0)
