"""The first measurement of every job: the model whole, on each single backend, without profiler and then with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gnomon.errors import MeasurementError
from gnomon.jobs.contender import Contender, trace_of
from gnomon.jobs.lab import Lab
from gnomon.jobs.targets import Missing, describe


def profile_singles(lab: Lab, contenders: Sequence[Contender], *, settle: bool = False) -> list[Contender]:
    """Measure all of them interleaved; return those that run with right outputs, which then are traced.

    The others are added to what the lab is missing. MeasurementError if none is left. The runs are in the lab's
    campaign, under the contenders' keys. With `settle` they are the answer, and the stop rule decides when they are
    known well enough.
    """
    # Enough to price from; how sure the answer is, the proof's stop rule decides.
    effort = replace(lab.request.effort, processes_most=lab.request.effort.processes_least)
    candidates = [c.candidate for c in contenders]
    measured = lab.runner.measure("profile", candidates, lab.request.effort if settle else effort)
    alive = []
    for contender in contenders:
        if measured[contender.key].ok:
            alive.append(contender)
        else:
            lab.missing.append(Missing(name=contender.label, reason=describe(measured[contender.key].failure)))
    if not alive:
        reasons = "; ".join(f"{m.name}: {m.reason}" for m in lab.missing)
        raise MeasurementError(
            f"nothing runs the model with right outputs ({reasons})", hint="Try another runtime with --runtime."
        )
    traced = lab.runner.measure("profile, traced", [trace_of(c) for c in alive], effort)
    kept = [c for c in alive if traced[trace_of(c).key].ok]
    for contender in alive:
        if contender not in kept:
            failure = traced[trace_of(contender).key].failure
            lab.missing.append(Missing(name=f"{contender.label}, traced", reason=describe(failure)))
    return alive
