"""The job `stab`: a backend for each operator of an nnpackage, from measurements on a device or from existing traces.

The job does the same as stab, the backend scheduler of Samsung ONE, with the same files and file names. With profiling
it is `place` inside onert; without profiling it makes the exact decision from the traces, but does not prove it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gnomon.core.codec import fields_of
from gnomon.core.pricing.stab import ExactDecision, Priced, StabDecision, exact_decision, published_decision
from gnomon.errors import ModelError, ProblemError
from gnomon.formats.onert.config import placement_settings, published_settings
from gnomon.jobs.place.document import PlaceDocument
from gnomon.jobs.place.job import place
from gnomon.jobs.stab.document import ExactPart, PublishedPart, ScheduledOperator, StabDocument, TracePart
from gnomon.jobs.stab.traces import TraceSet, read_traces, traces_of, write_traces
from gnomon.measure.environment import Caveat
from gnomon.measure.progress import Tell, Watch
from gnomon.models.load import load
from gnomon.models.model import Model
from gnomon.session.document import graph_part, model_part
from gnomon.session.package import Schedule, adopt, check_scheduled, write_scheduled
from gnomon.session.request import ModelRequest
from gnomon.store.opening import open_store
from gnomon.system.process import guarded_folder

RUNTIME = "onert"


@dataclass(frozen=True, slots=True, kw_only=True)
class StabRequest:
    """The request of `stab`.

    `measuring` has the package, the device and the threads. Without `profile` the decision comes from the files in
    `traces` alone, without a device. `compat` writes the published scheduler's decision instead of the exact one.
    `overwrite` allows replacing an nnpackage at `out` that gnomon did not schedule.
    """

    measuring: ModelRequest
    traces: Path
    out: Path
    profile: bool = True
    compat: bool = False
    overwrite: bool = False


def package_name(nnpackage: Path) -> str:
    """The name of an nnpackage's folder, which is also used for traces and for the scheduled package."""
    return nnpackage.resolve().name


def stab(
    request: StabRequest, *, watch: Watch | None = None, tell: Tell | None = None, step: Tell | None = None
) -> StabDocument:
    """Schedule the operators of an nnpackage on onert's backends, and write the package with the schedule.

    `watch` receives the progress, `tell` receives sentences for people, and `step` receives a sentence for each step.
    Raises GnomonError; then nothing is written to `out`, and with profiling the next call continues from the results
    database.
    """
    began_s = time.monotonic()
    say = step or (lambda sentence: None)
    model = load(request.measuring.model)
    if model.package is None:
        given = f"{request.measuring.model} is not an nnpackage"
        raise ModelError(given, hint="Give --nnpackage a folder with metadata/MANIFEST.")
    check_scheduled(model.path, request.out, overwrite=request.overwrite)
    if not request.profile:
        say(f"Read the traces of {package_name(model.path)} in {request.traces}")
        traces = read_traces(request.traces, package_name(model.path), request.measuring.settings.threads, model)
        return _scheduled(request, model, traces, None, say, began_s)
    with guarded_folder("gnomon-stab-") as folder:
        say(f"Upload the agent and {package_name(model.path)} to {request.measuring.device.name}")
        say("Profile each backend of onert there, and prove the placement")
        measuring = replace(request.measuring, runtimes=(RUNTIME,))
        proof = place(measuring, folder / "proved", watch=watch, tell=tell)
        return _scheduled(request, model, _kept_traces(request, proof, say), proof, say, began_s)


def _kept_traces(request: StabRequest, proof: PlaceDocument, say: Tell) -> TraceSet:
    """Write the traces of single backends to the folder of traces, under stab's file names; returns these traces."""
    threads = request.measuring.settings.threads
    with open_store(request.measuring.record) as store:
        traces = traces_of(proof, store, threads)
    if not traces:
        raise ProblemError("the run has no trace of a single backend", hint="Measure again with --fresh.")
    files = write_traces(traces, request.traces, package_name(request.measuring.model), threads)
    say(f"The traces are in {request.traces}: {', '.join(path.name for path in files.values())}")
    return TraceSet(traces=traces, files=files)


def _scheduled(
    request: StabRequest, model: Model, traces: TraceSet, proof: PlaceDocument | None, say: Tell, began_s: float
) -> StabDocument:
    """Decide from the traces, and write the package: the proved one, if any, unless the published one is wanted."""
    exact, threads = exact_decision(traces.traces), request.measuring.settings.threads
    published, why = None, ""
    try:
        published = published_decision(traces.traces)
    except ProblemError as error:
        why = error.message
    doubts = list(traces.doubts)
    if request.compat:
        written = _published_placement(published, why, exact)
    elif proof is not None:
        written = {row.index: row.planned for row in proof.operators if row.planned is not None}
    else:
        written = dict(exact.chosen.placement)
    if proof is None or request.compat:
        message = f"the {'published ' if proof else ''}placement was not run, so it is not proved"
        hint = "leave out --compat" if proof else "repeat the command without --no-profile and --compat"
        doubts.append(Caveat(kind="not-proved", message=message, hint=f"To prove a placement on the device, {hint}."))
    say("Schedule a backend for each operator")
    if proof is not None and proof.package is not None and not request.compat:
        adopt(Path(proof.package), request.out, proof.decision.chosen)
    else:
        schedule = _schedule(published if request.compat else None, written, threads)
        write_scheduled(model, schedule, request.out, overwrite=request.overwrite)
    say(f"The scheduled nnpackage is {request.out}")
    return StabDocument(
        nnpackage=model_part(model.path, model.graph),
        graph=graph_part(model.graph),
        threads=threads,
        profiled=proof is not None,
        written="published" if request.compat else "exact",
        package=str(request.out),
        traces=tuple(_trace(traces, backend) for backend in traces.traces),
        exact=ExactPart(
            predicted_us=exact.chosen.predicted_us, counts=_counts(exact.chosen, exact), **fields_of(ExactPart, exact)
        ),
        singles={backend: single.predicted_us for backend, single in exact.singles.items()},
        published=_published(published, why, exact, threads),
        operators=_operators(
            model,
            exact,
            {} if published is None else published.placed(exact.types),
            written,
            {} if proof is None or request.compat else {row.index: row.ran_on for row in proof.operators},
        ),
        proof=proof,
        doubts=tuple(doubts),
        seconds=time.monotonic() - began_s,
    )


def _published_placement(published: StabDecision | None, why: str, exact: ExactDecision) -> dict[int, str]:
    if published is None or published.ended_by:
        ends = why if published is None else published.ended_by
        raise ProblemError(
            f"the published scheduler writes no package from these traces ({ends})",
            hint="Leave out --compat: the exact decision is possible with these traces.",
        )
    return published.placed(exact.types)


def _schedule(published: StabDecision | None, written: Mapping[int, str], threads: int) -> Schedule:
    """The schedule of a package without a proof: the published decision if it is given, else the exact decision."""
    settings = placement_settings(written, threads) if published is None else published_settings(published, threads)
    return Schedule(
        label=f"{'the exact placement' if published is None else 'the published rule'}, from traces",
        settings=settings,
        placement=written,
        threads=threads,
        verbatim=published is not None,
    )


def _trace(traces: TraceSet, backend: str) -> TracePart:
    trace = traces.traces[backend]
    origin = trace.origin
    return TracePart(
        backend=backend,
        file=str(traces.files[backend]),
        whole_run_us=None if trace.graph is None else trace.graph.avg_us,
        operators=len(trace.main),
        device=origin.device if origin else None,
        runtime=origin.runtime if origin else None,
        taken_at_s=origin.taken_at_s if origin else None,
        runs=origin.runs if origin else None,
    )


def _counts(priced: Priced, exact: ExactDecision) -> dict[str, int]:
    backends = sorted({backend for row in exact.prices_us.values() for backend in row})
    placed = list(priced.placement.values())
    return {backend: placed.count(backend) for backend in backends}


def _published(published: StabDecision | None, why: str, exact: ExactDecision, threads: int) -> PublishedPart:
    """The published scheduler's decision, priced like the exact decision."""
    if published is None:
        return PublishedPart(decides=False, why_not=why)
    price = exact.price(published.placed(exact.types))
    return PublishedPart(
        decides=True,
        why_not=published.ended_by or None,
        predicted_us=price.predicted_us,
        counts=_counts(price, exact),
        **fields_of(PublishedPart, published),
        settings=published_settings(published, threads),
        unlike_exact=tuple(i for i, b in price.placement.items() if exact.chosen.placement[i] != b),
    )


def _operators(
    model: Model,
    exact: ExactDecision,
    published: Mapping[int, str],
    written: Mapping[int, str],
    ran_on: Mapping[int, str | None],
) -> tuple[ScheduledOperator, ...]:
    operators = {op.index: op for op in model.graph.operators}
    return tuple(
        ScheduledOperator(
            index=index,
            name=operators[index].name,
            type=type_,
            macs=operators[index].macs,
            times_us=exact.prices_us[index],
            exact=exact.chosen.placement[index],
            published=published.get(index),
            written=written.get(index),
            ran_on=ran_on.get(index),
        )
        for index, type_ in exact.types.items()
    )
