"""What the pictures of a layer are made of: times relative to each device's best, in order of time and of M."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSeries:
    """The configurations of a layer: `relative` are their times over each device's `theta_s`, a row each.

    NaN where there is no time. `chosen` is the row of the choice, -1 where there is none.
    """

    name: str
    devices: tuple[str, ...]
    configurations: tuple[str, ...]
    hosts: tuple[str, ...]
    relative: Array
    theta_s: Array
    chosen: int

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
    )
