"""The charts of a placement and of a profile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gnomon.core.stats import Summary
from gnomon.jobs.place.document import (
    ColumnPart,
    ContenderPart,
    PlaceDocument,
    PlacedOperator,
    ProfileDocument,
    SustainedPart,
)
from gnomon.report import units
from gnomon.report.chart import (
    CHOSEN,
    INK,
    LOOKS,
    Axis,
    Chart,
    Group,
    Look,
    Mark,
    Row,
    Value,
    finite,
    in_rows,
    line,
    look_of,
    time_words,
    timed,
)
from gnomon.report.page import ends_of
from gnomon.report.plain import many, shorten

_VISIBLE = 0.004
"""Operators that are narrower than this share of the chart are drawn together with their neighbours."""

_SHORT_S = 120.0
"""A run shorter than this is drawn over seconds instead of minutes."""

_MOST = 12
"""The maximum number of contenders that are drawn."""

_OWN, _REST = Look(colour="#444444", hatch="x"), Look(colour="#d0d0d0")
_WHOLE = Look(colour=INK, shape="upright")


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Neighbouring operators that are drawn as one, with their start and total time in seconds."""

    backend: str
    start_s: float
    time_s: float
    operators: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A contender as it is drawn, with the measured time of the whole and its interval, if known.

    Its operators are followed by `own_s`, the kernels without an operator, and `rest_s`, the unattributed time;
    together they make up the whole. `scaled` means that the operators took longer with the profiler than the whole did
    without it, so that they are scaled down to fit. `totals` holds the number of operators and their total seconds, as
    drawn, for each backend.
    """

    label: str
    segments: tuple[Segment, ...]
    own_s: float
    rest_s: float
    measured: Summary
    scaled: bool
    totals: Mapping[str, tuple[int, float]]

    @property
    def operators_s(self) -> float:
        """The end of the last operator, in seconds."""
        return sum(segment.time_s for segment in self.segments)

    @property
    def whole_s(self) -> float:
        """The end of the bar, in seconds."""
        return self.operators_s + self.own_s + self.rest_s


def bars_of(document: PlaceDocument) -> list[Bar]:
    """The measured contenders of a place document: the best single backend, then the others by time, then mixes."""
    summaries = _summaries(document.contenders, document.clock)
    decision, order = document.decision, {"single": 1, "greedy": 2, "plan": 3}
    alive = [c for c in document.contenders if c.label in summaries]
    alive.sort(key=lambda c: (c.label != decision.best_single, order[c.kind], summaries[c.label].median_s))
    shown = alive[:_MOST]
    for contender in alive[_MOST:]:
        if contender.label == decision.chosen:
            shown[-1] = contender
    longest_s = max((summaries[c.label].median_s for c in shown), default=0.0)
    return [_bar_of(c, summaries[c.label], longest_s * _VISIBLE) for c in shown]


def _summaries(rows: Iterable[ContenderPart | ColumnPart], clock: str) -> dict[str, Summary]:
    """The summaries by one clock that can be drawn, by label."""
    summaries = {row.label: row.summary(clock) for row in rows}
    return {label: summary for label, summary in summaries.items() if summary and finite(summary.median_s) is not None}


def _bar_of(contender: ContenderPart, measured: Summary, visible_s: float) -> Bar:
    assignment = [name or "?" for name in contender.assignment]
    times_s = [time_s or 0.0 for time_s in contender.operators_s]
    own_s = sum(kernel.time_s for kernel in contender.kernels if not kernel.operators)
    rest_s = contender.unattributed_s or 0.0
    totals = {
        name: (assignment.count(name), sum(t for b, t in zip(assignment, times_s, strict=True) if b == name))
        for name in dict.fromkeys(assignment)
    }
    whole = contender.unattributed_s is None
    if whole or not assignment or any(kernel.operators for kernel in contender.kernels):
        # Draw a single piece if there is no profile, if the runtime does not distinguish operators, or if the model was
        # converted, because the document does not list a converted model's operators.
        backend = (assignment or contender.configurations)[0]
        times_s = [(contender.level_s or 0.0) - own_s - rest_s]
        totals, assignment = {backend: (len(assignment), times_s[0])}, [backend]
    return Bar(
        label=contender.label,
        segments=tuple(segments(assignment, times_s, visible_s)),
        own_s=own_s,
        rest_s=rest_s,
        measured=measured,
        # Less than 1 % is within the noise of the two measurements and needs no remark.
        scaled=(contender.profiler_overhead_s or 0.0) > 0.01 * measured.median_s,
        totals=totals,
    )


def segments(backends: Sequence[str], times_s: Sequence[float], visible_s: float) -> Iterable[Segment]:
    """The operators in order. Neighbours that are each shorter than `visible_s` are merged and get the backend that has
    most of their time, so that the colours still show each backend's time.
    """
    groups: list[list[int]] = []
    width_s = visible_s
    for index, time_s in enumerate(times_s):
        if groups and width_s < visible_s:
            groups[-1].append(index)
            width_s += time_s
        else:
            groups.append([index])
            width_s = time_s
    if len(groups) > 1 and width_s < visible_s:
        last = groups.pop()
        groups[-1] += last
    start_s = 0.0
    for members in groups:
        sums: dict[str, float] = {}
        for index in members:
            sums[backends[index]] = sums.get(backends[index], 0.0) + times_s[index]
        time_s = sum(sums.values())
        backend = max(sums, key=sums.__getitem__)
        yield Segment(backend=backend, start_s=start_s, time_s=time_s, operators=tuple(members))
        start_s += time_s


def placement_charts(document: PlaceDocument) -> list[Chart]:
    """The contenders of a place document, with operators as wide as their times; empty if none was measured."""
    rows = bars_of(document)
    if not rows:
        return []
    factor, unit = units.millis(max(max(row.whole_s, row.measured.median_s) for row in rows))
    notes = ["Bars show the fastest 20 % of calls, which nothing else interrupted."] * (document.clock == "wall")
    if any(row.scaled for row in rows):
        notes.append("Times of operators are traced, and scaled down if the profiler itself takes time.")
    name = shorten(Path(document.model.path).name, 50)
    chosen = document.decision.chosen
    whole = []
    for k, row in enumerate(rows):
        (median_s, low_s, high_s), words = ends_of(row.measured), time_words(*ends_of(row.measured))
        # Draw only a part of an interval that is open or very wide.
        drawn = Value(value=median_s, low=low_s, high=None if high_s is None else min(high_s, 2 * (median_s or 0.0)))
        whole.append(Mark(x=drawn.times(factor), y=Value(value=k), label=words, tip=f"{row.label}: {words}"))
    return [
        Chart(
            title=f"{name} on {shorten(document.device, 30)}. {shorten(document.decision.reason, 200)}",
            x=Axis(
                title=f"{units.CLOCKS[document.clock]} of one inference, {unit}: operators in execution order", low=0
            ),
            y=Axis(
                names=tuple(row.label for row in rows),
                chosen=frozenset(k for k, row in enumerate(rows) if row.label == chosen),
            ),
            groups=(
                *_backends(rows, chosen, document.operators, factor),
                _further("kernels without an operator", _OWN, [(row.operators_s, row.own_s) for row in rows], factor),
                _further("unattributed time", _REST, [(row.whole_s - row.rest_s, row.rest_s) for row in rows], factor),
                Group(name="the whole, with 95 % interval", marks=whole, look=_WHOLE),
            ),
            note=" ".join(notes),
        )
    ]


def _backends(rows: Sequence[Bar], chosen: str, operators: Sequence[PlacedOperator], factor: float) -> Iterable[Group]:
    """The operators on each backend, as a group whose name gives their number and total time in the choice."""
    totals = next((row.totals for row in rows if row.label == chosen), {})
    names = {operator.index: operator.name for operator in operators}
    for number, backend in enumerate(dict.fromkeys(s.backend for row in rows for s in row.segments)):
        count, sum_s = totals.get(backend, (0, 0.0))
        used = f"{many(count, 'operator')}, {units.time(sum_s)}" if count else "not in the choice"
        marks = [
            bar(k, s.start_s, s.time_s, factor, f"{members(s, names)}, {s.backend}, {units.time(s.time_s)}")
            for k, row in enumerate(rows)
            for s in row.segments
            if s.backend == backend
        ]
        name = f"{shorten(backend, 40)}: {used}"
        yield Group(name=name, marks=marks, look=look_of(number), kind="bars")


def members(segment: Segment, names: Mapping[int, str], noun: str = "operators") -> str:
    """The name of a segment's only operator, or the names of its first and last operators."""
    first, last = (shorten(names.get(segment.operators[k], "-"), 60) for k in (0, -1))
    return first if len(segment.operators) == 1 else f"{len(segment.operators)} {noun}, {first} to {last}"


def bar(row: int, start_s: float, time_s: float, factor: float, tip: str = "") -> Mark:
    """A stretch of time in a row."""
    end_s = start_s + time_s
    return Mark(x=Value(value=end_s, low=start_s, high=end_s).times(factor), y=Value(value=row), tip=tip)


def _further(name: str, look: Look, parts: Sequence[tuple[float, float]], factor: float) -> Group:
    """The bars after the operators, if they are wide enough to be visible."""
    visible_s = _VISIBLE * max(start_s + time_s for start_s, time_s in parts)
    marks = [bar(k, start_s, time_s, factor) for k, (start_s, time_s) in enumerate(parts) if time_s > visible_s]
    return Group(name=name, marks=marks, look=look, kind="bars")


def profile_charts(document: ProfileDocument) -> list[Chart]:
    """The median of each configuration of a profile with its interval, the fastest first; empty if none ran.

    Tooltips show the quantiles.
    """
    ranked = sorted(_summaries(document.columns, document.clock).items(), key=lambda pair: pair[1].median_s)
    rows = [
        Row(
            name=label,
            value=timed(*ends_of(summary)),
            text=time_words(*ends_of(summary)),
            tip=f"{time_words(*ends_of(summary))}, p10 {units.time(summary.p10_s)}, p90 {units.time(summary.p90_s)}",
            look=CHOSEN if label == document.fastest else LOOKS[0],
        )
        for label, summary in ranked
    ]
    name = f"{shorten(Path(document.model.path).name, 50)} on {shorten(document.device, 30)}"
    title = f"{name}: median time of one inference, with its 95 % interval"
    return [in_rows(title, f"{units.CLOCKS[document.clock]}, ms", rows)] if rows else []


def predicted_charts(document: PlaceDocument) -> list[Chart]:
    """The predicted times of contenders against the measured ones; empty if nothing was predicted."""
    clock, chosen = document.clock, document.decision.chosen
    rows = [c for c in document.contenders if c.predicted_s and c.level_s]
    marks = {
        is_chosen: [
            Mark(
                x=timed(c.predicted_s),
                y=_level(c, clock),
                label=c.label,
                tip=f"{c.label}: predicted {units.time(c.predicted_s)}, took {units.time(c.level_s)}",
            )
            for c in rows
            if (c.label == chosen) == is_chosen
        ]
        for is_chosen in (False, True)
    }
    chart = Chart(
        title="Predicted against measured: on the line they are equal",
        x=Axis(title="predicted, ms"),
        y=Axis(title="measured, ms"),
        groups=(Group(marks=marks[False]), Group(name="the choice", marks=marks[True], look=CHOSEN)),
        equal=True,
    )
    return [chart] if rows else []


def _level(contender: ContenderPart, clock: str) -> Value:
    """The level that decides, with the interval of the median by the same clock, shifted to this level."""
    summary, level_s = contender.summary(clock), contender.level_s
    if summary is None or level_s is None:
        return timed(level_s)
    shift_s = level_s - summary.median_s
    ends = (None if end is None else end + shift_s for end in (summary.low_s, summary.high_s))
    return timed(level_s, *ends)


def sustained_charts(part: SustainedPart) -> Iterator[Chart]:
    """The course of a long run: the time of a call from block to block, and the state of the device."""
    blocks = part.blocks
    if len(blocks.at_s) < 2:
        return
    unit_s, across = (60.0, "minutes of calling") if blocks.at_s[-1] >= _SHORT_S else (1.0, "seconds of calling")
    at = [seconds / unit_s for seconds in blocks.at_s]
    changes = [
        Mark(
            x=Value(value=change.since_s / unit_s),
            y=timed(change.after_s),
            label="slower" if change.ratio > 1 else "faster",
            tip=f"after {units.duration(change.since_s)}: {units.time(change.before_s)}, "
            f"then {units.time(change.after_s)}",
        )
        for change in part.changes
    ]
    quantiles = ((blocks.p99_us, "99th percentile", LOOKS[5]), (blocks.p50_us, "median", LOOKS[0]))
    yield Chart(
        title=f"{part.label}: {part.calls} calls in {units.duration(part.ran_s)}",
        x=Axis(title=across, linear=True),
        y=Axis(title="time of a call, ms"),
        groups=(
            *(_over(at, times_us, 1e-3, name, look) for times_us, name, look in quantiles),
            Group(name="a change", marks=changes, look=CHOSEN),
        ),
        height=220,
    )
    around: tuple[tuple[Sequence[float | None], str, float], ...] = (
        (blocks.frequency_khz, "mean frequency, MHz", 1e-3),
        (blocks.temperature_c, "hottest zone, degrees Celsius", 1.0),
        (blocks.others_share, "others' share of the processors, %", 100.0),
    )
    for values, title, factor in around:
        if sum(value is not None for value in values) > 1:
            x, y = Axis(title=across, linear=True), Axis(title=title.rpartition(", ")[2])
            yield Chart(title=title, x=x, y=y, groups=(_over(at, values, factor),), height=120)


def _over(
    at: Sequence[float], values: Sequence[float | None], factor: float, name: str = "", look: Look = LOOKS[0]
) -> Group:
    """A line through the values at the moments `at`."""
    places = line((a, None if value is None else value * factor) for a, value in zip(at, values, strict=True))
    return Group(name=name, marks=places, look=look, kind="none", line="straight")
