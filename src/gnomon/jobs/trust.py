"""What results are checked against, and what speaks against believing them."""

from __future__ import annotations

from gnomon.errors import MeasurementError
from gnomon.jobs.lab import Lab
from gnomon.jobs.targets import describe
from gnomon.measure.environment import Doubt, judge


def reference(lab: Lab) -> float:
    """Outputs to check against, from a clean environment and the plainest way that any runtime here computes."""
    reasons = []
    for target in lab.targets:
        if target.configuration.environment:
            continue
        segment = target.runtime.segment(lab.placed, target.configuration, {})
        segment["options"] = {**segment["options"], "optimise": False}
        found, failure = lab.runner.reference(lab.job([segment]), timeout_s=lab.request.effort.timeout_s)
        if found is not None:
            return float(found["relative"])
        reasons.append(f"{target.configuration.name}: {describe(failure)}")
    raise MeasurementError(
        f"no runtime computes reference outputs ({'; '.join(reasons)})", hint="Try another model or runtime."
    )


def doubts(lab: Lab, sensitivity: float) -> tuple[Doubt, ...]:
    """Each kind of doubt once, the worst first seen."""
    found: dict[str, Doubt] = {}
    for pair in lab.runner.environments:
        for doubt in judge(pair["before"], pair["after"]):
            found.setdefault(doubt.kind, doubt)
    if sensitivity < 1e-5:
        found["insensitive"] = Doubt(
            kind="insensitive",
            message="the outputs hardly depend on the input, so equal outputs prove little",
            hint="Give a real input with --input NAME=FILE.npy.",
        )
    return tuple(found.values())
