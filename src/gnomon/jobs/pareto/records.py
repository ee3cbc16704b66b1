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

    `request` says what is measured and where; None where a dump takes the place of the device (`source`), whose digits
    mean `backends` if they are given. `options` are tunings of the runtime with the values to try, none meaning the
    usual ones; with `all_cores` one thread and as many as cores may be used are values of the option `threads`, where
    runtimes have it. `others` are searches that are run beside that of `plan`, to be compared. `pick` is the number of
    a point of the front, `under` bounds of objectives in seconds, bytes or joules: the point is written to `out` and
    verified. `dumpfile` gets everything that was measured. `counters` are the device's energy counters to add up; none
    means those of the whole machine.
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
