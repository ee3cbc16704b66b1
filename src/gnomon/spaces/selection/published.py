"""The published selection: the first family with enough cheap networks, and the primitives that these networks use.

The rule of ssprofile ("Black Box Search Space Profiling for Accelerator-Aware Neural Architecture Search", Zeng et al.,
ASP-DAC 2020), to the letter::

    cost = exp(-(accuracy - threshold) / scale) + coefficient * (-1 / latency)

The networks are taken by ascending cost, and those of equal cost in the order of the table's lines: for each family its
default network, then the one-change variants by cell group and primitive. The first family with enough networks wins,
and each cell group keeps the primitives that these networks use in it.

The latency in this cost is in milliseconds; another unit could give another winner.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gnomon.errors import ProblemError
from gnomon.spaces.cells.space import CostedNetwork, network_id

Network = tuple[str, tuple[int, ...]]
"""A family, and for each cell group the index of one of the family's primitives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRule:
    """The constants of the rule, by their names in configs."""

    accuracy_threshold: float = 0.92
    accuracy_cost_scale: float = 1.0
    latency_cost_coeff: float = 0.5
    select_ss_threshold: int = 5

    def cost(self, accuracy: float, latency_ms: float) -> float:
        """The cost of a network; +inf if the exponential overflows."""
        try:
            missed = math.exp(-(accuracy - self.accuracy_threshold) / self.accuracy_cost_scale)
        except OverflowError:
            missed = math.inf
        return missed + self.latency_cost_coeff * (-1 / latency_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSelection:
    """The primitives that each cell group keeps, by rising index, and the reasons.

    `networks` are the networks of the winning family in the order of their cost; `counts` has the number of networks of
    each family that were taken before a family won.
    """

    family: str
    groups: tuple[tuple[str, ...], ...]
    networks: tuple[CostedNetwork, ...]
    counts: dict[str, int]


def select_published(
    primitives: Mapping[str, Sequence[str]], prices: Mapping[Network, tuple[float, float]], rule: PublishedRule
) -> PublishedSelection:
    """The published selection, from each network's accuracy (a fraction) and its latency in milliseconds.

    `primitives` has the names for the indices of each family; `prices` are in the order of the table's lines.
    ProblemError if no family has enough networks.
    """
    costs = {network: rule.cost(*own) for network, own in prices.items()}
    walked: dict[str, list[Network]] = {family: [] for family in primitives}
    for network in sorted(costs, key=costs.__getitem__):
        own = walked[network[0]]
        own.append(network)
        if len(own) >= rule.select_ss_threshold:
            columns = zip(*(assignment for _, assignment in own), strict=True)
            return PublishedSelection(
                family=network[0],
                groups=tuple(tuple(primitives[network[0]][k] for k in sorted(set(column))) for column in columns),
                networks=tuple(CostedNetwork(id=network_id(*n), cost=costs[n]) for n in own),
                counts={name: len(ones) for name, ones in walked.items()},
            )
    most = max(map(len, walked.values()), default=0)
    raise ProblemError(
        f"no family has {rule.select_ss_threshold} networks (select_ss_threshold): the largest has {most}",
        hint=f"Set select_ss_threshold to at most {most}, or measure more networks.",
    )
