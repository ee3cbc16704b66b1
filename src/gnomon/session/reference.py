"""Reference outputs for a device that has no runtime for the user's own file: this machine computes them.

What results are checked against, and what speaks against believing them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from gnomon.core.installing import install_line
from gnomon.core.sample import Failure
from gnomon.devices.local import LocalDevice
from gnomon.errors import MeasurementError, UsageError
from gnomon.measure.campaign import CampaignRunner, Measured, RecordedRunner
from gnomon.measure.effort import Clock
from gnomon.measure.environment import Doubt, worst
from gnomon.measure.link import REFERENCE, AgentLink, compute_reference
from gnomon.runtimes.base import PlacedModel, Plain, Runtime, Wish, driver_of, whole_segment
from gnomon.runtimes.registry import all_runtimes, usual
from gnomon.session.accelerators import software_devices
from gnomon.session.contender import level
from gnomon.session.model_session import Lab
from gnomon.session.targets import Target, describe, probe_runtimes


def plain_ways(runtime: Runtime) -> tuple[Plain, ...]:
    """The plain ways of a runtime, the plainest first; a third party's may have none."""
    found: tuple[Plain, ...] = getattr(runtime, "plain", ())
    return found


def plain_segment(runtime: Runtime, placed: PlacedModel, plain: Plain) -> dict[str, Any]:
    """The segment that computes a model in a runtime's plain way, by one thread."""
    return whole_segment(driver_of(runtime), placed, {"threads": 1, **plain.options})


def plain_label(runtime: Runtime, version: str, plain: Plain) -> str:
    """What computes so, for people."""
    return f"{' '.join(filter(None, (runtime.name, version)))} {plain.label} on the model's file, unmodified"


def reference_here(lab: Lab, runner: CampaignRunner, reasons: list[str]) -> dict[str, Any] | None:
    """Compute the outputs with a runtime of this machine and bring them to the device; their sensitivity.

    None where no runtime here loads the user's own file; why, is added to `reasons`. It is not measured, so that the
    lease of this machine is not wanted for it.
    """
    runtimes = tuple(r for r in all_runtimes()[0] if lab.graph.format in r.formats)
    timeout_s = lab.request.effort.timeout_s
    with LocalDevice() as here, AgentLink(here, timeout_s=timeout_s) as link:
        probes, _ = probe_runtimes(link, runtimes)
        placed = PlacedModel(
            graph=lab.graph, path=str(lab.own.absolute()), inputs=lab.placed.inputs, outputs=lab.placed.outputs
        )
        ways: list[tuple[str, dict[str, Any]]] = []
        for runtime in (r for r in runtimes if r.name in probes):
            version = probes[runtime.name].version
            for plain in plain_ways(runtime):
                ways.append((plain_label(runtime, version, plain), plain_segment(runtime, placed, plain)))
        for runtime in (r for r in runtimes if r.name in probes and not plain_ways(r)):
            configuration = runtime.configurations(probes[runtime.name], Wish())[0]
            label = f"{configuration.name} {probes[runtime.name].version} on the model's file, unmodified"
            ways.append((label, runtime.segment(placed, configuration, {})))
        for label, segment in ways:
            job = lab.job([segment])
            job["feeds"] |= {name: {"file": str(path.absolute())} for name, path in lab.request.feeds.items()}
            found, failure = compute_reference(link, job, runner.seeds, timeout_s=timeout_s)
            if found is not None:
                fetched = lab.folder / REFERENCE
                here.pull(fetched.name, fetched)
                runner.check_against(lab.push(fetched, fetched.name))
                return {**found, "by": f"{label}, on this machine"}
            reasons.append(f"{label}, on this machine: {describe(failure)}")
    return None


_DRIFT = 0.05
"""Change of speed between profile and proof from which on it is told."""

_UNCHECKED = Doubt(
    kind="unchecked-conversion",
    message="no runtime here loads the model as it is, so what it was converted to is only checked against itself",
    hint=f"Install one on this machine: {install_line('onnxruntime', python=sys.executable)}",
)

_OTHER_SHAPES = Doubt(
    kind="other-shapes",
    message="the file declares other shapes for its outputs than they have; they were measured as they are",
    hint="Export the model again, or infer its shapes again: onnx.shape_inference.infer_shapes.",
)
_CHANGED = Doubt(
    kind="model-changed",
    message="the model's file changed meanwhile, so that some processes may have run another model than others",
    hint="Let its writer finish, and measure again with --fresh.",
)
_OPEN = "open_outputs"
_AGAIN, _REPEATS = "again", 1e-4
"""The key of how far outputs are off when they are computed once more, and by how much they may be."""

_MOST_HANGS = 4
"""How many ways to compute the reference may hang before no other is tried: each takes the whole of --timeout."""

_INPUT_REFUSED = "InputError: "  # how the agent begins what it says of an input's file


class Sensitivity(float):
    """How far the reference outputs move when the inputs do, relative to their largest magnitude.

    `finite_share` is the smallest share of finite values in any reference output, from 0 to 1. `reference` names what
    computed them, "" where an older record does not tell.
    """

    finite_share: float
    reference: str

    def __new__(cls, relative: float, *, finite_share: float, reference: str = "") -> Self:
        """`relative` with what share of the outputs is finite."""
        made = super().__new__(cls, relative)
        made.finite_share = finite_share
        made.reference = reference
        return made

    def __getnewargs_ex__(self) -> tuple[tuple[float], dict[str, Any]]:
        """How it is made again: for `copy`, and for a caller who sends results to other processes."""
        return (float(self),), {"finite_share": self.finite_share, "reference": self.reference}


def reference(lab: Lab) -> Sensitivity:
    """Outputs to check against: what the plainest way of a runtime makes of the user's own, unmodified file.

    That is a runtime that has a plain way (ONNX Runtime without optimisations, LiteRT's reference kernels), whether or
    not it is to be measured; else one that loads the file as it is. Where the device has only runtimes that need the
    file converted, this machine computes them if it can, so that the conversion is checked too.
    UsageError where the file of an input does not fit the model, MeasurementError where no runtime gives outputs.
    """
    if isinstance(lab.runner, RecordedRunner):
        return _recalled(lab, lab.runner)
    runner, timeout_s = lab.runner, lab.request.effort.timeout_s
    clean = [t for t in lab.targets if not t.configuration.environment]
    loads_it = [t for t in clean if lab.graph.format in t.runtime.formats]
    reasons: list[str] = []
    own, hung, refused = unmodified(lab), 0, False
    for lab.open_outputs in (False, True):
        if lab.open_outputs and not (refused and any(t.shape is not None for t in lab.outputs)):
            break
        for label, job in judges(lab, own, loads_it):
            if hung == _MOST_HANGS:
                break
            found, failure = runner.reference(job, timeout_s=timeout_s)
            hung += failure is not None and failure.kind == "hang"
            if found is not None:
                if lab.open_outputs:
                    lab.doubts.append(_OTHER_SHAPES)
                return _noted(lab, runner, {**found, "by": label, _OPEN: lab.open_outputs})
            if failure is not None:
                _blame_input(failure)
                refused = refused or failure.kind == "refused"
            reasons.append(f"{label}: {describe(failure)}")
    lab.open_outputs = False
    found = None if loads_it else reference_here(lab, runner, reasons)
    if found is not None:
        return _noted(lab, runner, found)
    for target in clean if not loads_it else ():
        job = lab.job([target.runtime.segment(target.placed, target.configuration, {})])
        found, failure = runner.reference(job, timeout_s=timeout_s)
        if found is not None:
            lab.doubts.append(_UNCHECKED)
            label = f"{target.configuration.name}, on the converted file"
            return _noted(lab, runner, {**found, "unchecked": True, "by": label})
        reasons.append(f"{target.configuration.name}: {describe(failure)}")
    raise MeasurementError(
        f"no runtime computes reference outputs ({'; '.join(dict.fromkeys(reasons))})",
        hint="Give inputs that the model was made for with --input NAME=FILE.npy, or try another runtime.",
    )


def unmodified(lab: Lab) -> PlacedModel:
    """The user's own file on the device, whose inputs are fixed only by what they are fed with."""
    return lab.placed


def judges(lab: Lab, own: PlacedModel, loads_it: Sequence[Target]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What may compute the reference on the device, the plainest first: its name for people, and the job."""
    loading = {t.runtime.name: t.runtime for t in lab.targets if lab.graph.format in t.runtime.formats}
    for runtime in loading.values():
        for plain in plain_ways(runtime):
            yield _plainly(lab, own, runtime, lab.probes[runtime.name].version, plain)
    for runtime, version in _unmeasured(lab):
        for plain in plain_ways(runtime):
            yield _plainly(lab, own, runtime, version, plain)
    for target in loads_it:
        fixed = [] if target.placed is own else [(target.placed, " with its shapes fixed")]
        for placed, how in [(own, ", unmodified"), *fixed]:
            segment = target.runtime.segment(placed, target.configuration, {})
            version = lab.probes[target.runtime.name].version
            yield f"{target.configuration.name} {version} on the model's file{how}", lab.job([segment])


def _plainly(lab: Lab, own: PlacedModel, runtime: Runtime, version: str, plain: Plain) -> tuple[str, dict[str, Any]]:
    return plain_label(runtime, version, plain), lab.job([plain_segment(runtime, own, plain)])


def _unmeasured(lab: Lab) -> Iterator[tuple[Runtime, str]]:
    """Runtimes on the device that are not asked for and have a plain way to run the user's file; with their version."""
    if lab.link is None or not lab.link.info.python:
        return
    for runtime in all_runtimes()[0]:
        asked = (
            any(t.runtime.name == runtime.name for t in lab.targets)
            or lab.graph.format not in runtime.formats
            or not usual(runtime)
        )
        if not asked and plain_ways(runtime):
            answer = lab.link.ask({runtime.name: {"do": "probe", "runtime": driver_of(runtime)}})[runtime.name]
            if not isinstance(answer, Failure):
                yield runtime, str(answer.get("version", ""))


def _noted(lab: Lab, runner: CampaignRunner, found: Mapping[str, Any]) -> Sensitivity:
    _look_at_repeating(lab, float(found.get(_AGAIN, 0.0)))
    runner.note(
        "reference",
        {
            "relative": float(found["relative"]),
            "finite": float(found["finite"]),
            "unchecked": bool(found.get("unchecked")),
            "by": found["by"],
            **({_OPEN: True} if found.get(_OPEN) else {}),
            **({_AGAIN: float(found[_AGAIN])} if lab.unrepeatable else {}),
        },
    )
    return Sensitivity(float(found["relative"]), finite_share=float(found["finite"]), reference=found["by"])


def _look_at_repeating(lab: Lab, again: float) -> None:
    """Nothing can be compared with outputs that are others in each call, as those of random operators are."""
    lab.unrepeatable = again > _REPEATS
    if lab.unrepeatable:
        message = (
            f"called again with the same inputs, the model gives other outputs (by {again:.2g} of their largest "
            "magnitude), so that nobody can say whether they are right"
        )
        hint = "If it is not meant to draw random numbers or to keep a state, look which operator does."
        lab.doubts.append(Doubt(kind="unrepeatable", message=message, hint=hint))


def _recalled(lab: Lab, runner: RecordedRunner) -> Sensitivity:
    data = runner.last("reference") or {"relative": 1.0, "finite": 1.0}
    if data.get("unchecked"):
        lab.doubts.append(_UNCHECKED)
    if data.get(_OPEN):
        lab.open_outputs = True
        lab.doubts.append(_OTHER_SHAPES)
    _look_at_repeating(lab, float(data.get(_AGAIN, 0.0)))
    by = str(data.get("by", ""))
    return Sensitivity(float(data["relative"]), finite_share=float(data["finite"]), reference=by)


def _blame_input(failure: Failure) -> None:
    """UsageError if it is a file given by the user that failed: no other runtime can do better with it."""
    if failure.kind == "refused" and failure.message.startswith(_INPUT_REFUSED):
        raise UsageError(
            f"--input: {failure.message.removeprefix(_INPUT_REFUSED)}",
            hint="Give another file with --input NAME=FILE.npy, or leave it out for random numbers.",
        )


def doubts(lab: Lab, sensitivity: Sensitivity) -> tuple[Doubt, ...]:
    """Each kind of doubt once: about the machine, where it was worst, about its devices, and about the reference."""
    found = [*worst(lab.runner.environments), *lab.doubts, *software_devices(lab.targets)]
    if lab.model_changed:
        found.insert(0, _CHANGED)
    if sensitivity < 1e-5:
        found.append(
            Doubt(
                kind="insensitive",
                message="the outputs hardly depend on the input, so equal outputs prove little",
                hint="Give a real input with --input NAME=FILE.npy; if it is one, the model may ignore it.",
            )
        )
    if lost := 1 - sensitivity.finite_share:
        told = f"{100 * lost:.2g} % of an output of the reference is NaN or infinite, so equal outputs prove less"
        if lost == 1:
            told = "an output of the reference holds no finite value, so equal outputs prove nothing"
        hint = "Give a real input with --input NAME=FILE.npy; if it is one, look where the model makes NaN or infinity."
        found.append(Doubt(kind="not-finite", message=told, hint=hint))
    return tuple(found)


def drift(before: Measured, after: Measured, clock: Clock) -> Doubt | None:
    """A doubt if the same thing took longer or shorter when it was measured again: predictions are off by as much."""
    if not (before.ok and after.ok):
        return None
    ratio = level(after, clock) / level(before, clock)
    if abs(math.log(ratio)) < math.log(1 + _DRIFT):
        return None
    slower = f"{ratio - 1:.0%} slower" if ratio > 1 else f"{1 / ratio - 1:.0%} faster"
    return Doubt(
        kind="drift",
        message=f"the machine was {slower} in the proof than while profiling; comparisons hold, predictions less",
        hint="Measure again at a quieter time.",
    )
