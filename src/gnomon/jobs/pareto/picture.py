"""The charts of a front, from its document: samples, the front with its intervals, and what a search reached when."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from gnomon.jobs.pareto.report import headline, note, value
from gnomon.report import units
from gnomon.report.chart import CHOSEN, LOOKS, Axis, Chart, Group, Look, Mark, Value, line
from gnomon.report.plain import finite, shorten

_FARTHEST = 5.0
"""How many times the front's largest value a sample may be to be drawn."""

_LONGEST = 3.0
"""How many times its value an interval is drawn to: two processes may leave one without an end to speak of."""

_LEAST_SPAN = 0.1
"""The least span of an axis, as a share of its largest value: a difference below 1 % shall not look like one."""

_SAMPLE = Look(colour="#777777")
_DOMINATED = Look(colour="#D55E00", shape="square", hollow=True)

Document = Mapping[str, Any]
Place = Callable[[Document], tuple[Value, Value]]


def front_charts(document: Document) -> list[Chart]:
    """The front and, where its volume is known, the search; nothing where the front has no point.

    The first two objectives are the axes; a single one is drawn over the evaluations.
    """
    whole = _by_one_clock(finite(document))
    document = _known(whole)
    if not any(point["number"] is not None for point in document["points"]):
        return []
    return [_front(document, whole), *_volume(document)]


def _known(document: dict[str, Any]) -> dict[str, Any]:
    """The document without the points and samples that have no place."""
    points = [
        p
        for p in document["points"]
        if p["estimates"] is None or all(e is not None and e["value"] is not None for e in p["estimates"])
    ]
    samples = [s | {"cost": None} if s["cost"] and None in s["cost"] else s for s in document["samples"]]
    return document | {"points": points, "samples": samples}


def _by_one_clock(document: dict[str, Any]) -> dict[str, Any]:
    """The document with all latencies by wall time, where the clocks of its points differ."""
    if document["clock"] != "mixed":
        return document
    which = next((k for k, o in enumerate(document["objectives"]) if o["name"] == "latency"), None)

    def one(point: dict[str, Any]) -> dict[str, Any]:
        if which is None or point["estimates"] is None:
            return point
        return point | {"estimates": [point["wall"] if k == which else e for k, e in enumerate(point["estimates"])]}

    named = [o | {"name": "latency by wall time"} if k == which else o for k, o in enumerate(document["objectives"])]
    return document | {"objectives": named, "points": [one(p) for p in document["points"]]}


def _unit(document: Document, number: int) -> tuple[float, str]:
    """What to multiply an objective's values with, and the axis's title."""
    objective = document["objectives"][number]
    largest = max(p["estimates"][number]["value"] for p in document["points"] if p["number"] is not None)
    name = objective["name"].replace("-", " ")
    if objective["unit"] == "B":
        return 2.0**-20, f"{name}, MiB"
    if objective["unit"] in ("s", "J"):
        factor, unit = units.millis(largest)
        return factor, f"{name}, {unit.removesuffix('s')}{objective['unit']}"
    return 1.0, f"{name}, {objective['unit']}" if objective["unit"] else name


def _front(document: Document, whole: Document) -> Chart:
    objectives, single = document["objectives"], len(document["objectives"]) == 1
    axes = [(1.0, "evaluation"), _unit(document, 0)] if single else [_unit(document, 0), _unit(document, 1)]
    order = {sample["code"]: k + 1 for k, sample in enumerate(document["samples"])}
    measured = [point for point in document["points"] if point["estimates"] is not None]

    def place(point: Document) -> tuple[Value, Value]:
        ends = [_estimate(found, factor) for found, (factor, _) in zip(point["estimates"], axes[single:], strict=False)]
        return (Value(value=order.get(point["code"], 0)), ends[0]) if single else (ends[0], ends[1])

    samples, beyond = _samples(document, axes, single=single)
    told = "by the prices" if document["search"]["predicted"] else "sampled" if document["model"] else "in the dump"
    groups = [
        Group(
            name=f"{told} ({beyond} far outside)" if beyond else told,
            marks=samples,
            kind="dots",
            look=_SAMPLE,
        ),
        *_points(document, whole, measured, place),
    ]
    if len(objectives) == 2:
        steps = _stairs([tuple(v.value or 0.0 for v in place(p)) for p in measured if p["number"] is not None])
        groups.insert(
            1, Group(marks=line(steps), look=Look(colour=LOOKS[0].colour, dash="5 3"), kind="none", line="steps")
        )
    spans = [_span([place(point)[k] for point in measured], samples, along) for k, along in enumerate("xy")]
    name = Path((document["model"] or {"path": document["source"]})["path"]).name
    where = f" on {shorten(document['device'], 30)}" if document["device"] else ""
    return Chart(
        title=f"{shorten(name, 50)}{where}. {shorten(headline(dict(document)), 220)}",
        x=Axis(title=axes[0][1], whole=True) if single else Axis(title=axes[0][1], low=spans[0][0], high=spans[0][1]),
        y=Axis(title=axes[1][1], low=spans[1][0], high=spans[1][1]),
        groups=tuple(groups),
        height=400,
    )


def _estimate(found: Document, factor: float) -> Value:
    """An estimate with its interval, of which no more than is of use."""
    middle, low, high = found["value"], found["low"], found["high"]
    ends = (
        None if low is None else min(low, middle),
        None if high is None else max(middle, min(high, _LONGEST * middle)),
    )
    return Value(value=middle, low=ends[0], high=ends[1]).times(factor)


def _samples(document: Document, axes: Sequence[tuple[float, str]], *, single: bool) -> tuple[list[Mark], int]:
    """The samples that leave the front room, and how many others there are."""
    front = [point["estimates"] for point in document["points"] if point["estimates"] and point["number"] is not None]
    most = [_FARTHEST * max(found[k]["value"] for found in front) for k in range(len(front[0][:2]))]
    every = [(k + 1, sample["cost"]) for k, sample in enumerate(document["samples"]) if sample["cost"] is not None]
    near = [(k, cost) for k, cost in every if all(c <= m for c, m in zip(cost[:2], most, strict=False))]
    marks = line((k if single else cost[0] * axes[0][0], cost[0 if single else 1] * axes[1][0]) for k, cost in near)
    return marks, len(every) - len(near)


def _span(values: Sequence[Value], samples: Sequence[Mark], along: str) -> tuple[float | None, float | None]:
    """The ends of an axis that would otherwise be a magnifying glass; None where the values are far enough apart."""
    every = [end for one in [*values, *(getattr(mark, along) for mark in samples)] for end in one.ends]
    low, high = min(every), max(every)
    missing = _LEAST_SPAN * max(abs(low), abs(high)) - (high - low)
    return (low - missing / 2, high + missing / 2) if missing > 0 else (None, None)


def _points(document: Document, whole: Document, measured: Sequence[Document], place: Place) -> Iterator[Group]:
    """The points with estimates: what is behind the front, the front, the choice."""
    proved = f"the front, with 95 % intervals{_cut(document)}" if document["proved"] else "the front, as sampled"
    letters = iter(ascii_lowercase)
    named: dict[str, list[Mark]] = {"behind": [], "front": [], "chosen": []}
    for point in measured:
        front = point["number"] is not None
        (x, y), told = (
            place(point),
            [value(e["value"], o) for e, o in zip(point["estimates"], document["objectives"], strict=True)],
        )
        more = note(whole, point)
        mark = Mark(
            x=x,
            y=y,
            label=f"{point['number'] if front else next(letters, '')} {point['label']}".strip(),
            tip=f"{point['label']}: {', '.join(told)}{more and '; ' + more}",
        )
        named["chosen" if front and point["number"] == document["chosen"] else "front" if front else "behind"].append(
            mark
        )
    yield Group(name="measured again and dominated", marks=named["behind"], look=_DOMINATED)
    yield Group(name=proved, marks=named["front"])
    yield Group(name="the choice", marks=named["chosen"], look=CHOSEN)


def _cut(document: Document) -> str:
    """Words for the legend where an interval is longer than it is drawn."""
    estimates = [e for p in document["points"] for e in (p["estimates"] or [])[:2]]
    longer = any(e["high"] is not None and e["high"] > _LONGEST * e["value"] for e in estimates)
    return f" (drawn to {_LONGEST:g} times a value at most)" if longer else ""


def _stairs(front: Sequence[tuple[float, ...]]) -> list[tuple[float, float]]:
    """The border of what the front dominates."""
    best: list[tuple[float, float]] = []
    for x, y in sorted(front):
        if not best or y < best[-1][1]:
            best.append((x, y))
    return best


def _volume(document: Document) -> Iterator[Chart]:
    """What each search had reached after so many evaluations; nothing where no volume is known."""
    searches = [search for search in document["searches"] if search["volume"]]
    if searches:
        yield Chart(
            title="What the search reached" if len(searches) == 1 else "What each search reached",
            x=Axis(title="evaluations", whole=True, linear=True),
            y=Axis(title="hypervolume, %", low=0, high=102),
            groups=tuple(
                Group(
                    name=f"{search['name']}, {units.duration(search['seconds'])}",
                    # The last evaluation counts as much as any: its step is drawn too.
                    marks=line(
                        (count, None if share is None else 100 * share)
                        for count, share in enumerate([*search["volume"], search["volume"][-1]], 1)
                    ),
                    look=LOOKS[number % len(LOOKS)],
                    kind="none",
                    line="steps",
                )
                for number, search in enumerate(searches)
            ),
            height=120,
        )
