"""`gnomon pareto`, and `gnomon oplist`: the operators that it chooses backends for."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from gnomon.cli.help import command
from gnomon.cli.main import answering, showing
from gnomon.cli.options import by_name, html_option, json_option, measuring_options, package_options
from gnomon.cli.values import bound, tuning


class _ObjectiveOption(click.Option):
    """An option whose help names the objectives, which are not imported before it is asked for."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """See `click.Option.get_help_record`."""
        from gnomon.api.objectives import objective_names

        self.help = f"{', '.join(objective_names())}. May be repeated.  [default: latency and peak-memory]"
        return super().get_help_record(ctx)


_MODEL_OR_DUMP = click.argument("model", type=click.Path(path_type=Path), required=False)


@command(short_help="Find the front of latency, peak memory and other objectives, and prove it.")
@measuring_options(model=_MODEL_OR_DUMP)
@click.option(
    "--from",
    "source",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="DUMP",
    help="Search what a dump of pareto_profiler holds, in place of a model and a device.",
)
@click.option(
    "--objective",
    "objectives",
    multiple=True,
    metavar="NAME",
    cls=_ObjectiveOption,
)
@click.option(
    "--energy-counter",
    "counters",
    multiple=True,
    metavar="NAME",
    help="With --objective energy: the counter to add up, as `gnomon devices check` names it. May be repeated.  "
    "[default: those of the whole machine]",
)
@click.option(
    "--by",
    type=click.Choice(["type", "group", "operator"]),
    default="type",
    show_default=True,
    help="What shares one backend: the operators of a type, of a type and data size, or each operator by itself.",
)
@click.option(
    "--option",
    "tunings",
    multiple=True,
    type=tuning,
    callback=by_name,
    metavar="NAME[=VALUE,VALUE]",
    help="Choose among the values of a runtime's option, such as planner, executor, threads=1,2, optimise, precision.",
)
@click.option(
    "--search",
    multiple=True,
    metavar="NAME",
    help="brute, random, hlps, nsga2, or exact (from prices that add up). May be repeated, to compare them.  "
    "[default: hlps]",
)
@click.option(
    "--iterations",
    type=click.IntRange(1, 10**7),
    metavar="N",
    help="Evaluations of each search.  [default: 100; brute: the whole space]",
)
@click.option("--pick", type=click.IntRange(1), metavar="N", help="Write the package of this point of the front.")
@click.option(
    "--under",
    multiple=True,
    type=bound,
    callback=by_name,
    metavar="OBJECTIVE=80MB",
    help="Write the package of the fastest point under this bound. May be repeated.",
)
@package_options
@click.option(
    "--dumpfile",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write what was measured as a dump of pareto_profiler.",
)
@click.option(
    "--picture",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Draw the front to PATH.svg and PATH.png.  [default: into the package, where one is written]",
)
@click.option(
    "--no-profile",
    "measure",
    is_flag=True,
    default=True,
    flag_value=False,
    help="Measure nothing: search what the results database holds of this model on this device.",
)
@click.option(
    "--codes", metavar="NAME,NAME", default="", help="With --from: the backends of the digits, that of 0 first."
)
@html_option
@answering
@showing()
def pareto(*, model: Path | None, codes: str, picture: Path | None, measure: bool, **values: Any) -> Any:
    """Find the assignments of MODEL's operators to backends that nothing else beats in every objective.

    Each assignment is run whole, in a process of its own. What the search finds best is measured again side by side,
    and dropped from the front only where the difference exceeds the noise. After an interruption the same command
    resumes; with more --iterations it searches on. --pick or --under then writes a point as a package and verifies it.
    """
    from gnomon.api import pareto as api

    if (model is None) == (values["source"] is None):
        raise click.UsageError("give either MODEL or --from DUMP")
    values["codes"] = codes.split(",") if codes else []
    if model is None:
        known = api.OF_DUMPS | {"on_progress", "on_message"}
        _check_parts(known | {"picture", "html", "as_json", "quiet", "measure"})
        values = {name: value for name, value in values.items() if name in known}
    return api.pareto(model, picture=picture, measure=measure, **values)


def _check_parts(of_dumps: Set[str]) -> None:
    """UsageError for an option that says nothing of a dump, which would be left out in silence."""
    context = click.get_current_context()
    for option in context.command.params:
        given = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if given and option.name not in of_dumps:
            raise click.UsageError(f"{option.opts[0]} says nothing of a dump: leave it out, or give MODEL")


@command(short_help="Show what the digits of a model's codes mean, and write ONE's oplist.json.")
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
@json_option
@answering
def oplist(*, model: Path, backends: str, **values: Any) -> Any:
    """Show what the digits of MODEL's integer codes mean, how many codes there are, and what a code means.

    With --out this is written as pareto_profiler of ONE reads it: by type {"oplist"}, else {"opmap", "oplist",
    "opname_by_indx"}. The order is that of the model, so that a code means the same every time.
    """
    from gnomon.api import pareto as api

    return api.oplist(model, backends=backends.split(","), **values)
