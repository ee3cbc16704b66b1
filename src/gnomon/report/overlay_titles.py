"""What the pictures of a layer say above them: where the choice stands, and what it loses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnomon.report.overlay_series import Array, LayerSeries
from gnomon.report.plain import shorten
from gnomon.report.tune_words import loss, many


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
    if count == 1:
        return f"{name}: the only configuration{'' if rank else ', which is not chosen'}."
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
    return "the best there is" if lost <= 0 else f"{loss(lost)} behind the best"


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
