"""The model of a job: read, with fixed shapes, converted where a runtime wants it so, and brought to the device."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from gnomon.core.graph import Graph, Tensor
from gnomon.errors import ModelError, RuntimeMissingError, UsageError
from gnomon.measure.environment import Doubt
from gnomon.models.load import convert, files_beside, load, plausible_feeds, reachable, steering_inputs
from gnomon.models.model import Feed, Model, dynamic_inputs, link_file, stamp_of, with_shapes
from gnomon.runtimes.base import PlacedModel, Runtime
from gnomon.session.kernels import source_names
from gnomon.session.request import ModelRequest
from gnomon.session.shapes import Shapes, array_shape, check_names, fixed_shapes, open_shapes
from gnomon.session.targets import Missing
from gnomon.system.process import guarded_folder

Push = Callable[[Path, str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadModel:
    """The model of a job: `model` is the user's file, with the graph of `source`, in which its shapes are fixed.

    `source` is the analysed copy, or the file itself where nothing needed to be fixed: chains are cut from it. `named`
    is a copy that differs from the file by the names of nodes alone, None where they are unique. `names` are those of
    all operators of the file and of what they write. `given` are the shapes of inputs that were asked for, by the
    request or by what feeds them; `shapes` are these and those that were assumed, as `doubts` say, and `dims` the sizes
    of dimensions that the file names. `feeds` say how inputs are drawn that cannot be just any numbers; `steering` are
    those that were not given and decide how much work there is, with what they decide. `stamp` tells whether the user's
    file changed since.
    """

    model: Model
    source: Path
    named: Path | None
    names: frozenset[str]
    given: Mapping[str, tuple[int, ...]]
    shapes: Mapping[str, tuple[int, ...]]
    dims: Mapping[str, int]
    doubts: tuple[Doubt, ...]
    feeds: Mapping[str, Feed]
    steering: Mapping[str, list[str]]
    stamp: tuple[int, int, int] | None

    @property
    def own(self) -> Path:
        """The user's own file."""
        return self.model.package.models[0] if self.model.package else self.model.path

    def placed(self, push: Push) -> PlacedModel:
        """The user's own file on the device, with the copy for profiled runs."""
        named = "" if self.named is None else _push_file(self.named, push, "named-")
        return replace(place_model(self.model, self.own, push), named=named, dims=self.dims)

    def copied(self, push: Push, stack: ExitStack, *, refused: bool) -> tuple[Model, PlacedModel] | None:
        """The analysed copy on this machine and the device; None where the file has nothing to be changed.

        For a runtime that has `refused` the file a copy is written also where its shapes and names are as they should
        be: its data may be links, or its version new.
        """
        model = replace(self.model, path=self.source)
        if self.source == self.own and refused and self.model.graph.format == "onnx":
            from gnomon.models.onnx.static import fixed_copy

            folder = stack.enter_context(guarded_folder("gnomon-model-"))
            model = fixed_copy(self.model, {}, folder, refused=True).model
        return None if model.path == self.own else (model, place_model(model, model.path, push, beside="copy-"))


def read_model(request: ModelRequest, stack: ExitStack) -> ReadModel:
    """The model with its inputs' shapes, and the files that are made of it. Raises GnomonError."""
    stamp = stamp_of(request.model)
    model = load(request.model)
    inputs = [model.graph.tensors[t] for t in model.graph.inputs]
    for tensor in inputs:
        _check_type(tensor)
    source = model.package.models[0] if model.package else model.path
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
    if model.graph.format == "openvino" and shapes:
        model = with_shapes(model, shapes)
    if model.graph.format in {"pte", "pt2"} and shapes:
        opened = {tensor.name: tensor for tensor in inputs if tensor in dynamic_inputs(model.graph)}
        if model.graph.format == "pte" or shapes.keys() - opened.keys():
            raise UsageError(
                f"the shapes of a .{model.graph.format} are fixed where it is exported, but for those that it leaves "
                "open",
                hint="Export it with these shapes, or with torch.export.Dim for what is to stay open.",
            )
        model = with_shapes(model, shapes)
    still = dynamic_inputs(model.graph)
    if still:
        raise open_shapes(still)
    analysed = model if model.package else replace(model, path=source)
    steering = {name: told for name, told in steering_inputs(analysed).items() if name not in request.feeds}
    numbers = (
        t for t in model.graph.tensors if t.name in steering and t.dtype[:5] == "float" and t.shape in ((), (1,))
    )
    # A speed or a scale: around 0 it would make hours of sound, or nothing.
    feeds = {t.name: {"values": [1.0]} for t in numbers} | plausible_feeds(analysed)
    feeds = {name: feed for name, feed in feeds.items() if name not in request.feeds}
    return ReadModel(
        model=model,
        source=source,
        named=named,
        names=own_names,
        given=fixed.given,
        shapes=shapes,
        dims=dims,
        doubts=fixed.doubts,
        feeds=feeds,
        steering=steering,
        stamp=stamp,
    )


def shapes_of(request: ModelRequest, model: Model) -> Shapes:
    """The shapes of the model's inputs that the request gives, and those that are assumed. UsageError."""
    inputs = [model.graph.tensors[index] for index in model.graph.inputs]
    fed = {t.name: array_shape(t.name, request.feeds[t.name]) for t in inputs if t.name in request.feeds}
    if model.graph.format == "ncnn":  # whose reader knows more of them: there is no batch, and files say no channels
        check_names(inputs, request.shapes, request.dims)
        unknown = {t.name: fed[t.name] for t in inputs if t.name in fed and t.shape is None}
        return Shapes(shapes=unknown | dict(request.shapes), given=request.shapes, dims={}, doubts=())
    return fixed_shapes(inputs, shapes=request.shapes, dims=request.dims, feeds=fed)


def place_model(model: Model, source: Path, push: Push, *, beside: str = "") -> PlacedModel:
    """A file of the model, on the device, with those that lie beside it.

    `beside` begins its name there, where another file of the same name lies there already.
    """
    if model.package:
        # It is loaded as a folder, so that whatever else its config holds is in effect.
        _check_links(model.path)
        path = push(model.path, model.path.name)
    else:
        path = _push_file(source, push, beside)
    return PlacedModel(
        graph=model.graph,
        path=path,
        inputs=tuple(model.graph.tensors[t].name for t in model.graph.inputs),
        outputs=tuple(model.graph.tensors[t].name for t in model.graph.outputs),
    )


def _push_file(source: Path, push: Push, beside: str) -> str:
    """Bring a model's file to the device, in a folder with those that lie beside it where it has such."""
    others = files_beside(source)
    if not others:
        return push(source, beside + source.name)
    with guarded_folder("gnomon-push-") as outer:
        folder = outer / f"{beside}model"
        folder.mkdir()
        for name, file in {Path(source.name): source, **others}.items():
            link_file(file, folder / name)
        where = push(folder, folder.name)
        # A device that is this machine takes files where they are: the folder goes away, the user's own stays.
        return str(source.absolute()) if where == str(folder.absolute()) else f"{where}/{source.name}"


def _check_links(package: Path) -> None:
    """ModelError where a link leads out of a package: what it leads to must not go to a device with it."""
    home = package.resolve()
    for folder, folders, files in os.walk(package):
        for entry in (Path(folder, name) for name in (*folders, *files)):
            try:
                stays = not entry.is_symlink() or entry.resolve().is_relative_to(home)
            except (OSError, RuntimeError):  # a ring of links
                stays = False
            if not stays:
                raise ModelError(
                    f"{entry} is a link that leads out of the package", hint="Copy the file into the package."
                )


def models_for(
    runtimes: tuple[Runtime, ...],
    own: tuple[Model, PlacedModel, Path],
    push: Push,
    stack: ExitStack,
    missing: list[Missing],
) -> Mapping[str, tuple[Model, PlacedModel]]:
    """By runtime, the model in a format that it loads; runtimes that it cannot be converted for go into `missing`.

    `own` is the user's own model, placed, with its analysed copy.
    """
    model, placed, source = own
    made: dict[str, tuple[Model, PlacedModel]] = {}
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
            where = push(folder, "converted")
            by_format[wanted] = (
                converted,
                PlacedModel(
                    graph=converted.graph,
                    path=f"{where}/{converted.path.relative_to(folder)}",
                    inputs=placed.inputs,
                    outputs=placed.outputs,
                ),
            )
        made[runtime.name] = by_format[wanted]
    return made


def _converted(model: Model, source: Path, wanted: str, folder: Path) -> Model:
    """The user's file converted; where the converter refuses it, the analysed copy, in which its shapes are fixed."""
    try:
        return convert(model, model.path, wanted, folder)
    except ModelError:
        if source == model.path:
            raise
        return convert(model, source, wanted, folder)


def check_feeds(request: ModelRequest, placed: PlacedModel) -> None:
    """UsageError where an input is fed that the model has not."""
    for name in request.feeds:
        if name not in placed.inputs:
            raise UsageError(f"--input: the model has no input {name!r}", hint=f"Inputs: {', '.join(placed.inputs)}.")


def texts_of(graph: Graph) -> list[str]:
    """The inputs that hold text."""
    return [graph.tensors[index].name for index in graph.inputs if graph.tensors[index].dtype == "string"]


def _check_type(tensor: Tensor) -> None:
    """ModelError for an input that is not a tensor, or of a type that no array has."""
    if tensor.dtype == "unknown":
        raise ModelError(
            f"the input {tensor.name!r} is a sequence, a map or optional, and gnomon feeds tensors only",
            hint="Export the model with tensors as its inputs.",
        )
    if tensor.dtype not in FED:
        raise ModelError(
            f"the input {tensor.name!r} is of type {tensor.dtype}, which gnomon has no arrays of",
            hint="Export the model with inputs of float32, float16, bfloat16 or a whole-number type.",
        )


FED = frozenset(
    {"bfloat16", "bool", "complex64", "complex128", "float16", "float32", "float64", "string"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)
"""The types of inputs that can be fed, by numpy's names, "bfloat16" and "string"."""
