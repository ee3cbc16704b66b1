"""Layer-corrected costs: what each primitive costs at each layer, from the default network and its one-change variants.

cost[layer][primitive] = an equal part of the default network's latency + (latency of the network with that change -
latency of the default network). Where a group has several layers, its difference is split over them evenly, as a swap
changes all of them at once and nothing says which changed by how much; the sum over the group is not touched by that.
So the sum over all layers is exact for the default and for every one-change variant, and additive for all others.
Kendall's tau-b says how far the order of predicted networks agrees with that of measured ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from gnomon.core.cost import Floats

FOLDS = 8
LEAST_MIXED = 6
"""Mixed networks below which nothing can be fitted to some and tested on others."""
_PAIRS_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """A measured latency and its standard error, in seconds."""

    call_s: float
    error_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """What costs are counted over: the cell group of each layer, the primitives of each group, the default of each."""

    groups: tuple[int, ...]
    choices: tuple[tuple[str, ...], ...]
    defaults: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerCosts:
    """The costs of layers. Made by `layer_costs`.

    `cost_s` has a row a layer and a column a primitive of its group, in seconds; a cost may be below 0, as it is a
    difference. NaN: the network with that swap has no latency.
    """

    cells: Cells
    cost_s: tuple[Floats, ...]

    def predict_s(self, assignments: ArrayLike) -> Floats:
        """The sum over layers of networks (networks, groups), in seconds; NaN without a swap's."""
        chosen = np.asarray(assignments, np.int64)
        total_s = np.zeros(len(chosen))
        for layer, group in enumerate(self.cells.groups):
            total_s += self.cost_s[layer][chosen[:, group]]
        return total_s


def layer_costs(cells: Cells, measured: Mapping[tuple[int, ...], Latency]) -> LayerCosts:
    """Costs from the default network, which has a latency, and its one-change variants; others are not looked at."""
    default = measured[cells.defaults]
    share = 1 / len(cells.groups)
    of_group = np.bincount(cells.groups, weights=np.full(len(cells.groups), share))
    latencies = [_swaps(cells, group, measured) for group in range(len(cells.choices))]
    costs = (
        share * default.call_s + share / of_group[group] * (latencies[group] - default.call_s) for group in cells.groups
    )
    return LayerCosts(cells=cells, cost_s=tuple(costs))


def _swaps(cells: Cells, group: int, measured: Mapping[tuple[int, ...], Latency]) -> Floats:
    """The latency of the default network with each primitive of a group; NaN where there is none."""
    latencies = np.full(len(cells.choices[group]), np.nan)
    for choice in range(len(latencies)):
        latency = measured.get((*cells.defaults[:group], choice, *cells.defaults[group + 1 :]))
        if latency is not None:
            latencies[choice] = latency.call_s
    return latencies


def kendall_tau(first: Floats, second: Floats) -> float:
    """Kendall's tau-b of two lists of numbers: 1 the same order, -1 the reverse; 0 where either is all alike."""
    x, y = np.asarray(first, np.float64), np.asarray(second, np.float64)
    # By all pairs, in blocks: loading a library that sorts takes longer than as many pairs as a space has.
    agreeing, apart = 0, np.zeros(2)
    step = max(1, _PAIRS_AT_ONCE // len(x))
    for start in range(0, len(x), step):
        a, b = (
            (part[:, None] > every).view(np.int8) - (part[:, None] < every)
            for part, every in ((x[start : start + step], x), (y[start : start + step], y))
        )
        agreeing += int((a * b).sum(dtype=np.int64))
        apart += np.count_nonzero(a), np.count_nonzero(b)
    if not apart.all():
        return 0.0
    return float(np.clip(agreeing / np.sqrt(apart[0]) / np.sqrt(apart[1]), -1, 1))
