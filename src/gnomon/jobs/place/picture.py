"""The picture of a placement: each contender's operators in a row, as wide as the time they take.

The geometry of the picture: operators in a row, merged where they are too small to be seen.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gnomon.report import units
from gnomon.report.plain import clean, shorten
from gnomon.report.plot import millis, new_figure, write

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
    alive = [c for c in document["contenders"] if c["failure"] is None and c[sample] is not None]
    best, chosen = document["decision"]["best_single"], document["decision"]["chosen"]
    order = {"single": 1, "greedy": 2, "plan": 3}
    alive.sort(key=lambda c: (c["label"] != best, order[c["kind"]], c[sample]["median_s"]))
    kept = alive[:most]
    for contender in alive[most:]:
        if contender["label"] == chosen:
            kept[-1] = contender
    longest_s = max((c[sample]["median_s"] for c in kept), default=0.0)
    return [_row(c, c[sample], longest_s * _VISIBLE, chosen=c["label"] == chosen) for c in kept]


def _row(contender: dict[str, Any], measured: dict[str, Any], visible_s: float, *, chosen: bool) -> Row:
    assignment, times_s = contender["assignment"], [t or 0.0 for t in contender["operators_s"]]
    own_s = sum(kernel["time_s"] for kernel in contender["kernels"] if not kernel["operators"])
    rest_s = contender["unattributed_s"]
    totals = _totals(assignment, times_s)
    if not assignment or any(kernel["operators"] for kernel in contender["kernels"]):
        # One piece: a runtime that does not tell the model's operators apart, or a converted model, whose operators
        # the document does not list.
        backend, drawn_s = (assignment or contender["configurations"])[0], contender["level_s"] - own_s - rest_s
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
        scaled=contender["profiler_overhead_s"] > 0.01 * measured["median_s"],
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
_LOOKS = (
    ("#56B4E9", ""),
    ("#E69F00", "////"),
    ("#009E73", "...."),
    ("#CC79A7", "\\\\\\\\"),
    ("#F0E442", "xxxx"),
    ("#0072B2", "----"),
    ("#D55E00", "++++"),
    ("#999999", "oo"),
)
_REST = "#e4e4e4"
_OWN = "#7a7a7a"


def draw_placement(document: dict[str, Any], paths: Sequence[Path]) -> None:
    """Draw a place document into files whose suffix says how (.svg, .png). The same document gives the same bytes.

    Raises OSError where a file cannot be written.
    """
    for path in paths:
        write(lambda: _figure(document), path, font_size=9.0)


def _figure(document: dict[str, Any]) -> Figure:
    rows = rows_of(document)
    backends = list(dict.fromkeys(s.backend for row in rows for s in row.stretches))
    looks = {name: _LOOKS[number % len(_LOOKS)] for number, name in enumerate(backends)}
    longest_s = max(max(row.whole_s, row.measured_s, min(row.high_s or 0.0, 2 * row.measured_s)) for row in rows)
    scale, unit = millis(longest_s)
    figure = new_figure(1.5 + 0.62 * len(rows), 10.0)
    axes = figure.add_subplot()
    axes.spines["left"].set_visible(False)
    for place, row in enumerate(rows):
        _draw_row(axes, row, place, scale, looks)
    axes.set_xlim(0, longest_s * scale * 1.02)
    axes.set_ylim(len(rows) - 0.5, -0.62)
    labels = [("\u2714 " if row.chosen else "") + _two_lines(row.label) for row in rows]
    axes.set_yticks(range(len(rows)), labels=labels)
    axes.tick_params(axis="y", length=0)
    for text, row in zip(axes.get_yticklabels(), rows, strict=True):
        text.set_fontweight("bold" if row.chosen else "normal")
    clock = "CPU time" if document["clock"] == "cpu" else "wall time"
    axes.set_xlabel(f"{clock} of one inference, {unit}: operators in execution order")
    name = shorten(Path(document["model"]["path"]).name, 50)
    title = f"{name} on {shorten(document['device'], 30)}. {shorten(document['decision']['reason'], 200)}"
    axes.set_title("\n".join(textwrap.wrap(title, 105)), loc="left", fontsize=10.5)
    _legend(figure, looks, rows, wall=document["clock"] == "wall")
    return figure


def _two_lines(label: str, width: int = 30) -> str:
    """The label in at most two lines, the middle left out of longer ones."""
    text = clean(label)
    lines = textwrap.wrap(text, width)
    return "\n".join(lines) if len(lines) < 3 else f"{text[: width - 2]}..\n{text[-width:]}"


def _draw_row(axes: Any, row: Row, place: int, scale: float, looks: dict[str, tuple[str, str]]) -> None:
    for stretch in row.stretches:
        colour, hatch = looks[stretch.backend]
        axes.barh(
            place,
            stretch.time_s * scale,
            left=stretch.start_s * scale,
            height=0.56,
            color=colour,
            hatch=hatch,
            edgecolor="#30303080",
            linewidth=0.4,
        )
        axes.vlines([b * scale for b in stretch.borders_s], place - 0.28, place + 0.28, colors="white", linewidth=0.5)
    left_s = row.drawn_s
    for part_s, colour in ((row.own_s, _OWN), (row.rest_s, _REST)):
        if part_s > 0:
            axes.barh(place, part_s * scale, left=left_s * scale, height=0.56, color=colour, linewidth=0)
        left_s += part_s
    middle = row.measured_s * scale
    axes.vlines(middle, place - 0.36, place + 0.36, colors="black", linewidth=1.4, zorder=4)
    told = units.time(row.measured_s)
    if row.low_s is not None and row.high_s is not None:
        axes.hlines(place, row.low_s * scale, row.high_s * scale, colors="black", linewidth=2.2, zorder=4)
        told += " " + units.interval(row.low_s, row.high_s, row.measured_s)
    axes.annotate(
        told,
        (1.005, place),
        xycoords=("axes fraction", "data"),
        va="center",
        ha="left",
        fontweight="bold" if row.chosen else "normal",
        annotation_clip=False,
    )


def _legend(figure: Figure, looks: dict[str, tuple[str, str]], rows: Sequence[Row], *, wall: bool) -> None:
    totals = next((row.totals for row in rows if row.chosen), {})
    handles: list[Any] = []
    labels: list[str] = []
    for backend, (colour, hatch) in looks.items():
        handles.append(Patch(facecolor=colour, hatch=hatch, edgecolor="#30303080", linewidth=0.4))
        number, sum_s = totals.get(backend, (0, 0.0))
        operators = "operator" if number == 1 else "operators"
        used = f"{number} {operators}, {units.time(sum_s)}" if number else "not in the choice"
        labels.append(f"{shorten(backend, 40)}: {used}")
    visible_s = 0.004 * max(row.measured_s for row in rows)
    for parts, colour, text in (
        ([row.own_s for row in rows], _OWN, "kernels of no operator"),
        ([row.rest_s for row in rows], _REST, "unattributed time"),
    ):
        if any(part_s > visible_s for part_s in parts):
            handles.append(Patch(facecolor=colour))
            labels.append(text)
    handles.append(Line2D([], [], color="black", linewidth=1.4, marker="|", markersize=9, markeredgewidth=1.4))
    labels.append("the whole, with 95 % interval")
    handles.append(Line2D([], [], linestyle="none"))
    labels.append("\u2714 the choice")
    legend = figure.legend(handles, labels, loc="outside lower left", ncols=3, frameon=False, fontsize=8.5)
    notes = ["Bars are of the fastest 20 % of calls, which nothing else interrupted."] if wall else []
    if any(row.scaled for row in rows):
        notes.append("Operators as traced, in proportion where the profiler itself takes time.")
    if notes:
        legend.set_title("\n".join(notes), FontProperties(size=8.5))
        legend.set_alignment("left")
