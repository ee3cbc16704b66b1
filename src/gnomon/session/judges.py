"""The judges: runtimes that compute the reference outputs, confirm them, and settle a disagreement between two other
judges.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice

from gnomon.devices.local import LocalDevice
from gnomon.measure.campaign import CampaignRunner
from gnomon.measure.environment import Caveat
from gnomon.measure.link import REFERENCE, AgentLink, Reference, compute_reference
from gnomon.models.model import is_float64
from gnomon.runtimes.base import (
    Configuration,
    PlacedModel,
    Plain,
    Probe,
    RunSettings,
    Runtime,
    driver_of,
    whole_segment,
)
from gnomon.runtimes.registry import all_runtimes, usual
from gnomon.runtimes.tunings import configurations
from gnomon.runtimes.whole import TOLERANCE
from gnomon.session.model_session import TWO_STEPS, ModelSession, own_tolerance
from gnomon.session.targets import Target, precision_in, probe_runtimes
from gnomon.wire import Job, Segment

ROOM = 4.0
"""The largest allowed difference between outputs, as a multiple of the difference that was measured between outputs of
the same runtime: that measurement is only a single sample.
"""

NOISE = 0.5
"""The difference, relative to the largest magnitude, from which outputs of one runtime count as unrelated."""

_MOST_TRIED = 3
"""The maximum number of other judges that are tried until one of them computes the outputs too."""

_EVALUATED_MACS, _EVALUATED_BYTES, _EVALUATED_S = 10**8, 1 << 26, 30.0
"""The largest model that is given to ONNX's reference evaluator (multiply-accumulates, bytes), and its time limit."""

_EVALUATOR = "evaluator"


class JudgedReference(Reference):
    """A reference, the judge that computed it, and the doubts about it, as stored in the results database."""

    by: str
    runtime: str
    doubts: list[dict[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """A way to compute the model's outputs: its name and method in words, its runtime, its job and its tolerance."""

    name: str
    how: str
    runtime: str
    job: Job
    tolerance: float

    @property
    def label(self) -> str:
        """The name and the method."""
        return f"{self.name} {self.how}"


def plain_ways(runtime: Runtime) -> tuple[Plain, ...]:
    """A runtime's plain ways to run a model (`Plain`), the plainest first; a third-party runtime may have none."""
    ways: tuple[Plain, ...] = getattr(runtime, "plain", ())
    return ways


def plain_judge(session: ModelSession, runtime: Runtime, version: str, plain: Plain, placed: PlacedModel) -> Judge:
    """A judge that uses a runtime in a plain way with one thread."""
    options = {"threads": 1, **plain.options, **session.request.settings.loading(runtime.name)}
    return Judge(
        name=" ".join(filter(None, (runtime.name, version))),
        how=f"{plain.label} on {session.loaded}",
        runtime=runtime.name,
        job=session.job([whole_segment(driver_of(runtime), placed, options)]),
        tolerance=max(TOLERANCE[precision_in(session.graph, runtime)], own_tolerance(session.graph)),
    )


def usual_judge(
    session: ModelSession, runtime: Runtime, version: str, configuration: Configuration, placed: PlacedModel, how: str
) -> Judge:
    """A judge that uses a runtime in a given configuration."""
    return Judge(
        name=f"{configuration.name} {version}",
        how=how,
        runtime=runtime.name,
        job=session.job([runtime.segment(placed, configuration, {})]),
        tolerance=session.tolerance(configuration),
    )


def judges(session: ModelSession, own: PlacedModel, loads_it: Sequence[Target]) -> Iterator[Judge]:
    """The judges on the device, the plainest first."""
    loading = {t.runtime.name: t.runtime for t in loads_it}
    for runtime in loading.values():
        for plain in plain_ways(runtime):
            yield plain_judge(session, runtime, session.probes[runtime.name].version, plain, own)
    for runtime, probe in _unmeasured(session, plainly=True):
        for plain in plain_ways(runtime):
            yield plain_judge(session, runtime, probe.version, plain, own)
    for target in loads_it:
        fixed = [] if target.placed is own else [(target.placed, "the model's file with its shapes fixed")]
        for placed, how in [(own, session.loaded), *fixed]:
            version = session.probes[target.runtime.name].version
            yield usual_judge(session, target.runtime, version, target.configuration, placed, f"on {how}")


def _unmeasured(session: ModelSession, *, plainly: bool) -> Iterator[tuple[Runtime, Probe]]:
    """Runtimes on the device that were not requested but load the user's file: those with a plain way if `plainly`,
    otherwise those without a plain way.
    """
    if session.link is None or not session.link.info.python:
        return
    asked = {t.runtime.name for t in (*session.targets, *session.lowered)}
    for runtime in all_runtimes()[0]:
        fits = session.graph.format in runtime.formats and usual(runtime) and runtime.name not in asked
        if fits and bool(plain_ways(runtime)) == plainly:
            for probe in probe_runtimes(session.link, (runtime,))[0].values():
                yield runtime, probe


def _others(session: ModelSession, own: PlacedModel, left: Iterator[Judge], first: Judge) -> Iterator[Judge]:
    """Judges whose runtime is not the first judge's: those that load the file come first, then those that need it
    converted, and finally those that were not requested.
    """
    usually = max(TOLERANCE["float32"], own_tolerance(session.graph))
    yield from (judge for judge in left if judge.runtime != first.runtime and judge.tolerance <= usually)
    converted = [t for t in session.targets if session.graph.format not in t.runtime.formats]
    for target in (*converted, *session.lowered):
        if target.configuration.clean:
            version, how = session.probes[target.runtime.name].version, "on the model as it was measured"
            yield usual_judge(session, target.runtime, version, target.configuration, target.placed, how)
    for runtime, probe in _unmeasured(session, plainly=False):
        configuration = configurations(runtime, probe, RunSettings(libraries=session.request.settings.libraries))[0]
        yield usual_judge(session, runtime, probe.version, configuration, own, f"on {session.loaded}")


def confirmed(
    session: ModelSession, own: PlacedModel, first: Judge, outputs: Reference, left: Iterator[Judge]
) -> JudgedReference:
    """The first judge's outputs and the runtime that confirms them, or another judge's outputs if the first is
    outvoted.

    One other runtime computes the outputs too, in one process. If it disagrees, or if the model rounds to few bits or
    names open dimensions, the first judge's outputs are compared with those of its own runtime in the configuration
    that is measured. If the two judges still disagree, a third decides. `left` holds the judges that follow the first.
    The doubts are stored under "doubts".
    """
    judged: JudgedReference = {**outputs, "by": first.label, "runtime": first.runtime, "doubts": []}
    runner = session.runner
    if not isinstance(runner, CampaignRunner) or not runner.link.info.python or outputs["finite"] == 0:
        return judged
    if outputs["again"] > first.tolerance:
        return judged
    files = tuple(f"{runner.campaign.id}-{name}{REFERENCE}" for name in ("", "second-"))
    others = _others(session, own, left, first)
    tried = ((judge, _computed(runner.link, session, judge, save=files[1], check=files[0])) for judge in others)
    second, beside = next((pair for pair in islice(tried, _MOST_TRIED) if pair[1]), (None, None))
    off = _off(beside) if beside else 0.0
    if (
        own_tolerance(session.graph) >= TWO_STEPS
        or session.placed.dims
        or (second is not None and off > second.tolerance)
    ):
        judged["slack"], judged["left_open"] = _from_itself(session, runner.link, first, files[0])
    slack = ROOM * judged.get("slack", 0.0)
    if second is None or beside is None or slack >= ROOM * NOISE:
        return judged
    if off <= max(second.tolerance, slack):
        return {**judged, "checked_by": second.name, "agreement": off}
    apart = f"{first.name} and {second.name} disagree{far(off)}"
    winner, third = _decided(
        _thirds(session, runner.link, others, (first, second), files), session, (first, second), slack
    )
    if winner is None:
        return {**judged, "doubts": [doubt_of(session, "judges-undecided", f"{apart}; it is undecided which is right")]}
    outcome = f"{apart}; {third} agrees with {winner.name}"
    if winner is first:
        return {**judged, "checked_by": third, "doubts": [doubt_of(session, "judges-disagree", outcome)]}
    runner.check_against(files[1])
    doubt = doubt_of(session, "judge-outvoted", f"{outcome}, whose outputs are the reference")
    return {**beside, "by": second.label, "runtime": second.runtime, "checked_by": third, "doubts": [doubt]}


def far(off: float) -> str:
    """The size of a difference in words, phrased to follow a verb."""
    return " beyond any measure" if off >= sys.float_info.max else f" by {off:.2g} of their largest magnitude"


def doubt_of(session: ModelSession, kind: str, message: str) -> dict[str, str]:
    """A doubt that real inputs may settle, as stored in the record."""
    hint = "Give real inputs with --input NAME=FILE.npy: with random ones, rounding or chance may decide."
    if session.request.feeds.keys() >= set(session.placed.inputs):
        hint = "Before you trust either, compare both with the outputs of the program that created the model."
    return asdict(Caveat(kind=kind, message=message, hint=hint))


def _off(reference: Reference) -> float:
    return reference["difference"]["relative"]


def _computed(link: AgentLink, session: ModelSession, judge: Judge, *, save: str, check: str) -> Reference | None:
    """A judge's outputs, compared with a file of outputs; None if the judge fails."""
    seeds = [session.request.seed, session.request.seed + 1]
    timeout_s = _EVALUATED_S if judge.runtime == _EVALUATOR else session.request.effort.timeout_s
    return compute_reference(link, judge.job, seeds, timeout_s=timeout_s, name=save, check=check)[0]


def _from_itself(session: ModelSession, link: AgentLink, first: Judge, reference: str) -> tuple[float, bool]:
    """How far the first judge's outputs differ from those of its runtime in the measured configuration; 0 if within the
    tolerance or unknown.

    The second result says whether dimensions must be left open. This is so if the outputs are right only with open
    dimensions, because a file may use the same name for two different sizes. They are also left open if no answer came
    in time, for example on a busy machine.
    """
    measured = (t for t in session.targets if t.runtime.name == first.runtime and not t.configuration.usual)
    target = next((t for t in measured if t.configuration.clean), None)
    if target is None:
        return 0.0, False
    off = None
    for tried in (target, with_open_dims(target)) if target.placed.dims else (target,):
        version = session.probes[first.runtime].version
        judge = usual_judge(session, tried.runtime, version, tried.configuration, tried.placed, "as it is measured")
        again = _computed(link, session, judge, save=f"itself-{REFERENCE}", check=reference)
        if again is not None and _off(again) <= judge.tolerance:
            return 0.0, tried is not target
        off = off or (_off(again) if again else None)
    return off or 0.0, off is None and bool(target.placed.dims)


def with_open_dims(target: Target) -> Target:
    """The target with no dimension fixed in advance; the inputs that are fed determine each size."""
    configuration = target.configuration
    return replace(target, configuration=replace(configuration, options={**configuration.options, "dims": {}}))


_Third = tuple[AgentLink, Judge, tuple[str, ...]]
"""The link to a third judge, that judge, and the paths of the first two judges' outputs on the link's device."""


def _decided(
    thirds: Iterator[_Third], session: ModelSession, two: tuple[Judge, Judge], slack: float
) -> tuple[Judge | None, str]:
    """Of two judges, the one with which a third judge agrees, and the third judge's name; None if no third judge agrees
    with either.
    """
    for link, third, outputs in thirds:
        for judge, file in zip(two, outputs, strict=True):
            answer = _computed(link, session, third, save=f"third-{REFERENCE}", check=file)
            if answer is None:
                break
            if _off(answer) <= max(third.tolerance, slack):
                return judge, third.name
    return None, ""


def _thirds(
    session: ModelSession, link: AgentLink, others: Iterator[Judge], two: tuple[Judge, Judge], files: tuple[str, ...]
) -> Iterator[_Third]:
    """The judges that may decide: first, for a small ONNX model, ONNX's reference evaluator on this machine; then other
    runtimes.
    """
    graph = session.graph
    small = (graph.macs or 0) <= _EVALUATED_MACS and session.read.model.size_bytes <= _EVALUATED_BYTES
    if graph.format == "onnx" and small:
        with LocalDevice() as here, AgentLink(here, timeout_s=_EVALUATED_S) as near:
            for name in files:
                link.device.pull(name, session.folder / name)
            evaluator = Judge(
                name="ONNX's reference evaluator",
                how="on this machine",
                runtime=_EVALUATOR,
                job=job_here(session, whole_segment(_EVALUATOR, placed_here(session), {})),
                tolerance=max(TOLERANCE["float64" if is_float64(graph) else "float32"], own_tolerance(graph)),
            )
            yield near, evaluator, tuple(str(session.folder / name) for name in files)
    heard = {judge.runtime for judge in two}
    for judge in islice((judge for judge in others if judge.runtime not in heard), _MOST_TRIED):
        yield link, judge, files


def placed_here(session: ModelSession) -> PlacedModel:
    """The user's own file at its path on this machine."""
    path = str(session.read.own.absolute())
    return PlacedModel(graph=session.graph, path=path, inputs=session.placed.inputs, outputs=session.placed.outputs)


def job_here(session: ModelSession, segment: Segment) -> Job:
    """A segment's job on this machine; it reads input files in place."""
    job = session.job([segment])
    for name, path in session.request.feeds.items():
        job["feeds"][name] = {"file": str(path.absolute())}
    return job
