"""The model of a job: read, given fixed shapes, converted if a runtime needs another format, and brought to the device.

A dimension that the file names has the same size wherever the name occurs. A size that is given for it, by name or in
an input's shape, fixes it everywhere.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gnomon.core.graph import Graph, Tensor
from gnomon.errors import ModelError, RuntimeMissingError, UsageError
from gnomon.measure.environment import Caveat
from gnomon.models.load import (
    convert,
    files_beside,
    is_read,
    load,
    load_unread,
    plausible_feeds,
    reachable,
    steering_inputs,
)
from gnomon.models.model import (
    Model,
    dynamic_inputs,
    image_sides,
    is_known,
    is_package,
    link_file,
    named_shape,
    stamp_of,
    with_shapes,
)
from gnomon.runtimes.base import PlacedModel, Runtime
from gnomon.session.kernels import source_names
from gnomon.session.request import ModelRequest
from gnomon.session.targets import Missing
from gnomon.system.files import open_regular
from gnomon.system.process import guarded_folder
from gnomon.wire import Feed

Push = Callable[[Path, str], str]
Shape = tuple[int, ...]
Sizes = Mapping[str, int]

_BATCH = re.compile(r"(.*_)?(batch|batches|bs)(_?(size|dim|axis|num|n|\d+))?", re.IGNORECASE)
_PERHAPS_BATCH = re.compile(r"n|b|(unk__|dynamic_axes_)\d+|", re.IGNORECASE)
"""Names that converters give both to batches and to other dimensions. They count as batches if the first dimension of
every open input has such a name or that of a batch.
"""
_LENGTH, _SIDE = 64, 224
"""Example sizes in a hint: a length, and the side of an image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadModel:
    """The model of a job: `model` is the user's file, but with the graph of `source`, in which the shapes are fixed.

    `source` is the analysed copy, or the file itself if nothing had to be fixed; chains are cut from it. `named` is a
    copy that differs from the file only in the names of its nodes, or None if the names are unique. `names` are the
    names of all the file's operators and of their outputs. `given` are the shapes of inputs that the request or the fed
    arrays determine; `shapes` also contains the assumed ones, which `doubts` reports. `dims` are the sizes of the
    dimensions that the file names. `feeds` describes how to draw inputs that cannot be arbitrary numbers. `steering`
    are the inputs that were not given and determine the amount of work, each with what it determines. `stamp` shows
    whether the user's file has changed since it was read.
    """

    model: Model
    source: Path
    named: Path | None
    names: frozenset[str]
    given: Mapping[str, tuple[int, ...]]
    shapes: Mapping[str, tuple[int, ...]]
    dims: Mapping[str, int]
    doubts: tuple[Caveat, ...]
    feeds: Mapping[str, Feed]
    steering: Mapping[str, list[str]]
    stamp: tuple[int, int, int] | None

    @property
    def own(self) -> Path:
        """The user's own file."""
        return self.model.file

    def placed(self, push: Push) -> PlacedModel:
        """The user's own file on the device, with the copy for profiled runs."""
        named = "" if self.named is None else _push_file(self.named, push, "named-")
        return replace(place_model(self.model, self.own, push), named=named, dims=self.dims)

    def copied(self, push: Push, stack: ExitStack, *, refused: bool) -> tuple[Model, PlacedModel] | None:
        """The analysed copy on this machine and on the device; None if nothing in the file has to be changed.

        If a runtime has `refused` the file, a copy is written even if the shapes and names are fine, because its data
        files may be links, or its version too new.
        """
        model = replace(self.model, path=self.source)
        if self.source == self.own and refused and self.model.graph.format == "onnx":
            from gnomon.models.onnx.static import fixed_copy

            folder = stack.enter_context(guarded_folder("gnomon-model-"))
            model = fixed_copy(self.model, {}, folder, refused=True).model
        return None if model.path == self.own else (model, place_model(model, model.path, push, beside="copy-"))


def asked_model(request: ModelRequest, stack: ExitStack) -> Model:
    """The model as stored in its file, or the part of it for the requested signature. Raises GnomonError.

    A file that gnomon cannot read is left to the commands that are measured.
    """
    if request.settings.commands and not is_read(request.model):
        return load_unread(request.model)
    if is_package(str(request.model)):
        from gnomon.runtimes.packaged import PackageRuntime

        return PackageRuntime(request.model).model
    model = load(request.model)
    if not request.signature:
        return model
    from gnomon.models.tflite.fix import with_signature

    return with_signature(model, request.signature, stack.enter_context(guarded_folder("gnomon-model-")))


def read_model(request: ModelRequest, stack: ExitStack) -> ReadModel:
    """The model with the shapes of its inputs, and the files derived from it. Raises GnomonError."""
    stamp = stamp_of(request.model)
    model = asked_model(request, stack)
    inputs = [model.graph.tensors[t] for t in model.graph.inputs]
    for tensor in inputs:
        _check_type(tensor)
    source = model.file
    own_names = frozenset(source_names(model.graph))
    named: Path | None = None
    fixed = shapes_of(request, model)
    shapes, dims = fixed.shapes, fixed.dims
    if model.graph.format == "onnx":
        from gnomon.models.onnx.static import fixed_copy

        folder = stack.enter_context(guarded_folder("gnomon-model-"))
        copy, source, named, dims = fixed_copy(model, shapes, folder)
        model = replace(model, graph=copy.graph)
    if model.kind in {"tflite", "circle"} and shapes:
        from gnomon.models.tflite.fix import fixed_flat

        copy, source = fixed_flat(model, shapes, stack.enter_context(guarded_folder("gnomon-model-")))
        model = replace(model, graph=copy.graph)
    if model.graph.format == "ncnn":
        from gnomon.models.ncnn.model import fixed_ncnn

        model = fixed_ncnn(model, shapes)
    if model.graph.format in {"openvino", "ort"} and shapes:
        model = with_shapes(model, shapes)
    if model.graph.format in {"pte", "pt2"} and shapes:
        opened = {tensor.name: tensor for tensor in inputs if tensor in dynamic_inputs(model.graph)}
        if model.graph.format == "pte" or shapes.keys() - opened.keys():
            raise UsageError(
                f"the shapes of a .{model.graph.format} file are fixed when it is exported, except those left open",
                hint="Export the model with these shapes, or with torch.export.Dim for dimensions to be left open.",
            )
        model = with_shapes(model, shapes)
    still = dynamic_inputs(model.graph)
    if still:
        raise open_shapes(still)
    analysed = model if model.package else replace(model, path=source)
    steering = {name: decided for name, decided in steering_inputs(analysed).items() if name not in request.feeds}
    single = (t for t in model.graph.tensors if t.name in steering and t.shape in ((), (1,)))
    # A speed or a scale near 0 would produce hours of sound, or nothing. The position of a switch must be known.
    feeds: dict[str, Feed] = {t.name: {"values": [1.0]} for t in single if t.dtype.startswith(("float", "bool"))}
    feeds |= model.feeds or plausible_feeds(analysed)
    feeds = {name: feed for name, feed in feeds.items() if name not in request.feeds}
    return ReadModel(
        model=model,
        source=source,
        named=named,
        names=own_names,
        given=fixed.given,
        shapes=shapes,
        dims=dims,
        doubts=(*_signature_doubts(request, model), *fixed.doubts),
        feeds=feeds,
        steering=steering,
        stamp=stamp,
    )


def _signature_doubts(request: ModelRequest, model: Model) -> list[Caveat]:
    """A warning if the file has several signatures and none was requested, or if a copy runs the requested one."""
    others = [name for name, number in model.signatures.items() if number != 0]
    if request.signature in others:
        message = f"the signature {request.signature!r} was measured on a copy of the file without other signatures"
        hint = "Runtimes run a file's first subgraph, so the package holds the copy."
    elif others and not request.signature:
        first = next((repr(name) for name in model.signatures if name not in others), "the first subgraph")
        named = " and ".join(map(repr, others))[:300]
        message = f"the file has several signatures: {first} was measured, but not {named}"
        hint = f"To measure another signature: {shlex.join(('--signature', others[0]))}"
    else:
        return []
    return [Caveat(kind="signature", message=message, hint=hint)]


def shapes_of(request: ModelRequest, model: Model) -> Shapes:
    """The shapes of the model's inputs: those that the request gives and those that are assumed. Raises UsageError."""
    inputs = [model.graph.tensors[index] for index in model.graph.inputs]
    fed = {t.name: array_shape(t.name, request.feeds[t.name]) for t in inputs if t.name in request.feeds}
    if model.graph.format == "ncnn":  # ncnn's reader knows more: there is no batch, and files do not state channels
        check_names(inputs, request.shapes, request.dims)
        unknown = {t.name: fed[t.name] for t in inputs if t.name in fed and t.shape is None}
        return Shapes(shapes=unknown | dict(request.shapes), given=request.shapes, dims={}, doubts=())
    return fixed_shapes(inputs, shapes=request.shapes, dims=request.dims, feeds=fed)


def place_model(model: Model, source: Path, push: Push, *, beside: str = "") -> PlacedModel:
    """Bring a file of the model to the device, together with the files that belong to it.

    If the device already has another file with this name, `beside` is put in front of the name.
    """
    if model.path.is_dir():
        # A package is loaded as a folder, so that all other settings in its config take effect.
        _check_links(model.path)
        path = push(model.path, model.path.name)
    else:
        path = _push_file(source, push, beside)
    return PlacedModel.of(model.graph, path)


def _push_file(source: Path, push: Push, beside: str) -> str:
    """Bring a model's file to the device; if other files belong to it, in a folder together with them."""
    others = files_beside(source)
    if not others:
        return push(source, beside + source.name)
    with guarded_folder("gnomon-push-") as outer:
        folder = outer / f"{beside}model"
        folder.mkdir()
        for name, file in {Path(source.name): source, **others}.items():
            link_file(file, folder / name)
        where = push(folder, folder.name)
        # If the device is this machine, files are used in place: the folder goes away, but the user's own file stays.
        return str(source.absolute()) if where == str(folder.absolute()) else f"{where}/{source.name}"


def _check_links(package: Path) -> None:
    """ModelError if a link leads out of a package, because its target must not be copied to a device."""
    home = package.resolve()
    for entry in package.rglob("*"):
        try:
            stays = not entry.is_symlink() or entry.resolve().is_relative_to(home)
        except (OSError, RuntimeError):  # a ring of links
            stays = False
        if not stays:
            raise ModelError(f"the link {entry} leads out of the package", hint="Copy the file into the package.")


def models_for(
    runtimes: tuple[Runtime, ...],
    own: tuple[Model, PlacedModel, Path],
    push: Push,
    stack: ExitStack,
    missing: list[Missing],
) -> Mapping[str, tuple[Model, PlacedModel]]:
    """The model for each runtime, in a format that the runtime loads; `missing` gets the runtimes for which it cannot
    be converted.

    `own` holds the user's own model, the same model as it is placed on the device, and the path of its analysed copy.
    """
    model, placed, source = own
    by_runtime: dict[str, tuple[Model, PlacedModel]] = {}
    by_format = {model.graph.format: (model, placed)}
    for runtime in runtimes:
        wanted = sorted(runtime.formats & reachable(model.graph.format), key=lambda f: f != model.graph.format)[0]
        if wanted not in by_format:
            folder = stack.enter_context(guarded_folder("gnomon-converted-"))
            try:
                converted = _converted(model, source, wanted, folder)
            except (ModelError, RuntimeMissingError) as error:
                missing.append(Missing(name=runtime.name, reason=error.message, hint=error.hint))
                continue
            by_format[wanted] = converted, placed_converted(converted, folder, push(folder, "converted"), placed)
        by_runtime[runtime.name] = by_format[wanted]
    return by_runtime


def placed_converted(converted: Model, folder: Path, where: str, own: PlacedModel) -> PlacedModel:
    """A converted model in `folder`, whose path on the device is `where`; inputs and outputs keep their names."""
    path = f"{where}/{converted.path.relative_to(folder)}"
    return PlacedModel(graph=converted.graph, path=path, inputs=own.inputs, outputs=own.outputs)


def _converted(model: Model, source: Path, wanted: str, folder: Path) -> Model:
    """The user's file converted; if the converter refuses it, the analysed copy with fixed shapes."""
    try:
        return convert(model, model.path, wanted, folder)
    except ModelError:
        if source == model.path:
            raise
        return convert(model, source, wanted, folder)


def check_feeds(request: ModelRequest, placed: PlacedModel) -> None:
    """UsageError if the request feeds an input that the model does not have."""
    for name in request.feeds:
        if name not in placed.inputs:
            raise UsageError(f"--input: the model has no input {name!r}", hint=f"Inputs: {', '.join(placed.inputs)}.")


def texts_of(graph: Graph) -> list[str]:
    """The names of the inputs that hold text."""
    return [graph.tensors[index].name for index in graph.inputs if graph.tensors[index].dtype == "string"]


def _check_type(tensor: Tensor) -> None:
    """ModelError for an input that is not a tensor, or whose type no array can have."""
    if tensor.dtype == "unknown":
        raise ModelError(
            f"the input {tensor.name!r} is a sequence, a map or optional, but gnomon feeds only tensors",
            hint="Export the model with tensors as its inputs.",
        )
    if tensor.dtype not in FED:
        raise ModelError(
            f"the input {tensor.name!r} has the type {tensor.dtype}, which gnomon cannot feed",
            hint="Export the model with inputs of float32, float16, bfloat16 or a whole-number type.",
        )


FED = frozenset(
    {"bfloat16", "bool", "complex64", "complex128", "float16", "float32", "float64", "string"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)
"""The types of inputs that can be fed, under their names in numpy, plus "bfloat16" and "string"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """The `shapes` of the inputs that the file leaves open or that were given.

    `given` are the shapes that do not rest on assumptions alone. `dims` are the sizes of the dimensions that the file
    names, and `doubts` states the assumptions.
    """

    shapes: Mapping[str, Shape]
    given: Mapping[str, Shape]
    dims: Sizes
    doubts: tuple[Caveat, ...]


def fixed_shapes(
    inputs: Sequence[Tensor], *, shapes: Mapping[str, Shape], dims: Sizes, feeds: Mapping[str, Shape]
) -> Shapes:
    """The shapes of inputs, from the given `shapes`, the given sizes of named dimensions (`dims`), and the shapes of
    the arrays that feed inputs (`feeds`). A batch that stays open becomes 1.

    UsageError if the given values contradict the file or each other, or if a dimension stays open.
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
            raise UsageError(message, hint="Leave out this --shape: the input's file decides its shape.")
    sizes, several = _sizes(inputs, dims, given, sources)
    bound, doubts = dict(sizes), [_unlike(name, by_size) for name, by_size in several.items()]
    for name in _batches(inputs, given, sizes):
        sizes[name] = 1
        doubts.append(_assumption(f"the dimension {name!r}", ("--dim", f"{name}=N")))
    new = {t.name: given[t.name] for t in inputs if t.name in given and (t.name in shapes or not is_known(t))}
    for tensor in (t for t in inputs if t.name not in given and not is_known(t)):
        new[tensor.name] = shape = _filled(tensor, sizes)
        if shape[:1] == (-1,) and -1 not in shape[1:] and not any(tensor.dims[:1]):
            new[tensor.name] = (1, *shape[1:])
            option = ("--shape", f"{tensor.name}={_written(['N', *shape[1:]])}")
            doubts.append(_assumption(f"the first dimension of input {tensor.name!r}", option))
    still = [t for t in inputs if t.name in new and (-1 in new[t.name] or (t.shape is None and t.name not in given))]
    if still:
        raise open_shapes(still, sizes)
    fixed = {t.name for t in inputs if t.name in given or _filled(t, bound) != t.shape}
    named = {name for t in inputs for name in t.dims if name and name not in several}
    return Shapes(
        shapes=new,
        given={name: shape for name, shape in new.items() if name in fixed},
        dims={name: size for name in sorted(named) if (size := _size(name, sizes)) is not None},
        doubts=tuple(doubts),
    )


def open_shapes(inputs: Sequence[Tensor], sizes: Sizes | None = None) -> UsageError:
    """The error for inputs that stay open although the dimensions in `sizes` are known; its hint fixes all of them."""
    fixed, words, examples = dict(sizes or {}), list[str](), dict[str, int]()
    for tensor in inputs:
        sides = image_sides(tensor.shape or ())
        for axis, name in _open(tensor, fixed):
            size = _SIDE if axis in sides else _LENGTH
            examples |= dict.fromkeys((term for term in _terms(name) if term not in fixed | examples), size)
    for tensor in inputs:
        shape = _filled(tensor, fixed | examples)
        if tensor.shape is None or -1 in shape:
            # In the state of a recurrent network (layers, batch, size), the batch is the open dimension.
            sides, batch = image_sides(shape), 1 if len(shape) == 3 and shape[0] > 1 and shape[2] > 0 else 0
            filled = [
                n if n != -1 else 1 if k == batch else _SIDE if k in sides else _LENGTH for k, n in enumerate(shape)
            ]
            words += ["--shape", f"{tensor.name}={'N,..' if tensor.shape is None else _written(filled)}"]
            fixed |= {name: size for name, size in examples.items() if name in tensor.dims}
    words += [word for name, n in examples.items() if name not in fixed for word in ("--dim", f"{name}={n}")]
    first, how = inputs[0], "with numbers in place of N,.." if any(t.shape is None for t in inputs) else "for example"
    shown = f"{named_shape(first)}, which leaves {', '.join(examples) or 'dimensions'} open"
    return UsageError(
        f"the shape of input {first.name!r} is {'unknown' if first.shape is None else shown}",
        hint=f"Fix every dimension, {how}: {shlex.join(words)}",
        words=words,
    )


def array_shape(name: str, path: Path) -> Shape:
    """The shape of the array in the .npy file that feeds an input. UsageError if the file is unusable."""
    try:
        open_regular(path, sys.maxsize).close()  # numpy itself would wait for a pipe
        return tuple(np.load(path, mmap_mode="r", allow_pickle=False).shape)
    except FileNotFoundError as error:
        raise UsageError(f"--input {name}: there is no file {path}", hint="Give a .npy file.") from error
    except Exception as error:  # numpy passes on the errors that Python's parsers raise for a broken header
        raise UsageError(
            f"input {name!r}: {path.name} is not a usable .npy file ({getattr(error, 'strerror', None) or error})",
            hint="Save one array of numbers with numpy.save.",
        ) from error


def check_names(inputs: Sequence[Tensor], shapes: Mapping[str, Shape], dims: Sizes) -> None:
    """UsageError if a shape or a size is given for an input or dimension that the model does not have."""
    own = [tensor.name for tensor in inputs]
    named = dict.fromkeys(part for t in inputs for name in t.dims if name for part in (name, *_terms(name)))
    for name in shapes.keys() - set(own):
        hint = f"For a dimension: --dim {shlex.quote(name)}=N" if name in named else f"Inputs: {', '.join(own)}."
        raise UsageError(f"--shape: the model has no input {name!r}", hint=hint)
    for name in dims.keys() - named.keys():
        hint = f"Dimensions: {', '.join(named)}." if named else "The model names no dimensions: give --shape."
        raise UsageError(f"--dim: the model has no dimension {name!r}", hint=hint)


def _sizes(
    inputs: Sequence[Tensor], dims: Sizes, given: Mapping[str, Shape], sources: Mapping[str, str]
) -> tuple[dict[str, int], dict[str, dict[int, str]]]:
    """The sizes of named dimensions, and the names with several sizes, each size with its source.

    A name may have several sizes if the shapes of all inputs are given in full, because in that case it fixes nothing.
    Otherwise, a name with several sizes raises UsageError.
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
            (own, by), (other, against) = list(by_size.items())[:2]
            shapes = " ".join(f"--shape {shlex.quote(f'{t.name}=..')}" for t in lacking)
            more = f"give the shapes of all inputs: {shapes}" if shapes else f"leave out --dim for {name!r}."
            raise UsageError(
                f"the dimension {name!r} cannot be both {own} ({by}) and {other} ({against})",
                hint=f"Give the dimension one size; or, if the name stands for several dimensions, {more}",
            )
    return {name: next(iter(by_size)) for name, by_size in said.items() if name not in several}, several


def _batches(inputs: Sequence[Tensor], given: Mapping[str, Shape], sizes: Sizes) -> list[str]:
    """The named dimensions without a size that are assumed to be the batch.

    These are the dimensions with a batch's name; the only open dimension, if it comes first in each input that has it;
    and the first dimensions of all open inputs, if each of their names may mean a batch (`_PERHAPS_BATCH`).
    """
    left = [dims for t in inputs if t.name not in given and not is_known(t) and (dims := _open(t, sizes))]
    names = dict.fromkeys(name for dims in left for _, name in dims if name)
    alone = len(names) == 1 and all(len(dims) == 1 and dims[0][0] == 0 for dims in left)
    leading = all(axis == 0 and (_PERHAPS_BATCH.fullmatch(n) or _BATCH.fullmatch(n)) for (axis, n), *_ in left)
    first = {dims[0][1] for dims in left} if leading else set()
    return [name for name in names if alone or name in first or _BATCH.fullmatch(name)]


def _open(tensor: Tensor, sizes: Sizes) -> list[tuple[int, str]]:
    """The axes of an input that have no size, with their names ("" for an unnamed axis)."""
    shape = _filled(tensor, sizes)
    return [(k, tensor.dims[k] if tensor.dims else "") for k, size in enumerate(shape) if size == -1]


def _filled(tensor: Tensor, sizes: Sizes) -> Shape:
    """The shape of an input, with the sizes of named dimensions filled in; () if the rank is unknown."""
    shape = tensor.shape or ()
    names = tensor.dims or [""] * len(shape)
    filled = [_size(name, sizes) if own == -1 else own for own, name in zip(shape, names, strict=True)]
    return tuple(-1 if size is None else size for size in filled)


def _size(name: str, sizes: Sizes) -> int | None:
    """The size of a named dimension, which may be a sum ("past + 1"); None if it is not known yet."""
    if name in sizes or "+" not in name:
        return sizes.get(name)
    parts = [int(part) if part.isdecimal() else sizes.get(part) for part in map(str.strip, name.split("+"))]
    return None if None in parts else sum(part or 0 for part in parts)


def _terms(name: str) -> list[str]:
    """The names that make up a dimension's name: the terms if it is a sum, otherwise the name itself."""
    return [part for part in map(str.strip, name.split("+")) if part and not part.isdecimal()]


def _written(shape: Sequence[object]) -> str:
    return ",".join(map(str, shape))


def _assumption(what: str, option: tuple[str, str]) -> Caveat:
    message = f"the file leaves {what} open; its size was assumed to be 1"
    return Caveat(kind="assumed-shape", message=message, hint=f"To use another size: {shlex.join(option)}")


def _unlike(name: str, by_size: Mapping[int, str]) -> Caveat:
    shown = " and ".join(f"{size} ({by})" for size, by in by_size.items())
    message = f"the dimension {name!r} has several sizes, {shown}: the shapes of all inputs were used as given"
    return Caveat(kind="unlike-dimensions", message=message, hint="If this is one dimension, give it one size.")
