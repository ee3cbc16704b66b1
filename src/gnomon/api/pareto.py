"""Fronts of several objectives: what `gnomon pareto` and `gnomon oplist` do, as functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, cast

from gnomon.api.options import Options, PathLike, model_request, package_path
from gnomon.api.pictures import draw
from gnomon.core.graph import By
from gnomon.errors import UsageError
from gnomon.jobs.pareto import job
from gnomon.jobs.pareto.records import Pareto, ParetoRequest
from gnomon.jobs.pareto.search import Plan
from gnomon.jobs.runs import answers
from gnomon.measure.progress import Watch
from gnomon.session.objectives import LATENCY, MEMORY

if TYPE_CHECKING:
    from gnomon.jobs.pareto.oplist import OplistReport


class ParetoOptions(Options, total=False):
    """What `pareto` is asked: how to measure, and the options of `gnomon pareto` by their names.

    `source` is a dump of pareto_profiler in place of a model; `codes` are the backends of its digits, that of 0 first.
    `tunings` are options of the runtime with the values that the search may choose. The point to deploy is a number of
    the front (`pick`), or the fastest one whose objectives stay `under` so many seconds, bytes or joules. Several names
    of a `search` are compared. `dumpfile` gets everything that was measured. `counters` name the energy counters to add
    up, where energy is an objective.
    """

    source: PathLike | None
    codes: Sequence[str]
    objectives: Sequence[str]
    counters: Sequence[str]
    by: By
    tunings: Mapping[str, Sequence[str]]
    search: str | Sequence[str]
    iterations: int | None
    pick: int | None
    under: Mapping[str, float]
    dumpfile: PathLike | None


_PARETO_ALONE = ParetoOptions.__annotations__.keys() - Options.__annotations__.keys()
OF_DUMPS = (_PARETO_ALONE | {"seed"}) - {"by", "tunings"}
"""The options that say something of a dump."""


def pareto(
    model: PathLike | None = None,
    *,
    out: PathLike | None = None,
    overwrite: bool = False,
    measure: bool = True,
    picture: PathLike | None = None,
    on_progress: Watch | None = None,
    on_message: Callable[[str], None] | None = None,
    **options: Unpack[ParetoOptions],
) -> Pareto:
    """Find the front of several objectives over assignments, prove it, and deploy the point that is picked.

    Needs a model or a `source`. The front is drawn to `picture`.svg and .png (None: into the package, where one is
    written). Raises GnomonError; what was measured until then is kept, and the same call goes on.
    """
    request = pareto_request(model, options, out=out, overwrite=overwrite, measure=measure)
    front = job.pareto(request, watch=on_progress, tell=on_message)
    to = Path(picture) if picture is not None else front.package / "front" if front.package else None
    if to is not None:
        front = front.drawn(draw(Pareto.charts_by, front.document(), to, on_message))
    if front.lived is not None:
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
    """The request that the options mean, as `model_request`. UsageError also for options that say nothing of a dump."""
    strange = sorted(options.keys() - OF_DUMPS) if model is None else []
    if strange:
        raise UsageError(f"{strange[0]} says nothing of a dump", hint="Leave it out, or give a model.")
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
        under=dict(options.get("under", {})),
        out=Path(out) if out is not None else None if model is None else package_path(model),
        overwrite=overwrite,
        dumpfile=None if dumpfile is None else Path(dumpfile),
    )


def oplist(
    model: PathLike, *, by: By = "type", backends: Sequence[str] = ("cpu", "acl_cl"), out: PathLike | None = None
) -> OplistReport:
    """What the digits of integer codes of a model belong to; `out` gets it as ONE's pareto_profiler reads it.

    The backend of digit 0 comes first. Raises GnomonError.
    """
    from gnomon.jobs.pareto.oplist import oplist as oplist_job

    return oplist_job(Path(model), by=by, backends=backends, out=None if out is None else Path(out))
