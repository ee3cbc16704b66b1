"""The charts of a front: samples, the front with its intervals, and the progress of a search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase

from gnomon.jobs.pareto.document import ParetoDocument, PointPart, by_one_clock
from gnomon.jobs.pareto.report import headline, note, value
from gnomon.report import units
from gnomon.report.chart import CHOSEN, LOOKS, Axis, Chart, Group, Look, Mark, Value, finite, line, look_of
from gnomon.report.plain import shorten
from gnomon.session.objectives import Estimate

_FARTHEST = 5.0
"""Samples above this multiple of the front's largest value are not drawn."""

_LONGEST = 3.0
"""Intervals are drawn up to this multiple of their value, because after only two processes, an end may be far away."""

_LEAST_SPAN = 0.1
"""The least span of an axis, as a share of its largest value, so that a difference below 1 % does not look large."""

_SAMPLE, _STAIRS = Look(colour="#777777"), Look(colour=LOOKS[0].colour, dash="5 3")
_DOMINATED = Look(colour="#D55E00", shape="square", hollow=True)

Place = Callable[[PointPart], tuple[Value, Value]]


def front_charts(document: ParetoDocument) -> list[Chart]:
    """The charts of the front and, if its volume is known, of the search; none if the front has no point.

    The first two objectives are the axes; a single objective is drawn against the number of evaluations.
    """
    whole = _by_one_clock(document)
    finite_points = (p for p in whole.points if all(finite(e.value) is not None for e in p.estimates or ()))
    drawn = replace(whole, points=tuple(finite_points))
    return [_front(drawn, whole), *_volume(document)] if drawn.front else []


def _by_one_clock(document: ParetoDocument) -> ParetoDocument:
    """The document, with all latencies by wall time if the clocks of its points differ."""
    if document.clock != "mixed":
        return document
    names = [objective.name for objective in document.objectives]
    named = [replace(o, name="latency by wall time") if o.name == "latency" else o for o in document.objectives]
    points = [replace(p, estimates=p.estimates and by_one_clock(names, p)) for p in document.points]
    return replace(document, objectives=tuple(named), points=tuple(points))


def _unit(document: ParetoDocument, number: int) -> tuple[float, str]:
    """The factor for an objective's values, and the axis's title."""
    objective = document.objectives[number]
    name = objective.name.replace("-", " ")
    if objective.unit == "B":
        return 2.0**-20, f"{name}, MiB"
    if objective.unit in ("s", "J"):
        largest = max(point.estimates[number].value for point in document.front if point.estimates)
        factor, unit = units.millis(largest)
        return factor, f"{name}, {unit.removesuffix('s')}{objective.unit}"
    return 1.0, f"{name}, {objective.unit}" if objective.unit else name


def _front(document: ParetoDocument, whole: ParetoDocument) -> Chart:
    single = len(document.objectives) == 1
    axes = [(1.0, "evaluation"), _unit(document, 0)] if single else [_unit(document, 0), _unit(document, 1)]
    order = {sample.code: k + 1 for k, sample in enumerate(document.samples)}
    measured = [point for point in document.points if point.estimates is not None]

    def place(point: PointPart) -> tuple[Value, Value]:
        estimates = zip(point.estimates or (), axes[single:], strict=False)
        ends = [_estimate(estimate, factor) for estimate, (factor, _) in estimates]
        return (Value(value=order.get(point.code, 0)), ends[0]) if single else (ends[0], ends[1])

    samples, beyond = _samples(document, axes, single=single)
    source = "by the prices" if document.search.predicted else "sampled" if document.model else "in the dump"
    groups = [
        Group(name=f"{source} ({beyond} off chart)" if beyond else source, marks=samples, kind="dots", look=_SAMPLE),
        *_points(document, whole, measured, place),
    ]
    if len(document.objectives) == 2:
        steps = _stairs([tuple(v.value or 0.0 for v in place(point)) for point in document.front])
        groups.insert(1, Group(marks=line(steps), look=_STAIRS, kind="none", line="steps"))
    spans = [_span([place(point)[k] for point in measured], samples, along) for k, along in enumerate("xy")]
    name = Path(document.model.path if document.model else document.source or "").name
    where = f" on {shorten(document.device, 30)}" if document.device else ""
    return Chart(
        title=f"{shorten(name, 50)}{where}. {shorten(headline(document), 220)}",
        x=Axis(title=axes[0][1], whole=True) if single else Axis(title=axes[0][1], low=spans[0][0], high=spans[0][1]),
        y=Axis(title=axes[1][1], low=spans[1][0], high=spans[1][1]),
        groups=tuple(groups),
        height=400,
    )


def _estimate(estimate: Estimate, factor: float) -> Value:
    """An estimate with its interval, cut to a useful length."""
    middle, low, high = estimate.value, estimate.low, estimate.high
    ends = (
        None if low is None else min(low, middle),
        None if high is None else max(middle, min(high, _LONGEST * middle)),
    )
    return Value(value=middle, low=ends[0], high=ends[1]).times(factor)


def _samples(document: ParetoDocument, axes: Sequence[tuple[float, str]], *, single: bool) -> tuple[list[Mark], int]:
    """The samples near enough to the front to be drawn, and the number of the others."""
    front = [point.estimates for point in document.front if point.estimates]
    most = [_FARTHEST * max(estimates[k].value for estimates in front) for k in range(len(front[0][:2]))]
    every = []
    for k, sample in enumerate(document.samples, 1):
        cost = [finite(amount) for amount in sample.cost or ()]
        every += [(k, [c for c in cost if c is not None])] if cost and None not in cost else []
    near = [(k, cost) for k, cost in every if all(c <= m for c, m in zip(cost[:2], most, strict=False))]
    marks = line((k if single else cost[0] * axes[0][0], cost[0 if single else 1] * axes[1][0]) for k, cost in near)
    return marks, len(every) - len(near)


def _span(values: Sequence[Value], samples: Sequence[Mark], along: str) -> tuple[float | None, float | None]:
    """The ends of an axis that would otherwise magnify small differences; None if the values are far enough apart."""
    every = [end for place in [*values, *(getattr(mark, along) for mark in samples)] for end in place.ends]
    low, high = min(every), max(every)
    missing = _LEAST_SPAN * max(abs(low), abs(high)) - (high - low)
    return (low - missing / 2, high + missing / 2) if missing > 0 else (None, None)


def _points(
    document: ParetoDocument, whole: ParetoDocument, measured: Sequence[PointPart], place: Place
) -> Iterator[Group]:
    """The points with estimates: the points behind the front, the front, and the chosen point."""
    proved = f"the front, with 95 % intervals{_cut(document)}" if document.proved else "the front, as sampled"
    letters = iter(ascii_lowercase)
    named: dict[str, list[Mark]] = {"behind": [], "front": [], "chosen": []}
    for point in measured:
        front = point.number is not None
        x, y = place(point)
        values = [value(e.value, o) for e, o in zip(point.estimates or (), document.objectives, strict=True)]
        more = note(whole, point)
        mark = Mark(
            x=x,
            y=y,
            label=f"{point.number if front else next(letters, '')} {point.label}".strip(),
            tip=f"{point.label}: {', '.join(values)}{more and '; ' + more}",
        )
        named["chosen" if front and point.number == document.chosen else "front" if front else "behind"].append(mark)
    yield Group(name="measured again and dominated", marks=named["behind"], look=_DOMINATED)
    yield Group(name=proved, marks=named["front"])
    yield Group(name="the choice", marks=named["chosen"], look=CHOSEN)


def _cut(document: ParetoDocument) -> str:
    """The words for the legend if an interval is longer than drawn."""
    estimates = [estimate for point in document.points for estimate in (point.estimates or ())[:2]]
    longer = any(e.high is not None and e.high > _LONGEST * e.value for e in estimates)
    return f" (drawn up to {_LONGEST:g} times the value)" if longer else ""


def _stairs(front: Sequence[tuple[float, ...]]) -> list[tuple[float, float]]:
    """The border of the area that the front dominates."""
    best: list[tuple[float, float]] = []
    for x, y in sorted(front):
        if not best or y < best[-1][1]:
            best.append((x, y))
    return best


def _volume(document: ParetoDocument) -> Iterator[Chart]:
    """The volume of each search by number of evaluations; nothing if no volume is known."""
    searches = [search for search in document.searches if search.volume]
    if searches:
        yield Chart(
            title="Hypervolume of the search" if len(searches) == 1 else "Hypervolume of each search",
            x=Axis(title="evaluations", whole=True, linear=True),
            y=Axis(title="hypervolume, %", low=0, high=102),
            groups=tuple(
                Group(
                    name=f"{search.name}, {units.duration(search.seconds)}",
                    # The step of the last evaluation is drawn as well.
                    marks=line(
                        (count, None if share is None else 100 * share)
                        for count, share in enumerate([*search.volume, search.volume[-1]], 1)
                    ),
                    look=look_of(number),
                    kind="none",
                    line="steps",
                )
                for number, search in enumerate(searches)
            ),
            height=120,
        )
