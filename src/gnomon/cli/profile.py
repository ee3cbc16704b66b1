"""`gnomon profile`."""

from __future__ import annotations

from typing import Any

import click

from gnomon.cli.measuring import measuring_options, request_of
from gnomon.cli.output import write_json


@click.command(short_help="Measure a model whole on every backend, end to end and per operator.")
@measuring_options
def profile(as_json: bool, quiet: bool, **values: Any) -> None:
    """Measure MODEL whole on every runtime and backend that takes it, end to end and per operator.

    MODEL is an .onnx, .tflite or .circle file, or an nnpackage folder.
    """
    from gnomon.cli.profile_document import profile_document
    from gnomon.cli.progress import Show
    from gnomon.jobs.profile import profile as job
    from gnomon.store.sqlite import default_path

    request = request_of(values)
    with Show(quiet=quiet) as show:
        found = job(request, watch=show.watch, tell=show.tell)
    document = profile_document(found, request.record or default_path())
    if as_json:
        write_json(document)
    else:
        from gnomon.report.profile_text import profile_report
        from gnomon.report.text import Page

        profile_report(document, Page())
