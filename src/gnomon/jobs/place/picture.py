"""The picture of a placement: each contender's operators in a row, as wide as the time they take.

The geometry of the picture: operators in a row, merged where they are too small to be seen.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnomon.report import units
from gnomon.report.plain import clean, finite, shorten
from gnomon.report.vega import (
    CHECK,
    HATCHES,
    UPRIGHT,
    Key,
    Scale,
    Spec,
    cut,
    drawn,
    hatched,
    in_values,
    legend,
    picture,
    sentences,
    texts,
    view,
)

_VISIBLE = 0.004
"""What is narrower than this share of the picture is drawn with its neighbour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Neighbouring operators on one backend: when they start and how long they take together, in seconds.

    `operators` are the indices drawn here; `borders_s` are where one operator ends and the next begins, as far as
    both are wide enough to be seen.
    """

    backend: str
    start_s: float
    time_s: float
    operators: tuple[int, ...]
    borders_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One contender: its stretches, and what was measured of it as a whole, with the interval where it is known.

    After its operators come `own_s`, the kernels of no operator, and `rest_s`, the unattributed time; together they are
    the whole. `scaled` says that its operators took longer under the profiler than the whole without it, and are drawn
    in proportion. `totals` are, for each backend, how many operators it has and their seconds together, as drawn.
    """

    label: str
    chosen: bool
    stretches: tuple[Stretch, ...]
    own_s: float
    rest_s: float
    measured_s: float
    low_s: float | None
    high_s: float | None
    scaled: bool
    totals: Mapping[str, tuple[int, float]]

    @property
    def drawn_s(self) -> float:
        """Where the last operator ends."""
        return sum(stretch.time_s for stretch in self.stretches)

    @property
    def whole_s(self) -> float:
        """Where the row ends."""
        return self.drawn_s + self.own_s + self.rest_s


def rows_of(document: dict[str, Any], *, most: int = 12) -> list[Row]:
    """The measured contenders of a place document: the best single, the others by their time, then the mixes."""
    sample = "cpu" if document["clock"] == "cpu" else "measured"
    alive = [c for c in document["contenders"] if c["failure"] is None and _timed(c[sample])]
    best, chosen = document["decision"]["best_single"], document["decision"]["chosen"]
    order = {"single": 1, "greedy": 2, "plan": 3}
    alive.sort(key=lambda c: (c["label"] != best, order[c["kind"]], c[sample]["median_s"]))
    kept = alive[:most]
    for contender in alive[most:]:
        if contender["label"] == chosen:
            kept[-1] = contender
    longest_s = max((c[sample]["median_s"] for c in kept), default=0.0)
    return [_row(c, c[sample], longest_s * _VISIBLE, chosen=c["label"] == chosen) for c in kept]


def _timed(summary: Mapping[str, Any] | None) -> bool:
    """Whether a time is known that can be drawn."""
    return summary is not None and summary["median_s"] is not None


def _row(contender: dict[str, Any], measured: dict[str, Any], visible_s: float, *, chosen: bool) -> Row:
    assignment, times_s = contender["assignment"], [t or 0.0 for t in contender["operators_s"]]
    own_s = sum(kernel["time_s"] or 0.0 for kernel in contender["kernels"] if not kernel["operators"])
    rest_s = contender["unattributed_s"] or 0.0
    totals = _totals(assignment, times_s)
    whole = contender["unattributed_s"] is None
    if whole or not assignment or any(kernel["operators"] for kernel in contender["kernels"]):
        # One piece: what was not profiled, a runtime that does not tell the model's operators apart, or a converted
        # model, whose operators the document does not list.
        backend, drawn_s = (
            (assignment or contender["configurations"])[0],
            (contender["level_s"] or 0.0) - own_s - rest_s,
        )
        totals = {backend: (len(assignment), drawn_s)}
        assignment, times_s = [backend], [drawn_s]
    return Row(
        label=contender["label"],
        chosen=chosen,
        stretches=tuple(stretches(assignment, times_s, visible_s)),
        own_s=own_s,
        rest_s=rest_s,
        measured_s=measured["median_s"],
        low_s=measured["low_s"],
        high_s=measured["high_s"],
        # A part of a percent is noise of the two measurements and needs no remark.
        scaled=(contender["profiler_overhead_s"] or 0.0) > 0.01 * measured["median_s"],
        totals=totals,
    )


def stretches(assignment: Sequence[str | None], times_s: Sequence[float], visible_s: float) -> list[Stretch]:
    """Runs of equal backend. Neighbours that are each shorter than `visible_s` are drawn as one, of the backend that
    most of their time is on, so that the colours still tell how much time each backend has.
    """
    groups: list[list[int]] = []
    for index, backend in enumerate(assignment):
        if index and backend == assignment[index - 1]:
            groups[-1].append(index)
        else:
            groups.append([index])
    merged: list[list[int]] = []
    width_s = 0.0
    for group in groups:
        time_s = _sum(group, times_s)
        last = group is groups[-1] and time_s < visible_s
        if merged and (width_s < visible_s or last):
            merged[-1] += group
            width_s += time_s
        else:
            merged.append(list(group))
            width_s = time_s
    made: list[Stretch] = []
    start_s = 0.0
    for members in merged:
        time_s, backend = _sum(members, times_s), _most(members, assignment, times_s)
        if made and made[-1].backend == backend:
            members, start_s = [*made[-1].operators, *members], made[-1].start_s
            time_s = _sum(members, times_s)
            made.pop()
        borders = _borders(members, times_s, start_s, visible_s)
        made.append(
            Stretch(backend=backend, start_s=start_s, time_s=time_s, operators=tuple(members), borders_s=borders)
        )
        start_s += time_s
    return made


def _sum(members: Sequence[int], times_s: Sequence[float]) -> float:
    return sum(times_s[index] for index in members)


def _most(members: Sequence[int], assignment: Sequence[str | None], times_s: Sequence[float]) -> str:
    """The backend that most of the members' time is on."""
    sums: dict[str, float] = {}
    for index in members:
        name = assignment[index] or "?"
        sums[name] = sums.get(name, 0.0) + times_s[index]
    return max(sums, key=lambda name: sums[name])


def _borders(members: Sequence[int], times_s: Sequence[float], start_s: float, visible_s: float) -> tuple[float, ...]:
    borders, at_s, last_s = [], start_s, start_s
    for index in members[:-1]:
        at_s += times_s[index]
        if at_s - last_s >= visible_s:
            borders.append(at_s)
            last_s = at_s
    return tuple(borders)


def _totals(assignment: Sequence[str | None], times_s: Sequence[float]) -> dict[str, tuple[int, float]]:
    totals: dict[str, tuple[int, float]] = {}
    for backend, time_s in zip(assignment, times_s, strict=True):
        number, sum_s = totals.get(backend or "?", (0, 0.0))
        totals[backend or "?"] = (number + 1, sum_s + time_s)
    return totals


# Okabe and Ito's colours, which stay apart for people who are colour-blind; hatches tell them apart in print.
_COLOURS = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#0072B2", "#D55E00", "#999999")
_OWN, _REST = "#7a7a7a", "#e4e4e4"
_EDGE = {"stroke": "#303030", "strokeWidth": 0.5, "strokeOpacity": 0.5}
_CHOICE = {"shape": CHECK, "size": 100, "stroke": "black", "strokeWidth": 2}
_WIDTH, _EACH, _HALF = 520, 46, 0.28


def placement_spec(document: dict[str, Any]) -> Spec | None:
    """The picture of a place document as a specification of Vega-Lite; None where nothing was measured."""
    document = finite(document)
    rows = rows_of(document)
    if not rows:
        return None
    backends = list(dict.fromkeys(s.backend for row in rows for s in row.stretches))
    looks = {name: (_COLOURS[k % len(_COLOURS)], HATCHES[k % len(HATCHES)]) for k, name in enumerate(backends)}
    longest_s = max(max(row.whole_s, row.measured_s, min(row.high_s or 0.0, 2 * row.measured_s)) for row in rows)
    factor, unit = units.millis(longest_s)
    x = Scale(low=0, high=longest_s * factor * 1.02, length=_WIDTH)
    y = Scale(low=len(rows) - 0.5, high=-0.5, length=_EACH * len(rows))
    clock = "CPU time" if document["clock"] == "cpu" else "wall time"
    notes = ["Bars are of the fastest 20 % of calls, which nothing else interrupted."] * (document["clock"] == "wall")
    if any(row.scaled for row in rows):
        notes.append("Operators as traced, in proportion where the profiler itself takes time.")
    name = shorten(Path(document["model"]["path"]).name, 50)
    title = f"{name} on {shorten(document['device'], 30)}. {shorten(document['decision']['reason'], 200)}"
    across = x.axis([f"{clock} of one inference, {unit}: operators in execution order", *notes])
    layers = [*_bars(rows, factor, looks, x, y), *cut(_wholes(rows, factor), x, y), *_names(rows, x)]
    plot = view(layers, across, y.axis(None), (x.length, y.length))
    return picture([plot, legend(_keys(looks, rows), columns=2)], sentences(title))


def profile_spec(document: dict[str, Any]) -> Spec | None:
    """The configurations of a profile that ran, by their median; None where none did."""
    document = finite(document)
    clock = document["clock"]
    alive = [(one["label"], one[clock]) for one in document["columns"] if _timed(one[clock])]
    if not alive:
        return None
    alive.sort(key=lambda one: one[1]["median_s"])
    factor, unit = units.millis(alive[-1][1]["median_s"])
    bars = [
        {"x": 0, "x2": found["median_s"] * factor, "y": k - _HALF, "y2": k + _HALF}
        for k, (_, found) in enumerate(alive)
    ]
    ends = [
        {"x": found["low_s"] * factor, "x2": found["high_s"] * factor, "y": k}
        for k, (_, found) in enumerate(alive)
        if found["low_s"] is not None and found["high_s"] is not None
    ]
    x = Scale(low=0, high=1.1 * bars[-1]["x2"], length=_WIDTH)
    y = Scale(low=len(alive) - 0.5, high=-0.5, length=30 * len(alive))
    labels = [{"x": 0, "y": k, "text": shorten(label, 44)} for k, (label, _) in enumerate(alive)]
    times = [
        {"x": x.high, "y": k, "text": _told(found["median_s"], found["low_s"], found["high_s"])}
        for k, (_, found) in enumerate(alive)
    ]
    layers = [
        drawn("rect", bars, fill=_COLOURS[0], **_EDGE),
        *cut([drawn("rule", ends, color="black", strokeWidth=2.8)], x, y),
        *texts(labels, align="right", dx=-8, fontSize=12),
        *texts(times, dx=6, fontSize=12),
    ]
    title = f"{'CPU time' if clock == 'cpu' else 'wall time'} of one inference, {unit}, with 95 % intervals"
    name = shorten(Path(document["model"]["path"]).name, 50)
    plot = view(layers, x.axis(title), y.axis(None), (x.length, y.length))
    return picture([plot], sentences(f"{name} on {shorten(document['device'], 30)}"))


def _bars(rows: Sequence[Row], factor: float, looks: Mapping[str, tuple[str, str]], x: Scale, y: Scale) -> list[Spec]:
    """The stretches of each backend, with borders where one operator ends, and what no operator took."""
    made = []
    for backend, (colour, hatch) in looks.items():
        boxes = [
            _box(place, s.start_s * factor, s.time_s * factor)
            for place, row in enumerate(rows)
            for s in row.stretches
            if s.backend == backend
        ]
        pixels = [(x.place(b["x"]), _EACH * (b["y"] + 0.5), x.place(b["x2"]), _EACH * (b["y2"] + 0.5)) for b in boxes]
        made += [drawn("rect", boxes, fill=colour, **_EDGE), *in_values(hatched(hatch, pixels), x, y)]
    borders = [
        {"x": at * factor, "y": place - _HALF, "y2": place + _HALF}
        for place, row in enumerate(rows)
        for s in row.stretches
        for at in s.borders_s
    ]
    own = [_box(k, row.drawn_s * factor, row.own_s * factor) for k, row in enumerate(rows) if row.own_s > 0]
    rest = [
        _box(k, (row.drawn_s + row.own_s) * factor, row.rest_s * factor) for k, row in enumerate(rows) if row.rest_s > 0
    ]
    made += [drawn("rule", borders, color="white", strokeWidth=0.7)]
    return [*made, drawn("rect", own, fill=_OWN), drawn("rect", rest, fill=_REST)]


def _box(place: int, left: float, width: float) -> Spec:
    return {"x": left, "x2": left + width, "y": place - _HALF, "y2": place + _HALF}


def _wholes(rows: Sequence[Row], factor: float) -> list[Spec]:
    """What was measured of each as a whole, with its interval."""
    middles = [{"x": row.measured_s * factor, "y": place - 0.38, "y2": place + 0.38} for place, row in enumerate(rows)]
    ends = [
        {"x": row.low_s * factor, "x2": row.high_s * factor, "y": place}
        for place, row in enumerate(rows)
        if row.low_s is not None and row.high_s is not None
    ]
    return [
        drawn("rule", middles, color="black", strokeWidth=1.8),
        drawn("rule", ends, color="black", strokeWidth=2.8),
    ]


def _names(rows: Sequence[Row], x: Scale) -> list[Spec]:
    """The labels left of the rows, and the times right of them; those of the choice are bold."""
    made = []
    for chosen, weight in ((False, "normal"), (True, "bold")):
        own = [(place, row) for place, row in enumerate(rows) if row.chosen == chosen]
        labels = [{"x": 0, "y": place, "text": _two_lines(row.label)} for place, row in own]
        times = [{"x": x.high, "y": place, "text": _told(row.measured_s, row.low_s, row.high_s)} for place, row in own]
        made += texts(labels, align="right", dx=-24, fontSize=12, fontWeight=weight)
        made += texts(times, dx=6, fontSize=12, fontWeight=weight)
    checks = [{"x": 0, "y": place} for place, row in enumerate(rows) if row.chosen]
    return [*made, drawn("point", checks, xOffset=-13, **_CHOICE)]


def _told(median_s: float, low_s: float | None, high_s: float | None) -> str:
    ends = "" if low_s is None or high_s is None else units.interval(low_s, high_s, median_s)
    return f"{units.time(median_s)} {ends}".strip()


def _two_lines(label: str, width: int = 30) -> list[str]:
    """The label in at most two lines, the middle left out of longer ones."""
    text = clean(label)
    lines = textwrap.wrap(text, width)
    return lines if len(lines) < 3 else [f"{text[: width - 2]}..", text[-width:]]


def _keys(looks: Mapping[str, tuple[str, str]], rows: Sequence[Row]) -> list[Key]:
    totals = next((row.totals for row in rows if row.chosen), {})
    keys = []
    for backend, (colour, hatch) in looks.items():
        number, sum_s = totals.get(backend, (0, 0.0))
        operators = "operator" if number == 1 else "operators"
        used = f"{number} {operators}, {units.time(sum_s)}" if number else "not in the choice"
        look = (("rect", {"fill": colour, **_EDGE}),)
        keys.append(Key(text=f"{shorten(backend, 40)}: {used}", looks=look, hatch=hatch))
    visible_s = 0.004 * max(row.measured_s for row in rows)
    for parts, colour, text in (
        ([row.own_s for row in rows], _OWN, "kernels of no operator"),
        ([row.rest_s for row in rows], _REST, "unattributed time"),
    ):
        if any(part_s > visible_s for part_s in parts):
            keys.append(Key(text=text, looks=(("rect", {"fill": colour}),)))
    whole = (("rule", {"color": "black", "strokeWidth": 2.8}), ("point", {**_CHOICE, "shape": UPRIGHT}))
    keys.append(Key(text="the whole, with 95 % interval", looks=whole))
    return [*keys, Key(text="the choice", looks=(("point", _CHOICE),))]
