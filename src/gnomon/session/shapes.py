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
from gnomon.models.model import image_sides, is_known, named_shape

Shape = tuple[int, ...]
Sizes = Mapping[str, int]

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
    dims: Sizes
    doubts: tuple[Doubt, ...]


def fixed_shapes(
    inputs: Sequence[Tensor], *, shapes: Mapping[str, Shape], dims: Sizes, feeds: Mapping[str, Shape]
) -> Shapes:
    """The shapes of inputs by the `shapes` and sizes of named dimensions (`dims`) that were given, and by those of the
    arrays that feed inputs (`feeds`). A batch that stays open is 1.

    UsageError where what is given contradicts the file or itself, or where a dimension stays open.
    """
    check_names(inputs, shapes, dims)
    given = {t.name: shape for t in inputs if (shape := shapes.get(t.name, feeds.get(t.name))) is not None}
    fed = {name: f"--input {name} of shape {_written(shape)}" for name, shape in feeds.items()}
    sources = fed | {name: f"--shape {name}={_written(shape)}" for name, shape in shapes.items()}
    for tensor in (t for t in inputs if t.name in given):
        name, shape, own = tensor.name, given[tensor.name], tensor.shape
        if own is not None and (
            len(own) != len(shape) or any(a not in (-1, b) for a, b in zip(own, shape, strict=True))
        ):
            message = f"{sources[name]} contradicts the model's own {named_shape(tensor)}"
            raise UsageError(message, hint="Keep the dimensions that the model fixes.")
        if feeds.get(name, shape) != shape:
            message = f"{sources[name]} contradicts {fed[name]}"
            raise UsageError(message, hint="Leave out that --shape: the file has one.")
    sizes, several = _sizes(inputs, dims, given, sources)
    bound, doubts = dict(sizes), [_unlike(name, by_size) for name, by_size in several.items()]
    for name in _batches(inputs, given, sizes):
        sizes[name] = 1
        doubts.append(_assumption(f"the dimension {name!r}", ("--dim", f"{name}=N")))
    found = {t.name: given[t.name] for t in inputs if t.name in given and (t.name in shapes or not is_known(t))}
    for tensor in (t for t in inputs if t.name not in given and not is_known(t)):
        found[tensor.name] = shape = _filled(tensor, sizes)
        if shape[:1] == (-1,) and -1 not in shape[1:] and not any(tensor.dims[:1]):
            found[tensor.name] = (1, *shape[1:])
            option = ("--shape", f"{tensor.name}={_written(['N', *shape[1:]])}")
            doubts.append(_assumption(f"the first dimension of input {tensor.name!r}", option))
    still = [
        t for t in inputs if t.name in found and (-1 in found[t.name] or (t.shape is None and t.name not in given))
    ]
    if still:
        raise open_shapes(still, sizes)
    fixed = {t.name for t in inputs if t.name in given or _filled(t, bound) != t.shape}
    named = {name for t in inputs for name in t.dims if name and name not in several}
    return Shapes(
        shapes=found,
        given={name: shape for name, shape in found.items() if name in fixed},
        dims={name: size for name in sorted(named) if (size := _size(name, sizes)) is not None},
        doubts=tuple(doubts),
    )


def open_shapes(inputs: Sequence[Tensor], sizes: Sizes | None = None) -> UsageError:
    """The error for inputs that stay open, where the dimensions of `sizes` are known; its hint fixes all of them."""
    known, words, examples = dict(sizes or {}), list[str](), dict[str, int]()
    for tensor in inputs:
        sides = image_sides(tensor.shape or ())
        for axis, name in _open(tensor, known):
            examples |= {
                term: _SIDE if axis in sides else _LENGTH for term in _terms(name) if term not in known | examples
            }
    for tensor in inputs:
        shape = _filled(tensor, known | examples)
        if tensor.shape is None or -1 in shape:
            # Of the state of a recurrent network, (layers, batch, size), the batch is what is left open.
            sides, batch = image_sides(shape), 1 if len(shape) == 3 and shape[0] > 1 else 0
            filled = [
                n if n != -1 else 1 if k == batch else _SIDE if k in sides else _LENGTH for k, n in enumerate(shape)
            ]
            words += ["--shape", f"{tensor.name}={'N,..' if tensor.shape is None else _written(filled)}"]
            known |= {name: size for name, size in examples.items() if name in tensor.dims}
    words += [word for name, n in examples.items() if name not in known for word in ("--dim", f"{name}={n}")]
    first, how = inputs[0], "with numbers for N,.." if any(t.shape is None for t in inputs) else "such as"
    shown = f"{named_shape(first)}, which leaves {', '.join(examples) or 'dimensions'} open"
    return UsageError(
        f"the shape of input {first.name!r} is {'unknown' if first.shape is None else shown}",
        hint=f"Fix every dimension, {how}: {shlex.join(words)}",
        words=words,
    )


def array_shape(name: str, path: Path) -> Shape:
    """The shape of the array in the .npy file that feeds an input. UsageError where there is none."""
    try:
        return tuple(np.load(path, mmap_mode="r", allow_pickle=False).shape)
    except FileNotFoundError as error:
        raise UsageError(f"--input {name}: there is no file {path}", hint="Give a .npy file.") from error
    except Exception as error:  # of a broken header: numpy passes on what Python's own parsers raise
        raise UsageError(
            f"input {name!r}: {path.name} is not a usable .npy file ({error})",
            hint="Save one array of numbers with numpy.save.",
        ) from error


def check_names(inputs: Sequence[Tensor], shapes: Mapping[str, Shape], dims: Sizes) -> None:
    """UsageError where a shape or a size is given for what the model has not."""
    own = [tensor.name for tensor in inputs]
    named = dict.fromkeys(part for t in inputs for name in t.dims if name for part in (name, *_terms(name)))
    for name in shapes.keys() - set(own):
        hint = f"It is a dimension: --dim {shlex.quote(name)}=N." if name in named else f"Its inputs: {', '.join(own)}."
        raise UsageError(f"--shape: the model has no input {name!r}", hint=hint)
    for name in dims.keys() - named.keys():
        hint = f"Its dimensions: {', '.join(named)}." if named else "Its dimensions have no names: give --shape."
        raise UsageError(f"--dim: the model has no dimension {name!r}", hint=hint)


def _sizes(
    inputs: Sequence[Tensor], dims: Sizes, given: Mapping[str, Shape], sources: Mapping[str, str]
) -> tuple[dict[str, int], dict[str, dict[int, str]]]:
    """The sizes of named dimensions; and names with several sizes, each with what gives it.

    A name may have several where the shapes of all inputs are given in full: there is nothing left that it fixes.
    UsageError for any other.
    """
    said = {name: {size: f"--dim {name}={size}"} for name, size in dims.items()}
    for tensor in (t for t in inputs if t.dims and t.name in given):
        for name, size in zip(tensor.dims, given[tensor.name], strict=True):
            said.setdefault(name, {}).setdefault(size, sources[tensor.name])
    said.pop("", None)
    first = {name: next(iter(by_size)) for name, by_size in said.items()}
    for name in (name for tensor in inputs for name in tensor.dims if "+" in name):
        if (total := _size(name, {n: s for n, s in first.items() if n != name})) is not None:
            said.setdefault(name, {}).setdefault(total, " and ".join(f"{t} is {first[t]}" for t in _terms(name)))
    several = {name: by_size for name, by_size in said.items() if len(by_size) > 1}
    lacking = [t for t in inputs if t.name not in given and not is_known(t)]
    for name, by_size in several.items():
        if lacking or name in dims:
            (one, by), (other, against) = list(by_size.items())[:2]
            more = " ".join(f"--shape {shlex.quote(f'{t.name}=..')}" for t in lacking) or f"without --dim {name}"
            raise UsageError(
                f"the dimension {name!r} cannot be both {one} ({by}) and {other} ({against})",
                hint=f"Give it one size; or, if it means several things, the shapes of all inputs: {more}",
            )
    return {name: next(iter(by_size)) for name, by_size in said.items() if name not in several}, several


def _batches(inputs: Sequence[Tensor], given: Mapping[str, Shape], sizes: Sizes) -> list[str]:
    """The named dimensions without a size that are taken for the batch.

    Such are those that are called so, and what alone is open and stands first in each input that has it.
    """
    left = [dims for t in inputs if t.name not in given and not is_known(t) and (dims := _open(t, sizes))]
    names = dict.fromkeys(name for dims in left for _, name in dims if name)
    alone = len(names) == 1 and all(len(dims) == 1 and dims[0][0] == 0 for dims in left)
    leading = all(axis == 0 and (_PERHAPS_BATCH.fullmatch(n) or _BATCH.fullmatch(n)) for (axis, n), *_ in left)
    first = {dims[0][1] for dims in left} if leading else set()
    return [name for name in names if alone or name in first or _BATCH.fullmatch(name)]


def _open(tensor: Tensor, sizes: Sizes) -> list[tuple[int, str]]:
    """The axes of an input that have no size, with their names ("" without one)."""
    shape = _filled(tensor, sizes)
    return [(k, tensor.dims[k] if tensor.dims else "") for k, size in enumerate(shape) if size == -1]


def _filled(tensor: Tensor, sizes: Sizes) -> Shape:
    """The shape of an input, with the sizes of named dimensions; () of one without a known rank."""
    shape = tensor.shape or ()
    names = tensor.dims or [""] * len(shape)
    found = [_size(name, sizes) if own == -1 else own for own, name in zip(shape, names, strict=True)]
    return tuple(-1 if size is None else size for size in found)


def _size(name: str, sizes: Sizes) -> int | None:
    """The size of a named dimension, which may be a sum ("past + 1"); None while it is not known."""
    if name in sizes or "+" not in name:
        return sizes.get(name)
    parts = [int(part) if part.isdecimal() else sizes.get(part) for part in map(str.strip, name.split("+"))]
    return None if None in parts else sum(part or 0 for part in parts)


def _terms(name: str) -> list[str]:
    """The names in the name of a dimension that is a sum; else the name itself."""
    return [part for part in map(str.strip, name.split("+")) if part and not part.isdecimal()]


def _written(shape: Sequence[object]) -> str:
    return ",".join(map(str, shape))


def _assumption(what: str, option: tuple[str, str]) -> Doubt:
    message = f"the file leaves {what} open; it was taken as 1"
    return Doubt(kind="assumed-shape", message=message, hint=f"Another size is given by {shlex.join(option)}.")


def _unlike(name: str, by_size: Mapping[int, str]) -> Doubt:
    told = " and ".join(f"{size} ({by})" for size, by in by_size.items())
    message = f"the dimension {name!r} has several sizes, {told}: all inputs' shapes were taken as they are given"
    return Doubt(kind="unlike-dimensions", message=message, hint="Give one size if it is one thing.")
