"""`gnomon runs`: what the record holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gnomon.cli.main import write_json, write_lines

if TYPE_CHECKING:
    from gnomon.store.sqlite import SqliteStore

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
    from gnomon.jobs.runs.job import find_campaign, show_campaign, to_json

    with _store(record or above["record"]) as store:
        detail = to_json(show_campaign(store, find_campaign(store, campaign), clock=clock))
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
def export(above: dict[str, Any], campaign: str, record: Path | None, form: str) -> None:
    """Write the campaign whose id begins with ID ("last": the newest) to the standard output."""
    from gnomon.jobs.runs.job import export_csv, export_json_lines, find_campaign

    with _store(record or above["record"]) as store:
        found = [find_campaign(store, campaign)]
        write_lines(export_csv(store, found) if form == "csv" else export_json_lines(store, found))


def _list(record: Path | None, as_json: bool, limit: int) -> None:
    from gnomon.jobs.runs.job import list_campaigns, to_json

    with _store(record) as store:
        rows = [to_json(row) for row in islice(list_campaigns(store), limit + 1)]
        path = str(store.path)
    document = {"record": path, "campaigns": rows[:limit], "more": len(rows) > limit}
    if as_json:
        write_json(document)
    else:
        from gnomon.jobs.solve.report import runs_report
        from gnomon.report.page import Page

        runs_report(document, Page())


@contextmanager
def _store(record: Path | None) -> Iterator[SqliteStore]:
    """The record, which must be there where it was named: looking shall not make files of mistyped names."""
    from gnomon.errors import RecordError
    from gnomon.store.sqlite import SqliteStore

    if record is not None and not record.exists():
        raise RecordError(f"there is no record {record}", hint="Give the file that --record of a measurement named.")
    with SqliteStore.open(record) as store:
        yield store
