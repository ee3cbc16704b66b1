"""What results are checked against, and what speaks against believing them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

from gnomon.core.sample import Failure
from gnomon.errors import MeasurementError, UsageError
from gnomon.jobs.contender import level
from gnomon.jobs.lab import Lab
from gnomon.jobs.reference import reference_here
from gnomon.jobs.targets import Target, describe
from gnomon.measure.campaign import CampaignRunner, Measured
from gnomon.measure.clock import Clock
from gnomon.measure.environment import Doubt, worst
from gnomon.measure.recorded import RecordedRunner

_DRIFT = 0.05
"""Change of speed between profile and proof from which on it is told."""

_UNCHECKED = Doubt(
    kind="unchecked-conversion",
    message="no runtime here loads the model as it is, so what it was converted to is only checked against itself",
    hint="Install one on this machine: pip install onnxruntime",
)

_INPUT_REFUSED = "InputError: "  # how the agent begins what it says of an input's file


class Sensitivity(float):
    """How far the reference outputs move when the inputs do, relative to their largest magnitude.

    `finite_share` is the smallest share of finite values in any reference output, from 0 to 1.
    """

    finite_share: float

    def __new__(cls, relative: float, *, finite_share: float) -> Self:
        """`relative` with what share of the outputs is finite."""
        made = super().__new__(cls, relative)
        made.finite_share = finite_share
        return made


def reference(lab: Lab) -> Sensitivity:
    """Outputs to check against, from a clean environment and the plainest way that any runtime here computes.

    They come from a runtime that loads the user's own file; where the device has only such as need it converted, this
    machine computes them if it can, so that the conversion is checked too.
    UsageError where the file of an input does not fit the model, MeasurementError where no runtime gives outputs.
    """
    if isinstance(lab.runner, RecordedRunner):
        return _recalled(lab, lab.runner)
    clean = [t for t in lab.targets if not t.configuration.environment]
    own = [t for t in clean if t.placed is lab.placed]
    reasons: list[str] = []
    for target in own:
        found, failure = lab.runner.reference(_plain_job(lab, target), timeout_s=lab.request.effort.timeout_s)
        if found is not None:
            return _noted(lab.runner, found)
        if failure is not None:
            _blame_input(failure)
        reasons.append(f"{target.configuration.name}: {describe(failure)}")
    found = None if own else reference_here(lab, lab.runner, reasons)
    if found is not None:
        return _noted(lab.runner, found)
    for target in clean if not own else ():
        found, failure = lab.runner.reference(_plain_job(lab, target), timeout_s=lab.request.effort.timeout_s)
        if found is not None:
            lab.doubts.append(_UNCHECKED)
            return _noted(lab.runner, {**found, "unchecked": True})
        reasons.append(f"{target.configuration.name}: {describe(failure)}")
    raise MeasurementError(
        f"no runtime computes reference outputs ({'; '.join(reasons)})", hint="Try another model or runtime."
    )


def _plain_job(lab: Lab, target: Target) -> dict[str, Any]:
    """The job that computes a target's outputs in its plainest way."""
    segment = target.runtime.segment(target.placed, target.configuration, {})
    segment["options"] = {**segment["options"], "optimise": False}
    return lab.job([segment])


def _noted(runner: CampaignRunner, found: Mapping[str, Any]) -> Sensitivity:
    runner.note(
        "reference",
        {
            "relative": float(found["relative"]),
            "finite": float(found["finite"]),
            "unchecked": bool(found.get("unchecked")),
        },
    )
    return Sensitivity(float(found["relative"]), finite_share=float(found["finite"]))


def _recalled(lab: Lab, runner: RecordedRunner) -> Sensitivity:
    data = runner.last("reference") or {"relative": 1.0, "finite": 1.0}
    if data.get("unchecked"):
        lab.doubts.append(_UNCHECKED)
    return Sensitivity(float(data["relative"]), finite_share=float(data["finite"]))


def _blame_input(failure: Failure) -> None:
    """UsageError if it is a file given by the user that failed: no other runtime can do better with it."""
    if failure.kind == "refused" and failure.message.startswith(_INPUT_REFUSED):
        raise UsageError(
            f"--input: {failure.message.removeprefix(_INPUT_REFUSED)}",
            hint="Give another file with --input NAME=FILE.npy, or leave it out for random numbers.",
        )


def doubts(lab: Lab, sensitivity: Sensitivity) -> tuple[Doubt, ...]:
    """Each kind of doubt once: about the machine, where it was worst, and about the reference."""
    found = [*worst(lab.runner.environments), *lab.doubts]
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
