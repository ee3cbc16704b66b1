"""Layer-corrected costs: what each primitive costs at each layer, from the default network and its one-change variants.

cost[layer][primitive] = the default layer's cost + (latency of the network with that change - latency of the default
network). Where a group has several layers, its difference is split over them in proportion to the default layers'
costs, as a swap changes all of them at once and nothing says which changed by how much; the sum over the group is not
touched by that. So the sum over all layers is exact for the default and for every one-change variant, and additive for
all others. Kendall's tau-b says how far the order of predicted networks agrees with that of measured ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from gnomon.core.cost import Floats
from gnomon.errors import ProblemError
from gnomon.spaces.features import Ints

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

    def __post_init__(self) -> None:
        count = len(self.choices)
        if set(self.groups) != set(range(count)) or len(self.defaults) != count:
            raise ProblemError("layers, primitives and defaults are of unlike groups", hint="Give one of each a group.")
        if not all(0 <= d < len(ones) for d, ones in zip(self.defaults, self.choices, strict=True)):
            raise ProblemError("a default is not among its group's primitives", hint="Give its index in the list.")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerCosts:
    """The costs of layers, and what they rest on; made by `layer_costs`.

    `cost_s` and `error_s` have a row a layer and a column a primitive of its group, in seconds: the cost, which may be
    below 0 as it is a difference, and its standard error. NaN: the network with that swap has no latency. `overhead_s`
    is what a network takes beside its layers.
    """

    cells: Cells
    overhead_s: float
    cost_s: tuple[Floats, ...]
    error_s: tuple[Floats, ...]

    def predict_s(self, assignments: ArrayLike) -> Floats:
        """The overhead and the sum over layers of networks (networks, groups), in seconds; NaN without a swap's."""
        chosen = self._chosen(assignments)
        found = np.full(len(chosen), self.overhead_s)
        for layer, group in enumerate(self.cells.groups):
            found += self.cost_s[layer][chosen[:, group]]
        return found

    def spread(self) -> tuple[Floats, ...]:
        """The costs with the overhead in equal parts in them: for tables that have no place for it.

        The bare sum over layers is then what `predict_s` tells.
        """
        part = self.overhead_s / len(self.cost_s)
        return tuple(row + part for row in self.cost_s)

    def _chosen(self, assignments: ArrayLike) -> Ints:
        chosen = np.asarray(assignments, np.int64)
        counts = [len(ones) for ones in self.cells.choices]
        if chosen.ndim != 2 or chosen.shape[1] != len(counts) or (chosen < 0).any() or (chosen >= counts).any():
            raise ProblemError(
                "these are not networks of these cell groups", hint="Give one index a group, a row each."
            )
        return chosen


def layer_costs(
    cells: Cells,
    measured: Mapping[tuple[int, ...], Latency],
    *,
    overhead_s: float = 0.0,
    default_layers: Sequence[float] | None = None,
) -> LayerCosts:
    """Costs from the default network and its one-change variants, by assignment; others are not looked at.

    `default_layers` says how the default network's time is shared by its layers, in any unit: times of a profiled run,
    or prices of its units. Without it each has an equal part. ProblemError where the default network has
    no latency, for an overhead that leaves nothing to its layers, and for shares that are not shares.
    """
    default = measured.get(tuple(cells.defaults))
    if default is None:
        raise ProblemError("the default network has no latency", hint="Measure it: every cost is a difference to it.")
    inside = default.call_s - overhead_s
    if not inside > 0 or overhead_s < 0:
        raise ProblemError(
            f"an overhead of {overhead_s:g} s leaves nothing of the default network's {default.call_s:g} s",
            hint="Measure both again: the no-op model cannot take longer.",
        )
    shares = _shares(cells, default_layers)
    of_group = np.bincount(cells.groups, weights=shares)
    latencies, errors = _swaps(cells, measured, default)
    costs, deviations = [], []
    for layer, group in enumerate(cells.groups):
        within = shares[layer] / of_group[group]
        own = latencies[group] - default.call_s
        cost = shares[layer] * inside + within * own
        # The default's latency is in the layer's own part and, with the other sign, in the difference.
        deviation = np.hypot(within * errors[group], (shares[layer] - within) * default.error_s)
        deviation[cells.defaults[group]] = shares[layer] * default.error_s
        costs.append(_fixed(cost))
        deviations.append(_fixed(deviation))
    return LayerCosts(
        cells=cells,
        overhead_s=overhead_s,
        cost_s=tuple(costs),
        error_s=tuple(deviations),
    )


def _swaps(
    cells: Cells, measured: Mapping[tuple[int, ...], Latency], default: Latency
) -> tuple[tuple[Floats, ...], tuple[Floats, ...]]:
    """The latency of each one-change variant and its error, a row a group; NaN where there is none."""
    latencies, errors = [], []
    for group, ones in enumerate(cells.choices):
        row = []
        for choice in range(len(ones)):
            swap = (*cells.defaults[:group], choice, *cells.defaults[group + 1 :])
            row.append(default if choice == cells.defaults[group] else measured.get(swap))
        latencies.append(_fixed(np.array([np.nan if one is None else one.call_s for one in row])))
        errors.append(_fixed(np.array([np.nan if one is None else one.error_s for one in row])))
    return tuple(latencies), tuple(errors)


def _shares(cells: Cells, given: Sequence[float] | None) -> Floats:
    """What part of the default network's time each layer has; they add up to 1."""
    shares = np.ones(len(cells.groups)) if given is None else np.asarray(given, np.float64)
    if shares.shape != (len(cells.groups),) or not np.isfinite(shares).all() or not (shares > 0).all():
        raise ProblemError(
            f"the default network's layers are {len(cells.groups)}, and each has a share above 0",
            hint="Give one positive number a layer, or none at all.",
        )
    found: Floats = shares / shares.sum()
    return found


def _fixed(values: Floats) -> Floats:
    values.setflags(write=False)
    return values


def kendall_tau(first: Floats, second: Floats) -> float:
    """Kendall's tau-b of two lists of numbers: 1 the same order, -1 the reverse; 0 where either is all alike.

    ProblemError for lists of unlike length, shorter than 2, or with NaN.
    """
    x, y = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if x.ndim != 1 or x.shape != y.shape or len(x) < 2 or np.isnan(x).any() or np.isnan(y).any():
        raise ProblemError(
            "two lists of at least two numbers each are compared", hint="Give numbers of the same items."
        )
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
