"""`gnomon solve`."""

from __future__ import annotations

import click

from gnomon.cli.output import write_json
from gnomon.cli.reading import read_problem_bytes
from gnomon.cli.values import Seconds, WeightsValue


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

    report = solve_problem(read_problem_bytes(problem), weights, method=method, time_limit_s=time_limit_s)
    if as_json:
        write_json(report.document())
    else:
        from gnomon.report.small_text import solve_report
        from gnomon.report.text import Page

        solve_report(report.document(), Page())
