"""`gnomon oplist`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gnomon.cli.output import write_json


@click.command(short_help="Show what the digits of a model's codes belong to, and write ONE's oplist.json.")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--by",
    type=click.Choice(["type", "group", "operator"]),
    default="type",
    show_default=True,
    help="What a digit is: an operator type, the operators of one type and data size, or one operator.",
)
@click.option(
    "--backends",
    metavar="NAME,NAME",
    default="cpu,acl_cl",
    show_default=True,
    help="The backends, that of digit 0 first.",
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write the oplist there.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on the standard output.")
def oplist(model: Path, backends: str, as_json: bool, **values: Any) -> None:
    """Show what the digits of integer codes of MODEL belong to, how many codes there are, and what one means.

    With --out this is written as pareto_profiler of ONE reads it: by type {"oplist"}, else {"opmap", "oplist",
    "opname_by_indx"}. The order is that of the model, so that a code means the same every time.
    """
    from gnomon.jobs.oplist import oplist as oplist_job

    found = oplist_job(model, backends=backends.split(","), **values).document()
    if as_json:
        write_json(found)
        return
    from gnomon.report.oplist_text import oplist_report
    from gnomon.report.text import Page

    oplist_report(found, Page())
