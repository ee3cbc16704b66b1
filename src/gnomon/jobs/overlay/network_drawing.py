"""The picture of a whole network on each device: the overlay's choice beside the device's own best and untuned."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator

from gnomon.jobs.overlay.report import Choices, measured_of, time_of
from gnomon.jobs.tune.report import loss, many
from gnomon.report import units
from gnomon.report.plain import shorten
from gnomon.report.plot import CHOSEN, log_ticks, new_figure, plain, titled

_FAR = 3.0
"""From which ratio of the slowest to the fastest on the axis is logarithmic."""

_NAMED = 120
"""Of more devices the rows have no names."""

_LONGEST_BAR = 3.0
"""How many times its value an interval is drawn to: few processes may leave one without an end to speak of."""

Dot = tuple[str, float, float | None, float | None]
"""A kind, the time over what is 1 on the device, and the ends of its interval there (None where unknown)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How the times of a choice are drawn."""

    name: str
    marker: str
    colour: str
    face: str
    offset: float


_KINDS = {
    "own": Kind(name="its own best (= 1)", marker="D", colour="#0072B2", face="#0072B2", offset=0.22),
    "overlay": Kind(name="the overlay's choice", marker="o", colour=CHOSEN, face=CHOSEN, offset=0.0),
    "other": Kind(name="another device's best", marker="x", colour="#8C6D1F", face="none", offset=-0.22),
    "untuned": Kind(name="untuned", marker="s", colour="#444444", face="white", offset=0.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A device: what is 1 there, whether that is its own best, its dots, and what failed."""

    device: str
    one_s: float
    own: bool
    dots: tuple[Dot, ...]
    failed: tuple[str, ...]

    def of(self, kind: str) -> float | None:
        """The relative time of a kind; None where it was not measured."""
        return next((value for name, value, _, _ in self.dots if name == kind), None)


def rows_of(document: Mapping[str, Any]) -> list[Row]:
    """The devices on which anything was measured; many are in order of what the choice loses, the most first."""
    rows = [_row(device, choices) for device, choices in measured_of(document).items()]
    rows = [row for row in rows if row.dots or row.failed]
    return rows if len(rows) <= 6 else sorted(rows, key=lambda row: -(row.of("overlay") or math.inf))


def _row(device: str, choices: Choices) -> Row:
    times = {choice: time for choice in choices if (time := time_of(choices, choice))}
    own = times.get(f"own:{device}")
    one = own or min(times.values(), default=1.0)
    dots = []
    for choice in sorted(times):
        summary, ratio = choices[choice]["time"], choices[choice]["to_own"]
        value, ends = (
            times[choice] / one,
            [None if summary[n] is None else summary[n] / one for n in ("low_s", "high_s")],
        )
        if ratio is not None:  # paired by process, which is surer than two times by themselves
            value, ends = ratio["ratio"], [ratio["low"], ratio["high"]]
        elif own is not None:
            ends = [None, None]  # what the others' intervals are relative to has none
        dots.append((_kind(device, choice), value, ends[0], ends[1]))
    dead = [_KINDS[_kind(device, choice)].name for choice in sorted(choices) if choices[choice]["failure"] is not None]
    return Row(device=device, one_s=one, own=own is not None, dots=tuple(dots), failed=tuple(dead))


def _kind(device: str, choice: str) -> str:
    if choice in ("overlay", "untuned"):
        return choice
    return "own" if choice == f"own:{device}" else "other"


def network_figure(document: Mapping[str, Any]) -> Figure | None:
    """The network's time on each device relative to its own best; None where nothing was measured.

    Where untuned is far off it has its own panel, so that the other intervals stay large enough to be seen.
    """
    rows = rows_of(document)
    if not any(row.dots for row in rows):
        return None
    count = len(rows)
    each = 0.46 if count <= 12 else 0.22 if count <= 40 else 0.15 if count <= _NAMED else 9.0 / count
    figure = new_figure(1.7 + each * count)
    panels = _panels(figure, rows)
    small = max(0.35, min(1.0, each / 0.3))
    for axes, kinds in panels:
        for place, row in enumerate(rows):
            _draw(axes, row, place, [dot for dot in row.dots if dot[0] in kinds], small=small)
            if count <= _NAMED:
                axes.axhline(place, color="#eeeeee", linewidth=0.7, zorder=-1)
        _scale(axes, [dot for row in rows for dot in row.dots if dot[0] in kinds], few=len(kinds) == 1)
        axes.set_ylim(count - 0.4 + 0.005 * count, -0.6 - 0.005 * count)
    first, last = panels[0][0], panels[-1][0]
    first.axvline(1, color="#0072B2", linewidth=0.8, zorder=0)
    first.set_xlabel("time of the whole network, each device's own best = 1")
    if last is not first:
        last.set_xlabel("untuned (own scale)")
        last.tick_params(axis="y", length=0)
    _names(first, last, rows)
    _legend(figure, rows)
    titled(figure, _title(rows))
    return figure


def _panels(figure: Figure, rows: Sequence[Row]) -> list[tuple[Any, tuple[str, ...]]]:
    """The axes, each with the kinds that are drawn there."""
    near = [value for row in rows for kind, value, _, _ in row.dots if kind != "untuned"]
    far = [value for row in rows for kind, value, _, _ in row.dots if kind == "untuned"]
    if not near or not far or min(far) < _FAR * max(near):
        return [(figure.subplots(), tuple(_KINDS))]
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(2.6, 1))
    return [(left, ("own", "overlay", "other")), (right, ("untuned",))]


def _names(first: Any, last: Any, rows: Sequence[Row]) -> None:
    """The devices' names left of the rows, and right of them what failed; of very many how many there are."""
    count = len(rows)
    if count > _NAMED:
        first.set_yticks([])
        first.set_ylabel(f"{count} devices, where the choice loses most first")
        return
    first.set_yticks(range(count), [_label(row) for row in rows], fontsize=9.5 if count <= 40 else 7)
    first.tick_params(axis="y", length=0)
    for place, row in enumerate(rows):
        if row.failed:
            text = f"failed: {', '.join(dict.fromkeys(row.failed))}"
            where: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "annotation_clip": False}
            last.annotate(text, (1.02, place), va="center", fontsize=8, **where)


def _draw(axes: Any, row: Row, place: int, dots: Sequence[Dot], *, small: float) -> None:
    """A device's dots with their intervals."""
    for name, value, low, high in dots:
        kind, at = _KINDS[name], place - _KINDS[name].offset
        if low is not None and high is not None:
            ends = [min(low, value), max(value, min(high, _LONGEST_BAR * value))]
            axes.plot(ends, [at, at], color=kind.colour, linewidth=1.6 * small, solid_capstyle="butt", zorder=2)
        style: dict[str, Any] = {"marker": kind.marker, "color": kind.colour, "markerfacecolor": kind.face}
        axes.plot([value], [at], linestyle="none", markersize=7 * small, zorder=3, **style)


def _label(row: Row) -> str:
    told = shorten(row.device, 28)
    if not row.dots:
        return told
    return f"{told}, {'' if row.own else 'fastest '}{units.time(row.one_s)}"


def _scale(axes: Any, dots: Sequence[Dot], *, few: bool) -> None:
    """Scale the x axis for some dots with their intervals; `few`: there is room for few numbers."""
    ends = [
        end
        for _, value, low, high in dots
        for end in (value, value if low is None else low, value if high is None else min(high, _LONGEST_BAR * value))
        if end > 0
    ]
    low, high = min(ends), max(ends)
    if high / low > _FAR:
        axes.set_xscale("log")
        axes.set_xlim(low / 1.06, high * 1.12)
        axes.xaxis.set_major_locator(FixedLocator(log_ticks(low / 1.06, high * 1.12, most=4 if few else 8)))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        room = max(0.06 * (high - low), 0.02 * low)
        axes.set_xlim(low - room, high + room)
        if few:
            axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _legend(figure: Figure, rows: Sequence[Row]) -> None:
    there = [kind for kind in _KINDS if any(row.of(kind) is not None for row in rows)]
    handles = []
    for name in there:
        kind = _KINDS[name]
        style: dict[str, Any] = {"marker": kind.marker, "color": kind.colour, "markerfacecolor": kind.face}
        handles.append(Line2D([], [], linestyle="none", markersize=7, **style))
    names = [_KINDS[name].name for name in there]
    if any(low is not None for row in rows for _, _, low, _ in row.dots):
        handles.append(Line2D([], [], color="#444444", linewidth=1.6))
        names.append("95 % interval")
    figure.legend(handles, names, loc="outside lower left", ncols=5, frameon=False, fontsize=9)


def _title(rows: Sequence[Row]) -> str:
    """What the picture shows: how much longer the choice takes than each device's own best, and untuned."""
    longer = {row.device: value - 1 for row in rows if row.own and (value := row.of("overlay")) is not None}
    told = "The whole network"
    if not longer:
        told += f" on {many(len(rows), 'device')}, no own best beside the overlay's choice"
    else:
        mean, worst = sum(longer.values()) / len(longer), max(longer, key=lambda device: longer[device])
        told += f" with the overlay's choice takes {_against(mean)} each device's own best on average"
        if len(longer) == 1:
            told = f"The whole network with the overlay's choice takes {_against(mean)} the own best of "
            told += shorten(worst, 28)
        elif longer[worst] > 0:
            told += f", at worst {loss(longer[worst])} longer ({shorten(worst, 28)})"
    gains = [u / o for row in rows if (u := row.of("untuned")) is not None and (o := row.of("overlay")) is not None]
    if gains:
        low, high = units.digits(min(gains)), units.digits(max(gains))
        told += f"; untuned it takes {low if low == high else f'{low} to {high}'} times as long"
    failed = sum(len(row.failed) for row in rows)
    if failed and len(rows) > _NAMED:
        told += f"; {many(failed, 'measurement')} failed"
    return f"{told}."


def _against(longer: float) -> str:
    return f"{loss(longer)} longer than" if longer >= 0 else f"{loss(-longer)} less than"
