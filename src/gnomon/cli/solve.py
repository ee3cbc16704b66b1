"""`gnomon solve`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from gnomon.cli.output import write_json
from gnomon.cli.values import Seconds, WeightsValue
from gnomon.errors import ProblemError

_MOST_BYTES = 1 << 30


@click.command(short_help="Solve a placement problem that is given as JSON.")
@click.argument("problem", type=click.Path(allow_dash=True, path_type=str))
@click.option(
    "--weights", type=WeightsValue(), metavar="NAME=1,NAME=0.1", help="Weight of each objective; one alone needs none."
)
@click.option(
    "--method",
    type=click.Choice(["auto", "elimination", "milp"]),
    default="auto",
    show_default=True,
    help="How to solve: by elimination, as a mixed-integer program, or as fits.",
)
@click.option(
    "--time-limit",
    "time_limit_s",
    type=Seconds(),
    default=60.0,
    show_default=True,
    help="Seconds after which the mixed-integer program ends with the best found.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on the standard output.")
def solve(problem: str, weights: dict[str, float] | None, method: str, time_limit_s: float, as_json: bool) -> None:
    """Find an assignment of least cost for PROBLEM, a file of docs/problem-json.md, or - for the standard input."""
    from gnomon.jobs.solve import solve_problem

    report = solve_problem(_read(problem), weights, method=method, time_limit_s=time_limit_s)
    if as_json:
        write_json(report.document())
    else:
        from gnomon.report.small_text import solve_report
        from gnomon.report.text import Page

        solve_report(report.document(), Page())


def _read(problem: str) -> bytes:
    try:
        if problem == "-":
            found = sys.stdin.buffer.read(_MOST_BYTES + 1)
        else:
            with Path(problem).open("rb") as file:
                found = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ProblemError(
            f"the problem {problem} cannot be read: {error.strerror or error}", hint="Give a JSON file, or - for stdin."
        ) from error
    if len(found) > _MOST_BYTES:
        raise ProblemError(f"the problem {problem} is larger than 1 GiB", hint="Give a smaller problem.")
    return found
