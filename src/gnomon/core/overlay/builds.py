"""A few builds for many devices: the devices that share a build, and the configuration of each layer in each build.

A build has one configuration per layer. The loss of a group of devices that share a build is the sum, over the layers,
of the layer's share times the least sum of regrets that any configuration has on the group's devices. With up to
`EXACT` devices all partitions are tried; with more, the two groups whose union adds least to the loss are joined
repeatedly.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from gnomon.core.cost import Floats
from gnomon.core.overlay.choice import LayerChoice, NetworkChoice, regrets_of

EXACT = 8
"""The largest number of devices for which all partitions are tried: eight devices have 4,140 partitions."""

Group = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """The devices that a build serves, and the configuration of each layer that has one, by the layer's digest."""

    devices: tuple[str, ...]
    configurations: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Builds:
    """Builds that together lose `value` (M of the network); `proven` is True if no set of as many builds loses less."""

    builds: tuple[Build, ...]
    value: float
    proven: bool


def best_builds(network: NetworkChoice, size: int) -> Builds:
    """At most `size` builds for the devices of a network; at least one of the network's layers must have a choice."""
    regrets = [regrets_of(layer.times.times_s, layer.theta_s) for layer in network.layers]
    devices = network.layers[0].times.devices
    weights = np.array([share for share in network.shares if share > 0])
    tables = [table for share, table in zip(network.shares, regrets, strict=True) if share > 0]
    begins = np.cumsum([0, *map(len, tables)])[:-1]
    by_device = np.ascontiguousarray(np.concatenate(tables).T)

    @cache
    def lost(group: Group) -> float:
        return float(np.fmin.reduceat(by_device[list(group)].sum(axis=0), begins) @ weights)

    def value(groups: Sequence[Group]) -> float:
        return sum(map(lost, groups))

    exact = len(devices) <= EXACT
    groups = min(_partitions(len(devices), size), key=value) if exact else _joined(len(devices), size, value)
    builds = [
        Build(
            devices=tuple(devices[k] for k in group),
            configurations={
                layer.times.layer: layer.times.configurations[row]
                for layer, table in zip(network.layers, regrets, strict=True)
                if (row := _best_row(layer, table, group)) is not None
            },
        )
        for group in groups
    ]
    return Builds(builds=tuple(builds), value=value(groups), proven=exact)


def _best_row(layer: LayerChoice, regrets: Floats, group: Group) -> int | None:
    """The configuration that loses least on a group; a tie goes to the layer's choice, or else to the first."""
    sums = regrets[:, group].sum(axis=1)
    if np.isnan(sums).all():
        return None
    least = np.nanmin(sums)
    return layer.chosen if layer.chosen is not None and sums[layer.chosen] == least else int(np.nanargmin(sums))


def _partitions(count: int, size: int) -> Iterator[tuple[Group, ...]]:
    """The partitions of `count` devices into at most `size` groups."""
    if count == 0:
        yield ()
        return
    for groups in _partitions(count - 1, size):
        for k, group in enumerate(groups):
            yield (*groups[:k], (*group, count - 1), *groups[k + 1 :])
        if len(groups) < size:
            yield (*groups, (count - 1,))


def _joined(count: int, size: int, value: Callable[[Sequence[Group]], float]) -> list[Group]:
    groups: list[Group] = [(k,) for k in range(count)]
    while len(groups) > size:
        a, b = min(itertools.combinations(groups, 2), key=lambda pair: value([(*pair[0], *pair[1])]) - value(pair))
        groups = [group for group in groups if group not in (a, b)] + [tuple(sorted((*a, *b)))]
    return sorted(groups)
