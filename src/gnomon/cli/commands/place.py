"""`gnomon place`, on one device or several, and `gnomon profile`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from gnomon.cli.help import command
from gnomon.cli.main import write_answer
from gnomon.cli.options import html_option, measuring_options, options_of
from gnomon.cli.values import Span


@command(short_help="Find the fastest way to run a model here, prove it, and write it as a package.")
@measuring_options
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where the package goes.  [default: ./MODEL.gnomon]",
)
@click.option("--overwrite", is_flag=True, help="Replace a package that is there already.")
@click.option(
    "--no-package",
    "package",
    is_flag=True,
    default=True,
    flag_value=False,
    help="Keep no package: it is written, proved and removed.",
)
@click.option(
    "--no-profile",
    "measure",
    is_flag=True,
    default=True,
    flag_value=False,
    help="Measure nothing: decide again from what the results database holds of this model on this device.",
)
@click.option("--no-picture", "picture", is_flag=True, default=True, flag_value=False, help="Draw no picture.")
@html_option
def place(
    model: Path,
    out: Path | None,
    overwrite: bool,
    package: bool,
    measure: bool,
    picture: bool,
    html: Path | None,
    as_json: bool,
    quiet: bool,
    **values: Any,
) -> int:
    """Find the fastest way to run MODEL on a device, prove it, and write it as a package.

    MODEL is an .onnx, .tflite, .circle, .xml, .pte or .pt2 file, or an nnpackage folder. Every runtime that takes it is
    measured whole; where mixing backends can pay, a plan is solved for and measured against them. Several --device are
    placed on side by side. After an interruption the same command resumes.
    """
    if len(dict.fromkeys(values["devices"])) > 1:
        if not package:
            raise click.UsageError("--no-package is of one --device; several keep their packages below --out")
        asked = Asked(
            out=out, overwrite=overwrite, measure=measure, picture=picture, html=html, as_json=as_json, quiet=quiet
        )
        return place_several(model, asked, values)
    from gnomon.api import place as api
    from gnomon.api.options import package_path
    from gnomon.cli.pictures import draw
    from gnomon.cli.progress import Show
    from gnomon.jobs.place.document import answers_of, worst_code

    destination = out or package_path(model)
    if destination.exists() and package and measure and not (overwrite or values["fresh"]):
        words = click.get_current_context().find_root().obj
        words = words if isinstance(words, tuple) else ()
        before = api.placed_before(model, words, destination, record=values["record"])
        if before is not None:
            write_answer(before, as_json=as_json, html=html, own_record=values["record"] is not None)
            if not as_json:
                click.echo("gnomon: this was found before; --overwrite (or --fresh) measures again", err=True)
            return worst_code(before)
    with Show(quiet=quiet) as show:
        options = options_of(values)
        found = api.place(
            model,
            out=out,
            overwrite=overwrite,
            package=package,
            measure=measure,
            on_progress=show.watch,
            on_message=show.tell,
            **options,
        )
        document = found.document()
        for own in answers_of(document):
            if picture and own["package"] is not None:
                own["pictures"] = draw(own, Path(own["package"]), show.tell)
    write_answer(document, as_json=as_json, html=html, own_record=values["record"] is not None)
    return worst_code(document)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What `gnomon place` was asked beside the options of measuring."""

    out: Path | None
    overwrite: bool
    measure: bool
    picture: bool
    html: Path | None
    as_json: bool
    quiet: bool


def place_several(model: Path, asked: Asked, values: dict[str, Any]) -> int:
    """Place the model on every device of `values["devices"]` at once, and show what each gave; the exit code."""
    from gnomon.api import place as api
    from gnomon.cli.pictures import draw
    from gnomon.cli.progress import ShowFleet
    from gnomon.devices.opening import resolve
    from gnomon.jobs.place.document import fleet_document

    names = tuple(dict.fromkeys(values["devices"]))
    with ShowFleet([resolve(name).name for name in names], quiet=asked.quiet) as show:
        found = api.place_on(
            model,
            names,
            out=asked.out,
            overwrite=asked.overwrite,
            measure=asked.measure,
            on_progress=show.watch_of,
            on_message=show.tell,
            **options_of(values, names[0]),
        )
        document = fleet_document(found)
        for device, result in zip(document["devices"], found.results, strict=True):
            if asked.picture and result.placement is not None and result.placement.package is not None:
                own = device["placement"]
                own["pictures"] = draw(own, result.placement.package, partial(show.tell, result.name))
    write_answer(document, as_json=asked.as_json, html=asked.html)
    return found.exit_code


@command(short_help="Measure a model whole on every backend, end to end and per operator.")
@measuring_options
@click.option(
    "--inside",
    is_flag=True,
    help="Take kernels of several operators apart: cut out and measured in parts, for at most --budget, as derived "
    "prices.",
)
@click.option(
    "--for",
    "for_s",
    type=Span(),
    metavar="10min",
    help="Then run each configuration for this long in a fresh process, and report when it became slower.",
)
@click.option(
    "--every",
    "every_s",
    type=Span(),
    metavar="33ms",
    help="With --for: call at this pace, as the application does, and count the calls that come too late.",
)
@click.option(
    "--beside",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="MODEL",
    help="Measure this model too, taking turns, and compare MODEL with it: in 30 processes each, unless --processes "
    "gives another number. May be repeated; the others are compared with the first.",
)
@html_option
def profile(
    model: Path,
    beside: tuple[Path, ...],
    inside: bool,
    for_s: float | None,
    every_s: float | None,
    html: Path | None,
    as_json: bool,
    quiet: bool,
    **values: Any,
) -> int:
    """Measure MODEL whole on every runtime and backend that takes it, end to end and per operator.

    MODEL is an .onnx, .tflite, .circle, .xml, .pte or .pt2 file, or an nnpackage folder.
    """
    from gnomon.api import place as api
    from gnomon.cli.progress import Show
    from gnomon.jobs.place.document import worst_code

    if beside:
        if inside or for_s is not None:
            raise click.UsageError("--beside compares models; it goes without --inside and --for.")
        _compared((*beside, model), html, as_json, quiet, values)
        return 0
    with Show(quiet=quiet) as show:
        found = api.profile(
            model,
            inside=inside,
            for_s=for_s,
            every_s=every_s,
            on_progress=show.watch,
            on_message=show.tell,
            **options_of(values),
        )
    document = found.document()
    write_answer(document, as_json=as_json, html=html, own_record=values["record"] is not None)
    return worst_code(document)


def _compared(models: tuple[Path, ...], html: Path | None, as_json: bool, quiet: bool, values: dict[str, Any]) -> None:
    from gnomon.api.compare import compare_models
    from gnomon.cli.progress import Show

    with Show(quiet=quiet) as show:
        found = compare_models(*models, on_progress=show.watch, on_message=show.tell, **options_of(values))
    write_answer(found.document(), as_json=as_json, html=html)
