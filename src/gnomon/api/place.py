"""`gnomon place`, `profile` and `deploy` as functions, which take the commands' options and return records.

::

    import gnomon

    placement = gnomon.place("model.onnx", threads=1)
    print(placement.decision.reason, placement.package)

Errors are those of `gnomon.errors`. Nothing is printed: `on_progress` is called with the progress, `on_message` with
sentences.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Unpack, cast

from gnomon.api.options import (
    Fetch,
    Memory,
    Model,
    OldRecords,
    Options,
    Overwrite,
    Package,
    PathLike,
    Under,
    device_option,
    limits_of,
    model_request,
    names_of,
    package_path,
    parts_of,
)
from gnomon.errors import UsageError
from gnomon.options import option
from gnomon.values import span

if TYPE_CHECKING:
    from gnomon.jobs.place.document import (
        DeployDocument,
        DevicePart,
        FleetDocument,
        PlaceDocument,
        ProfileDocument,
        SweepDocument,
    )
    from gnomon.measure.progress import TellOf, Watch, WatchOf
    from gnomon.session.request import ModelRequest


def place(
    model: Model,
    *,
    devices: Annotated[Sequence[str], device_option(" May be repeated.")] = (),
    out: Package = None,
    overwrite: Overwrite = False,
    package: Annotated[bool, option("--no-package", off=True, help="Prove the package, but do not keep it.")] = True,
    measure: OldRecords = True,
    picture: Annotated[bool, option("--no-picture", off=True, help="Draw no picture.")] = True,
    deploy_to: Annotated[str | None, option("--deploy", metavar="DEVICE", help="Then deploy the package.")] = None,
    under: Under = MappingProxyType({}),
    memory: Memory = MappingProxyType({}),
    on_progress: Watch | WatchOf | None = None,
    on_message: Callable[[str], None] | TellOf | None = None,
    **options: Unpack[Options],
) -> PlaceDocument:
    """Find the fastest way to run MODEL on a device, prove it, and write it as a package.

    MODEL is an .onnx, .ort, .tflite, .circle, .xml, .pte or .pt2 file, or an nnpackage folder. The whole model is
    measured on every runtime that takes it. If a mix of backends may be faster, the best mix is computed and measured
    next to the single backends. Several devices are measured at the same time. After an interruption, the same command
    resumes.

    Raises GnomonError. Measurements until then are kept, and the same call continues. From Python, the package is kept
    only if `out` names its folder. If the same request was answered before and its package still exists, that answer is
    returned, except with `overwrite` or `fresh`.

    With several sizes of a dimension or several files of an input, the result is a `SweepDocument`, and the packages
    are in `out`-NAMEvalue. With several `devices`, it is a `FleetDocument`; `on_progress` then takes a device's name
    and returns its listener, and `on_message` is called with a name and a sentence.
    """
    limits = limits_of(under, memory)
    how: dict[str, Any] = {"overwrite": overwrite, "measure": measure, "picture": picture, "under": limits}
    how |= {"on_progress": on_progress, "on_message": on_message}
    names = tuple(dict.fromkeys(names_of(devices)))
    parts = parts_of(options)
    if deploy_to is not None:
        from gnomon.devices.opening import resolve

        resolve(deploy_to)  # an invalid device is reported before an hour of measuring, not after it
        if out is None or len(names) > 1 or len(parts) > 1:
            raise UsageError("--deploy needs exactly one kept package", hint="Deploy several with gnomon deploy.")
    if not package and out is not None:
        raise UsageError("--out and --no-package contradict each other", hint="Leave out one of them.")
    if len(names) > 1:
        return cast("PlaceDocument", place_on(model, names, out=out, **how, **options))
    if names:
        options["device"] = names[0]
    folder = None if out is None else Path(out)
    if len(parts) > 1:

        def part(values: Mapping[str, str], own: Options) -> PlaceDocument:
            where = folder and folder.with_name(f"{folder.name}-{_part_name(values)}")
            return place(model, out=where, **how, **own)

        return cast("PlaceDocument", _sweep(model, parts, part, how["on_message"]))
    request = model_request(model, options, measure=measure, sweeps=True, usual=True, limited=True, under=limits)
    watch, tell = how["on_progress"], how["on_message"]
    answer = _answer_of_before(request, folder, tell, overwrite=overwrite)
    if answer is None:
        answer = _finished(request, _place(request, folder, watch, tell, overwrite=overwrite), tell, picture=picture)
    if deploy_to is None or folder is None:
        return answer
    deployed = deploy(folder, deploy_to, overwrite=overwrite, fetch=options.get("fetch", False), on_message=tell)
    return replace(answer, deployed=deployed)


def deploy(
    package: Annotated[PathLike, option(metavar="PACKAGE")],
    device: Annotated[str, option(metavar="DEVICE", complete="device")],
    *,
    to: Annotated[str | None, option(metavar="FOLDER", help="The new folder.  [default: ~/deployed/PACKAGE]")] = None,
    overwrite: Overwrite = False,
    fetch: Fetch = False,
    on_message: Callable[[str], None] | None = None,
) -> DeployDocument:
    """Copy PACKAGE, a folder that gnomon place wrote, to DEVICE with its requirements, and run it there once.

    The package stays on the device, with a script run.sh that starts it and a systemd unit that is not enabled. A
    package is a program: deploy only packages from people you trust.

    Raises GnomonError; after an error, nothing stays on the device.
    """
    from gnomon.devices.opening import resolve
    from gnomon.jobs.place import deploy as job

    config = resolve(device)
    config = replace(config, fetch=fetch or config.fetch)
    return job.deploy(Path(package), config, to=to, overwrite=overwrite, tell=on_message)


def _answer_of_before(
    request: ModelRequest, package: Path | None, tell: Callable[[str], None] | None, *, overwrite: bool
) -> PlaceDocument | None:
    """The earlier answer to the same request if its package exists; None without one. GnomonError for a bad model."""
    if package is None or not package.exists() or overwrite or request.fresh or not request.measure:
        return None
    from gnomon.jobs.runs import answers
    from gnomon.models.load import load

    digest, question = load(request.model).graph.digest, answers.question_of(request, package)
    answer: PlaceDocument | None = answers.asked_before(request.record, "place", question, digest, package=package)
    if answer is not None and tell is not None:
        tell("this is the answer of an earlier run; --overwrite or --fresh measures again")
    return answer


def _place(
    request: ModelRequest,
    package: Path | None,
    watch: Watch | None,
    tell: Callable[[str], None] | None,
    *,
    overwrite: bool,
) -> PlaceDocument:
    """The placement on one device; without a folder, its package goes to a temporary one."""
    from gnomon.jobs.place import job
    from gnomon.system.process import guarded_folder

    if package is not None:
        return job.place(request, package, overwrite=overwrite, watch=watch, tell=tell)
    with guarded_folder("gnomon-package-") as folder:
        placement = job.place(request, folder / package_path(request.model).name, watch=watch, tell=tell)
    return replace(placement, package=None)


def _finished(
    request: ModelRequest, placement: PlaceDocument, tell: Callable[[str], None] | None, *, picture: bool
) -> PlaceDocument:
    """The placement with its picture in the package; it is also kept as the answer to the request."""
    from gnomon.api.pictures import draw
    from gnomon.jobs.runs import answers

    package = None if placement.package is None else Path(placement.package)
    if picture and package is not None:
        pictures = draw(placement.charts_by, placement, package / "plan", tell)
        placement = replace(placement, pictures=tuple(pictures))
    answers.keep(placement.document(), tell, answers.question_of(request, package))
    return placement


def _part_name(values: Mapping[str, str]) -> str:
    """The suffix of the name of a part's package: "seq16"."""
    return re.sub(r"[^\w.-]+", "_", "-".join(f"{name}{value.removesuffix('.npy')}" for name, value in values.items()))


def _sweep(
    model: PathLike,
    parts: Sequence[tuple[Mapping[str, str], Options]],
    ask: Callable[[Mapping[str, str], Options], PlaceDocument | ProfileDocument],
    on_message: Callable[[str], None] | None,
) -> SweepDocument:
    """The answers to several requests, each a separate run. UsageError for unsuitable shapes, before any run begins."""
    from gnomon.jobs.place.fleet import sweep
    from gnomon.session.model import asked_model, shapes_of

    requests = [model_request(model, own, sweeps=True, limited=True) for _, own in parts]
    with ExitStack() as stack:
        read = asked_model(requests[0], stack)
    for request in requests:
        shapes_of(request, read)
    return sweep(Path(model), [(values, partial(ask, values, own)) for values, own in parts], on_message)


def place_on(
    model: PathLike,
    devices: Sequence[str],
    *,
    out: PathLike | None = None,
    overwrite: bool = False,
    measure: bool = True,
    picture: bool = True,
    under: Mapping[str, float | str] = MappingProxyType({}),
    on_progress: WatchOf | None = None,
    on_message: TellOf | None = None,
    **options: Unpack[Options],
) -> FleetDocument:
    """Place a model on several devices at the same time, each as `place` does.

    Packages go to `out`/NAME, if `out` is given. `on_progress` takes a device's name and returns its listener;
    `on_message` is called with a name and a sentence. A device that fails is in the answer with its error. GnomonError
    if all devices fail.
    """
    from gnomon.jobs.place.fleet import place_on as place_fleet
    from gnomon.session.request import timed

    each: list[Options] = [{**options, "device": name} for name in dict.fromkeys(names_of(devices))]
    how: dict[str, Any] = {"sweeps": True, "usual": True, "limited": True, "under": under}
    asked = [model_request(model, own, measure=measure, **how) for own in each]
    requests = {request.device.name: timed(request) for request in asked}
    answered_before: set[str] = set()

    def place_one(
        request: ModelRequest, package: Path | None, watch: Watch | None, tell: Callable[[str], None] | None
    ) -> PlaceDocument:
        answer = _answer_of_before(request, package, tell, overwrite=overwrite)
        if answer is None:
            return _place(request, package, watch, tell, overwrite=overwrite)
        answered_before.add(request.device.name)
        return answer

    def finished(device: DevicePart) -> DevicePart:
        if device.placement is None or device.name in answered_before:
            return device
        tell = None if on_message is None else partial(on_message, device.name)
        return replace(device, placement=_finished(requests[device.name], device.placement, tell, picture=picture))

    folder = None if out is None else Path(out)
    fleet = place_fleet(requests, folder, place_one, watch=on_progress, tell=on_message)
    # Pictures are drawn after all measurements, because this machine may be one of the devices.
    return replace(fleet, devices=tuple(map(finished, fleet.devices)))


_LOADED_S = 6.0
"""The seconds for which several streams call a configuration if no time is given."""


def profile(
    model: Model,
    *,
    inside: Annotated[
        bool,
        option(
            help="Price the operators inside fused kernels: their parts are cut out and measured, for at most --budget."
        ),
    ] = False,
    for_s: Annotated[
        float | None,
        option(
            "--for",
            read=span,
            metavar="10min",
            help="Then run each configuration for this long in a fresh process, and report when it becomes slower.",
        ),
    ] = None,
    every_s: Annotated[
        float | None,
        option(
            "--every",
            read=span,
            metavar="33ms",
            help="With --for: call once per interval, as an application does, and count late calls.",
        ),
    ] = None,
    streams: Annotated[
        int,
        option(least=1, most=256, metavar="N", default=1, help="Report requests per second from N threads."),
    ] = 1,
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] | None = None,
    **options: Unpack[Options],
) -> ProfileDocument:
    """Measure MODEL whole on every runtime and backend that takes it, end to end and per operator.

    MODEL is an .onnx, .ort, .tflite, .circle, .xml, .pte or .pt2 file, or an nnpackage folder.

    Raises GnomonError. Measurements until then are kept, and the same call continues. With several sizes of a dimension
    or several files of an input, the result is a `SweepDocument`.
    """
    from gnomon.jobs.place import job
    from gnomon.jobs.place.sustained import Sustain
    from gnomon.jobs.runs import answers

    if every_s is not None and (for_s is None or streams > 1):
        message = "--every needs --for, and cannot be combined with --streams"
        raise UsageError(message, hint="Give --for 10min too (for_s from Python), and leave out --streams.")
    if len(parts := parts_of(options)) > 1:
        how: dict[str, Any] = {"inside": inside, "for_s": for_s, "every_s": every_s, "streams": streams}
        how |= {"on_progress": on_progress, "on_message": on_message}
        sweep = _sweep(model, parts, lambda values, own: profile(model, **how, **own), on_message)
        return cast("ProfileDocument", sweep)
    asked = Sustain(for_s=for_s or _LOADED_S, every_s=every_s, streams=streams) if for_s or streams > 1 else None
    request = model_request(model, options, sweeps=True, usual=True, limited=True)
    document = job.profile(request, inside=inside, asked=asked, watch=on_progress, tell=on_message)
    answers.keep(document.document(), on_message)
    return document
