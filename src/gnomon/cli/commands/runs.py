"""`gnomon runs`: the runs in the results database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gnomon.cli.complete import complete_run
from gnomon.cli.help import command
from gnomon.cli.options import json_option, record_option
from gnomon.cli.output import end_report, report_page, write_json, write_lines
from gnomon.errors import GnomonError, RecordError, UsageError, system_errors
from gnomon.report.plain import clean

if TYPE_CHECKING:
    from gnomon.store.address import RecordAddress

_FILE_EACH = ("parquet", "perfetto", "netron")
_WRITTEN = ("files", *_FILE_EACH, "model-explorer")
"""The forms that are written to a path."""
_ID = click.argument("campaign", metavar="ID", shell_complete=complete_run)


@command()
@_ID
@record_option
@json_option
@click.option(
    "--clock", type=click.Choice(["wall", "cpu"]), default="wall", show_default=True, help="The clock to show."
)
def show(campaign: str, record: RecordAddress | None, as_json: bool, clock: Any) -> None:
    """Show the answer of the run whose id begins with ID ("last": the newest), and with -v its measurements."""
    from gnomon.api.runs import answer_of_run, show_run

    detail = show_run(campaign, record=record, clock=clock)
    if as_json:
        write_json(detail.document())
        return
    from gnomon.api.document import report_of
    from gnomon.jobs.runs.report import run_report

    answer, report = None, None
    trouble: GnomonError | None = None
    try:
        answer = answer_of_run(detail.row.campaign.id, record=record)
        report = report_of(answer) if answer else None
    except (RecordError, UsageError) as error:  # the measurements can still be shown
        trouble = error
    page = report_page()
    if answer is not None and report is not None:
        report(answer, page)
        with page.details("all configurations that ran, with their failures"):
            page.line("")
            run_report(detail, page)
    else:
        run_report(detail, page)
    if trouble is not None:
        page.item(f"Warning: {trouble.message}.", trouble.hint)
    end_report(page)


@command()
@_ID
@record_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "csv", "answer", *_WRITTEN]),
    default="jsonl",
    show_default=True,
    help="jsonl: everything, as a JSON object per line; csv: a row per sample; answer: the document of --json; "
    "files: the files that the job wrote; parquet: like csv; perfetto: a trace, also for chrome://tracing; "
    "model-explorer: node data, a file per configuration; netron: the ONNX file with times and backends at its nodes.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help=f"The path to write: a folder for files and model-explorer, a file for {', '.join(_FILE_EACH)}.",
)
@click.option(
    "--model",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The current path of the model, for --format netron.  [default: its path in the run]",
)
def export(campaign: str, record: RecordAddress | None, form: Any, out: Path | None, model: Path | None) -> None:
    """Write the run whose id begins with ID ("last": the newest) to the standard output, or to PATH.

    The files of a table, of a space's profile and of tuning are copied as the job left them.
    """
    from gnomon.api.runs import answer_of_run, export_run, export_run_as, export_run_files, no_answer

    if (form in _WRITTEN) != (out is not None):
        raise click.UsageError(f"--out PATH is required with --format {', '.join(_WRITTEN)}, and only with these")
    if model is not None and form != "netron":
        raise click.UsageError("--model FILE can only be used with --format netron")
    if form == "answer":
        answer = answer_of_run(campaign, record=record)
        if answer is None:
            raise no_answer()
        write_json(answer)
    elif out is not None:
        written = (
            export_run_files(campaign, out=out, record=record)
            if form == "files"
            else export_run_as(form, campaign, out=out, model=model, record=record)
        )
        write_lines(str(path) for path in written)
    else:
        write_lines(export_run(campaign, record=record, form=form))


@command()
@_ID
@record_option
def resume(campaign: str, record: RecordAddress | None) -> int:
    """Repeat the command of the run whose id begins with ID ("last": the newest).

    The command runs in its original folder, with the same options except --fresh, and measures nothing twice.
    """
    import os
    import shlex

    from gnomon.api.runs import command_of_run
    from gnomon.cli.main import run

    words, folder = command_of_run(campaign, record=record)
    with system_errors(
        RecordError, f"the command's folder {folder} cannot be entered", hint="Create the folder again."
    ):
        os.chdir(folder)
    click.echo(f"gnomon: in {clean(str(folder))}: gnomon {clean(shlex.join(words))}", err=True)
    return run(words)
