"""The reference models next to many small ones: the no-op model, whose time every call includes, and an anchor.

The anchor corrects for drift. The time of a small model is computed from one number per process, and has an interval.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from gnomon.core.stats import Block, drift, median, summarise
from gnomon.errors import DeviceError, GnomonError, MeasurementError
from gnomon.measure.campaign import Candidate, Measured
from gnomon.measure.effort import Clock, Effort, cpu_tells
from gnomon.models.units import write_net
from gnomon.session.bench.bench import Bench, Placed, measured_net_name
from gnomon.session.contender import blocks, levels_of
from gnomon.session.targets import describe
from gnomon.spaces.latency_table import STABLE, Table
from gnomon.spaces.unit import Net, Unit, empty

Item = TypeVar("Item")
OnDevice = TypeVar("OnDevice")

KNOWN_WITHIN = 1000.0
"""An interval that reaches beyond this multiple of the call's time counts as not known: two processes on a busy machine
can yield an interval of up to 1e13 s.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """The time of a model's call, or the `reason` why it was not measured.

    `call_s` is the level that `gnomon profile` reports too (`gnomon.session.contender.level`), and `low_s` and `high_s`
    are its 95 % interval (None: not known); all three are scaled by `drift` to the speed of the reference. `samples`
    are the raw seconds of calls by process and block. `at_s` is the time of the last sample in seconds since 1970.
    `large_s` is the time of the gauge's large model, measured next to this one and scaled to the same speed.
    """

    reason: str = ""
    at_s: float = 0.0
    call_s: float = 0.0
    low_s: float | None = None
    high_s: float | None = None
    drift: float = 1.0
    large_s: float | None = None
    processes: int = 0
    samples: Mapping[str, Sequence[float]]

    @property
    def half_width(self) -> float:
        """Half the interval divided by the call's time; infinity if the interval is not known."""
        if self.low_s is None or self.high_s is None:
            return math.inf
        return (self.high_s - self.low_s) / 2 / self.call_s


def moments_of(measured: Measured) -> dict[int, float]:
    """When each process ran: the mean of the times at which its blocks started, in seconds since 1970."""
    seen: dict[int, list[float]] = {}
    for run in measured.runs:
        if run.samples is not None:
            seen.setdefault(run.process, []).append(run.started_at_s)
    return {process: sum(times) / len(times) for process, times in seen.items()}


def timed(
    measured: Measured,
    clock: Clock,
    *,
    reference_s: Sequence[float] = (),
    anchors: Iterable[Measured] = (),
    large: Iterable[Measured] = (),
    sitting: int = 1 << 16,
) -> Timed:
    """The time of a model, scaled to the speed at which the anchor took `reference_s` (by process).

    `anchors` are the anchor's runs next to all models; each process of the model is compared with the anchor's process
    that is nearest in time. `large` are the runs of the gauge's large model. Each group of `sitting` consecutive
    processes is corrected by a drift of its own.
    """
    if not measured.ok:
        at_s = max((run.started_at_s for run in measured.runs), default=0.0)
        return Timed(reason=describe(measured.failure), at_s=at_s, samples={})
    levels, moments, seen = levels_of(measured, clock), moments_of(measured), _seen(anchors, clock)
    order = sorted(levels, key=lambda process: moments[process])
    brought: dict[int, float] = {}
    for start in range(0, len(order), sitting):
        part = order[start : start + sitting]
        factor = drift(reference_s, _nearest([moments[process] for process in part], seen))
        brought |= {process: levels[process] * factor for process in part}
    summary = summarise([Block(process=process, block=0, values_s=(value,)) for process, value in brought.items()])
    call_s = median(list(brought.values()))
    bounded = summary.high_s is not None and summary.high_s <= KNOWN_WITHIN * call_s
    factor = call_s / median(list(levels.values()))
    beside = _nearest(moments.values(), _seen(large, clock))
    return Timed(
        at_s=max(run.started_at_s for run in measured.runs if run.samples is not None),
        call_s=call_s,
        low_s=max(0.0, min(summary.low_s, call_s)) if bounded and summary.low_s is not None else None,
        high_s=max(summary.high_s, call_s) if bounded and summary.high_s is not None else None,
        drift=factor,
        large_s=median(beside) * factor if beside else None,
        processes=len(levels),
        samples={f"{b.process}/{b.block}": b.values_s for b in blocks(measured, clock)},
    )


def _seen(anchors: Iterable[Measured], clock: Clock) -> list[tuple[float, float]]:
    """When each process of the anchor was measured, and its level."""
    seen: list[tuple[float, float]] = []
    for anchor in anchors:
        if anchor.ok:
            moments, levels = moments_of(anchor), levels_of(anchor, clock)
            seen += [(moments[p], levels[p]) for p in levels]
    return seen


def _nearest(moments: Iterable[float], seen: Sequence[tuple[float, float]]) -> list[float]:
    """The levels of the anchor's processes that are nearest in time to these moments, each process once."""
    if not seen:
        return []
    nearest = {min(seen, key=lambda row: abs(row[0] - at_s)) for at_s in moments}
    return [level for _, level in sorted(nearest)]


_ANCHORS = 5
"""The number of units that are tried as the anchor; a converter may fail on the first."""

_MORE = 2
"""The additional processes of the no-op model and of the anchor, because the times of all units depend on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """The models that run next to all others: the anchor, and the no-op model, whose time every call includes.

    A `large` model may run next to them too: it reacts to effects that slow large models but not the anchor.

    `reference_s` are the anchor's call times by process, at the speed to which all times are scaled.
    """

    unit: Unit
    anchor: Candidate
    clock: Clock
    overhead_s: float
    reference_s: tuple[float, ...]
    large: Candidate | None = None


def gauge_of(bench: Bench, units: Sequence[Unit], table: Table | None = None) -> Gauge:
    """Measure the no-op model and the anchor. The anchor is that of the table, whose speed is the reference, or the
    unit of middle size.

    If the middle unit does not run, those next to it in size are tried. If times exclude the call around the layers,
    the no-op model is not run. Measurements in the record of an interrupted campaign are not repeated. MeasurementError
    if the no-op model or every anchor tried does not run.
    """
    first = None if bench.bare else placed_unit(bench, empty((1, 1, 1, 1)), "empty")
    unit, second, measured = _first_that_runs(bench, _anchors_of(units, table), first)
    wall = table is not None and table.manifest.clock == "wall"
    clock: Clock = "wall" if wall else clock_of(bench, list(measured.values()))
    own = tuple(levels_of(measured[second.key], clock).values())
    calls_s = table.manifest.anchor_calls_s if table is not None else ()
    return Gauge(
        unit=unit,
        anchor=second.candidate,
        clock=clock,
        overhead_s=timed(measured[first.key], clock).call_s if first else 0.0,
        reference_s=tuple(calls_s) or own,
    )


def _first_that_runs(
    bench: Bench, units: Sequence[Unit], first: Placed | None
) -> tuple[Unit, Placed, dict[str, Measured]]:
    """The first of the units that runs, measured next to the no-op model."""
    processes = bench.request.effort.processes_least + _MORE
    effort = replace(bench.request.effort, processes_least=processes, processes_most=processes)
    name, reasons = bench.runtime.name, []
    for unit in units:
        try:
            second = placed_unit(bench, unit, f"anchor-{unit.id}")
        except DeviceError:
            raise
        except GnomonError as error:
            reasons.append(f"{unit.label}: {error.message}")
            continue
        placed = [first, second] if first else [second]
        measured = bench.runner.measure("gauge", [model.candidate for model in placed], effort)
        if first and not measured[first.key].ok:
            raise MeasurementError(
                f"the no-op model could not be measured by {name}: {describe(measured[first.key].failure)}",
                hint=_UNGAUGED,
            )
        if measured[second.key].ok:
            return unit, second, measured
        reasons.append(f"{unit.label}: {describe(measured[second.key].failure)}")
    said = f"runs none of {len(reasons)} units, such as" if len(reasons) > 1 else "does not run the reference kernel"
    raise MeasurementError(f"{name} {said} {reasons[0]}", hint=_UNGAUGED)


_UNGAUGED = (
    "No time can be trusted without this measurement. Start the same command again. If it fails again, try "
    "another runtime with --runtime, or another backend with --backend."
)


def clock_of(bench: Bench, measured: Sequence[Measured]) -> Clock:
    """CPU time if one thread was requested and it does all the work, otherwise wall time."""
    single = bench.request.settings.threads == 1
    return "cpu" if single and all(cpu_tells(m.runs) for m in measured if m.ok) else "wall"


def placed_unit(bench: Bench, unit: Unit, key: str) -> Placed:
    """A unit as a model on the device. Raises GnomonError."""
    return bench.place(key, bench.write(unit, bench.folder / key))


def placed_net(bench: Bench, net: Net, kind: str) -> Placed:
    """A whole net as a model on the device, named after its kind and content. Raises GnomonError."""
    key = f"{kind}-{measured_net_name(net)}"
    path = bench.folder / f"{key}.onnx"
    if not path.exists():
        write_net(net, path, seed=bench.request.seed)
    return bench.place(key, path)


def place_each(
    items: Iterable[Item], place: Callable[[Item], OnDevice]
) -> tuple[dict[Item, OnDevice], dict[Item, GnomonError]]:
    """The items that `place` brings to the device, and the errors of the others. DeviceError if the device vanished."""
    placed: dict[Item, OnDevice] = {}
    failed: dict[Item, GnomonError] = {}
    for item in items:
        try:
            placed[item] = place(item)
        except DeviceError:
            raise
        except GnomonError as error:
            failed[item] = error
    return placed, failed


def measure_beside_gauge(
    bench: Bench, gauge: Gauge, stage: str, placed: Sequence[Placed], *, again: bool = False
) -> dict[str, Timed]:
    """Measure models next to fresh runs of the anchor; with `again`, the same number of processes is measured once
    more.

    At most `effort.together` models run at once, including the anchor and the large model. If the record holds all
    their measurements, nothing is measured.
    """
    if not placed:
        return {}
    effort = bench.request.effort
    sitting = effort.processes_least
    if again:
        twice = 2 * effort.processes_least
        effort = replace(effort, processes_least=twice, processes_most=twice)
    if all(_is_known(bench, p, effort) for p in placed):
        results = {p.key: bench.runner.known(p.key) for p in placed}
    else:
        beside = [_next(bench, model, sitting if again else 0) for model in (gauge.anchor, gauge.large) if model]
        results = bench.runner.measure(stage, [*beside, *(p.candidate for p in placed)], effort)
        anchor = results[beside[0].key]
        if not anchor.ok:
            raise MeasurementError(
                f"{bench.runtime.name} no longer runs the reference kernel: {describe(anchor.failure)}",
                hint="Check the device, then start again: what was measured is kept.",
            )
    anchors = [bench.runner.known(key) for key in _runs_of(bench, gauge.anchor)]
    large = [bench.runner.known(key) for key in _runs_of(bench, gauge.large)] if gauge.large else []
    in_time = partial(timed, clock=gauge.clock, reference_s=gauge.reference_s, anchors=anchors, large=large)
    return {p.key: in_time(results[p.key], sitting=sitting) for p in placed}


def measure_well(
    bench: Bench, gauge: Gauge, stage: str, placed: Sequence[Placed], *, half_width: float = STABLE
) -> dict[str, Timed]:
    """Like `measure_beside_gauge`, but models with a wider interval are measured in twice as many processes."""
    results = measure_beside_gauge(bench, gauge, stage, placed)
    once = bench.request.effort.processes_least
    seen = [(model, results[model.key]) for model in placed]
    more = [model for model, t in seen if not t.reason and t.half_width > half_width and t.processes <= once]
    return results | measure_beside_gauge(bench, gauge, f"{stage} again", more, again=True)


def parts_of(items: Sequence[Item], room: int) -> Iterator[Sequence[Item]]:
    """Divide items into as few groups as possible, of about equal size and of at most `room` items each."""
    count = -(-len(items) // max(1, room))
    return (items[k::count] for k in range(count))


def _anchors_of(units: Sequence[Unit], table: Table | None) -> list[Unit]:
    """The unit that is a table's anchor, otherwise the units of middle size (`by_size`)."""
    if table is not None and table.manifest.anchor:
        for unit in (*units, *(row.unit for row in table.rows)):
            if unit.id == table.manifest.anchor:
                return [unit]
        raise MeasurementError(
            f"the table's reference kernel, the unit {table.manifest.anchor}, is neither in the table nor in the space",
            hint="Build a new table: give --out another path.",
        )
    ordered, middle = by_size(units), len(units) // 2
    near = sorted(range(len(ordered)), key=lambda k: abs(k - middle))
    return [ordered[k] for k in near[:_ANCHORS]]


def by_size(units: Sequence[Unit]) -> list[Unit]:
    """Units sorted by the number of values that they read and write, times the number of their layers; the anchor comes
    from the middle.
    """
    return sorted(units, key=lambda u: (sum(map(math.prod, (*u.inputs, u.output))) * len(u.layers), u.id))


def _is_known(bench: Bench, placed: Placed, effort: Effort) -> bool:
    """Whether the record holds all visits to a model, or a final failure."""
    measured = bench.runner.known(placed.key)
    visits = {(run.process, run.block) for run in measured.runs if run.samples is not None}
    wanted = itertools.product(range(effort.processes_least), range(effort.rounds))
    return bench.runner.failed(placed.key) or visits.issuperset(wanted)


def _runs_of(bench: Bench, anchor: Candidate) -> Iterator[str]:
    """The names of an anchor's runs: the first run, and those next to other models."""
    later = (f"{anchor.key}/{number}" for number in itertools.count())
    return itertools.chain([anchor.key], itertools.takewhile(lambda key: bench.runner.known(key).runs, later))


def _next(bench: Bench, anchor: Candidate, processes: int) -> Candidate:
    """The anchor under its last name if exactly this many of its processes are in the record, otherwise under a new
    name.
    """
    names = list(_runs_of(bench, anchor))[1:]
    if names and processes:
        last = bench.runner.known(names[-1])
        if last.ok and {run.process for run in last.runs} == set(range(processes)):
            return replace(anchor, key=names[-1])
    return replace(anchor, key=f"{anchor.key}/{len(names)}")
