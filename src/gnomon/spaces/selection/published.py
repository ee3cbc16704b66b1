"""The published selection: the family whose networks first are the cheapest, and the primitives that those use.

The rule of ssprofile ("Black Box Search Space Profiling for Accelerator-Aware Neural Architecture Search", Zeng et al.,
ASP-DAC 2020), to the letter::

    cost = exp(-(accuracy - threshold) / scale) + coefficient * (-1 / latency)

All networks are walked by ascending cost, ties in the order of the tables, which is that of the sorted ids. The first
family with enough networks wins, and each cell group keeps the primitives that these networks have there.

The latency in this cost has a unit, milliseconds, and another unit gives another winner.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gnomon.errors import ProblemError
from gnomon.spaces.cells.space import network_id

Network = tuple[str, tuple[int, ...]]
"""A family and the index of a primitive of it for each cell group."""

_MOST_TOLD = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRule:
    """The constants of the rule, by their names in configs. ProblemError for what no cost can be made of."""

    accuracy_threshold: float = 0.92
    accuracy_cost_scale: float = 1.0
    latency_cost_coeff: float = 0.5
    select_ss_threshold: int = 5

    def __post_init__(self) -> None:
        numbers = (self.accuracy_threshold, self.accuracy_cost_scale, self.latency_cost_coeff)
        wrong = [] if all(map(math.isfinite, numbers)) else ["a constant is not finite"]
        if self.accuracy_cost_scale == 0:
            wrong.append("accuracy_cost_scale is 0")
        if self.select_ss_threshold < 1:
            wrong.append(f"select_ss_threshold is {self.select_ss_threshold}")
        if wrong:
            raise ProblemError("; ".join(wrong), hint="The published values are 0.92, 1.0, 0.5 and 5.")

    def cost(self, accuracy: float, latency_ms: float) -> float:
        """The cost of a network; +inf where the exponential is beyond all numbers."""
        try:
            missed = math.exp(-(accuracy - self.accuracy_threshold) / self.accuracy_cost_scale)
        except OverflowError:
            missed = math.inf
        return missed + self.latency_cost_coeff * (-1 / latency_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkTables:
    """What was measured of networks of single families.

    `primitives` are the names that the indices of a family mean. Accuracies are fractions; latencies are in
    milliseconds. ProblemError that tells all that is wrong: networks in one table only or not of the space, values that
    are not finite, latencies that are not above 0.
    """

    primitives: Mapping[str, Sequence[str]]
    accuracies: Mapping[Network, float]
    latencies: Mapping[Network, float]

    def __post_init__(self) -> None:
        wrong = list(self._wrong())
        if wrong:
            more = f"; and {len(wrong) - _MOST_TOLD} more" if len(wrong) > _MOST_TOLD else ""
            raise ProblemError(
                "; ".join(wrong[:_MOST_TOLD]) + more,
                hint="Measure what is missing or wrong once more, or take these networks out of both tables.",
            )

    def _wrong(self) -> Iterator[str]:
        if not self.accuracies and not self.latencies:
            yield "the tables are empty"
        lengths = {len(assignment) for _, assignment in (*self.accuracies, *self.latencies)}
        if len(lengths) > 1 or 0 in lengths:
            yield f"networks have {', '.join(map(str, sorted(lengths)))} cell groups"
        for network in sorted({*self.accuracies, *self.latencies}, key=lambda one: network_id(*one)):
            family, assignment = network
            name = network_id(family, assignment)
            known = self.primitives.get(family)
            if known is None:
                yield f"{name} is of the unknown family {family!r}"
            elif not all(0 <= index < len(known) for index in assignment):
                yield f"{name} has an index outside 0 .. {len(known) - 1}"
            accuracy, latency = self.accuracies.get(network), self.latencies.get(network)
            if accuracy is None:
                yield f"{name} has no accuracy"
            elif not math.isfinite(accuracy):
                yield f"the accuracy of {name} is {accuracy}"
            if latency is None:
                yield f"{name} has no latency"
            elif not (math.isfinite(latency) and latency > 0):
                yield f"the latency of {name} is {latency}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSelection:
    """The primitives that each cell group keeps, by rising index, and what led there.

    `networks` are the winner's in the order of their cost, `costs` theirs; `counts` says how many networks each family
    had when the walk ended.
    """

    family: str
    groups: tuple[tuple[str, ...], ...]
    networks: tuple[Network, ...]
    costs: tuple[float, ...]
    counts: dict[str, int]


def select_published(tables: NetworkTables, rule: PublishedRule | None = None) -> PublishedSelection:
    """The published selection of these tables. ProblemError where no family has enough networks."""
    rule = rule or PublishedRule()
    order = sorted(tables.accuracies, key=lambda one: network_id(*one))
    costs = [rule.cost(tables.accuracies[one], tables.latencies[one]) for one in order]
    found: dict[str, list[int]] = {family: [] for family in tables.primitives}
    for place in sorted(range(len(order)), key=costs.__getitem__):
        family = order[place][0]
        found[family].append(place)
        if len(found[family]) >= rule.select_ss_threshold:
            return _selection(tables, [order[k] for k in found[family]], [costs[k] for k in found[family]], found)
    most = max(map(len, found.values()), default=0)
    raise ProblemError(
        f"no family has {rule.select_ss_threshold} networks: the largest has {most}",
        hint=f"Set select_ss_threshold to at most {most}, or measure more networks.",
    )


def _selection(
    tables: NetworkTables, networks: list[Network], costs: list[float], found: Mapping[str, Sequence[int]]
) -> PublishedSelection:
    family = networks[0][0]
    columns = zip(*(assignment for _, assignment in networks), strict=True)
    return PublishedSelection(
        family=family,
        groups=tuple(tuple(tables.primitives[family][k] for k in sorted(set(column))) for column in columns),
        networks=tuple(networks),
        costs=tuple(costs),
        counts={name: len(ones) for name, ones in found.items()},
    )
