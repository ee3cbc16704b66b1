"""What lower precisions would bring that the processor computes in and nobody asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gnomon.jobs.contender import Contender, level, versus
from gnomon.jobs.lab import Lab
from gnomon.measure.campaign import Candidate
from gnomon.measure.clock import Clock
from gnomon.measure.environment import Doubt
from gnomon.runtimes.base import Configuration
from gnomon.runtimes.onnx_whole import TOLERANCE

_CHEAP_S = 0.2
"""The longest call of a model that is measured for a hint alone."""


def precision_hints(lab: Lab, alive: Sequence[Contender], clock: Clock) -> list[Doubt]:
    """A sentence for each precision below float32 that a runtime offers on this processor and that was not asked for.

    Where a call is short the ratio to float32 is measured, in one process of each: enough to say whether it is worth
    asking for, and never a reason to choose it.
    """
    if lab.link is None:
        return []
    hints = []
    for contender, configuration in _offers(lab, alive):
        hint = f"--precision {configuration.precision} measures it beside the others and proves it."
        told = f"this processor computes in {configuration.precision}, which was not asked for"
        if level(lab.runner.known(contender.key), clock) <= _CHEAP_S:
            told += _measured(lab, contender, configuration, clock)
        hints.append(Doubt(kind="precision", message=told, hint=hint))
    return hints


def _offers(lab: Lab, alive: Sequence[Contender]) -> Iterator[tuple[Contender, Configuration]]:
    """Float32 contenders that run the model whole, with a configuration of less precision that their runtime has."""
    lower = tuple(name for name in TOLERANCE if name != "float32" and name not in lab.request.wish.precisions)
    for contender in alive:
        (part, *more), own = contender.parts, contender.parts[0].configuration
        if more or own.environment or own.precision != "float32" or len(own.backends) > 1:
            continue
        if "precisions" not in lab.probes[own.runtime].details:
            continue
        wish = replace(lab.request.wish, precisions=lower, environments=())
        for configuration in part.target.runtime.configurations(lab.probes[own.runtime], wish):
            if configuration.precision in lower:
                yield contender, configuration


def _measured(lab: Lab, contender: Contender, configuration: Configuration, clock: Clock) -> str:
    """What it would bring, in words; where it fails or computes too coarsely, that."""
    target = contender.parts[0].target
    segment = target.runtime.segment(target.placed, configuration, {})
    wanted = Candidate(
        key=f"precision/{configuration.name}", job=lab.job([segment]), tolerance=lab.tolerance(configuration)
    )
    beside = replace(contender.candidate, key=f"precision/{contender.key}")
    effort = replace(lab.request.effort, processes_least=1, processes_most=1)
    found = lab.runner.measure("precision", [beside, wanted], effort)
    if lab.runner.stopped:
        return ""
    if not (found[wanted.key].ok and found[beside.key].ok):
        return f"; {configuration.name} does not compute this model within {configuration.tolerance:g} of float32"
    compared = versus(found[wanted.key], found[beside.key], clock)
    interval = f" [{compared.low:.2f}, {compared.high:.2f}]" if compared.low > 0 else ""
    difference = found[wanted.key].fact("difference") or {}
    off = difference.get("relative")
    within = "" if off is None else f", its outputs within {off:.1g} of the largest"
    return f": {configuration.name} took {compared.ratio:.2f}{interval} of the time of float32 in one process{within}"
