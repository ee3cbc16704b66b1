"""`gnomon solve` and `gnomon front`: problems whose prices are given."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from gnomon.cli.help import command
from gnomon.cli.main import answering
from gnomon.cli.options import html_option, json_option
from gnomon.cli.values import read_problem_bytes, seconds, weights

if TYPE_CHECKING:
    from gnomon.core.front.front import Front


@command(short_help="Solve a placement problem that is given as JSON.")
@click.argument("problem", type=click.Path(allow_dash=True, path_type=str))
@click.option(
    "--weights",
    type=weights,
    metavar="NAME=1,NAME=0.1",
    help="Weight of each objective; a single one needs none.",
)
@click.option(
    "--method",
    type=click.Choice(["auto", "elimination", "milp"]),
    default="auto",
    show_default=True,
    help="How to solve: by elimination, as a mixed-integer program, or whichever fits.",
)
@click.option(
    "--time-limit",
    "time_limit_s",
    type=seconds,
    default=60.0,
    show_default=True,
    help="Seconds after which it ends with the best solution found and the bound proved.",
)
@json_option
@html_option
@answering
def solve(*, problem: str, weights: dict[str, float] | None, **values: Any) -> Any:
    """Find an assignment of least cost for PROBLEM, a file of docs/formats/problem-json.md, or - for stdin."""
    from gnomon.api import solve as api

    return api.solve(read_problem_bytes(problem), weights, **values)


@command(short_help="Find the Pareto front of a placement problem that is given as JSON.")
@click.argument("problem", type=click.Path(allow_dash=True, path_type=str))
@click.option(
    "--epsilon",
    type=click.FloatRange(min=0.0, max=10.0),
    default=0.0,
    show_default=True,
    help="Points that are at most this share more expensive than any other suffice: 0.01 for 1 %.",
)
@click.option(
    "--time-limit",
    "time_limit_s",
    type=seconds,
    default=60.0,
    show_default=True,
    help="Seconds after which the search ends with what it has found and proved.",
)
@json_option
@html_option
@answering
def front(*, problem: str, **values: Any) -> Any:
    """Find the best trade-offs between the objectives of PROBLEM, as docs/formats/problem-json.md, or - for stdin."""
    from gnomon.api import solve as api

    watch = _shown() if sys.stderr.isatty() else None
    return api.front(read_problem_bytes(problem), on_progress=watch, **values)


def _shown() -> Callable[[Front], None]:
    """Writes a line about each front on the way to the standard error."""
    from gnomon.jobs.solve.report import proof

    begin = time.perf_counter()

    def show(front: Front) -> None:
        seconds = time.perf_counter() - begin
        told = f"{len(front)} trade-offs after {seconds:.2f} s: {proof(front.certificate.document())}"
        print(f"gnomon: {told}", file=sys.stderr, flush=True)

    return show
