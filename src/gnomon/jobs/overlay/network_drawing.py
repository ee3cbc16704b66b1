"""The picture of a whole network on each device: the overlay's choice beside the device's own best and untuned."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gnomon.jobs.overlay.report import Choices, measured_of, time_of
from gnomon.jobs.tune.report import loss, many
from gnomon.report import units
from gnomon.report.plain import shorten
from gnomon.report.vega import (
    CHOSEN,
    THIN_CROSS,
    WIDTH,
    Scale,
    Spec,
    bars,
    drawn,
    legend,
    line_key,
    picture,
    point_key,
    points,
    sentences,
    texts,
    view,
)

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
    shape: str
    colour: str
    offset: float
    hollow: bool = False


_KINDS = {
    "own": Kind(name="its own best (= 1)", shape="diamond", colour="#0072B2", offset=0.22),
    "overlay": Kind(name="the overlay's choice", shape="circle", colour=CHOSEN, offset=0.0),
    "other": Kind(name="another device's best", shape=THIN_CROSS, colour="#8C6D1F", offset=-0.22, hollow=True),
    "untuned": Kind(name="untuned", shape="square", colour="#444444", offset=0.0, hollow=True),
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


def network_spec(document: Mapping[str, Any]) -> Spec:
    """The network's time on each device relative to its own best; something was measured.

    Where untuned is far off it has its own panel, so that the other intervals stay large enough to be seen.
    """
    rows = rows_of(document)
    panels = _panels(rows)
    made = [_panel(rows, kinds, first=kinds is panels[0], last=kinds is panels[-1]) for kinds in panels]
    both = {"hconcat": made, "align": "none", "bounds": "flush", "spacing": 30}
    return picture([both, _legend(rows)], sentences(_title(rows)))


def _panels(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """The kinds that are drawn over one scale."""
    near = [value for row in rows for kind, value, _, _ in row.dots if kind != "untuned"]
    far = [value for row in rows for kind, value, _, _ in row.dots if kind == "untuned"]
    if not near or not far or min(far) < _FAR * max(near):
        return [tuple(_KINDS)]
    return [("own", "overlay", "other"), ("untuned",)]


def _panel(rows: Sequence[Row], kinds: Sequence[str], *, first: bool, last: bool) -> Spec:
    """The dots of some kinds with their intervals, over one scale, a row a device."""
    count, alone = len(rows), first and last
    each = 44 if count <= 12 else 21 if count <= 40 else 14 if count <= _NAMED else 860 / count
    y = Scale(low=count - 0.4 + 0.005 * count, high=-0.6 - 0.005 * count, length=each * count)
    x = _scale([dot for row in rows for dot in row.dots if dot[0] in kinds], WIDTH if alone else 420 if first else 160)
    layers = [] if count > _NAMED else [_lines(x, count)]
    if first:
        layers.append(drawn("rule", [{"x": 1, "y": y.low, "y2": y.high}], color="#0072B2", strokeWidth=1))
    for name in kinds:
        layers += _dots(rows, name, small=max(0.35, min(1.0, each / 28)))
    if first and count <= _NAMED:
        names = [{"x": x.low, "y": place, "text": _label(row)} for place, row in enumerate(rows)]
        layers += texts(names, align="right", dx=-8, fontSize=12 if count <= 40 else 9)
    if last and count <= _NAMED:
        failed = {place: ", ".join(dict.fromkeys(row.failed)) for place, row in enumerate(rows) if row.failed}
        layers += texts([{"x": x.high, "y": at, "text": f"failed: {told}"} for at, told in failed.items()], dx=8)
    title = "time of the whole network, each device's own best = 1" if first else "untuned (own scale)"
    most = 7 if first else 4
    ticks = {"values": units.log_ticks(x.low, x.high, most)} if x.kind == "log" else {"tickCount": most}
    up = {**y.axis(None), "axis": None}
    if first and count > _NAMED:
        up = y.axis(f"{count} devices, where the choice loses most first", values=[])
    return view(layers, x.axis(title, **ticks), up, (x.length, y.length))


def _lines(x: Scale, count: int) -> Spec:
    rows = [{"x": x.low, "x2": x.high, "y": place} for place in range(count)]
    return drawn("rule", rows, color="#eeeeee", strokeWidth=1)


def _dots(rows: Sequence[Row], name: str, *, small: float) -> list[Spec]:
    """The dots of a kind with their intervals."""
    kind = _KINDS[name]
    places, ends = [], []
    for place, row in enumerate(rows):
        at = place - kind.offset
        for value, low, high in (dot[1:] for dot in row.dots if dot[0] == name):
            places.append({"x": value, "y": at})
            if low is not None and high is not None:
                ends.append((value, at, min(low, value), max(value, min(high, _LONGEST_BAR * value))))
    intervals = bars(ends, "x", kind.colour, caps=0, strokeWidth=2 * small)
    return [*intervals, points(places, kind.shape, kind.colour, hollow=kind.hollow, size=9 * small)]


def _label(row: Row) -> str:
    told = shorten(row.device, 28)
    if not row.dots:
        return told
    return f"{told}, {'' if row.own else 'fastest '}{units.time(row.one_s)}"


def _scale(dots: Sequence[Dot], length: float) -> Scale:
    """The scale for some dots with their intervals."""
    ends = [
        end
        for _, value, low, high in dots
        for end in (value, value if low is None else low, value if high is None else min(high, _LONGEST_BAR * value))
        if end > 0
    ]
    low, high = min(ends), max(ends)
    if high / low > _FAR:
        return Scale(low=low / 1.06, high=high * 1.12, length=length, kind="log")
    room = max(0.06 * (high - low), 0.02 * low)
    return Scale(low=low - room, high=high + room, length=length)


def _legend(rows: Sequence[Row]) -> Spec:
    there = [kind for name, kind in _KINDS.items() if any(row.of(name) is not None for row in rows)]
    keys = [point_key(one.name, one.shape, one.colour, hollow=one.hollow) for one in there]
    if any(low is not None for row in rows for _, _, low, _ in row.dots):
        keys.append(line_key("95 % interval", "#444444", strokeWidth=2))
    return legend(keys, columns=3)


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
