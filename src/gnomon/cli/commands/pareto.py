"""`gnomon pareto`, and `gnomon oplist`: the operators that it chooses backends for."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from click.core import ParameterSource

from gnomon.cli.help import command
from gnomon.cli.main import write_answer, write_json, write_report
from gnomon.cli.options import html_option, measuring_options, options_of, unique
from gnomon.cli.values import BoundValue, TuningValue
from gnomon.errors import MeasurementError

if TYPE_CHECKING:
    from gnomon.api.pareto import ParetoOptions


_OF_DUMPS = frozenset(
    {
        *("source", "codes", "objectives", "strategies", "iterations", "seed", "dumpfile", "picture"),
        *("html", "as_json", "quiet", "measure"),
        *("pick", "under", "counters"),  # the job says why not
    }
)
"""The options that may stand beside --from."""


class _ObjectiveOption(click.Option):
    """An option whose help names the objectives, which are not imported before it is asked for."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """See `click.Option.get_help_record`."""
        from gnomon.session.objectives import goal_names

        self.help = f"{', '.join(goal_names())}. May be repeated.  [default: latency and peak-memory]"
        return super().get_help_record(ctx)


_MODEL_OR_DUMP = click.argument("model", type=click.Path(path_type=Path), required=False)


@command(short_help="Find the front of latency, peak memory and other objectives, and prove it.")
@partial(measuring_options, model=_MODEL_OR_DUMP)
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
    type=TuningValue(),
    metavar="NAME[=VALUE,VALUE]",
    help="Choose among the values of a runtime's option, such as planner, executor, threads=1,2, optimise, precision.",
)
@click.option(
    "--search",
    "strategies",
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
    type=BoundValue(),
    metavar="OBJECTIVE=80MB",
    help="Write the package of the fastest point under this bound. May be repeated.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where the package goes.  [default: ./MODEL.gnomon]",
)
@click.option("--overwrite", is_flag=True, help="Replace a package that is there already.")
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
@click.option("--codes", metavar="NAME,NAME", help="With --from: the backends of the digits, that of 0 first.")
@html_option
def pareto(
    model: Path | None,
    measure: bool,
    picture: Path | None,
    html: Path | None,
    as_json: bool,
    quiet: bool,
    **values: Any,
) -> int:
    """Find the assignments of MODEL's operators to backends that nothing else beats in every objective.

    Each assignment is run whole, in a process of its own. What the search finds best is measured again side by side,
    and dropped from the front only where the difference exceeds the noise. After an interruption the same command
    resumes; with more --iterations it searches on. --pick or --under then writes a point as a package and verifies it.
    """
    from gnomon.api import pareto as api
    from gnomon.cli.pictures import draw_pareto
    from gnomon.cli.progress import Show
    from gnomon.jobs.pareto.document import pareto_document

    if (model is None) == (values["source"] is None):
        raise click.UsageError("give either MODEL or --from DUMP")
    _check_parts(of_dump=model is None)
    own_record = values["record"] is not None
    out, overwrite = values.pop("out"), values.pop("overwrite")
    asked = _asked(model, values)
    with Show(quiet=quiet) as show:
        found = api.pareto(
            model, out=out, overwrite=overwrite, measure=measure, on_progress=show.watch, on_message=show.tell, **asked
        )
        document = pareto_document(found)
        to = picture or (found.package / "front" if found.package else None)
        if to is not None:
            document["pictures"] = draw_pareto(document, to, show.tell)
    write_answer(document, as_json=as_json, html=html, own_record=own_record)
    refused = found.verified is not None and not (found.verified.ok or found.verified.skipped)
    return MeasurementError.exit_code if refused else found.exit_code


def _check_parts(*, of_dump: bool) -> None:
    """UsageError for an option that says nothing of what is searched, which would be left out in silence."""
    context = click.get_current_context()
    for option in context.command.params:
        given = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if given and of_dump and option.name not in _OF_DUMPS:
            raise click.UsageError(f"{option.opts[0]} says nothing of a dump: leave it out, or give MODEL")
        if given and not of_dump and option.name == "codes":
            raise click.UsageError("--codes names the digits of a dump: give --from DUMP")


def _asked(model: Path | None, values: dict[str, Any]) -> ParetoOptions:
    own = {name: values.pop(name) for name in ("source", "objectives", "counters", "iterations", "pick", "dumpfile")}
    own |= {"search": values.pop("strategies"), "codes": (values.pop("codes") or "").split(",")}
    if own["codes"] == [""]:
        own["codes"] = []
    for option, name in (("--option", "tunings"), ("--under", "under")):
        own[name] = unique(option, values.pop(name))
    by = values.pop("by")
    if model is None:
        own = {name: value for name, value in own.items() if name != "tunings"} | {"seed": values["seed"]}
    else:
        own |= {"by": by, **options_of(values)}
    return cast("ParetoOptions", own)


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
@click.option("--json", "as_json", is_flag=True, help="One JSON document on the standard output.")
def oplist(model: Path, backends: str, as_json: bool, **values: Any) -> None:
    """Show what the digits of MODEL's integer codes mean, how many codes there are, and what a code means.

    With --out this is written as pareto_profiler of ONE reads it: by type {"oplist"}, else {"opmap", "oplist",
    "opname_by_indx"}. The order is that of the model, so that a code means the same every time.
    """
    from gnomon.api import pareto as api

    found = api.oplist(model, backends=backends.split(","), **values).document()
    if as_json:
        write_json(found)
        return
    from gnomon.jobs.pareto.report import oplist_report

    write_report(oplist_report, found)
