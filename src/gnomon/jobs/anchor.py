"""Measuring beside an anchor: the speed of a machine drifts, the ratio of two things measured together does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gnomon.jobs.contender import level
from gnomon.measure.campaign import CampaignRunner, Candidate, Measured
from gnomon.measure.clock import Clock
from gnomon.measure.effort import Effort
from gnomon.measure.recorded import RecordedRunner

Runner = CampaignRunner | RecordedRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A candidate that was profiled, and is run again beside whatever is compared with that profile later."""

    candidate: Candidate
    clock: Clock


def measure_beside(
    runner: Runner, stage: str, candidates: Sequence[Candidate], anchor: Anchor, effort: Effort
) -> tuple[dict[str, Measured], Mapping[str, float]]:
    """Measure in groups, each with a fresh run of the anchor in it.

    Returns what was measured, and by candidate the factor that brings its times to the speed that the machine had
    while the anchor was profiled (1 where the anchor failed this time).
    """
    room = max(1, effort.together - 1)
    count = -(-len(candidates) // room)
    own = anchor.candidate
    name = f"{own.key}/beside {candidates[0].key}" if candidates else own.key
    again = [replace(own, key=f"{name}/{k}", check=False) for k in range(count)]
    # The campaign deals candidates out to as many groups as there are anchors: each group begins with one.
    measured = runner.measure(stage, [*again, *candidates], replace(effort, together=room + 1))
    profiled = level(runner.known(own.key), anchor.clock)
    factors = [profiled / level(measured[a.key], anchor.clock) if measured[a.key].ok else 1.0 for a in again]
    return measured, {c.key: factors[k % count] for k, c in enumerate(candidates)}
