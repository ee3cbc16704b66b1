"""`gnomon place`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnomon.cli.measuring import measuring_options, options_of
from gnomon.cli.output import write_json


@click.command(short_help="Find the fastest way to run a model here, prove it, and write it as a package.")
@measuring_options
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where the package goes.  [default: ./MODEL.gnomon]",
)
@click.option("--overwrite", is_flag=True, help="Replace a package that is there already.")
@click.option(
    "--no-profile",
    "measure",
    is_flag=True,
    default=True,
    flag_value=False,
    help="Measure nothing: decide again from what the record holds of this model on this device.",
)
@click.option("--no-picture", "picture", is_flag=True, default=True, flag_value=False, help="Draw no picture.")
def place(
    model: Path,
    out: Path | None,
    overwrite: bool,
    measure: bool,
    picture: bool,
    as_json: bool,
    quiet: bool,
    **values: Any,
) -> None:
    """Find the fastest way to run MODEL on a device, prove it, and write it as a package.

    MODEL is an .onnx, .tflite or .circle file, or an nnpackage folder. Every runtime that takes it is measured
    whole; where mixing backends can pay, a plan is solved for and measured against them. Interrupted? The same
    command goes on from there.
    """
    if len(dict.fromkeys(values["devices"])) > 1:
        from gnomon.cli.fleet import Asked, place_several

        asked = Asked(out=out, overwrite=overwrite, measure=measure, picture=picture, as_json=as_json, quiet=quiet)
        place_several(model, asked, values)
        return
    from gnomon import api
    from gnomon.cli.pictures import draw
    from gnomon.cli.place_document import place_document
    from gnomon.cli.progress import Show
    from gnomon.store.sqlite import default_path

    with Show(quiet=quiet) as show:
        options = options_of(values)
        found = api.place(
            model, out=out, overwrite=overwrite, measure=measure, watch=show.watch, tell=show.tell, **options
        )
        document = place_document(found, values["record"] or default_path())
        if picture:
            document["pictures"] = draw(document, found.package, show.tell)
    if as_json:
        write_json(document)
    else:
        from gnomon.report.place_text import place_report
        from gnomon.report.text import Page

        place_report(document, Page(), own_record=values["record"] is not None)
