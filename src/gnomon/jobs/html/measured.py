"""What a page draws of how configurations ran: their kernels in order, and every sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gnomon.core.stats import median
from gnomon.jobs.html.blocks import Section
from gnomon.jobs.place.picture import segments
from gnomon.report import units
from gnomon.report.chart import INK, LOOKS, Axis, Chart, Group, Look, Mark, Rule, Value, finite, line
from gnomon.report.plain import shorten

Document = Mapping[str, Any]

_VISIBLE = 0.004
"""What is narrower than this share of the longest row is drawn with its neighbour."""

_LEAST = 0.98
"""Samples above this quantile stand at the upper edge of their row."""


def measured_sections(rows: Sequence[Document], clock: str) -> Iterator[Section]:
    """The kernels and the samples of configurations, where there are any; samples are by the clock that decides."""
    ran = [row for row in rows if row.get("runs") and not row.get("failure")]
    profiled = [(row["label"], found) for row in ran if (found := _kernels(row["runs"]["profile"]))]
    if profiled:
        yield Section(id="timeline", title="Timeline of kernels", parts=(_timeline(profiled),))
    key = "cpu_us" if clock == "cpu" else "wall_us"
    sampled = [(row["label"], row["runs"]["samples"]) for row in ran if row["runs"]["samples"].get(key)]
    if sampled:
        yield Section(id="samples", title="Samples by process and block", parts=(_samples(sampled, key),))


Kernel = tuple[str, str, float]
"""A kernel's name, its backend and the seconds that it takes."""


def _kernels(profile: Document | None) -> list[Kernel]:
    """The kernels of a profile by their medians; what is outside of them comes last."""
    if not profile:
        return []
    found = [
        (name, backend, 1e-6 * took)
        for name, backend, times in zip(profile["name"], profile["backend"], profile["wall_us"], strict=True)
        if (took := _median(times)) is not None
    ]
    call = _median(profile["call_us"])
    outside_s = 0.0 if call is None else 1e-6 * call - sum(took for _, _, took in found)
    return [*found, ("outside of kernels", "", outside_s)] if outside_s > 0 else found


def _median(values: Sequence[float | None]) -> float | None:
    known = [one for value in values if (one := finite(value)) is not None]
    return median(known) if known else None


def _timeline(rows: Sequence[tuple[str, list[Kernel]]]) -> Chart:
    ends = [sum(took for _, _, took in kernels) for _, kernels in rows]
    factor, unit = units.millis(max(ends))
    bars: dict[str, list[Mark]] = {}
    for row, (_, kernels) in enumerate(rows):
        backends, times_s = [backend for _, backend, _ in kernels], [took for _, _, took in kernels]
        for one in segments(backends, times_s, _VISIBLE * max(ends)):
            first, last = (shorten(kernels[one.operators[k]][0], 60) for k in (0, -1))
            name = first if len(one.operators) == 1 else f"{len(one.operators)} kernels, {first} to {last}"
            x = Value(value=one.start_s + one.time_s, low=one.start_s, high=one.start_s + one.time_s).times(factor)
            tip = f"{name}{one.backend and ', ' + one.backend}, {units.time(one.time_s)}"
            bars.setdefault(one.backend, []).append(Mark(x=x, y=Value(value=row), tip=tip))
    outside = bars.pop("", [])
    return Chart(
        title="Each kernel by its median over the profiled processes, one after another: how long, not when",
        x=Axis(title=f"{unit}, with the profiler on", low=0),
        y=Axis(names=tuple(label for label, _ in rows)),
        groups=(
            *(
                Group(name=shorten(backend, 40), marks=marks, look=LOOKS[k % len(LOOKS)], kind="bars")
                for k, (backend, marks) in enumerate(bars.items())
            ),
            Group(name="outside of kernels", marks=outside, look=Look(colour="#d0d0d0"), kind="bars"),
        ),
        note="These calls are slower than the samples, which have no profiler on.",
    )


def _samples(rows: Sequence[tuple[str, Document]], key: str) -> Chart:
    """Every sample in the order of processes, blocks and turns; configurations above one another ran side by side."""
    slots = sorted({place for _, found in rows for place in zip(found["process"], found["block"], strict=True)})
    at = {slot: number for number, slot in enumerate(slots)}
    dots, middles, names = [], [], []
    for row, (label, found) in enumerate(rows):
        times = sorted(time for block in found[key] for time in block)
        least, most = times[0], max(times[int(_LEAST * (len(times) - 1))], times[0] * 1.0001)
        names.append(f"{label}, {units.time(1e-6 * least)} to {units.time(1e-6 * most)}")

        def up(time: float, row: int = row, least: float = least, most: float = most) -> float:
            return row + 0.4 - 0.8 * min(1.0, (time - least) / (most - least))

        for process, block, own in zip(found["process"], found["block"], found[key], strict=True):
            left = at[process, block]
            dots += [(left + 0.9 * k / len(own), up(time)) for k, time in enumerate(own)]
        middle = median(times)
        middles.append(
            Group(
                marks=[Mark(x=Value(value=x), y=Value(value=up(middle))) for x in (0.0, len(slots))],
                look=Look(colour=INK),
                kind="none",
                line="straight",
                name="" if row else "median",
            )
        )
    starts = [number for number, (process, _) in enumerate(slots) if number and process != slots[number - 1][0]]
    return Chart(
        title=f"Every sample by {units.CLOCKS[key[:-3]]}: what stands one above the other ran side by side",
        x=Axis(title="blocks of calls, process by process", low=0, high=len(slots), whole=True),
        y=Axis(names=tuple(names), room=64),
        groups=(Group(marks=line(dots), kind="dots"), *middles),
        rules=tuple(Rule(along="x", at=start, name="" if k else "a new process") for k, start in enumerate(starts)),
        note="Each row has a scale of its own; the slowest 2 % stand at its upper edge.",
    )
