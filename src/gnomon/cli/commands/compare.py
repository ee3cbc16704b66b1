"""`gnomon compare`: runs that were made at different times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnomon.cli.help import command
from gnomon.cli.main import answering
from gnomon.cli.options import comparing_options, html_option, json_option
from gnomon.cli.values import RECORD, complete_run

_PATH = click.Path(dir_okay=False, path_type=Path)


@command(short_help="Compare runs: what got faster, slower, or stayed the same.")
@click.argument("runs", metavar="RUN RUN...", nargs=-1, required=True, shell_complete=complete_run)
@comparing_options
@click.option("--junit", type=_PATH, metavar="FILE", help="Write JUnit XML: a test case a configuration.")
@click.option("--markdown", type=_PATH, metavar="FILE", help="Write a table in Markdown, for a pull request.")
@click.option("--action-benchmark", type=_PATH, metavar="FILE", help="Write what github-action-benchmark reads.")
@click.option("--bencher", type=_PATH, metavar="FILE", help="Write Bencher's metrics.")
@RECORD
@json_option
@html_option
@answering
def compare(*, runs: tuple[str, ...], fail_slower: float | None, **values: Any) -> Any:
    """Compare each later RUN with the first: every configuration, and every kernel that the runtime reports.

    A RUN is the id of a run (or how it begins; last; last~1: the one before), a file that --json wrote, a report in
    HTML, a package, or a results database, of which the newest run counts. Runs of other machines, governors,
    versions, shapes or inputs are not compared, nor are configurations of other threads, precision or options, unless
    --changed says that this is the change.
    """
    from gnomon.api.compare import compare as compare_runs

    files = {name: values.pop(name) for name in ("junit", "markdown", "action_benchmark", "bencher")}
    compared = compare_runs(*runs, **values)
    compared.write(files, fail_slower=fail_slower)
    return compared, compared.gate(fail_slower)
