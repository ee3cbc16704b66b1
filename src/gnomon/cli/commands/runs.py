"""`gnomon runs`: what the record holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnomon.cli.main import write_json, write_lines

_RECORD = click.option(
    "--record",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The record of runs.  [default: the user's own]",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document on the standard output.")
_ID = click.argument("campaign", metavar="ID")


@click.group(invoke_without_command=True, short_help="List, show and export what was measured.")
@_RECORD
@_JSON
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", default=20, show_default=True, help="How many, the newest first."
)
@click.pass_context
def runs(ctx: click.Context, record: Path | None, as_json: bool, limit: int) -> None:
    """List, show and export what was measured. Without a subcommand: list.

    Nothing in the record is ever changed or removed; docs/record.md describes the file.
    """
    ctx.obj = {"record": record, "json": as_json}
    if ctx.invoked_subcommand is None:
        _list(record, as_json, limit)


@runs.command("list", short_help="List the campaigns, the newest first.")
@_RECORD
@_JSON
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", default=20, show_default=True, help="How many, the newest first."
)
@click.pass_obj
def list_(above: dict[str, Any], record: Path | None, as_json: bool, limit: int) -> None:
    """List the campaigns in the record, the newest first."""
    _list(record or above["record"], as_json or above["json"], limit)


@runs.command(short_help="Show one campaign.")
@_ID
@_RECORD
@_JSON
@click.option(
    "--clock", type=click.Choice(["wall", "cpu"]), default="wall", show_default=True, help="Which times to sum up."
)
@click.pass_obj
def show(above: dict[str, Any], campaign: str, record: Path | None, as_json: bool, clock: Any) -> None:
    """Show the campaign whose id begins with ID ("last": the newest)."""
    from gnomon.api.place import show_run

    detail = show_run(campaign, record=record or above["record"], clock=clock).document()
    if as_json or above["json"]:
        write_json({**detail, "clock": clock})
    else:
        from gnomon.jobs.solve.report import run_report
        from gnomon.report.page import Page

        run_report({**detail, "clock": clock}, Page())


@runs.command(short_help="Write one campaign in full, for other tools.")
@_ID
@_RECORD
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "csv"]),
    default="jsonl",
    show_default=True,
    help="jsonl: a JSON object a line, everything; csv: a row a sample.",
)
@click.pass_obj
def export(above: dict[str, Any], campaign: str, record: Path | None, form: Any) -> None:
    """Write the campaign whose id begins with ID ("last": the newest) to the standard output."""
    from gnomon.api.place import export_run

    write_lines(export_run(campaign, record=record or above["record"], form=form))


def _list(record: Path | None, as_json: bool, limit: int) -> None:
    from gnomon.api.place import runs as list_runs
    from gnomon.store.sqlite import default_path

    rows = [row.document() for row in list_runs(record=record, limit=limit + 1)]
    document = {"record": str(record or default_path()), "campaigns": rows[:limit], "more": len(rows) > limit}
    if as_json:
        write_json(document)
    else:
        from gnomon.jobs.solve.report import runs_report
        from gnomon.report.page import Page

        runs_report(document, Page())
