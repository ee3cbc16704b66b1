"""`gnomon place`, on one device or several, and `gnomon profile`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnomon.cli.help import command
from gnomon.cli.main import answering, showing
from gnomon.cli.options import html_option, measuring_options, package_options
from gnomon.cli.values import span


@command(short_help="Find the fastest way to run a model here, prove it, and write it as a package.")
@measuring_options(several=True)
@package_options
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
@answering
def place(*, model: Path, devices: tuple[str, ...], quiet: bool, **values: Any) -> Any:
    """Find the fastest way to run MODEL on a device, prove it, and write it as a package.

    MODEL is an .onnx, .tflite, .circle, .xml, .pte or .pt2 file, or an nnpackage folder. Every runtime that takes it is
    measured whole; where mixing backends can pay, a plan is solved for and measured against them. Several --device are
    placed on side by side. After an interruption the same command resumes.
    """
    from gnomon.api import place as api
    from gnomon.cli.progress import Show
    from gnomon.devices.opening import resolve

    names = tuple(dict.fromkeys(devices))
    with Show(quiet=quiet, names=[resolve(name).name for name in names] if len(names) > 1 else ()) as show:
        return api.place(model, devices=names, on_progress=show.on_progress, on_message=show.on_message, **values)


@command(short_help="Measure a model whole on every backend, end to end and per operator.")
@measuring_options()
@click.option(
    "--inside",
    is_flag=True,
    help="Take kernels of several operators apart: cut out and measured in parts, for at most --budget, as derived "
    "prices.",
)
@click.option(
    "--for",
    "for_s",
    type=span,
    metavar="10min",
    help="Then run each configuration for this long in a fresh process, and report when it became slower.",
)
@click.option(
    "--every",
    "every_s",
    type=span,
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
@answering
@showing()
def profile(
    *, model: Path, beside: tuple[Path, ...], inside: bool, for_s: float | None, every_s: float | None, **values: Any
) -> Any:
    """Measure MODEL whole on every runtime and backend that takes it, end to end and per operator.

    MODEL is an .onnx, .tflite, .circle, .xml, .pte or .pt2 file, or an nnpackage folder.
    """
    if not beside:
        from gnomon.api.place import profile as profile_model

        return profile_model(model, inside=inside, for_s=for_s, every_s=every_s, **values)
    if inside or for_s is not None:
        raise click.UsageError("--beside compares models; it goes without --inside and --for.")
    from gnomon.api.compare import compare_models

    return compare_models(*beside, model, **values)
