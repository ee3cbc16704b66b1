"""How the pictures of a layer are drawn: its configurations by time and by M."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.core.overlay.confidence import Spread
from gnomon.jobs.tune.report import loss, many
from gnomon.report import units
from gnomon.report.labels import EndLabel, end_labels
from gnomon.report.plain import shorten
from gnomon.report.vega import (
    CHOSEN,
    LOOKS,
    WIDTH,
    Look,
    Scale,
    Spec,
    bars,
    cut,
    drawn,
    line,
    picture,
    points,
    reach,
    second_axis,
    sentences,
    texts,
    view,
    whole,
)

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSeries:
    """The configurations of a layer: `relative` are their times over each device's `theta_s`, a row each.

    NaN where there is no time. `chosen` is the row of the choice, -1 where there is none. `spread` tells the intervals
    of some rows; None where nothing is known of them.
    """

    name: str
    devices: tuple[str, ...]
    configurations: tuple[str, ...]
    hosts: tuple[str, ...]
    relative: Array
    theta_s: Array
    chosen: int
    spread: Callable[[Sequence[int]], Spread] | None = None

    @property
    def complete(self) -> NDArray[np.bool_]:
        """Which configurations have a time on every device."""
        return np.asarray(np.isfinite(self.relative).all(axis=1), dtype=np.bool_)

    @property
    def metric(self) -> Array:
        """M of each configuration; NaN where a time is missing."""
        return np.asarray((self.relative - 1).sum(axis=1), dtype=np.float64)

    def by_time(self) -> NDArray[np.intp]:
        """The rows in order of time on the first device; those without a time there are left out."""
        order = np.argsort(self.relative[:, 0], kind="stable")
        return order[: int(np.isfinite(self.relative[:, 0]).sum())]

    def by_metric(self) -> NDArray[np.intp]:
        """The rows in order of M, of equal ones by the worst device's loss; incomplete ones are left out."""
        complete = np.flatnonzero(self.complete)
        worst = self.relative[complete].max(axis=1)
        # The last key is the first to be compared. The choice stands before what is as good as it.
        keys = (complete != self.chosen, worst, self.metric[complete])
        return complete[np.lexsort(keys)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bins:
    """Ranks gathered to stretches: `edges` (from 0, the last is the count) and the place of each on the axis."""

    edges: NDArray[np.intp]
    places: Array

    def of(self, values: Array, quantiles: tuple[float, ...]) -> Array:
        """Quantiles of the values (a row a rank) in each stretch, a row a quantile; NaN where there is no value."""
        found = np.full((len(quantiles), len(self.places)), np.nan)
        for k in range(len(self.places)):
            inside = values[self.edges[k] : self.edges[k + 1]]
            known = inside[np.isfinite(inside)]
            if known.size:
                found[:, k] = np.quantile(known, quantiles)
        return found


def bins_of(count: int, most: int, *, logarithmic: bool, least: int = 1) -> Bins:
    """Stretches of ranks that are about equally wide on the axis, at most so many, each of at least so many ranks."""
    ends = np.geomspace(1, count + 1, most + 1) - 1 if logarithmic else np.linspace(0, count, most + 1)
    edges = [0]
    for end in np.round(ends).astype(int):
        if end - edges[-1] >= least:
            edges.append(int(end))
    if edges[-1] != count:
        edges[max(1, len(edges) - 1) :] = [count]
    found = np.asarray(edges)
    first, last = found[:-1] + 1.0, found[1:].astype(np.float64)
    return Bins(edges=found, places=np.sqrt(first * last) if logarithmic else (first + last) / 2)


def series_of(name: str, series: Mapping[str, Any], layer: Mapping[str, Any] | None) -> LayerSeries:
    """A layer's series as arrays; `layer` is the document's, whose theta counts too where it knows a better time."""
    devices = tuple(series["devices"])
    rows = [[np.nan if time is None else time for time in row] for row in series["times_s"]]
    times = np.asarray(rows, dtype=np.float64).reshape(len(rows), len(devices))
    times[~(np.isfinite(times) & (times > 0))] = np.nan
    theta = np.min(np.where(np.isnan(times), np.inf, times), axis=0, initial=np.inf)
    known = {} if layer is None else layer["theta"]
    theta = np.minimum(theta, [known.get(device) or np.inf for device in devices])
    configurations = tuple(series["configurations"])
    chosen = series["chosen"]
    return LayerSeries(
        name=name,
        devices=devices,
        configurations=configurations,
        hosts=tuple(series["hosts"]),
        relative=times / theta,
        theta_s=theta,
        chosen=configurations.index(chosen) if chosen in configurations else -1,
        spread=series["spread"],
    )


def device_name(series: LayerSeries, device: int) -> str:
    """A device's name, cleaned and short."""
    return shorten(series.devices[device], 24)


def rank_of(series: LayerSeries, order: NDArray[np.intp]) -> int:
    """The rank of the choice from 1 on; 0 where it is not among them."""
    found = np.flatnonzero(order == series.chosen)
    return int(found[0]) + 1 if found.size else 0


def choice_words(series: LayerSeries, word: str) -> str:
    """The choice with where it was found, after a word."""
    host = series.hosts[series.chosen] if series.chosen < len(series.hosts) else ""
    found = f", found on {shorten(host, 20)}" if host else ""
    return f"{word}: {shorten(series.configurations[series.chosen], 18)}{found}"


def times_title(series: LayerSeries, order: NDArray[np.intp]) -> str:
    """What the picture shows: where the choice stands on the first device, and what it loses there and elsewhere."""
    name, count = shorten(series.name, 48), len(order)
    rank = rank_of(series, order)
    spread = float(series.relative[order[-1], 0] / series.relative[order[0], 0])
    if not rank:
        what = "no choice" if series.chosen < 0 else "the choice has no time there"
        where = device_name(series, 0)
        return f"{name}: {count} configurations on {where}, the slowest {spread:.3g} times as long; {what}."
    if float(np.nanmax(series.relative)) <= 1 + 1e-9:
        return f"{name}: all {count} configurations take equally long."
    lost = series.relative[series.chosen] - 1
    told = f"{name}: the choice is number {rank} of {count} on {device_name(series, 0)}, {_behind(lost[0])}"
    return f"{told}{_elsewhere(series, lost)}."


def _behind(lost: float) -> str:
    return "the best there is" if lost <= 0 else f"{loss(lost)} slower than the best"


def _elsewhere(series: LayerSeries, lost: Array) -> str:
    """What the choice loses on the other devices."""
    others = [k for k in range(1, len(lost)) if np.isfinite(lost[k])]
    if not others:
        return ""
    if len(others) == 1:
        return f"; on {device_name(series, others[0])} it is {_behind(lost[others[0]])}"
    worst = max(others, key=lambda k: lost[k])
    if lost[worst] <= 0:
        return f"; on the other {len(others)} devices it is the best there is"
    mean, most = loss(float(np.mean(lost[others]))), loss(float(lost[worst]))
    return (
        f"; on the other {len(others)} devices {mean} behind on average, at worst {most} ({device_name(series, worst)})"
    )


def metric_title(series: LayerSeries, order: NDArray[np.intp]) -> str:
    """What the picture by M shows: how much the choice loses on average and at worst."""
    name, count, devices = shorten(series.name, 48), len(order), len(series.devices)
    kinds = "configuration" if count == 1 else "configurations"
    told = f"{name}: {count} {kinds} on {many(devices, 'device')}"
    rank = rank_of(series, order)
    if not rank:
        return f"{told}; no choice is among them."
    lost = series.relative[series.chosen] - 1
    worst = int(np.argmax(lost))
    if lost[worst] <= 0:
        return f"{told}; the choice is the best on {'it' if devices == 1 else 'every one'}."
    mean, most = loss(float(lost.mean())), loss(float(lost[worst]))
    return f"{told}; the choice loses {mean} on average, at worst {most} ({device_name(series, worst)})."


_EACH = 60
"""Up to so many configurations each device's line goes through every one; of more it is a median of stretches."""

_LOGARITHMIC = 100
"""From more configurations on ranks are drawn logarithmically: the best ones are what matters."""

_BINS = 48
_LEAST = 5
"""Of how many configurations a median is drawn at least: of fewer it would be no more than the dots."""

_OF_STRETCH = 20
"""Of how many values a quantile of the band is drawn at least."""

_BARS = 40
"""At how many ranks an interval is drawn, where there is not room for that of every one."""

_ASIDE = 0.3
"""How far from its rank a device's line is drawn at most, so that intervals stand side by side."""

_LARGE = 30
"""Up to which rank dots are large, since there are few of them on a logarithmic axis."""

_DOTS = 300
"""Of how many configurations the single values are drawn as dots, behind the line of medians."""

_FAR = 4.0
"""A scale is logarithmic where the largest value is at least so many times the smallest."""

_THRESHOLD = 5.0
"""Up to which loss in percent a scale with 0 is about linear."""

_MOST_POINTS = 2000
_KEPT = (0.1, 0.5, 0.9)
_HEIGHT = 360
_BAND, _MEDIAN, _ENDS = "#9ecae1", "#A04000", "#4a7fa5"
_DEVICES = LOOKS[:6]
"""How devices are drawn, the first one first; of more of them the others are a band."""

_MEAN = Look(colour="black", shape="circle")


def times_spec(series: LayerSeries, order: NDArray[np.intp]) -> Spec:
    """The configurations by time on the first device, in this order."""
    count, first, values = len(order), device_name(series, 0), series.relative[order]
    names = [(device_name(series, k), f"best {units.time(series.theta_s[k])}") for k in range(len(series.devices))]
    aside = _asides(len(names) - 1, count)
    if _few(series):
        layers, labels = _lines(values, range(1, len(names)), names, aside)
    else:
        layers, labels = _band(values[:, 1:])
    thick, label = _first_line(values[:, 0], _DEVICES[0], names[0])
    layers, labels = [*layers, *thick], [*labels, label]
    rank = rank_of(series, order)
    ranks = _bar_ranks(count, rank)
    found = None if series.spread is None else series.spread(order[ranks].tolist())
    alone = []
    if found is not None:
        ends = found.times_s / series.theta_s
        for k in range(len(names) if _few(series) and count <= _EACH else 1):
            some, bare = _bars(ranks + 1 + (0, *aside)[k], ends[:, :, k], _DEVICES[k])
            layers += some
            alone.append(bare)
    if rank:
        there = values[rank - 1] if _few(series) else values[rank - 1, :1]
        layers += _rings(rank, there, _DEVICES, (0, *aside))
    y = _ratio_scale(reach(layers, "y"))
    label_of_x = _ranks_label(
        f"configurations, the fastest on {first} first", "there", series, count, None if found is None else any(alone)
    )
    plot = _plot(series, count, rank, layers, labels, y, ("time, each device's own best = 1", label_of_x))
    factor, unit = units.millis(float(series.theta_s[0] * values[-1, 0]))
    plot = second_axis(plot, y, float(series.theta_s[0]) * factor, f"on {first}, {unit}")
    return picture([plot], sentences(times_title(series, order)))


def metric_spec(series: LayerSeries, order: NDArray[np.intp]) -> Spec:
    """The configurations by M, in this order, with what each device loses."""
    count, devices = len(order), len(series.devices)
    values = 100 * (series.relative[order] - 1)
    layers: list[Spec] = []
    labels: list[EndLabel] = []
    lines = devices > 1 and _few(series)
    aside = _asides(devices, count)
    if lines:
        names = [(device_name(series, k),) for k in range(devices)]
        layers, labels = _lines(values, range(devices), names, aside)
    elif devices > 1:
        layers, labels = _band(values)
    mean = values.mean(axis=1)
    thick, label = _first_line(mean, _MEAN, ("M",) if devices == 1 else ("mean loss", "(M: far left)"))
    layers, labels = [*layers, *thick], [*labels, label]
    rank = rank_of(series, order)
    ranks = _bar_ranks(count, rank)
    found = None if series.spread is None else series.spread(order[ranks].tolist())
    alone = []
    if found is not None:
        held = [(ranks + 1.0, 100 * found.metric / devices, _MEAN)]
        for k in range(devices if lines and count <= _EACH else 0):
            held.append((ranks + 1 + aside[k], 100 * found.regrets[:, :, k], _DEVICES[k]))
        for one in held:
            some, bare = _bars(*one)
            layers += some
            alone.append(bare)
    if rank:
        there = [*(values[rank - 1] if lines else []), mean[rank - 1]]
        layers += _rings(rank, there, [*_DEVICES[: len(there) - 1], _MEAN], [*aside[: len(there) - 1], 0])
    y = _loss_scale(reach(layers, "y"))
    label_of_x = _ranks_label(
        "configurations, the least M first", "on every device", series, count, None if found is None else any(alone)
    )
    plot = _plot(series, count, rank, layers, labels, y, ("lost against the device's own best, %", label_of_x))
    plot = second_axis(plot, y, devices / 100, "M, the sum of the losses")
    return picture([plot], sentences(metric_title(series, order)))


def _plot(
    series: LayerSeries,
    count: int,
    rank: int,
    layers: Sequence[Spec],
    labels: Sequence[EndLabel],
    y: Scale,
    titles: tuple[str, Sequence[str]],
) -> Spec:
    """The plot of lines over ranks, with the names of the lines, and the choice at its rank."""
    room = max(0.5, 0.015 * count)
    x = Scale(low=1 - room, high=count + room, length=WIDTH)
    if count > _LOGARITHMIC:
        x = Scale(low=0.9, high=count * 1.04, length=WIDTH, kind="log")
    ticks = units.log_ticks(1, count) if count > _LOGARITHMIC else whole(1, count, 10)
    chosen = _choice(x, y, rank, choice_words(series, "chosen")) if rank else []
    across = x.axis(titles[1], values=ticks)
    more = {} if y.kind != "symlog" else {"values": [0.0, *units.log_ticks(_THRESHOLD, y.high)]}
    inside = [*cut(layers, x, y), *chosen, *end_labels(labels, x, y)]
    return view(inside, across, y.axis(titles[0], **more), (x.length, y.length))


def _ratio_scale(values: Sequence[float]) -> Scale:
    """The scale of times relative to the best by what is drawn: logarithmic where they are far apart."""
    low, high = min(1.0, *values), max(1.0, *values)
    if high / low > _FAR:
        return Scale(low=low / 1.08, high=high * 1.15, length=_HEIGHT, kind="log")
    room = max(0.05 * (high - low), 0.02)
    return Scale(low=low - room, high=high + room, length=_HEIGHT)


def _loss_scale(values: Sequence[float]) -> Scale:
    """The scale of losses in percent by what is drawn: about linear at 0 and logarithmic above, if need be."""
    low, high = min(values), max(values)
    if low > 1 and high / low > _FAR:
        return Scale(low=low / 1.15, high=high * 1.15, length=_HEIGHT, kind="log")
    if high > 100:
        least = -0.08 * _THRESHOLD
        return Scale(low=least, high=high * 1.15, length=_HEIGHT, kind="symlog", constant=_THRESHOLD)
    high = max(high, 1.0)
    return Scale(low=-0.03 * high, high=1.06 * high, length=_HEIGHT)


def _choice(x: Scale, y: Scale, rank: int, told: str) -> list[Spec]:
    """A labelled vertical line at the rank of the choice; the label stands above the plot."""
    place = x.place(rank) / x.length
    side = "left" if place < 0.35 else "right" if place > 0.65 else "center"
    rule = drawn("rule", [{"x": rank, "y": y.low, "y2": y.high}], color=CHOSEN, strokeWidth=1.4, strokeDash=[5, 3])
    return [rule, *texts([{"x": rank, "y": y.high, "text": told}], align=side, dy=-9, fontSize=12, color=CHOSEN)]


def _few(series: LayerSeries) -> bool:
    """Whether each device has a line of its own."""
    return len(series.devices) <= len(_DEVICES)


def _lines(
    values: Array, devices: Sequence[int], names: Sequence[tuple[str, ...]], aside: Sequence[float]
) -> tuple[list[Spec], list[EndLabel]]:
    """A line for each of some devices, each a bit aside, and their labels."""
    layers, labels = [], []
    for k, by in zip(devices, aside, strict=False):
        made, label = _device_line(values[:, k], _DEVICES[k], names[k], by)
        layers += made
        labels += label
    return layers, labels


def _asides(lines: int, count: int) -> list[float]:
    """How far from a rank each of some lines is drawn, where a line in the middle has the rank itself."""
    if count > _EACH:
        return [0.0] * lines
    steps = (lines + 1) // 2
    return [(1 if k % 2 == 0 else -1) * _ASIDE * (k // 2 + 1) / steps for k in range(lines)]


def _bar_ranks(count: int, rank: int) -> NDArray[np.intp]:
    """The ranks, from 0 on, whose intervals are drawn: all, or some and that of the choice."""
    if count <= _EACH:
        return np.arange(count)
    return np.union1d(_sampled(count, count > _LOGARITHMIC, _BARS), [rank - 1] if rank else []).astype(np.intp)


def _bars(places: NDArray[np.floating[Any]], ends: Array, look: Look) -> tuple[list[Spec], bool]:
    """Intervals as bars with caps; and whether some have no width elsewhere than at 0, where one is sure."""
    known = np.isfinite(ends).all(axis=0)
    wide = known & (ends[1] > ends[0])
    rows = [
        (float(x), float(low), float(low), float(high))
        for x, low, high in zip(places[wide], *ends[:, wide], strict=True)
    ]
    made = bars(rows, "y", look.colour, caps=5, strokeWidth=1.1)
    return made, bool((known & ~wide & (ends[1] > 0)).any())


def _device_line(values: Array, look: Look, name: tuple[str, ...], aside: float) -> tuple[list[Spec], list[EndLabel]]:
    """A device's values by rank; of many the medians of stretches, before dots of single ones. And its label."""
    count = len(values)
    logarithmic = count > _LOGARITHMIC
    made = []
    if count <= _EACH:
        places, heights = np.arange(1.0, count + 1) + aside, values
        marks = _places(places, heights)
    else:
        bins = bins_of(count, _BINS, logarithmic=logarithmic, least=_LEAST)
        places, heights = bins.places, bins.of(values, (0.5,))[0]
        dots = _sampled(count, logarithmic, _DOTS)
        for some, size, opacity in ((dots[dots < _LARGE], 5, 0.6), (dots[dots >= _LARGE], 3, 0.35)):
            rows = _rows(_places(some + 1, values[some]))
            made.append(points(rows, look.shape, look.colour, size=size, strokeWidth=0, opacity=opacity))
        marks = _places(places[::4], heights[::4])
    style = {"strokeDash": list(look.dash), "strokeWidth": 1.8}
    made += [
        line(_places(places, heights), look.colour, **style),
        points(_rows(marks), look.shape, look.colour, size=6),
    ]
    known = np.flatnonzero(np.isfinite(heights))
    if not known.size:
        return made, []
    last = known[-1]
    return made, [EndLabel(at=(float(places[last]), float(heights[last])), lines=name, colour=look.colour)]


def _places(x: Array | NDArray[np.intp], y: Array) -> list[tuple[float, float | None]]:
    return [(float(a), float(b) if np.isfinite(b) else None) for a, b in zip(x, y, strict=True)]


def _rows(places: Sequence[tuple[float, float | None]]) -> list[Spec]:
    return [{"x": x, "y": y} for x, y in places if y is not None]


def _sampled(count: int, logarithmic: bool, most: int) -> NDArray[np.intp]:
    """Ranks, from 0 on, that are about equally far apart on the axis."""
    if count <= most:
        return np.arange(count)
    places = np.geomspace(1, count, most) - 1 if logarithmic else np.linspace(0, count - 1, most)
    return np.unique(np.round(places).astype(np.intp))


def _band(values: Array) -> tuple[list[Spec], list[EndLabel]]:
    """Many devices: the middle 80 % of their values as a band, and the median; and their labels."""
    least = math.ceil(_OF_STRETCH / values.shape[1])
    bins = bins_of(len(values), _BINS, logarithmic=len(values) > _LOGARITHMIC, least=least)
    low, middle, high = bins.of(values, _KEPT)
    places = bins.places.copy()
    places[0], places[-1] = 1, len(values)  # the band is of the whole axis
    known = np.flatnonzero(np.isfinite(middle))
    if not known.size:
        return [], []
    band = [{"x": float(places[k]), "y": float(low[k]), "y2": float(high[k])} for k in known]
    style = {"strokeDash": list(LOOKS[1].dash), "strokeWidth": 2}
    layers = [drawn("area", band, color=_BAND, opacity=0.55), line(_places(places, middle), _MEDIAN, **style)]
    last, there = known[-1], many(values.shape[1], "device")
    told = (
        (high, ("9 of 10 below",), _ENDS),
        (middle, ("median of", there), _MEDIAN),
        (low, ("1 of 10 below",), _ENDS),
    )
    ends = [EndLabel(at=(float(places[last]), float(of[last])), lines=lines, colour=c) for of, lines, c in told]
    return layers, ends


def _first_line(values: Array, look: Look, name: tuple[str, ...]) -> tuple[list[Spec], EndLabel]:
    """The thick line that the configurations are sorted by, and its label."""
    count = len(values)
    rows = np.arange(count) if count <= _MOST_POINTS else _thinned(count)
    places = _places(rows + 1, values[rows])
    marks = _rows(places) if count <= _EACH else []
    made = [line(places, look.colour, strokeWidth=3.4), points(marks, look.shape, look.colour, size=7)]
    return made, EndLabel(at=(count, float(values[-1])), lines=name, colour=look.colour)


def _thinned(count: int) -> NDArray[np.intp]:
    """Ranks, from 0 on, that are dense on both a linear and a logarithmic axis."""
    half = _MOST_POINTS // 2
    both = np.concatenate([np.linspace(0, count - 1, half), np.geomspace(1, count, half) - 1])
    return np.unique(np.round(both).astype(np.intp))


def _rings(rank: int, values: Sequence[float] | Array, looks: Sequence[Look], aside: Sequence[float]) -> list[Spec]:
    """Rings where the line of the choice meets the others, with each one's mark inside."""
    made = []
    for value, look, by in zip(values, looks, aside, strict=False):
        if np.isfinite(value):
            at = [{"x": rank + by, "y": float(value)}]
            ring = points(at, "circle", CHOSEN, size=13, fill="transparent", strokeWidth=1.8)
            made += [ring, points(at, look.shape, look.colour, size=7)]
    return made


def _ranks_label(text: str, where: str, series: LayerSeries, count: int, bars: bool | None) -> list[str]:
    """The x axis's label, with what the eye must know of how lines were drawn and what was left out.

    `bars` is None where no intervals are drawn, else whether some have no width.
    """
    told = []
    if bars is not None:
        told.append(f"bars: 95 % intervals{' at some ranks' if count > _EACH else ''}")
    if bars:
        told.append("without a bar: one sample, or all alike")
    if not _few(series):
        told.append("band and dashes: of all devices and neighbouring ranks")
    elif count > _EACH and len(series.devices) > 1:
        told.append("thin lines: medians of neighbouring ranks; dots: single ones")
    left = len(series.configurations) - count
    if left:
        told.append(f"{left} without a time {where} skipped")
    logarithmic = " (logarithmic)" if count > _LOGARITHMIC else ""
    return [f"{text}{logarithmic}", *textwrap.wrap("; ".join(told), 96)]
