"""The Pareto front over all networks of cell groups whose prices add up, and what of each group it uses.

Group by group: the front of sums has none but sums of fronts, so that each group adds its own undominated choices to
the front so far and the dominated sums go (dynamic programming over Pareto sets: Nemhauser and Ullmann, "Discrete
dynamic programming and capital allocation", 1969). Exact; dominance is that of `gnomon.core.dominance`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats, Ints
from gnomon.core.dominance import nondominated
from gnomon.core.hypervolume import hypervolume
from gnomon.spaces.effects import expit


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SumFront:
    """Cost vectors (N, objectives) on the front, each once, and the choices (N, groups) that add up to them."""

    costs: Floats
    assignments: Ints

    def used(self, counts: Sequence[int]) -> tuple[NDArray[np.bool_], ...]:
        """Which choices of each group are part of a network on the front; `counts` is how many there are."""
        found = tuple(np.zeros(count, dtype=bool) for count in counts)
        for marks, column in zip(found, self.assignments.T, strict=True):
            marks[column] = True
        return found


def front_of_sums(tables: Sequence[Floats]) -> SumFront:
    """The front of one choice a group; `tables` has an array (choices, objectives) a group, all to be made small."""
    costs, assignments = np.zeros((1, tables[0].shape[1])), np.empty((1, 0), dtype=np.intp)
    for table in tables:
        own = nondominated(table)
        sums = (costs[:, None, :] + table[own][None, :, :]).reshape(-1, table.shape[1])
        kept = nondominated(sums)
        assignments = np.column_stack([assignments[kept // len(own)], own[kept % len(own)]])
        costs = sums[kept]
    return SumFront(costs=costs, assignments=assignments)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Resamples:
    """What the choices of each group may truly cost: arrays (K, choices) a group of relative latency and of logits.

    The logits are of accuracy. `reference` is the relative latency and the error rate up to which hypervolume counts.
    """

    latencies: tuple[Floats, ...]
    logits: tuple[Floats, ...]
    reference: tuple[float, float]

    @property
    def count(self) -> int:
        """The number of resamples."""
        return len(self.latencies[0])

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of choices of each group."""
        return tuple(table.shape[1] for table in self.latencies)

    def restricted(self, kept: Sequence[Ints]) -> Resamples:
        """The same with some choices of each group alone."""
        return Resamples(
            latencies=tuple(table[:, own] for table, own in zip(self.latencies, kept, strict=True)),
            logits=tuple(table[:, own] for table, own in zip(self.logits, kept, strict=True)),
            reference=self.reference,
        )

    def front(self, k: int) -> SumFront:
        """The front of resample k, of relative latency and negative logit."""
        return front_of_sums([np.column_stack([a[k], -b[k]]) for a, b in zip(self.latencies, self.logits, strict=True)])

    def volume(self, front: SumFront) -> float:
        """The hypervolume of a front in the plane of relative latency and error rate."""
        return hypervolume(
            np.column_stack([front.costs[:, 0], expit(front.costs[:, 1])]), np.asarray(self.reference).tolist()
        )

    def volumes(self) -> Floats:
        """The hypervolume of each resample's front: (K,)."""
        return np.array([self.volume(self.front(k)) for k in range(self.count)])


def judged(resamples: Resamples) -> tuple[tuple[Floats, ...], Floats]:
    """How often each choice of each group is on a resample's front, an array a group; and the hypervolumes (K,)."""
    totals = [np.zeros(count) for count in resamples.counts]
    volumes = np.empty(resamples.count)
    for k in range(resamples.count):
        front = resamples.front(k)
        volumes[k] = resamples.volume(front)
        for total, marks in zip(totals, front.used(resamples.counts), strict=True):
            total += marks
    return tuple(total / resamples.count for total in totals), volumes
