"""gnomon from Python: the commands of the command line as functions, with the same options and the records as answers.

::

    import gnomon

    found = gnomon.place("model.onnx", threads=1)
    print(found.verdict.reason, found.package)

Errors are those of `gnomon.errors`. Nothing is printed: `on_progress` is called with progress, and
`on_message` with sentences.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from gnomon.api.options import Options, PathLike, model_request, package_path, parts_of
from gnomon.errors import UsageError
from gnomon.jobs.place import job
from gnomon.jobs.place.job import Placement, Profile
from gnomon.jobs.runs import answers
from gnomon.measure.progress import Watch
from gnomon.session.request import timed
from gnomon.store.address import RecordLike, record_address
from gnomon.store.base import ARGUMENTS
from gnomon.system.process import guarded_folder

if TYPE_CHECKING:
    from gnomon.jobs.place.fleet import Fleet, TellOf, WatchOf
    from gnomon.jobs.place.sweep import Sweep


def place(
    model: PathLike,
    *,
    out: PathLike | None = None,
    overwrite: bool = False,
    package: bool = True,
    measure: bool = True,
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] | None = None,
    **options: Unpack[Options],
) -> Placement:
    """Find the fastest way to run a model on a device, prove it, and write it as a package to `out`.

    Without `package` the package is proved all the same, and not kept. Without `measure` it decides again from what the
    record holds, and nothing is proven that was not before. Several sizes of a dimension, or several files of an input,
    give a `Sweep`, with a package each in `out`-NAMEvalue. Raises GnomonError; what was measured until then is kept,
    and the same call goes on from there.
    """
    destination = package_path(model) if out is None else Path(out)
    if len(parts := parts_of(options)) > 1:

        def part(values: Mapping[str, str], own: Options) -> Any:
            where = destination.with_name(f"{destination.name}-{_part_name(values)}")
            again = overwrite or own.get("fresh") or not (package and measure and where.exists())
            before = None if again else placed_before(model, ARGUMENTS.get(), where, record=own.get("record"))
            how: dict[str, Any] = {"out": where if package else None, "overwrite": overwrite, "package": package}
            how |= {"measure": measure, "on_progress": on_progress, "on_message": on_message}
            return before or place(model, **how, **own)

        return cast("Placement", _sweep(model, parts, part, on_message))
    request = model_request(model, options, measure=measure, sweeps=True, usual=True, limited=True)
    with ExitStack() as stack:
        if not package:
            if out is not None:
                raise UsageError("there is no folder for a package that is not kept", hint="Give either of the two.")
            destination = stack.enter_context(guarded_folder("gnomon-package-")) / destination.name
        found = job.place(request, destination, overwrite=overwrite, watch=on_progress, tell=on_message)
    found = found if package else replace(found, package=None)
    answers.keep(found.document(), on_message)
    return found


def _part_name(values: Mapping[str, str]) -> str:
    """What tells the package of a part apart: "seq16"."""
    return re.sub(r"[^\w.-]+", "_", "-".join(f"{name}{value.removesuffix('.npy')}" for name, value in values.items()))


def _sweep(
    model: PathLike,
    parts: Sequence[tuple[Mapping[str, str], Options]],
    ask: Callable[[Mapping[str, str], Options], Any],
    on_message: Callable[[str], None] | None,
) -> Sweep:
    """The answers to several requests, each a run of its own. UsageError before any begins where shapes do not fit."""
    from gnomon.jobs.place.sweep import sweep
    from gnomon.models.load import load
    from gnomon.session.model import shapes_of

    read = load(Path(model))
    for _, own in parts:
        shapes_of(model_request(model, own, sweeps=True, limited=True), read)
    return sweep(Path(model), [(values, partial(ask, values, own)) for values, own in parts], on_message)


def place_on(
    model: PathLike,
    devices: Sequence[str],
    *,
    out: PathLike | None = None,
    overwrite: bool = False,
    measure: bool = True,
    on_progress: WatchOf | None = None,
    on_message: TellOf | None = None,
    **options: Unpack[Options],
) -> Fleet:
    """Place a model on several devices side by side.

    Packages go to `out`/NAME. A device that fails is in the answer with its error; raises GnomonError if all fail.
    """
    from gnomon.jobs.place.fleet import place_on as place_fleet

    made = (
        model_request(model, {**options, "device": name}, measure=measure, sweeps=True, usual=True, limited=True)
        for name in dict.fromkeys(devices)
    )
    requests = {request.device.name: timed(request) for request in made}
    destination = package_path(model) if out is None else Path(out)
    return place_fleet(requests, destination, overwrite=overwrite, watch=on_progress, tell=on_message)


def placed_before(
    model: PathLike, words: Sequence[str], package: PathLike, *, record: RecordLike | None = None
) -> dict[str, Any] | None:
    """The answer to the same words of a command line, given in this folder about the same model, that wrote `package`;
    None without one.
    """
    from gnomon.models.load import load

    digest = load(Path(model)).graph.digest
    return answers.asked_before(record_address(record), "place", words, Path.cwd(), digest, package=Path(package))


def profile(
    model: PathLike,
    *,
    inside: bool = False,
    for_s: float | None = None,
    every_s: float | None = None,
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] | None = None,
    **options: Unpack[Options],
) -> Profile:
    """Measure a model whole on every runtime and backend that takes it, end to end and per operator.

    With `inside`, kernels of several operators are cut out and measured in parts, within `budget_s`: prices derived.
    With `for_s` one process of each configuration is then called for so many seconds, with `every_s` as well once in
    so many. Several sizes of a dimension, or several files of an input, give a `Sweep`. Raises GnomonError; what was
    measured until then is kept, and the same call goes on from there.
    """
    from gnomon.jobs.place.sustained import Sustain

    if every_s is not None and for_s is None:
        raise UsageError("a pace needs a time to keep it for", hint="Give --for 10min as well; for_s from Python.")
    if len(parts := parts_of(options)) > 1:
        how: dict[str, Any] = {"inside": inside, "for_s": for_s, "every_s": every_s}
        how |= {"on_progress": on_progress, "on_message": on_message}
        return cast("Profile", _sweep(model, parts, lambda values, own: profile(model, **how, **own), on_message))
    asked = None if for_s is None else Sustain(for_s=for_s, every_s=every_s)
    request = model_request(model, options, sweeps=True, usual=True, limited=True)
    found = job.profile(request, inside=inside, asked=asked, watch=on_progress, tell=on_message)
    answers.keep(found.document(), on_message)
    return found
