"""`gnomon suite run`: many models on many devices by several jobs."""

from __future__ import annotations

from typing import Any

import click

from gnomon.api.suite import run_suite
from gnomon.cli.declared import HTML, JSON, MARKDOWN, QUIET, declared_by
from gnomon.cli.help import command
from gnomon.cli.options import declared_options
from gnomon.cli.output import answering
from gnomon.errors import GATE_FAILED


@command("run")
@declared_options(*declared_by(run_suite), JSON, QUIET, HTML, MARKDOWN)
@answering
def run(*, quiet: bool, **values: Any) -> Any:
    """Run the SUITE of a file: each job for each model on each device, with one cell at a time on a device.

    After an interruption, the same command resumes and measures nothing twice. The exit code is 0 if all cells are
    done, and 1 if a cell failed or is waiting.
    """

    def tell(device: str, sentence: str) -> None:
        if not quiet:
            click.echo(f"{device}: {sentence}", err=True)

    suite_run = run_suite(on_message=tell, **values)
    return suite_run, 0 if suite_run.whole else GATE_FAILED
