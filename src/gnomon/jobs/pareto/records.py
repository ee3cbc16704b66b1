"""What `pareto` is asked, and what it found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from gnomon.core.brief import brief
from gnomon.core.front.front import Certificate
from gnomon.core.graph import By, Graph
from gnomon.core.space import Space
from gnomon.errors import MeasurementError, exit_code_of
from gnomon.jobs.pareto.prove import Point
from gnomon.jobs.pareto.search import Plan, Searched
from gnomon.measure.effort import Clock
from gnomon.measure.environment import Doubt
from gnomon.report.answer import Answer
from gnomon.session.document import ConditionsPart
from gnomon.session.objectives import LATENCY, MEMORY
from gnomon.session.prove import Verified
from gnomon.session.request import ModelRequest
from gnomon.session.targets import Missing
from gnomon.store.address import RecordAddress
from gnomon.wire import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoRequest:
    """What is minimised over which choices, how it is searched, and what to do with the front.

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


DecidingClock = Clock | Literal["mixed"]
"""The clock of all points of a front, or "mixed" where CPU time tells the time of some of them alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """Where a front was measured: what is not there where a dump is searched.

    `clock` is that of the points, `sample_clock` that of the samples. `environments` are the device's snapshots around
    each session, `record` is the results database.
    """

    model: Path
    graph: Graph
    device: str
    fingerprint: Mapping[str, Any]
    versions: Mapping[str, str]
    clock: DecidingClock
    sample_clock: Clock
    sensitivity: float
    environments: tuple[Environment, ...]
    campaign: str
    record: RecordAddress
    resumed: bool
    conditions: ConditionsPart

    __repr__ = brief


@dataclass(frozen=True, slots=True, kw_only=True)
class Pareto(Answer):
    """What `pareto` found.

    `points` are those of the proof, the front first: those with a number are the front. `proved` says that they were
    measured again side by side, in so many `sessions`; without it their values are the samples. `left_out` points of
    the sampled front, or within noise of it, were not measured again, and `behind` that no noise explains; `noise` is
    what was seen of it, as `prove.Worth` has it. `prices` says in words what each objective's number is made
    of. `slots` are the decision space's slots by the words of the command, `published` the space of the codes.
    `searches` is what each search did, in the order of the request, and `searched` all of it as one. `enough` is a
    single backend on the front that no mix there is surely better than, in anything. `failures` are assignments that
    failed, with the reason. `chosen` is the point that was deployed to `package`. `seconds` is
    without `waited_s` for the device.
    """

    asked: ParetoRequest
    lived: Lived | None
    space: Space
    published: Space
    operator_slots: int
    searched: Searched
    searches: tuple[Searched, ...]
    samples: tuple[tuple[int, str], ...]
    points: tuple[Point, ...]
    proved: bool
    left_out: int
    certificate: Certificate
    prices: Mapping[str, str]
    failures: tuple[tuple[str, str], ...]
    missing: tuple[Missing, ...]
    doubts: tuple[Doubt, ...]
    seconds: float
    waited_s: float = 0.0
    behind: int = 0
    sessions: int = 0
    noise: Mapping[Clock, tuple[float, ...]] | None = None
    enough: Point | None = None
    chosen: Point | None = None
    verified: Verified | None = None
    package: Path | None = None
    dumpfile: Path | None = None
    pictures: tuple[str, ...] = ()

    document_by = "gnomon.jobs.pareto.document:pareto_document"
    charts_by = "gnomon.jobs.pareto.picture:front_charts"
    main = "points"

    __repr__ = Answer.__repr__

    def headline(self) -> tuple[str, str]:
        """The model and the device, or the dump, and how many points are on the front."""
        of = f"{self.lived.model.name} on {self.lived.device}" if self.lived else str(self.asked.source)
        count = len(self.front)
        told = f"{count} point{'s' if count != 1 else ''} on the front of {' and '.join(self.asked.objectives)}"
        return of, f"{told}, {'proved' if self.proved else 'as sampled'}."

    @property
    def exit_code(self) -> int:
        """That of its doubts; where the package is refused, that of a measurement that failed."""
        refused = self.verified is not None and not (self.verified.ok or self.verified.skipped)
        return MeasurementError.exit_code if refused else exit_code_of(doubt.kind for doubt in self.doubts)

    @property
    def front(self) -> tuple[Point, ...]:
        """The points that nothing surely dominates."""
        return tuple(p for p in self.points if p.number is not None)
