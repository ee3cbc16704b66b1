"""`gnomon suite run`: many models on many devices by several jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnomon.cli.help import command
from gnomon.cli.options import html_option, json_option, record_option
from gnomon.cli.output import answering
from gnomon.errors import GATE_FAILED

_FILE = click.Path(dir_okay=False, path_type=Path)


@command("run")
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
@record_option
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
