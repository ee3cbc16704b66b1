"""`gnomon profile`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnomon.cli.measuring import measuring_options, options_of
from gnomon.cli.output import write_json


@click.command(short_help="Measure a model whole on every backend, end to end and per operator.")
@measuring_options
def profile(model: Path, as_json: bool, quiet: bool, **values: Any) -> None:
    """Measure MODEL whole on every runtime and backend that takes it, end to end and per operator.

    MODEL is an .onnx, .tflite or .circle file, or an nnpackage folder.
    """
    from gnomon import api
    from gnomon.cli.profile_document import profile_document
    from gnomon.cli.progress import Show
    from gnomon.store.sqlite import default_path

    with Show(quiet=quiet) as show:
        found = api.profile(model, watch=show.watch, tell=show.tell, **options_of(values))
    document = profile_document(found, values["record"] or default_path())
    if as_json:
        write_json(document)
    else:
        from gnomon.report.profile_text import profile_report
        from gnomon.report.text import Page

        profile_report(document, Page(), own_record=values["record"] is not None)
