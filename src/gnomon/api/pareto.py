"""`gnomon pareto` and `gnomon oplist` as functions: fronts of several objectives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack, cast

from gnomon.api.options import (
    Model,
    OldRecords,
    Options,
    Overwrite,
    Package,
    PathLike,
    model_request,
)
from gnomon.api.pictures import draw
from gnomon.core.cost import OPERATORS, SWITCHES
from gnomon.core.graph import By
from gnomon.errors import UsageError
from gnomon.jobs.pareto import job
from gnomon.jobs.pareto.document import ParetoDocument
from gnomon.jobs.pareto.search import ParetoRequest, Plan
from gnomon.jobs.runs import answers
from gnomon.measure.progress import Watch
from gnomon.options import option
from gnomon.session.objectives import LATENCY, MEMORY, goal_names, goal_of
from gnomon.values import file, names, quantity

if TYPE_CHECKING:
    from gnomon.jobs.pareto.oplist import OplistDocument


def tuning(text: str) -> tuple[str, tuple[str, ...]]:
    """A setting of a runtime, with the values to try; no values mean the usual ones."""
    name, sign, rest = text.partition("=")
    values = tuple(part.strip() for part in rest.split(",")) if sign else ()
    if not name or (sign and not all(values)):
        raise ValueError(f"{text!r} is not a setting: give NAME or NAME=VALUE,VALUE")
    return name, values


def bound(text: str) -> tuple[str, float]:
    """An objective and its bound, in seconds, bytes, joules or without a unit. ValueError for an unsuitable unit."""
    name, _, rest = text.partition("=")
    if not name:
        raise ValueError(f"{text!r} names no objective: give OBJECTIVE=80MB")
    if name.partition(":")[0] in ("memory", OPERATORS, SWITCHES):
        instead = f"give {MEMORY}=80MB, or limit {name} with gnomon place MODEL --under {text}"
        raise ValueError(f"pareto measures whole processes: {instead}")
    try:
        return name, quantity(rest, goal_of(name).unit if name in goal_names() else None)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def process_memory(text: str) -> float:
    """The limit on the memory of a process, in bytes. ValueError for the memory of a choice, which `place` limits."""
    return bound(f"memory:{text}" if "=" in text else f"{MEMORY}={text}")[1]


def _objectives_help() -> str:
    return f"{', '.join(goal_names())}. May be repeated.  [default: latency and peak-memory]"


class ParetoOptions(Options, total=False):
    """Options for measuring and searching a front. Several searches in `search` are compared with each other."""

    source: Annotated[
        PathLike | None,
        option(
            "--from",
            read=file,
            metavar="DUMP",
            help="Search a dump of pareto_profiler, without a device.",
        ),
    ]
    codes: Annotated[
        Sequence[str],
        option(read=names, metavar="NAME,NAME", help="With --from: the backends of digits 0, 1, .."),
    ]
    objectives: Annotated[Sequence[str], option("--objective", repeat=True, metavar="NAME", help=_objectives_help)]
    counters: Annotated[
        Sequence[str],
        option(
            "--energy-counter",
            repeat=True,
            metavar="NAME",
            help="With --objective energy: a counter to add up, as named by `gnomon devices check`. May be "
            "repeated.  [default: the counters of the whole machine]",
        ),
    ]
    by: Annotated[
        By,
        option(
            default="type",
            help="The operators that share a backend: those of one type, those of one type and data size, or each "
            "operator alone.",
        ),
    ]
    tunings: Annotated[
        Mapping[str, Sequence[str]],
        option(
            "--tuning",
            repeat=True,
            read=tuning,
            metavar="NAME[=VALUE,VALUE]",
            help="Choose among the values of a runtime's setting, such as planner, executor, threads=1,2, optimise, "
            "precision.",
        ),
    ]
    search: Annotated[
        str | Sequence[str],
        option(
            repeat=True,
            metavar="NAME",
            help="brute, random, hlps, nsga2, or exact (from additive prices). Repeat the option to compare several.  "
            "[default: hlps]",
        ),
    ]
    iterations: Annotated[
        int | None,
        option(
            least=1, most=10**7, metavar="N", help="Evaluations of each search.  [default: 100; brute: the whole space]"
        ),
    ]
    pick: Annotated[int | None, option(least=1, metavar="N", help="Write the package of this point of the front.")]
    under: Annotated[
        Mapping[str, float],
        option(
            repeat=True,
            read=bound,
            metavar="OBJECTIVE=80MB",
            help="Write the package of the fastest point under this bound. May be repeated.",
        ),
    ]
    memory: Annotated[
        float,
        option("--memory", read=process_memory, metavar="80MB", help=f"The same as --under {MEMORY}=80MB."),
    ]
    dumpfile: Annotated[
        PathLike | None, option(read=file, metavar="FILE", help="Write the measurements as a dump of pareto_profiler.")
    ]


_PARETO_ALONE = ParetoOptions.__annotations__.keys() - Options.__annotations__.keys()
_OF_DUMPS = (_PARETO_ALONE | {"seed"}) - {"by", "tunings"}
"""The options that apply to a dump."""


def pareto(
    model: Model | None = None,
    *,
    out: Package = None,
    overwrite: Overwrite = False,
    measure: OldRecords = True,
    picture: Annotated[
        PathLike | None,
        option(
            metavar="PATH",
            help="Draw the front to PATH.svg and PATH.png.  [default: into the package, if one is written]",
        ),
    ] = None,
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] | None = None,
    **options: Unpack[ParetoOptions],
) -> ParetoDocument:
    """Find the assignments of MODEL's operators to backends that no other assignment beats in every objective.

    Each assignment is run as a whole in a separate process. The best ones are measured again side by side, and one is
    dropped from the front only if another beats it by more than the noise.

    After an interruption, the same command resumes; with more --iterations, it continues the search. --pick or --under
    then writes a point as a package and verifies the package.

    Raises GnomonError. Measurements until then are kept, and the same call continues.
    """
    request = pareto_request(model, options, out=out, overwrite=overwrite, measure=measure)
    front = job.pareto(request, watch=on_progress, tell=on_message)
    to = Path(picture) if picture is not None else Path(front.package) / "front" if front.package else None
    if to is not None:
        front = replace(front, pictures=tuple(draw(front.charts_by, front, to, on_message)))
    if front.record is not None:
        answers.keep(front.document(), on_message)
    return front


def pareto_request(
    model: PathLike | None,
    options: ParetoOptions,
    *,
    out: PathLike | None = None,
    overwrite: bool = False,
    measure: bool = True,
) -> ParetoRequest:
    """The request for these options; see `model_request`. UsageError also for options that do not apply to a dump."""
    of_package = {"out": out is not None, "overwrite": overwrite}
    named = options.keys() | {name for name, is_given in of_package.items() if is_given}
    strange = sorted(named - _OF_DUMPS) if model is None else []
    if strange:
        raise UsageError(f"{strange[0]} does not apply to a dump", hint=f"Leave out {strange[0]}, or give a model.")
    how = cast(Options, {name: value for name, value in options.items() if name not in _PARETO_ALONE})
    request = None if model is None else model_request(model, how, measure=measure, limited=True)
    source, dumpfile = options.get("source"), options.get("dumpfile")
    counted = how.get("threads") or "threads" in options.get("tunings", {}) or dumpfile is not None
    names = options.get("search") or "hlps"
    plan, *others = [
        Plan(name=name, seed=options.get("seed", 0), iterations=options.get("iterations"))
        for name in ([names] if isinstance(names, str) else names)
    ]
    return ParetoRequest(
        request=request,
        source=None if source is None else Path(source),
        backends=tuple(options.get("codes", ())),
        objectives=tuple(options.get("objectives") or (LATENCY, MEMORY)),
        counters=tuple(options.get("counters", ())),
        by=options.get("by", "type"),
        options={name: tuple(values) for name, values in options.get("tunings", {}).items()},
        all_cores=not counted and request is not None and request.device.threads is None,
        plan=plan,
        others=tuple(others),
        pick=options.get("pick"),
        under={**options.get("under", {}), **({MEMORY: options["memory"]} if "memory" in options else {})},
        out=None if out is None else Path(out),
        overwrite=overwrite,
        dumpfile=None if dumpfile is None else Path(dumpfile),
    )


def oplist(
    model: Model,
    *,
    by: Annotated[
        By,
        option(help="What a digit stands for: an operator type, operators of one type and data size, or one operator."),
    ] = "type",
    backends: Annotated[
        Sequence[str],
        option(read=names, metavar="NAME,NAME", help="The backends of digits 0, 1, ..  [default: cpu,acl_cl]"),
    ] = ("cpu", "acl_cl"),
    out: Annotated[PathLike | None, option(read=file, metavar="FILE", help="Write the oplist to this file.")] = None,
) -> OplistDocument:
    """Show the meaning of the digits of MODEL's integer codes, the number of codes, and an example.

    --out writes the oplist for ONE's pareto_profiler: {"oplist"} by type, otherwise {"opmap", "oplist",
    "opname_by_indx"}. Slots are in the order of the model, so that a code always has the same meaning.

    Raises GnomonError.
    """
    from gnomon.jobs.pareto.oplist import oplist as oplist_job

    return oplist_job(Path(model), by=by, backends=backends, out=None if out is None else Path(out))
