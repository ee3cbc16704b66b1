"""The measurement alone: a model whole on every backend, end to end and per operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gnomon.core.brief import brief
from gnomon.core.graph import Graph
from gnomon.core.stats import Comparison, Summary, summarise
from gnomon.devices.guard import guarded_folder
from gnomon.jobs.across import AcrossPlacer
from gnomon.jobs.clock_warnings import clock_warnings
from gnomon.jobs.contender import Contender, blocks, choose_clock, cpu_summary, fastest_of, level, trace_of, versus
from gnomon.jobs.kernels import Breakdown, Kernel, breakdown, by_clock, kernels
from gnomon.jobs.lab import Lab, open_lab, stopped_doubts
from gnomon.jobs.patience import patiently
from gnomon.jobs.request import Request, timed
from gnomon.jobs.singles import profile_singles
from gnomon.jobs.targets import Missing
from gnomon.jobs.transferring import inside_placer
from gnomon.jobs.trust import doubts, reference
from gnomon.measure.campaign import Measured
from gnomon.measure.clock import Clock
from gnomon.measure.environment import Doubt
from gnomon.measure.progress import Watch


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One way to run the whole model.

    `level_s` is the one number that is compared, by the deciding clock: of CPU time the median, of wall time the lower
    quintile. `against_fastest` is the interleaved comparison with the fastest column, None for itself.
    `wall` and `cpu` sum up the runs without any profiler; `kernels` are from the profiled ones, never mixed with them.
    `breakdown` is where the time of a call without profiler goes by them, by the clock that decides. `difference` is
    the largest one of the outputs from the reference.
    """

    label: str
    level_s: float
    against_fastest: Comparison | None
    wall: Summary
    cpu: Summary | None
    load_s: float
    first_call_s: float
    peak_rss_bytes: int | None
    difference: dict[str, float]
    kernels: tuple[Kernel, ...]
    breakdown: Breakdown

    __repr__ = brief


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What `profile` found: a column for each way to run the model that gives right outputs.

    `clock` is what the columns are compared by, as in a placement.
    """

    model: Path
    graph: Graph
    device: str
    versions: dict[str, str]
    clock: Clock
    columns: tuple[Column, ...]
    missing: tuple[Missing, ...]
    doubts: tuple[Doubt, ...]
    campaign: str
    resumed: bool
    seconds: float
    waited_s: float = 0.0

    __repr__ = brief

    @property
    def fastest(self) -> Column:
        """The fastest column by the clock, which others may equal."""
        return next(c for c in self.columns if c.against_fastest is None)


def profile(request: Request, *, watch: Watch | None = None, tell: Callable[[str], None] | None = None) -> Profile:
    """Measure the model whole on every backend; a device that vanishes is waited for.

    Raises GnomonError; what was measured until then is in the record.
    """
    return patiently(lambda again: _profile(again, watch, tell), timed(request), tell)


def _profile(request: Request, watch: Watch | None, tell: Callable[[str], None] | None) -> Profile:
    with (
        open_lab(request, kind="profile", question={}, watch=watch, tell=tell) as lab,
        guarded_folder("gnomon-segments-") as folder,
    ):
        sensitivity = reference(lab)
        contenders = _contenders(lab, folder)
        alive = profile_singles(lab, contenders, settle=True)
        field = {c.label: lab.runner.known(c.key) for c in alive}
        clock = choose_clock(lab, field.values())
        best = fastest_of(field, clock)
        columns = tuple(_column(lab, c, field[best], clock) for c in alive)
        fastest = next(c for c in columns if c.against_fastest is None)
        lab.runner.finish({"fastest": best, "median_s": fastest.wall.median_s})
        return Profile(
            model=request.model,
            graph=lab.graph,
            device=lab.device.name,
            versions={name: probe.version for name, probe in lab.probes.items()},
            clock=clock,
            columns=columns,
            missing=tuple(lab.missing),
            doubts=(
                *stopped_doubts(request, lab.runner.stopped),
                *clock_warnings(field, best, clock),
                *doubts(lab, sensitivity),
            ),
            campaign=lab.runner.campaign.id,
            resumed=lab.runner.resumed,
            seconds=request.used_s,
            waited_s=request.waited_s,
        )


def _contenders(lab: Lab, folder: Path) -> list[Contender]:
    made: list[Contender] = []
    whole = [t for t in lab.targets if len(t.configuration.backends) == 1]
    placer = AcrossPlacer(lab, whole, folder)
    for target in lab.targets:
        made += [placer.whole(target)] if target in whole else inside_placer(lab, target).singles()
    return made


def _column(lab: Lab, contender: Contender, best: Measured, clock: Clock) -> Column:
    known = lab.runner.known(contender.key)
    traced = lab.runner.known(trace_of(contender).key)
    found = kernels(contender.graph, traced)
    wall = summarise(blocks(known, "wall"))
    return Column(
        label=contender.label,
        level_s=level(known, clock),
        against_fastest=None if known.key == best.key else versus(known, best, clock),
        wall=wall,
        cpu=cpu_summary(known),
        load_s=known.fact("load_ns") * 1e-9,
        first_call_s=known.fact("first_call_ns") * 1e-9,
        peak_rss_bytes=known.fact("peak_rss_bytes"),
        difference=known.fact("difference"),
        kernels=found,
        breakdown=breakdown(contender.graph, by_clock(found, traced, clock), level(known, clock)),
    )
