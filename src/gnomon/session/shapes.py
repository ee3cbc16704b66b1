"""The shapes of a model's inputs, from what the file says, what is given, and the files that feed them.

A dimension that the file calls by a name has one size wherever the name stands: a size that is given for it, by its
name or in the shape of an input, fixes it everywhere.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gnomon.core.graph import Tensor
from gnomon.errors import UsageError
from gnomon.measure.environment import Doubt
from gnomon.models.model import check_shape, image_sides, is_known, named_shape

Shape = tuple[int, ...]

_BATCH = re.compile(r"(.*_)?(batch|batches|bs)(_?(size|dim|axis|num|n|\d+))?", re.IGNORECASE)
_PERHAPS_BATCH = re.compile(r"n|b|(unk__|dynamic_axes_)\d+|", re.IGNORECASE)
"""What converters call a batch, and other dimensions too: they mean it where all open inputs begin so."""
_LENGTH, _SIDE = 64, 224
"""Sizes in the example of a hint: of a length, and of a side of an image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """`shapes` of the inputs that the file leaves open, or that were given.

    `given` are those of them that do not rest on assumptions alone. `dims` are the sizes of the dimensions that the
    file names, and `doubts` say what was assumed.
    """

    shapes: Mapping[str, Shape]
    given: Mapping[str, Shape]
    dims: Mapping[str, int]
    doubts: tuple[Doubt, ...]


def fixed_shapes(
    inputs: Sequence[Tensor], *, shapes: Mapping[str, Shape], dims: Mapping[str, int], feeds: Mapping[str, Shape]
) -> Shapes:
    """The shapes of inputs by the `shapes` and sizes of named dimensions (`dims`) that were given, and by those of the
    arrays that feed inputs (`feeds`). A batch that stays open is 1.

    UsageError where what is given contradicts the file or itself, or where a dimension stays open.
    """
    check_names(inputs, shapes, dims)
    given = {t.name: shape for t in inputs if (shape := shapes.get(t.name, feeds.get(t.name))) is not None}
    sources = {
        name: f"--shape {name}={_written(shape)}" if name in shapes else f"--input {name} of shape {_written(shape)}"
        for name, shape in given.items()
    }
    for tensor in inputs:
        if (shape := given.get(tensor.name)) is None:
            continue
        if (fed := feeds.get(tensor.name, shape)) != shape:
            raise UsageError(
                f"{sources[tensor.name]} contradicts --input {tensor.name} of shape {_written(fed)}",
                hint="Leave out that --shape: the array has one.",
            )
        check_shape(tensor, shape, sources[tensor.name])
    sizes, several = _sizes(inputs, dims, given, sources)
    bound, assumed = dict(sizes), {}
    for name in _batches(inputs, given, sizes):
        sizes[name] = 1
        assumed[f"the dimension {name!r}"] = ("--dim", f"{name}=N")
    found = {t.name: given[t.name] for t in inputs if t.name in given and (t.name in shapes or not is_known(t))}
    for tensor in inputs:
        if tensor.name not in given and not is_known(tensor) and tensor.shape is not None:
            shape = _filled(tensor, sizes)
            if shape[0] == -1 and -1 not in shape[1:] and not any(tensor.dims[:1]):
                shape = (1, *shape[1:])
                option = ("--shape", f"{tensor.name}=N{_written(shape).removeprefix('1')}")
                assumed[f"the first dimension of input {tensor.name!r}"] = option
            found[tensor.name] = shape
    still = [t for t in inputs if not is_known(t) and -1 in found.get(t.name, (-1,))]
    if still:
        raise open_shapes(still, sizes)
    named = {name for tensor in inputs for name in tensor.dims if name and name not in several}
    fixed = {t.name for t in inputs if t.name in given or _filled(t, bound) != t.shape}
    return Shapes(
        shapes=found,
        given={name: shape for name, shape in found.items() if name in fixed},
        dims={name: size for name in sorted(named) if (size := _size(name, sizes)) is not None},
        doubts=(*(_assumption(what, option) for what, option in assumed.items()), *map(_unlike, several.items())),
    )


def open_shapes(inputs: Sequence[Tensor], sizes: Mapping[str, int] | None = None) -> UsageError:
    """The error for inputs that stay open, where the dimensions of `sizes` are known; its hint fixes all of them."""
    examples: dict[str, int] = {}
    words: list[str] = []
    unnamed = [t for t in inputs if t.shape is None or any(not name for _, name in _open(t, sizes or {}))]
    for tensor in (t for t in (*unnamed, *inputs) if t.shape is not None):
        for axis, name in _open(tensor, sizes or {}):
            size = _SIDE if axis in image_sides(tensor.shape or ()) else _LENGTH
            for term in _terms(name) if name else ():
                examples.setdefault(term, size)
    for tensor in unnamed:
        shape = _filled(tensor, {**(sizes or {}), **examples})
        # Of the state of a recurrent network, (layers, batch, size), the batch is what is left open.
        sides, batch = image_sides(shape), 1 if len(shape) == 3 and shape[0] > 1 else 0
        filled = [n if n != -1 else 1 if k == batch else _SIDE if k in sides else _LENGTH for k, n in enumerate(shape)]
        words += ["--shape", f"{tensor.name}={_written(filled) if tensor.shape is not None else 'N,..'}"]
    named = {name for t in unnamed for name in t.dims}
    words += [w for name, n in examples.items() if name not in named for w in ("--dim", f"{name}={n}")]
    first = inputs[0]
    shown = f"{named_shape(first)}, which leaves {', '.join(examples) or 'dimensions'} open"
    how = "such as" if all(t.shape is not None for t in inputs) else "with numbers for N,.."
    return UsageError(
        f"the shape of input {first.name!r} is {'unknown' if first.shape is None else shown}",
        hint=f"Fix every dimension, {how}: {shlex.join(words)}",
        words=words,
    )


def array_shape(name: str, path: Path) -> Shape:
    """The shape of the array in the .npy file that feeds an input. UsageError where there is none."""
    if not path.is_file():
        raise UsageError(f"--input {name}: there is no file {path}", hint="Give a .npy file.")
    try:
        loaded = np.load(path, mmap_mode="r", allow_pickle=False)
        return tuple(loaded.shape)
    except Exception as error:  # of a broken header: numpy passes on what Python's own parsers raise
        raise UsageError(
            f"input {name!r}: {path.name} is not a usable .npy file ({error})",
            hint="Save one array of numbers with numpy.save.",
        ) from error


def check_names(inputs: Sequence[Tensor], shapes: Mapping[str, Shape], dims: Mapping[str, int]) -> None:
    """UsageError where a shape or a size is given for what the model has not."""
    own = [tensor.name for tensor in inputs]
    named = {part: None for t in inputs for name in t.dims if name for part in (name, *_terms(name))}
    for name in shapes:
        if name not in own:
            hint = f"It is a dimension: --dim {shlex.quote(name)}=N." if name in named else f"Inputs: {', '.join(own)}."
            raise UsageError(f"--shape: the model has no input {name!r}", hint=hint)
    for name in dims:
        if name not in named:
            hint = f"Dimensions: {', '.join(named)}." if named else "Its dimensions have no names: give --shape."
            raise UsageError(f"--dim: the model has no dimension {name!r}", hint=hint)


def _sizes(
    inputs: Sequence[Tensor], dims: Mapping[str, int], given: Mapping[str, Shape], sources: Mapping[str, str]
) -> tuple[dict[str, int], dict[str, dict[int, str]]]:
    """The sizes of named dimensions; and names with several sizes, each with what gives it.

    A name may have several where the shapes of all inputs are given in full: there is nothing left that it fixes.
    UsageError for any other.
    """
    said = {name: {size: f"--dim {name}"} for name, size in dims.items()}
    for tensor in inputs:
        for name, size in zip(tensor.dims, given.get(tensor.name, ()), strict=False):
            if name:
                said.setdefault(name, {}).setdefault(size, sources[tensor.name])
    sizes = {name: next(iter(by_size)) for name, by_size in said.items() if len(by_size) == 1}
    for name in dict.fromkeys(name for tensor in inputs for name in tensor.dims if "+" in name):
        if (total := _size(name, sizes)) is not None:
            said.setdefault(name, {}).setdefault(total, " and ".join(f"{t} is {sizes[t]}" for t in _terms(name)))
            sizes[name] = total
    several = {name: by_size for name, by_size in said.items() if len(by_size) > 1}
    lacking = [t for t in inputs if t.name not in given and not is_known(t)]
    for name, by_size in several.items():
        if lacking or name in dims:
            (one, by), (other, against) = list(by_size.items())[:2]
            more = "".join(f" --shape {shlex.quote(f'{t.name}=..')}" for t in lacking)
            raise UsageError(
                f"the dimension {name!r} cannot be both {one} ({by}) and {other} ({against})",
                hint="Give it one size. If the file means several things by that name, give the shapes of all inputs"
                + (f":{more}" if more else f", and no --dim {shlex.quote(name)}."),
            )
        sizes.pop(name, None)
    return sizes, several


def _batches(inputs: Sequence[Tensor], given: Mapping[str, Shape], sizes: Mapping[str, int]) -> list[str]:
    """The named dimensions without a size that are taken for the batch.

    Such are those that are called so, and what alone is open and stands first in each input that has it.
    """
    left = [dims for t in inputs if t.name not in given and not is_known(t) and (dims := _open(t, sizes))]
    names = {name: None for dims in left for _, name in dims if name}
    alone = len(names) == 1 and all(len(dims) == 1 and dims[0][0] == 0 for dims in left)
    leading = all(axis == 0 and (_PERHAPS_BATCH.fullmatch(n) or _BATCH.fullmatch(n)) for (axis, n), *_ in left)
    first = {name for dims in left for axis, name in dims if axis == 0} if leading else set()
    return [name for name in names if alone or name in first or _BATCH.fullmatch(name)]


def _open(tensor: Tensor, sizes: Mapping[str, int]) -> list[tuple[int, str]]:
    """The axes of an input that have no size, with their names ("" without one)."""
    shape = _filled(tensor, sizes)
    return [(k, tensor.dims[k] if tensor.dims else "") for k, size in enumerate(shape) if size == -1]


def _filled(tensor: Tensor, sizes: Mapping[str, int]) -> Shape:
    """The shape of an input, with the sizes of named dimensions; () of one without a known rank."""
    names = tensor.dims or ("",) * len(tensor.shape or ())
    known = [_size(name, sizes) if size == -1 else size for size, name in zip(tensor.shape or (), names, strict=True)]
    return tuple(-1 if size is None else size for size in known)


def _size(name: str, sizes: Mapping[str, int]) -> int | None:
    """The size of a named dimension, which may be a sum ("past + 1"); None while it is not known."""
    if name in sizes or "+" not in name:
        return sizes.get(name)
    parts = [int(part) if part.isdecimal() else sizes.get(part) for part in map(str.strip, name.split("+"))]
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _terms(name: str) -> list[str]:
    """The names in the name of a dimension that is a sum; else the name itself."""
    return [part for part in map(str.strip, name.split("+")) if part and not part.isdecimal()]


def _written(shape: Sequence[int]) -> str:
    return ",".join(map(str, shape))


def _assumption(what: str, option: tuple[str, str]) -> Doubt:
    return Doubt(
        kind="assumed-shape",
        message=f"the file leaves {what} open; it was taken as 1",
        hint=f"Another size is given by {shlex.join(option)}.",
    )


def _unlike(several: tuple[str, Mapping[int, str]]) -> Doubt:
    name, by_size = several
    told = " and ".join(f"{size} ({by})" for size, by in by_size.items())
    return Doubt(
        kind="unlike-dimensions",
        message=f"the dimension {name!r} was given several sizes, {told}; the inputs' shapes were taken as they are",
        hint="Give one size if it is one thing.",
    )
