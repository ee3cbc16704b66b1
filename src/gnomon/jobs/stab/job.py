"""The job `stab`: backends for the operators of an nnpackage, measured on a device or from traces that are there.

It answers what the backend scheduler stab of Samsung ONE answers, from the same files and under the same names. With
profiling it is `place` inside onert; without, the exact decision from the traces, which nothing proves.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from gnomon.core.pricing.stab import ExactDecision, Priced, StabDecision, exact_decision, published_decision
from gnomon.errors import ModelError, ProblemError
from gnomon.formats.onert.config import placement_settings, published_settings
from gnomon.jobs.place.job import Placement, place
from gnomon.jobs.stab.traces import TraceSet, read_traces, traces_of, write_traces
from gnomon.measure.environment import Doubt
from gnomon.measure.progress import Watch
from gnomon.models.load import load
from gnomon.models.model import Model
from gnomon.report.answer import Answer
from gnomon.session.package import Schedule, adopt, check_scheduled, write_scheduled
from gnomon.session.request import ModelRequest
from gnomon.store.opening import open_store
from gnomon.system.process import guarded_folder

RUNTIME = "onert"

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StabRequest:
    """What `stab` is asked to do.

    `measuring` holds the package, the device and the threads; `profile` False decides from the files in `traces`
    alone, without a device. `compat` writes the published scheduler's decision and not the exact one. `overwrite` lets
    an nnpackage at `out` be replaced that gnomon did not schedule.
    """

    measuring: ModelRequest
    traces: Path
    out: Path
    profile: bool = True
    compat: bool = False
    overwrite: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled(Answer):
    """What `stab` decided.

    `published` is None where the published rule cannot decide, and `why_not_published` says why; `published_price` is
    its placement by the exact decision's prices. `placement` is the proof on the device, None without profiling.
    `written` is the placement that `package` holds: `compat` says whether it is the published one.
    """

    model: Model
    threads: int
    traces: TraceSet
    exact: ExactDecision
    published: StabDecision | None
    why_not_published: str
    published_price: Priced | None
    placement: Placement | None
    written: dict[int, str]
    compat: bool
    package: Path
    doubts: tuple[Doubt, ...]
    seconds: float

    document_by = "gnomon.jobs.stab.document:stab_document"
    main = "operators"

    __repr__ = Answer.__repr__

    def headline(self) -> tuple[str, str]:
        """The package, and how many operators are on which backend."""
        backends = sorted(set(self.written.values()))
        told = [f"{sum(b == one for b in self.written.values())} on {one}" for one in backends]
        return f"{self.model.path.name} in {self.package}", f"Operators: {', '.join(told)}."


def package_name(nnpackage: Path) -> str:
    """The name that traces and the scheduled package get: the package folder's own."""
    return nnpackage.resolve().name


def stab(
    request: StabRequest, *, watch: Watch | None = None, tell: Tell | None = None, step: Tell | None = None
) -> Scheduled:
    """Schedule the operators of an nnpackage on onert's backends, and write it with the schedule.

    `watch` is told of progress, `tell` gets sentences for people, `step` one for each step. Raises GnomonError; nothing
    is written to `out` then, and with profiling the next call goes on from the record.
    """
    start = time.monotonic()
    say = step or (lambda sentence: None)
    model = _package(request.measuring.model)
    check_scheduled(model.path, request.out, overwrite=request.overwrite)
    if request.profile:
        with guarded_folder("gnomon-stab-") as folder:
            say(f"Upload the agent and {package_name(model.path)} to {request.measuring.device.name}")
            say("Profile each backend of onert there, and prove the placement")
            measuring = replace(request.measuring, runtimes=(RUNTIME,))
            placement = place(measuring, folder / "proved", watch=watch, tell=tell)
            found = _kept_traces(request, placement, say)
            decided = _decided(request, model, found, placement)
            _write(request, decided, say)
    else:
        say(f"Read the traces of {package_name(model.path)} in {request.traces}")
        threads = request.measuring.wish.threads
        found = read_traces(request.traces, package_name(model.path), threads, model)
        decided = _decided(request, model, found, None)
        _write(request, decided, say)
    return replace(decided, seconds=time.monotonic() - start)


def _package(path: Path) -> Model:
    model = load(path)
    if model.package is None:
        raise ModelError(f"{path} is not an nnpackage", hint="Give a folder with metadata/MANIFEST to --nnpackage.")
    return model


def _kept_traces(request: StabRequest, placement: Placement, say: Tell) -> TraceSet:
    """The traces of the single backends, under the old names in the folder of traces."""
    threads = request.measuring.wish.threads
    with open_store(request.measuring.record) as store:
        traces = traces_of(placement, store, threads)
    if not traces:
        raise ProblemError("the campaign holds no trace of a single backend", hint="Measure again with --fresh.")
    files = write_traces(traces, request.traces, package_name(request.measuring.model), threads)
    say(f"The traces are in {request.traces}: {', '.join(path.name for path in files.values())}")
    return TraceSet(traces=traces, files=files)


def _decided(request: StabRequest, model: Model, found: TraceSet, placement: Placement | None) -> Scheduled:
    exact = exact_decision(found.traces)
    published, why = None, ""
    try:
        published = published_decision(found.traces)
    except ProblemError as error:
        why = error.message
    doubts = list(found.doubts)
    if request.compat:
        written = _published_placement(published, why, exact)
    elif placement is not None:
        written = placement.verdict.chosen.contender.backends
    else:
        written = dict(exact.chosen.placement)
    if placement is None or request.compat:
        told = "the published placement was not run" if placement else "nothing was run: the placement is not proved"
        hint = "Leave out --compat" if placement else "Run the same command without --no-profile and --compat"
        doubts.append(Doubt(kind="not-proved", message=told, hint=f"{hint} to have it proved on the device."))
    return Scheduled(
        model=model,
        threads=request.measuring.wish.threads,
        traces=found,
        exact=exact,
        published=published,
        why_not_published=why,
        published_price=None if published is None else exact.price(published.placed(exact.types)),
        placement=placement,
        written=written,
        compat=request.compat,
        package=request.out,
        doubts=tuple(doubts),
        seconds=0.0,
    )


def _published_placement(published: StabDecision | None, why: str, exact: ExactDecision) -> dict[int, str]:
    if published is None or published.ended_by:
        ends = why if published is None else published.ended_by
        raise ProblemError(
            f"the published scheduler writes no package from these traces ({ends})",
            hint="Leave out --compat: the exact decision does not need what is missing.",
        )
    return published.placed(exact.types)


def _write(request: StabRequest, decided: Scheduled, say: Tell) -> None:
    say("Schedule a backend for each operator")
    placement = decided.placement
    if placement is not None and placement.package is not None and not decided.compat:
        adopt(placement.package, request.out, placement.verdict.chosen.contender.label)
    else:
        write_scheduled(decided.model, _schedule(decided), request.out, overwrite=request.overwrite)
    say(f"The scheduled nnpackage is {request.out}")


def _schedule(decided: Scheduled) -> Schedule:
    """What is written without a proof."""
    if decided.compat and decided.published is not None:
        label, settings = "the published rule", published_settings(decided.published, decided.threads)
    else:
        label, settings = "the exact placement", placement_settings(decided.written, decided.threads)
    return Schedule(
        label=f"{label}, from traces",
        settings=settings,
        placement=decided.written,
        threads=decided.threads,
        verbatim=decided.compat,
    )
