"""How the pictures of a layer are drawn: its configurations by time and by M. Needs matplotlib."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gnomon.core.overlay.confidence import Spread
from gnomon.jobs.tune.report import loss, many
from gnomon.report.plain import shorten
from gnomon.report.plot import (
    BAND,
    CHOSEN,
    LOOKS,
    MEAN,
    EndLabel,
    Look,
    device_label,
    end_labels,
    loss_scale,
    mark_choice,
    millis,
    new_figure,
    rank_axis,
    ratio_scale,
    second_scale,
    titled,
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


_MEDIAN, _ENDS = "#A04000", "#4a7fa5"


_MOST_POINTS = 2000


_KEPT = (0.1, 0.5, 0.9)


_HEIGHT = 4.9


def times_figure(series: LayerSeries) -> Figure | None:
    """All configurations by time on the first device; None where none has a time there."""
    order = series.by_time()
    if not order.size:
        return None
    figure = new_figure(_HEIGHT)
    axes = figure.subplots()
    count, first, values = len(order), device_name(series, 0), series.relative[order]
    names = [device_label(device_name(series, k), series.theta_s[k]) for k in range(len(series.devices))]
    logarithmic = count > _LOGARITHMIC
    rank_axis(axes, count, logarithmic=logarithmic)
    aside = _asides(len(names) - 1, count)
    if _few(series):
        labels = _lines(axes, values, range(1, len(names)), names, aside)
    else:
        labels = _band(axes, values[:, 1:], logarithmic)
    labels.append(_first_line(axes, values[:, 0], LOOKS[0], names[0]))
    rank = rank_of(series, order)
    ranks = _bar_ranks(count, rank)
    found = None if series.spread is None else series.spread(order[ranks].tolist())
    if found is not None:
        drawn = range(len(names) if _few(series) and count <= _EACH else 1)
        ends = found.times_s / series.theta_s
        alone = [_bars(axes, ranks + 1 + (0, *aside)[k], ends[:, :, k], LOOKS[k]) for k in drawn]
    if rank:
        mark_choice(axes, rank, choice_words(series, "chosen"))
        _rings(axes, rank, values[rank - 1] if _few(series) else values[rank - 1, :1], LOOKS, (0, *aside))
    ratio_scale(axes)
    axes.set_ylabel("time, each device's own best = 1")
    end_labels(axes, labels)
    factor, unit = millis(float(series.theta_s[0] * values[-1, 0]))
    second_scale(axes, series.theta_s[0] * factor, f"on {first}, {unit}")
    bars = None if found is None else any(alone)
    _ranks_label(axes, f"configurations, the fastest on {first} first", "there", series, count, bars)
    titled(figure, times_title(series, order))
    return figure


def metric_figure(series: LayerSeries) -> Figure | None:
    """All configurations by M, with what each device loses; None where none has a time on every device."""
    order = series.by_metric()
    if not order.size:
        return None
    figure = new_figure(_HEIGHT)
    axes = figure.subplots()
    count, devices = len(order), len(series.devices)
    values = 100 * (series.relative[order] - 1)
    logarithmic = count > _LOGARITHMIC
    rank_axis(axes, count, logarithmic=logarithmic)
    labels, lines = [], devices > 1 and _few(series)
    aside = _asides(devices, count)
    if lines:
        names = [device_name(series, k) for k in range(devices)]
        labels = _lines(axes, values, range(devices), names, aside)
    elif devices > 1:
        labels = _band(axes, values, logarithmic)
    mean = values.mean(axis=1)
    labels.append(_first_line(axes, mean, MEAN, "M" if devices == 1 else "mean loss\n(M: far left)"))
    rank = rank_of(series, order)
    ranks = _bar_ranks(count, rank)
    found = None if series.spread is None else series.spread(order[ranks].tolist())
    if found is not None:
        alone = [_bars(axes, ranks + 1.0, 100 * found.metric / devices, MEAN)]
        for k in range(devices if lines and count <= _EACH else 0):
            alone.append(_bars(axes, ranks + 1 + aside[k], 100 * found.regrets[:, :, k], LOOKS[k]))
    if rank:
        mark_choice(axes, rank, choice_words(series, "chosen"))
        there = [*(values[rank - 1] if lines else []), mean[rank - 1]]
        _rings(axes, rank, there, [*LOOKS[: len(there) - 1], MEAN], [*aside[: len(there) - 1], 0])
    loss_scale(axes)
    axes.set_ylabel("lost against the device's own best, %")
    end_labels(axes, labels)
    second_scale(axes, devices / 100, "M, the sum of the losses")
    bars = None if found is None else any(alone)
    _ranks_label(axes, "configurations, the least M first", "on every device", series, count, bars)
    titled(figure, metric_title(series, order))
    return figure


def _few(series: LayerSeries) -> bool:
    """Whether each device has a line of its own."""
    return len(series.devices) <= len(LOOKS)


def _lines(
    axes: Any, values: Array, devices: Sequence[int], names: Sequence[str], aside: Sequence[float]
) -> list[EndLabel]:
    """A line for each of some devices, each a bit aside; returns their labels."""
    made = [_device_line(axes, values[:, k], LOOKS[k], names[k], by) for k, by in zip(devices, aside, strict=False)]
    return [label for label in made if label is not None]


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


def _bars(axes: Any, places: NDArray[np.floating[Any]], ends: Array, look: Look) -> bool:
    """Intervals as bars with caps; returns whether some have no width elsewhere than at 0, where one is sure."""
    known = np.isfinite(ends).all(axis=0)
    wide = known & (ends[1] > ends[0])
    low, high = ends[:, wide]
    axes.vlines(places[wide], low, high, color=look.colour, linewidth=1.0, zorder=3.5)
    for end in (low, high):
        axes.plot(places[wide], end, linestyle="none", marker="_", markersize=4, color=look.colour, zorder=3.5)
    return bool((known & ~wide & (ends[1] > 0)).any())


def _device_line(axes: Any, values: Array, look: Look, name: str, aside: float) -> EndLabel | None:
    """A device's values by rank; of many the medians of stretches, before dots of single ones."""
    count = len(values)
    logarithmic = count > _LOGARITHMIC
    style = {"color": look.colour, "linestyle": look.dash, "marker": look.marker, "linewidth": 1.4}
    if count <= _EACH:
        places, heights = np.arange(1.0, count + 1) + aside, values
        axes.plot(places, heights, markersize=4, zorder=3, **style)
    else:
        bins = bins_of(count, _BINS, logarithmic=logarithmic, least=_LEAST)
        places, heights = bins.places, bins.of(values, (0.5,))[0]
        dots = _sampled(count, logarithmic, _DOTS)
        dot: dict[str, Any] = {"linestyle": "none", "marker": look.marker, "color": look.colour, "mew": 0, "zorder": 1}
        for some, size, alpha in ((dots[dots < _LARGE], 3.5, 0.6), (dots[dots >= _LARGE], 2.2, 0.35)):
            axes.plot(some + 1, values[some], markersize=size, alpha=alpha, **dot)
        axes.plot(places, heights, markersize=5, markevery=4, zorder=3, **style)
    known = np.flatnonzero(np.isfinite(heights))
    if not known.size:
        return None
    last = known[-1]
    return EndLabel(at=(float(places[last]), float(heights[last])), text=name, colour=look.colour)


def _sampled(count: int, logarithmic: bool, most: int) -> NDArray[np.intp]:
    """Ranks, from 0 on, that are about equally far apart on the axis."""
    if count <= most:
        return np.arange(count)
    places = np.geomspace(1, count, most) - 1 if logarithmic else np.linspace(0, count - 1, most)
    return np.unique(np.round(places).astype(np.intp))


def _band(axes: Any, values: Array, logarithmic: bool) -> list[EndLabel]:
    """Many devices: the middle 80 % of their values as a band, and the median."""
    least = math.ceil(_OF_STRETCH / values.shape[1])
    bins = bins_of(len(values), _BINS, logarithmic=logarithmic, least=least)
    low, middle, high = bins.of(values, _KEPT)
    places = bins.places.copy()
    places[0], places[-1] = 1, len(values)  # the band is of the whole axis
    axes.fill_between(places, low, high, color=BAND, alpha=0.55, linewidth=0, zorder=1)
    axes.plot(places, middle, color=_MEDIAN, linestyle=LOOKS[1].dash, linewidth=1.6, zorder=3)
    known = np.flatnonzero(np.isfinite(middle))
    if not known.size:
        return []
    last, there = known[-1], many(values.shape[1], "device")
    return [
        EndLabel(at=(places[last], high[last]), text="9 of 10 below", colour=_ENDS),
        EndLabel(at=(places[last], middle[last]), text=f"median of\n{there}", colour=_MEDIAN),
        EndLabel(at=(places[last], low[last]), text="1 of 10 below", colour=_ENDS),
    ]


def _first_line(axes: Any, values: Array, look: Look, name: str) -> EndLabel:
    """The thick line that the configurations are sorted by."""
    count = len(values)
    rows = np.arange(count) if count <= _MOST_POINTS else _thinned(count)
    marker = look.marker if count <= _EACH else ""
    axes.plot(rows + 1, values[rows], color=look.colour, linewidth=2.8, marker=marker, markersize=5, zorder=4)
    return EndLabel(at=(count, float(values[-1])), text=name, colour=look.colour)


def _thinned(count: int) -> NDArray[np.intp]:
    """Ranks, from 0 on, that are dense on both a linear and a logarithmic axis."""
    half = _MOST_POINTS // 2
    both = np.concatenate([np.linspace(0, count - 1, half), np.geomspace(1, count, half) - 1])
    return np.unique(np.round(both).astype(np.intp))


def _rings(
    axes: Any, rank: int, values: Sequence[float] | Array, looks: Sequence[Look], aside: Sequence[float]
) -> None:
    """Rings where the line of the choice meets the others, with each one's mark inside."""
    ring: dict[str, Any] = {"marker": "o", "markersize": 10, "markerfacecolor": "none", "markeredgewidth": 1.5}
    for value, look, by in zip(values, looks, aside, strict=False):
        axes.plot([rank + by], [value], color=CHOSEN, zorder=5, **ring)
        axes.plot([rank + by], [value], marker=look.marker, markersize=5, color=look.colour, zorder=6)


def _ranks_label(axes: Any, text: str, where: str, series: LayerSeries, count: int, bars: bool | None) -> None:
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
    note = f"\n{textwrap.fill('; '.join(told), 96)}" if told else ""
    axes.set_xlabel(f"{text}{' (logarithmic)' if count > _LOGARITHMIC else ''}{note}")
