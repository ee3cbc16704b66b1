"""Charts of runs, with their kernels in order and every sample, and a table of the device's state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gnomon.core.stats import median
from gnomon.jobs.html.blocks import Section, grid
from gnomon.jobs.pareto.document import ParetoDocument
from gnomon.jobs.place.document import PlaceDocument, ProfileDocument
from gnomon.jobs.place.picture import bar, members, segments
from gnomon.report import units
from gnomon.report.chart import INK, Axis, Chart, Group, Look, Mark, Rule, finite, line, look_of
from gnomon.report.page import Table
from gnomon.report.plain import listed, shorten
from gnomon.session.document import EnvironmentPart, KernelColumns, RunsPart, SampleColumns, SnapshotPart, middle

MeasuredDocument = PlaceDocument | ProfileDocument | ParetoDocument

_VISIBLE = 0.004
"""A bar that is narrower than this share of the longest row is drawn together with its neighbour."""

_LEAST = 0.98
"""Samples above this quantile are drawn at the upper edge of their row."""


def measured_sections(document: MeasuredDocument) -> Iterator[Section]:
    """Sections for the kernels, the samples and the state of the device, as far as they are available.

    Samples are timed by the clock that decides.
    """
    runs = _runs(document)
    profiled = [(label, rows) for label, run in runs if (rows := _kernels(run.profile))]
    if profiled:
        yield Section(id="timeline", title="Timeline of kernels", parts=(_timeline(profiled),))
    clock = "cpu" if document.clock == "cpu" else "wall"
    sampled = [(label, run.samples, times_us) for label, run in runs if (times_us := _times_us(run.samples, clock))]
    if sampled:
        yield Section(id="samples", title="Samples by process and block", parts=(_samples(sampled, clock),))
    if document.environments:
        meanwhile = grid("The device before and after each session", _environment(document.environments))
        yield Section(id="environment", title="The device meanwhile", parts=(meanwhile,))


def _runs(document: MeasuredDocument) -> list[tuple[str, RunsPart]]:
    """The label and the runs of each configuration that ran."""
    if isinstance(document, ProfileDocument):
        return [(column.label, column.runs) for column in document.columns]
    rows = document.contenders if isinstance(document, PlaceDocument) else document.points
    return [(row.label, row.runs) for row in rows if row.runs is not None and row.failure is None]


Kernel = tuple[str, str, float]
"""A kernel's name, its backend and the seconds that it takes."""


def _kernels(profile: KernelColumns | None) -> list[Kernel]:
    """The kernels of a profile with their medians; the time outside of kernels comes last."""
    if profile is None:
        return []
    rows = [
        (name, backend, 1e-6 * took)
        for name, backend, times in zip(profile.name, profile.backend, profile.wall_us, strict=True)
        if (took := middle(times)) is not None
    ]
    call = middle(profile.call_us)
    outside_s = 0.0 if call is None else 1e-6 * call - sum(took for _, _, took in rows)
    return [*rows, ("outside of kernels", "", outside_s)] if outside_s > 0 else rows


def _times_us(samples: SampleColumns, clock: str) -> tuple[tuple[float, ...], ...]:
    return (samples.cpu_us if clock == "cpu" else samples.wall_us) or ()


def _timeline(rows: Sequence[tuple[str, list[Kernel]]]) -> Chart:
    ends = [sum(took for _, _, took in kernels) for _, kernels in rows]
    factor, unit = units.millis(max(ends))
    bars: dict[str, list[Mark]] = {}
    for row, (_, kernels) in enumerate(rows):
        backends, times_s = [backend for _, backend, _ in kernels], [took for _, _, took in kernels]
        names = {number: name for number, (name, _, _) in enumerate(kernels)}
        for part in segments(backends, times_s, _VISIBLE * max(ends)):
            tip = f"{members(part, names, 'kernels')}{part.backend and ', ' + part.backend}, {units.time(part.time_s)}"
            bars.setdefault(part.backend, []).append(bar(row, part.start_s, part.time_s, factor, tip))
    outside = bars.pop("", [])
    return Chart(
        title="The median of each kernel over the profiled processes, one after another: durations, not start times",
        x=Axis(title=f"{unit}, with the profiler on", low=0),
        y=Axis(names=tuple(label for label, _ in rows)),
        groups=(
            *(
                Group(name=shorten(backend, 40), marks=marks, look=look_of(k), kind="bars")
                for k, (backend, marks) in enumerate(bars.items())
            ),
            Group(name="outside of kernels", marks=outside, look=Look(colour="#d0d0d0"), kind="bars"),
        ),
        note="These calls are slower than the samples, which were measured without the profiler.",
    )


def _samples(rows: Sequence[tuple[str, SampleColumns, tuple[tuple[float, ...], ...]]], clock: str) -> Chart:
    """Every sample in the order of processes, blocks and turns; samples above one another ran side by side."""
    slots = sorted({place for _, samples, _ in rows for place in zip(samples.process, samples.block, strict=True)})
    at = {slot: number for number, slot in enumerate(slots)}
    dots, middles, names = [], [], []
    for row, (label, samples, times_us) in enumerate(rows):
        times = sorted(time for block in times_us for time in block)
        least, most = times[0], max(times[int(_LEAST * (len(times) - 1))], times[0] * 1.0001)
        names.append(f"{label}, {units.time(1e-6 * least)} to {units.time(1e-6 * most)}")

        def up(time: float, row: int = row, least: float = least, most: float = most) -> float:
            return row + 0.4 - 0.8 * min(1.0, (time - least) / (most - least))

        for process, block, own in zip(samples.process, samples.block, times_us, strict=True):
            left = at[process, block]
            dots += [(left + 0.9 * k / len(own), up(time)) for k, time in enumerate(own)]
        middle = median(times)
        marks, name = line((x, up(middle)) for x in (0.0, len(slots))), "" if row else "median"
        middles.append(Group(marks=marks, look=Look(colour=INK), kind="none", line="straight", name=name))
    starts = [number for number, (process, _) in enumerate(slots) if number and process != slots[number - 1][0]]
    return Chart(
        title=f"Every sample by {units.CLOCKS[clock]}: samples above one another were measured side by side",
        x=Axis(title="blocks of calls, process by process", low=0, high=len(slots), whole=True),
        y=Axis(names=tuple(names), room=64),
        groups=(Group(marks=line(dots), kind="dots"), *middles),
        rules=tuple(Rule(along="x", at=start, name="" if k else "a new process") for k, start in enumerate(starts)),
        note="Each row has its own scale; the slowest 2 % are at its upper edge.",
    )


def _environment(environments: Sequence[EnvironmentPart]) -> Table[EnvironmentPart]:
    return (
        Table(environments, note="Frequencies are means, temperatures those of the hottest zone; -: not reported.")
        .text("process", lambda part: "-" if part.process is None else str(part.process))
        .text("configurations", lambda part: listed(part.labels) or "-")
        .number("took", lambda part: part.seconds, units.duration)
        .number(
            "load average", lambda part: _from_to(part.before.load_average_1m, part.after.load_average_1m, "{:.2f}")
        )
        .number("others' share", lambda part: part.others_share, units.share)
        .number("stolen", lambda part: part.steal_share, units.share)
        .number("frequency", lambda part: _from_to(_mean_mhz(part.before), _mean_mhz(part.after), "{:.0f} MHz"))
        .number("temperature", lambda part: _from_to(_hottest(part.before), _hottest(part.after), "{:.0f} C"))
    )


def _from_to(before: float | None, after: float | None, form: str) -> str:
    ends = [form.format(end) for end in (before, after) if finite(end) is not None]
    return " to ".join(dict.fromkeys(ends)) or "-"


def _mean_mhz(snapshot: SnapshotPart) -> float | None:
    frequencies = [khz for khz in snapshot.frequencies_khz or () if khz]
    return sum(frequencies) / len(frequencies) / 1000 if frequencies else None


def _hottest(snapshot: SnapshotPart) -> float | None:
    temperatures: Mapping[str, float] = snapshot.temperatures_c or {}
    return max(temperatures.values(), default=None)
