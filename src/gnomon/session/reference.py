"""The reference outputs that results are checked against, and warnings about results.

This machine computes the reference if the device has no runtime for the user's own file.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from typing import cast

from gnomon.core.sample import Failure
from gnomon.devices.local import LocalDevice
from gnomon.errors import MeasurementError, UsageError, exit_code_of
from gnomon.installing import install_line
from gnomon.measure.campaign import CampaignRunner, Measured, RecordedRunner
from gnomon.measure.effort import Clock
from gnomon.measure.environment import Caveat, worst
from gnomon.measure.link import REFERENCE, AgentLink, compute_reference
from gnomon.models.model import PACKAGE, UNREAD
from gnomon.report.plain import listed
from gnomon.runtimes.base import RunSettings
from gnomon.runtimes.registry import all_runtimes
from gnomon.runtimes.whole import TOLERANCE
from gnomon.session.contender import Contender, level, software_devices
from gnomon.session.judges import (
    NOISE,
    ROOM,
    Judge,
    JudgedReference,
    confirmed,
    doubt_of,
    far,
    job_here,
    judges,
    placed_here,
    plain_judge,
    plain_ways,
    usual_judge,
    with_open_dims,
)
from gnomon.session.model_session import ModelSession, own_tolerance
from gnomon.session.targets import Missing, describe, probe_runtimes, reasons_of


def reference_here(session: ModelSession, runner: CampaignRunner, reasons: list[Missing]) -> JudgedReference | None:
    """Compute the outputs with a runtime of this machine and bring them to the device.

    None if no runtime here computes the outputs of the user's own file; the causes are added to `reasons`. This needs
    no lease of this machine, because nothing is measured.
    """
    runtimes = tuple(r for r in all_runtimes()[0] if session.graph.format in r.formats)
    timeout_s = session.request.effort.timeout_s
    with LocalDevice() as here, AgentLink(here, timeout_s=timeout_s) as link:
        probes, _ = probe_runtimes(link, runtimes)
        placed, ways = placed_here(session), list[Judge]()
        for runtime in (r for r in runtimes if r.name in probes):
            version = probes[runtime.name].version
            ways += [plain_judge(session, runtime, version, plain, placed) for plain in plain_ways(runtime)]
        for runtime in (r for r in runtimes if r.name in probes and not plain_ways(r)):
            configuration = runtime.configurations(probes[runtime.name], RunSettings())[0]
            version, how = probes[runtime.name].version, f"on {session.loaded}"
            ways.append(usual_judge(session, runtime, version, configuration, placed, how))
        for judge in ways:
            job = job_here(session, judge.job["segments"][0])
            outputs, failure = compute_reference(link, job, runner.seeds, timeout_s=timeout_s)
            if outputs is not None:
                fetched = session.folder / REFERENCE
                here.pull(fetched.name, fetched)
                runner.check_against(session.push(fetched, fetched.name))
                by = f"{judge.label}, on this machine"
                return {**outputs, "by": by, "runtime": judge.runtime, "doubts": []}
            reasons.append(Missing(name=f"{judge.label}, on this machine", reason=describe(failure)))
    return None


_DRIFT = 0.05
"""The change of speed between the profile and the proof that is large enough for a warning."""

_UNCHECKED = [
    {
        "kind": "unchecked-conversion",
        "message": "no runtime here loads the unconverted model, so the converted model is only checked against itself",
        "hint": f"Install such a runtime on this machine: {install_line('onnxruntime', python=sys.executable)}",
    }
]

_OTHER_SHAPES = Caveat(
    kind="other-shapes",
    message="the outputs have other shapes than the file declares; the model was measured as it is",
    hint="Export the model again, or infer its shapes again: onnx.shape_inference.infer_shapes.",
)
_CHANGED = Caveat(
    kind="model-changed",
    message="the model's file changed during the measurements, so processes may have run different models",
    hint="Wait until the file is complete, and measure again with --fresh.",
)
_MOST_HANGS = 4
"""How many ways to compute the reference may hang before no other way is tried; each of them takes the whole
--timeout.
"""

_DRAWN_SHARE = 1 / 3
"""The share of --timeout that the reference may take if inputs that were not given decide how much work there is."""

_INPUT_REFUSED = "InputError: "  # the beginning of the agent's messages about an input's file


NOT_COMPUTED: JudgedReference = {"relative": 1.0, "finite": 1.0, "again": 0.0, "by": "", "runtime": "", "doubts": []}
"""A substitute for a reference if outputs are not compared."""


def reference(session: ModelSession) -> JudgedReference:
    """Compute the outputs to check against: those of the user's own, unmodified file in a runtime's plainest way.

    A runtime with a plain way (ONNX Runtime without optimisations, LiteRT's reference kernels) computes them, whether
    or not it is to be measured. If there is none, a runtime that loads the unconverted file computes them. Another
    runtime confirms them, if there is one (`gnomon.session.judges.confirmed`). If all runtimes on the device need the
    file converted, this machine computes the outputs if it can, so that the conversion is checked too. UsageError if an
    input file does not fit the model. MeasurementError if no runtime computes outputs, or if inputs that were not given
    cause so much work that any result would take minutes.
    """
    if isinstance(session.runner, RecordedRunner):
        return _recalled(session, session.runner)
    if session.graph.format == PACKAGE:  # it was proved when it was written
        return NOT_COMPUTED
    unchecked = [t.configuration.name for t in session.targets if not t.configuration.checked]
    if unchecked:
        session.doubts.append(_unchecked(unchecked))
    if unchecked and (len(unchecked) == len(session.targets) or session.graph.format == UNREAD):
        return NOT_COMPUTED
    runner, timeout_s = session.runner, session.request.effort.timeout_s
    clean = [t for t in session.targets if t.configuration.clean]
    loads_it = [t for t in clean if session.graph.format in t.runtime.formats]
    drawn = next((doubt for doubt in session.doubts if doubt.kind == "drawn-steering"), None)
    limit_s = timeout_s if drawn is None else _DRAWN_SHARE * timeout_s
    reasons: list[Missing] = []
    # The user's own file on the device; only the fed arrays fix the shapes of its inputs.
    own, hung, refused = session.placed, 0, dict[str, str]()
    for session.open_outputs in (False, True):
        if session.open_outputs and not (refused and any(t.shape is not None for t in session.outputs)):
            break
        left = judges(session, own, loads_it)
        for judge in left:
            if hung == _MOST_HANGS:
                break
            outputs, failure = runner.reference(judge.job, timeout_s=limit_s)
            if drawn is not None and failure is not None and failure.kind == "hang":
                raise _too_much_work(drawn, judge, limit_s)
            hung += failure is not None and failure.kind == "hang"
            if outputs is not None:
                if session.open_outputs:
                    session.doubts.append(_OTHER_SHAPES)
                judged = confirmed(session, own, judge, outputs, left)
                judged["doubts"] += [
                    doubt_of(session, "reference-refused", message)
                    for runtime, message in refused.items()
                    if runtime != judge.runtime
                    and any(t.runtime.name == runtime and not t.support.copy for t in session.targets)
                ]
                return _noted(session, runner, {**judged, "open_outputs": session.open_outputs})
            if failure is not None:
                _blame_input(failure)
                if failure.kind == "refused":
                    refused[judge.runtime] = f"{judge.name} refuses these inputs: {failure.message[:200]}"
            reasons.append(Missing(name=judge.label, reason=describe(failure)))
    session.open_outputs = False
    here = None if loads_it else reference_here(session, runner, reasons)
    if here is not None:
        return _noted(session, runner, here)
    for target in clean if not loads_it else ():
        job = session.job([target.runtime.segment(target.placed, target.configuration, {})])
        outputs, failure = runner.reference(job, timeout_s=timeout_s)
        if outputs is not None:
            label = f"{target.configuration.name}, on the converted file"
            return _noted(
                session, runner, {**outputs, "by": label, "runtime": target.runtime.name, "doubts": _UNCHECKED}
            )
        reasons.append(Missing(name=target.configuration.name, reason=describe(failure)))
    hint = "Give inputs that suit the model with --input NAME=FILE.npy, or try another runtime."
    if hung:
        hint = "Made-up inputs may cause more work: give real ones with --input NAME=FILE.npy, or more time"
        hint += f" with --timeout {5 * timeout_s:.0f}."
    raise MeasurementError(f"no runtime computes reference outputs ({reasons_of(reasons)})", hint=hint)


def _unchecked(names: Sequence[str]) -> Caveat:
    """A warning that the outputs of commands were not checked."""
    message = f"nobody checked the outputs of {listed(names)}; the times are those that the command itself reports"
    hint = "Declare the command's `outputs`: docs/jobs/commands.md."
    return Caveat(kind="unchecked-command", message=message, hint=hint)


def _too_much_work(drawn: Caveat, judge: Judge, limit_s: float) -> MeasurementError:
    message = f"a few calls with made-up inputs take more than {limit_s:.0f} s ({judge.label}); {drawn.message}"
    hint = f"To measure with made-up inputs, give --timeout {15 * limit_s:.0f}. {drawn.hint}"
    return MeasurementError(message, hint=hint)


def _noted(session: ModelSession, runner: CampaignRunner, judged: JudgedReference) -> JudgedReference:
    kept = {key: value for key, value in judged.items() if key in _NOTED and value}
    runner.note("reference", {"relative": float(judged["relative"]), "finite": float(judged["finite"]), **kept})
    return _heard(session, judged)


_NOTED = {"by", "runtime", "checked_by", "agreement", "doubts", "left_open", "open_outputs", "again", "slack"}
"""The keys of a reference that are stored in the record if they have a value."""


def _heard(session: ModelSession, data: JudgedReference) -> JudgedReference:
    """A reference, new or from the record; its warnings are added to the session."""
    session.doubts += [Caveat(**doubt) for doubt in data.get("doubts", ())]
    if data.get("left_open"):
        own = str(data["runtime"])
        session.targets = tuple(with_open_dims(t) if t.runtime.name == own else t for t in session.targets)
        message = f"with fixed dimensions, {own} computes other outputs, or none in time: the dimensions were left open"
        hint = "The file may use one name for two sizes: give each dimension its own name when you export the model."
        session.doubts.append(Caveat(kind="left-open", message=message, hint=hint))
    session.sole_judge = "" if data.get("checked_by") else str(data.get("runtime", ""))
    again, session.slack = data.get("again", 0.0), ROOM * data.get("slack", 0.0)
    session.unrepeatable = (
        again > max(TOLERANCE["float32"], own_tolerance(session.graph)) or session.slack >= ROOM * NOISE
    )
    if session.slack:
        nothing = ", so they prove nothing" if session.unrepeatable else "; this difference is tolerated"
        message = f"outputs of {data['runtime']} with and without optimisations differ{far(data['slack'])}{nothing}"
        kind = "unlike-itself" if session.unrepeatable else "near-itself"
        session.doubts.append(Caveat(**doubt_of(session, kind, message)))
    elif session.unrepeatable:
        message = f"the model's outputs differ{far(again)} in two calls with the same inputs, so they prove nothing"
        hint = "If the model should neither draw random numbers nor keep a state, look for the operator that does."
        session.doubts.append(Caveat(kind="unrepeatable", message=message, hint=hint))
    return data


def _recalled(session: ModelSession, runner: RecordedRunner) -> JudgedReference:
    data = cast(JudgedReference, {**NOT_COMPUTED, **(runner.last("reference") or {})})
    if data.get("open_outputs"):
        session.open_outputs = True
        session.doubts.append(_OTHER_SHAPES)
    return _heard(session, data)


def _blame_input(failure: Failure) -> None:
    """UsageError if the user's file for an input caused the failure: no other runtime could use that file either."""
    if failure.kind == "refused" and failure.message.startswith(_INPUT_REFUSED):
        raise UsageError(
            f"--input: {failure.message.removeprefix(_INPUT_REFUSED)}",
            hint="Give another file with --input NAME=FILE.npy, or leave it out for random numbers.",
        )


def doubts(session: ModelSession, judged: JudgedReference) -> tuple[Caveat, ...]:
    """All warnings, each kind once: about the machine's worst state, about its devices, and about the reference."""
    warnings = [*worst(session.runner.environments), *session.doubts, *software_devices(session.targets)]
    if session.model_changed:
        warnings.insert(0, _CHANGED)
    if judged["relative"] < 1e-5:
        message = "the outputs hardly depend on the input, so equal outputs prove little"
        hint = "Give a real input with --input NAME=FILE.npy; if the input is real, the model may ignore it."
        warnings.append(Caveat(kind="insensitive", message=message, hint=hint))
    if lost := 1 - judged["finite"]:
        message = f"{100 * lost:.2g} % of an output of the reference is NaN or infinite, so equal outputs prove less"
        if lost == 1:
            message = "an output of the reference holds no finite value, so equal outputs prove nothing"
        hint = "Give a real input with --input NAME=FILE.npy; if it is real, find which operator makes NaN or infinity."
        warnings.append(Caveat(kind="no-finite-output" if lost == 1 else "not-finite", message=message, hint=hint))
    return tuple(warnings)


def checked_by(judged: JudgedReference, field: Iterable[tuple[Contender, Measured]], doubts: Iterable[Caveat]) -> str:
    """The runtime, a judge's or a contender's, that confirms the reference's outputs.

    "" if none does, or if the doubts leave open which outputs are right.
    """
    if exit_code_of(doubt.kind for doubt in doubts if doubt.kind != "threads-undecided"):
        return ""
    right = (contender for contender, measured in field if measured.ok and judged["runtime"])
    others = (c.label for c in right if judged["runtime"] not in {p.configuration.runtime for p in c.parts})
    return judged.get("checked_by") or next(others, "")


def drift(before: Measured, after: Measured, clock: Clock) -> Caveat | None:
    """A warning if the same candidate was slower or faster when measured again; predictions are off by as much."""
    if not (before.ok and after.ok):
        return None
    ratio = level(after, clock) / level(before, clock)
    if abs(math.log(ratio)) < math.log(1 + _DRIFT):
        return None
    slower = f"{ratio - 1:.0%} slower" if ratio > 1 else f"{1 / ratio - 1:.0%} faster"
    return Caveat(
        kind="drift",
        message=f"the machine was {slower} in the proof than in the profile: comparisons hold, but predictions are off",
        hint="Measure again at a quieter time.",
    )
