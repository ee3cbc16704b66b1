"""The request of `pareto`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gnomon.core.brief import brief
from gnomon.core.graph import By
from gnomon.jobs.pareto.search import Plan
from gnomon.session.objectives import LATENCY, MEMORY
from gnomon.session.request import ModelRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoRequest:
    """The objectives, the choices, the search, and the use of the front.

    `request` is the model and the device to measure; None if a dump (`source`) takes the place of the device, whose
    digits mean `backends` if these are given. `options` are tunings of the runtime with the values to try; none means
    the usual values. With `all_cores`, one thread and as many threads as usable cores are values of the option
    `threads`, if the runtimes have it. `others` are further searches to compare with `plan`. `pick` is the number of a
    point of the front, `under` are bounds on objectives in seconds, bytes or joules; the chosen point is written to
    `out` and verified. `dumpfile` receives all measurements. `counters` are the device's energy counters to add up;
    none means the counters of the whole machine.
    """

    request: ModelRequest | None = None
    source: Path | None = None
    backends: tuple[str, ...] = ()
    objectives: tuple[str, ...] = (LATENCY, MEMORY)
    by: By = "type"
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    all_cores: bool = False
    plan: Plan = field(default_factory=Plan)
    others: tuple[Plan, ...] = ()
    counters: tuple[str, ...] = ()
    pick: int | None = None
    under: Mapping[str, float] = field(default_factory=dict)
    out: Path | None = None
    overwrite: bool = False
    dumpfile: Path | None = None

    __repr__ = brief

    @property
    def plans(self) -> tuple[Plan, ...]:
        """All searches, the first one first."""
        return (self.plan, *self.others)
