"""`gnomon suite`: many models on many devices by several jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gnomon.cli.help import command, group
from gnomon.cli.main import answering
from gnomon.cli.options import comparing_options, html_option, json_option
from gnomon.cli.values import RECORD
from gnomon.errors import GATE_FAILED

if TYPE_CHECKING:
    from gnomon.store.address import RecordAddress

_FILE = click.Path(dir_okay=False, path_type=Path)


@group(short_help="Many models on many devices by several jobs: run, look, compare.")
def suite() -> None:
    """Measure many models on many devices by several jobs, from one file, and compare one run with another."""


@command("run", short_help="Run the suite of a file, or resume it.")
@click.argument("file", metavar="SUITE", type=_FILE)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where tables and libraries go.  [default: ./NAME.suite]",
)
@click.option(
    "--cluster",
    metavar="ADDRESS",
    help="Measure on the workers of a Dask cluster: its scheduler, tcp://HOST:PORT. Each worker has a resource "
    "gnomon-NAME for each of its devices.",
)
@click.option(
    "--reconnect-timeout",
    "wait_s",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    metavar="S",
    help="How long a device may be without a worker of the cluster that has it.  [default: 600]",
)
@RECORD
@click.option("--fresh", is_flag=True, help="Start a new run, also where one was interrupted.")
@json_option
@click.option("--quiet", is_flag=True, help="Say nothing while it runs.")
@html_option
@answering
def run(*, file: Path, quiet: bool, **values: Any) -> Any:
    """Run the SUITE of a file: each model on each device by each job, one cell at a time on a device.

    After any interruption the same command resumes, and measures nothing twice. The exit code is 0
    where every cell is done, and 1 where one failed or waits.
    """
    from gnomon.api.suite import run_suite

    def tell(device: str, sentence: str) -> None:
        if not quiet:
            click.echo(f"{device}: {sentence}", err=True)

    suite_run = run_suite(file, on_message=tell, **values)
    return suite_run, 0 if suite_run.whole else GATE_FAILED


@command(short_help="Show how far the run of a suite is.")
@click.argument("name", metavar="[RUN]", default="last")
@RECORD
@json_option
@html_option
@answering
def status(*, name: str, record: RecordAddress | None) -> Any:
    """Show the cells of a RUN: its id or how that begins, last, or last~1. It may be running."""
    from gnomon.api.suite import suite_status

    return suite_status(name, record=record)


@command(short_help="Compare two runs of a suite, cell by cell.")
@click.argument("before", metavar="[RUN]", default="last~1")
@click.argument("after", metavar="[RUN]", default="last")
@comparing_options
@RECORD
@json_option
@html_option
@answering
def compare(*, before: str, after: str, fail_slower: float | None, **values: Any) -> Any:
    """Compare the cells of place and profile that two RUNs of a suite have in common, as gnomon compare does."""
    from gnomon.api.suite import compare_suites

    compared = compare_suites(before, after, **values)
    return compared, compared.gate(fail_slower)


for one in (run, status, compare):
    suite.add_command(one)
