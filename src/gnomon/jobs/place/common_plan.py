"""The plan that is best for all of several devices, from what `place` found on each. docs/jobs/fleet.md is its design.

What can be the same on all devices: a configuration that was measured on each of them, and, inside one runtime,
an assignment of its operators that the prices of all devices tell to be best.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gnomon.core.cost import CostModel, Objective
from gnomon.core.pricing.transfers import transfer_model
from gnomon.core.solver.common import CommonPlan, common_problem, least_total, over_choices
from gnomon.core.space import Slot, Space
from gnomon.core.stats import Summary
from gnomon.errors import InfeasibleError, ProblemError
from gnomon.jobs.place.inside import InsideResult
from gnomon.jobs.place.job import Placement
from gnomon.jobs.place.transfers import TransferResult
from gnomon.measure.campaign import Measured
from gnomon.measure.effort import Clock
from gnomon.session.contender import Contender, Proved, level, versus

Identity = tuple[str, tuple[tuple[str, tuple[tuple[int, str], ...]], ...]]
"""What makes two contenders of different devices the same: the graph, and each part's configuration and backends."""

_TIME_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """An option on one device: its time by the deciding clock, and its regret against the choice there.

    `measured` False: both are by the prices, and there are no intervals (None, as where too little was measured).
    """

    time_s: float
    low_s: float | None
    high_s: float | None
    regret: float
    regret_low: float | None
    regret_high: float | None
    measured: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One configuration for all devices: operator -> backend, and what it means for each device.

    `certificate` is the solver's, where it was solved for rather than found among what was measured everywhere.
    """

    label: str
    configurations: tuple[str, ...]
    backends: Mapping[int, str]
    shares: Mapping[str, Share]
    certificate: CommonPlan | None

    @property
    def total(self) -> float:
        """The sum of the relative times; the number of devices where nothing is lost on any."""
        return sum(1.0 + share.regret for share in self.shares.values())

    @property
    def worst(self) -> float:
        """The largest regret of any device."""
        return max(share.regret for share in self.shares.values())

    @property
    def predicted_on(self) -> tuple[str, ...]:
        """The devices on which it was not measured."""
        return tuple(name for name, share in self.shares.items() if not share.measured)


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """All options, and the one of least total time (None: nothing runs on all devices).

    `notes` say what could not be an option, and why.
    """

    options: tuple[Option, ...]
    total: Option | None
    notes: tuple[str, ...]


def identity(contender: Contender) -> Identity:
    """What the contender is, independent of the device."""
    parts = tuple((p.configuration.name, tuple(sorted(p.backends.items()))) for p in contender.parts)
    return contender.graph.digest, parts


def decide(placements: Mapping[str, Placement]) -> Common:
    """The options that all devices have, and which is best for all. Placements are by the devices' names."""
    if not placements:
        return Common(options=(), total=None, notes=("no device gave an answer",))
    notes: list[str] = []
    found: dict[Identity, Option] = {}
    first = next(iter(placements.values()))
    for proved in first.verdict.proved:
        option = _measured_everywhere(placements, proved.contender)
        if option is not None:
            found.setdefault(identity(proved.contender), option)
    for name in dict.fromkeys(r.target.configuration.name for p in placements.values() for r in p.inside):
        results = {d: r for d, p in placements.items() for r in p.inside if r.target.configuration.name == name}
        if len(results) == len(placements):
            _solve_inside(placements, results, found, notes)
        else:
            without = [d for d in placements if d not in results]
            notes.append(f"{name} was not priced on {', '.join(without)}")
    if not found:
        notes.append("no configuration was measured on all devices")
    return settle(found.values(), notes)


def settle(found: Iterable[Option], notes: Sequence[str]) -> Common:
    """Choose the option of least total time; of those that are equal, the one of the least worst regret."""
    options = tuple(sorted(found, key=lambda o: (o.total, o.worst)))
    return Common(options=options, total=options[0] if options else None, notes=tuple(notes))


def _measured_everywhere(placements: Mapping[str, Placement], contender: Contender) -> Option | None:
    """The option of a contender that ran on all devices, else None."""
    wanted = identity(contender)
    shares: dict[str, Share] = {}
    for name, placement in placements.items():
        proved = find(placement, wanted)
        if proved is None:
            return None
        shares[name] = measured_share(placement, proved)
    return Option(
        label=contender.label,
        configurations=tuple(part.configuration.name for part in contender.parts),
        backends=contender.backends,
        shares=shares,
        certificate=None,
    )


def chosen_of(placement: Placement) -> Proved:
    """The choice of a device, that regret is counted from."""
    return placement.verdict.chosen


def find(placement: Placement, wanted: Identity) -> Proved | None:
    """What was measured of an identity there, if it ran."""
    return next((p for p in placement.verdict.proved if p.ok and identity(p.contender) == wanted), None)


def measured_share(placement: Placement, proved: Proved) -> Share:
    """The share of a device on which the contender was measured, by the interleaved comparison with its choice."""
    summary = proved.cpu if placement.clock == "cpu" else proved.summary
    assert summary is not None  # noqa: S101 - it ran
    chosen = chosen_of(placement)
    if proved is chosen:
        return share_of(summary, 1.0, 1.0, 1.0)
    return share_of(summary, *compared(proved.measured, chosen.measured, placement.clock))


def compared(a: Measured, b: Measured, clock: Clock) -> tuple[float, float, float]:
    """How many times the time of b a takes, and the interval: (0, infinity) where they share no block.

    A laggard that got few visits may share none with the other; its ratio is then that of the levels.
    """
    try:
        found = versus(a, b, clock)
    except ValueError:
        return level(a, clock) / level(b, clock), 0.0, math.inf
    return found.ratio, found.low, found.high


def share_of(summary: Summary, ratio: float, low: float, high: float) -> Share:
    """The share of what was measured, by its times and by its ratio to the choice with the interval of it."""
    known = low > 0 and math.isfinite(high)
    bounded = summary.low_s > 0 and math.isfinite(summary.high_s)
    return Share(
        time_s=summary.median_s,
        low_s=summary.low_s if bounded else None,
        high_s=summary.high_s if bounded else None,
        regret=ratio - 1.0,
        regret_low=low - 1.0 if known else None,
        regret_high=high - 1.0 if known else None,
        measured=True,
    )


def _solve_inside(
    placements: Mapping[str, Placement],
    results: Mapping[str, InsideResult],
    found: dict[Identity, Option],
    notes: list[str],
) -> None:
    """Add the assignment of least total time inside one configuration that all devices have."""
    first = next(iter(results.values()))
    name, graph = first.target.configuration.name, first.target.placed.graph
    if any(r.target.placed.graph.digest != graph.digest for r in results.values()):
        notes.append(f"{name} runs another graph on some devices, so its operators cannot be compared")
        return
    backends = tuple(dict.fromkeys(b for r in results.values() for b in r.backends))
    models = {device: model_of(result, backends) for device, result in results.items()}
    best = {device: _best(placements[device], result) for device, result in results.items()}
    try:
        problem = common_problem(models, best, time_limit_s=_TIME_LIMIT_S)
        plan = least_total(problem, time_limit_s=_TIME_LIMIT_S)
    except (InfeasibleError, ProblemError) as error:
        notes.append(f"{name} has no assignment for all devices: {error.message}")
        return
    assigned = dict(enumerate(plan.choices))
    wanted = (graph.digest, ((name, tuple(sorted(assigned.items()))),))
    if wanted in found:
        return
    shares: dict[str, Share] = {}
    for device, placement in placements.items():
        proved = find(placement, wanted)
        predicted = _predicted(placement, plan.regrets[device])
        shares[device] = predicted if proved is None else measured_share(placement, proved)
    found[wanted] = Option(
        label=f"{name}: plan for all", configurations=(name,), backends=assigned, shares=shares, certificate=plan
    )


def model_of(result: InsideResult, backends: tuple[str, ...]) -> CostModel:
    """The prices of one device over backends of all; what it has not, it cannot choose."""
    names = [f"{op.index} {op.name}" for op in result.target.placed.graph.operators]
    if isinstance(result, TransferResult):
        choices = result.backends if len(result.backends) > 1 else (*result.backends, "none")
        return over_choices(transfer_model(names, choices, result.transfers, shared=False), backends)
    own = CostModel(
        space=Space(slots=tuple(Slot(name=name, choices=result.backends) for name in names)),
        objectives=(Objective(name="latency", unit="s"),),
        slot_costs=tuple(row[:, None] for row in result.prices_s),
    )
    return over_choices(own, backends)


def _best(placement: Placement, result: InsideResult) -> float:
    """What the device's choice takes, as the prices of this configuration see it: their errors then cancel."""
    chosen = chosen_of(placement)
    name = result.target.configuration.name
    here = [p.configuration.name for p in chosen.contender.parts] == [name]
    if here and chosen.contender.predicted_s:
        return chosen.contender.predicted_s
    return level(chosen.measured, placement.clock)


def _predicted(placement: Placement, regret: float) -> Share:
    """A share by the prices alone."""
    chosen = chosen_of(placement)
    summary = chosen.cpu if placement.clock == "cpu" else chosen.summary
    assert summary is not None  # noqa: S101 - the choice ran
    return Share(
        time_s=summary.median_s * (1.0 + regret),
        low_s=None,
        high_s=None,
        regret=regret,
        regret_low=None,
        regret_high=None,
        measured=False,
    )
