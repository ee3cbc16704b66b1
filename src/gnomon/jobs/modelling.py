"""The model of a job: read, with fixed shapes, converted where a runtime wants it so, and brought to the device."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from gnomon.devices.guard import guarded_folder
from gnomon.errors import ModelError, RuntimeMissingError, UsageError
from gnomon.jobs.request import Request
from gnomon.jobs.targets import Missing
from gnomon.models.convert import convert, reachable
from gnomon.models.load import load
from gnomon.models.model import Model, dynamic_inputs
from gnomon.runtimes.base import PlacedModel, Runtime

Push = Callable[[Path, str], str]


def read_model(request: Request, stack: ExitStack) -> tuple[Model, Path]:
    """The model with its inputs' shapes fixed, and the file that runtimes load. Raises GnomonError."""
    model = load(request.model)
    inputs = [model.graph.tensors[t] for t in model.graph.inputs]
    names = {tensor.name for tensor in inputs}
    for name in request.shapes:
        if name not in names:
            raise UsageError(f"--shape: the model has no input {name!r}", hint=f"Its inputs: {', '.join(names)}.")
    source = model.package.models[0] if model.package else model.path
    if model.graph.format == "onnx":
        from gnomon.models.onnx_static import fixed_copy

        model, source = fixed_copy(model, dict(request.shapes), stack.enter_context(guarded_folder("gnomon-model-")))
    if model.graph.format == "ncnn":
        from gnomon.models.ncnn import fixed_ncnn

        folder = stack.enter_context(guarded_folder("gnomon-model-"))
        model = fixed_ncnn(model, {t.name: tuple(t.shape) for t in inputs if t.shape} | dict(request.shapes), folder)
        source = folder
    still = dynamic_inputs(model.graph)
    if still:
        example = " ".join(f"--shape {t.name}=1,3,224,224" for t in still)
        raise UsageError(
            f"the shape of input {still[0].name!r} is {still[0].shape}, which leaves dimensions open",
            hint=f"Fix every dimension, such as: {example}",
        )
    return model, source


def place_model(model: Model, source: Path, push: Push) -> PlacedModel:
    """The model as it is, on the device; where `source` is a folder, with all that lies in it."""
    if model.package:
        # It is loaded as a folder, so that whatever else its config holds is in effect.
        _check_links(model.path)
        path = push(model.path, model.path.name)
    elif source.is_dir():
        path = f"{push(source, source.name)}/{model.path.name}"
    elif model.graph.format == "onnx":
        path = _push_onnx(source, push)
    else:
        path = push(source, source.name)
    return PlacedModel(
        graph=model.graph,
        path=path,
        inputs=tuple(model.graph.tensors[t].name for t in model.graph.inputs),
        outputs=tuple(model.graph.tensors[t].name for t in model.graph.outputs),
    )


def _push_onnx(source: Path, push: Push) -> str:
    """Bring an ONNX file to the device, in a folder with the files of its weights where it has such."""
    from gnomon.models.onnx_static import linked_onnx

    with guarded_folder("gnomon-push-") as folder:
        linked = linked_onnx(source, folder)
        if linked is None:
            return push(source, source.name)
        where = push(folder, "model")
        # A device that is this machine takes files where they are: the folder goes away, the user's own stays.
        return str(source) if where == str(folder) else f"{where}/{source.name}"


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

    `own` is the user's own model, placed, with the file that was placed.
    """
    model, placed, source = own
    made: dict[str, tuple[Model, PlacedModel]] = {}
    by_format = {model.graph.format: (model, placed)}
    for runtime in runtimes:
        wanted = sorted(runtime.formats & reachable(model.graph.format), key=lambda f: f != model.graph.format)[0]
        if wanted not in by_format:
            try:
                folder = stack.enter_context(guarded_folder("gnomon-converted-"))
                converted = convert(model, source, wanted, folder)
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


def check_feeds(request: Request, placed: PlacedModel) -> None:
    """UsageError where an input is fed that the model has not; ModelError where an output's shape is unknown."""
    for name, path in request.feeds.items():
        if name not in placed.inputs:
            raise UsageError(f"--input: the model has no input {name!r}", hint=f"Inputs: {', '.join(placed.inputs)}.")
        if not path.is_file():
            raise UsageError(f"--input {name}: there is no file {path}", hint="Give a .npy file.")
    for index in (*placed.graph.inputs, *placed.graph.outputs):
        tensor = placed.graph.tensors[index]
        if tensor.shape is None or -1 in tensor.shape:
            raise ModelError(f"the shape of output {tensor.name!r} is not known", hint="Fix the inputs with --shape.")
