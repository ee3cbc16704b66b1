"""The choices to keep so that at most a given share of the networks is left, with the least loss.

The loss of a choice is judged under weightings of the prices (scalarisations, as in the R2 indicator of Hansen and
Jaszkiewicz, "Evaluating the quality of approximations to the non-dominated set", 1998). Under a weighting, the best
network consists of each group's best choice, so a group's loss depends on its own choices alone. A loss counts as much
as the hypervolume that it costs under the weighting. In each group, the choice with the least loss is dropped again and
again; how many choices each group keeps is then decided exactly.

If the intervals of two losses overlap, measurements do not show which of the two choices is better to keep. The smaller
expected loss still decides, because no evidence favours the other choice. The order of the choices decides only between
losses that are equal except for rounding.

The hypervolume that a loss costs differs between weightings (`hypervolume_weights`). A loss moves the part of the front
that has the weighting as its normal, and the area between the old and the moved front is the length of that part times
the distance moved. Both ends of a front extend to the reference, so the fastest and the most accurate network represent
everything beyond them. The front is a curve in the plane of latency and logits, in which costs add up; area is measured
in the plane of latency and error rate, in which hypervolume is reported.

The Pareto front over all networks whose prices add up is exact (`front_of_sums`): it contains only sums of the groups'
fronts. Each group therefore adds its own undominated choices to the front so far, and dominated sums are removed
(dynamic programming over Pareto sets: Nemhauser and Ullmann, "Discrete dynamic programming and capital allocation",
1969).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats, Ints
from gnomon.core.front.dominance import nondominated
from gnomon.spaces.cells.effects import expit

_TOGETHER = 40
"""The number of resamples whose fronts are computed at once: the sums for hundreds would need too much memory."""

_WORLDS = 40
"""The number of resamples for the weights: a single front would put all weight on a few weightings."""

_WEIGHTINGS = 16
_ROUNDING = 1 + 1e-9
_EQUAL = 1e-9

_Chain = dict[int, tuple[float, tuple[int, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SumFront:
    """Cost vectors (N, 2) on the front, each once, and the choices (N, groups) that add up to them."""

    costs: Floats
    assignments: Ints

    def used(self, counts: Sequence[int]) -> tuple[NDArray[np.bool_], ...]:
        """For each choice of each group, whether a network on the front uses it; `counts` are the
        numbers of choices.
        """
        taken = tuple(np.zeros(count, dtype=bool) for count in counts)
        for marks, column in zip(taken, self.assignments.T, strict=True):
            marks[column] = True
        return taken


def front_of_sums(tables: Sequence[Floats]) -> SumFront:
    """The front of all sums of one choice from each group. `tables` has an array (choices, 2) for each group; both
    columns are minimised.
    """
    return fronts_of_sums([table[None] for table in tables])[0]


def fronts_of_sums(tables: Sequence[Floats]) -> list[SumFront]:
    """The front of each of K resamples, as in `front_of_sums`, from an array (K, choices, 2) for each group."""
    costs, assignments = np.zeros((len(tables[0]), 1, 2)), np.empty((len(tables[0]), 1, 0), dtype=np.intp)
    for table in tables:
        own = _places_of_fronts(table)
        sums = (costs[:, :, None] + _at(table, own)[:, None]).reshape(len(table), -1, 2)
        kept = _places_of_fronts(sums)
        costs = _at(sums, kept)
        before, choice = np.divmod(np.maximum(kept, 0), own.shape[1])
        taken = np.take_along_axis(assignments, before[:, :, None], axis=1)
        assignments = np.concatenate([taken, np.take_along_axis(own, choice, axis=1)[:, :, None]], axis=2)
    sizes = np.isfinite(costs[:, :, 0]).sum(axis=1)
    return [
        SumFront(costs=cost[:size], assignments=rows[:size])
        for cost, rows, size in zip(costs, assignments, sizes, strict=True)
    ]


def _places_of_fronts(costs: Floats) -> Ints:
    """`nondominated` for each of K tables (K, N, 2), in which finite rows come first; padded with -1."""
    order = np.lexsort((costs[:, :, 1], costs[:, :, 0]), axis=-1)
    second = np.take_along_axis(costs[:, :, 1], order, axis=1)
    keep = np.ones(second.shape, dtype=bool)
    keep[:, 1:] = second[:, 1:] < np.minimum.accumulate(second, axis=1)[:, :-1]
    first = np.argsort(~keep, axis=1, kind="stable")[:, : int(keep.sum(axis=1).max())]
    kept, places = (np.take_along_axis(own, first, axis=1) for own in (keep, order))
    return np.asarray(np.where(kept, places, -1), dtype=np.intp)


def _at(costs: Floats, places: Ints) -> Floats:
    """The rows at these places; infinite for place -1."""
    rows = np.take_along_axis(costs, np.maximum(places, 0)[:, :, None], axis=1)
    return np.where((places >= 0)[:, :, None], rows, np.inf)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Resamples:
    """Possible true costs of the choices: for each group, arrays (K, choices) of relative latency and of accuracy
    logits.

    `reference` is the relative latency and the error rate up to which hypervolume counts.
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
        """The same resamples, with only some choices of each group."""
        return Resamples(
            latencies=tuple(table[:, own] for table, own in zip(self.latencies, kept, strict=True)),
            logits=tuple(table[:, own] for table, own in zip(self.logits, kept, strict=True)),
            reference=self.reference,
        )

    def fronts(self, count: int | None = None) -> Iterator[SumFront]:
        """The fronts of the first `count` resamples, or of all if it is None, in relative latency
        and negative logit.
        """
        count = self.count if count is None else min(count, self.count)
        for start in range(0, count, _TOGETHER):
            some = slice(start, min(start + _TOGETHER, count))
            yield from fronts_of_sums(
                [np.stack([a[some], -b[some]], axis=2) for a, b in zip(self.latencies, self.logits, strict=True)]
            )


def frequencies_of(resamples: Resamples) -> tuple[Floats, ...]:
    """The share of resamples in which each choice of each group is on the front, as one array for each group."""
    totals = [np.zeros(count) for count in resamples.counts]
    for front in resamples.fronts():
        for total, marks in zip(totals, front.used(resamples.counts), strict=True):
            total += marks
    return tuple(total / resamples.count for total in totals)


def hypervolume_weights(resamples: Resamples, scale: Floats, angles: Floats) -> Floats:
    """The mean area lost for a cost of 1 under each weighting (angles,), over resamples, scaled to a mean of 1.

    A weighting is cos(angle) of the latency and sin(angle) of the negative logit, both in units of `scale` (2,).
    """
    total = np.zeros(len(angles))
    for front in resamples.fronts(_WORLDS):
        areas = _areas(front.costs, resamples.reference, scale)
        for angle, area in areas:
            total[np.abs(angles - angle).argmin()] += area / sum(part for _, part in areas)
    return total * (len(angles) / total.sum()) if total.any() else np.ones(len(angles))


def _areas(front: Floats, reference: tuple[float, float], scale: Floats) -> list[tuple[float, float]]:
    """The angle of each part of the convex front, and the area lost by a move of 1 along its normal."""
    inside = front[(front[:, 0] < reference[0]) & (expit(front[:, 1]) < reference[1])]
    if not len(inside):
        return []
    hull = _hull(inside / scale)
    errors = expit(hull[:, 1] * scale[1])
    last = float(errors[-1])
    steep = scale[1] * last * (1 - last)  # in error rate, for a move of 1 in the last network's logit
    ends = [
        (0.0, float(reference[1] - errors[0]) * float(scale[0])),
        (np.pi / 2, float(reference[0] - hull[-1, 0] * scale[0]) * float(steep)),
    ]
    across, down = np.diff(hull[:, 0]), -np.diff(hull[:, 1])
    lengths = np.hypot(across, down)
    parts = -np.diff(errors) * scale[0] * lengths / down
    return ends + list(zip(np.arctan2(across, down).tolist(), parts.tolist(), strict=True))


def _hull(front: Floats) -> Floats:
    """The points of a front that some weighting prefers, by rising first and falling second cost (Andrew, 1979)."""
    kept: list[tuple[float, float]] = []
    for x, y in front.tolist():
        while len(kept) > 1:
            (x0, y0), (x1, y1) = kept[-2:]
            if (x1 - x0) * (y - y0) - (y1 - y0) * (x - x0) > 0:
                break
            kept.pop()
        kept.append((x, y))
    return np.array(kept)


def weighed_costs(resamples: Resamples) -> tuple[Floats, ...]:
    """Costs (samples, choices) for each group: each resample under each weighting, relative to the ranges of the
    expected front.

    Each cost is multiplied by the hypervolume weight of its weighting.
    """
    front = front_of_sums(
        [
            np.column_stack([a.mean(axis=0), -b.mean(axis=0)])
            for a, b in zip(resamples.latencies, resamples.logits, strict=True)
        ]
    )
    reach = np.ptp(front.costs, axis=0)
    scale = np.where(reach > 0, reach, 1.0)
    angles = (np.arange(_WEIGHTINGS) + 0.5) / _WEIGHTINGS * np.pi / 2
    counts = hypervolume_weights(resamples, scale, angles)[:, None, None]
    tables = []
    for latency, logit in zip(resamples.latencies, resamples.logits, strict=True):
        cost = (
            np.cos(angles)[:, None, None] * (latency / scale[0])[None]
            - np.sin(angles)[:, None, None] * (logit / scale[1])[None]
        )
        tables.append((cost * counts).reshape(-1, cost.shape[2]))
    return tuple(tables)


def reduce_choices(costs: Sequence[Floats], *, most: float) -> tuple[Ints, ...]:
    """The choices that each group keeps so that at most `most` networks (1 or more) are left; indices in order."""
    chains = [_chain(table) for table in costs]
    return tuple(
        np.array(sorted(chain[size][1]), dtype=np.intp)
        for chain, size in zip(chains, _sizes(chains, most), strict=True)
    )


def _chain(costs: Floats) -> _Chain:
    """For each number of choices, from all down to one: the loss, and the kept choices. Each time, the choice with the
    least loss is dropped.
    """
    kept = list(range(costs.shape[1]))
    lost = 0.0
    chain: _Chain = {len(kept): (lost, tuple(kept))}
    while len(kept) > 1:
        table = costs[:, kept]
        best = table.argmin(axis=1)
        two = np.partition(table, 1, axis=1)
        gaps = np.bincount(best, weights=two[:, 1] - two[:, 0], minlength=len(kept)) / len(costs)
        place = int(np.flatnonzero(gaps <= gaps.min() + _EQUAL * gaps.max())[-1])
        lost += float(gaps[place])
        kept.pop(place)
        chain[len(kept)] = (lost, tuple(kept))
    return chain


def _sizes(chains: Sequence[_Chain], most: float) -> list[int]:
    """The number of choices that each group keeps for the least loss; exact, by undominated pairs (networks, loss)."""
    states = np.array([[1.0, 0.0]])
    steps: list[tuple[Ints, Ints]] = []
    for chain in chains:
        sizes = np.array(sorted(chain))
        losses = np.array([chain[int(size)][0] for size in sizes])
        networks = (states[:, :1] * sizes).ravel()
        lost = (states[:, 1:] + losses).ravel()
        rows = np.column_stack([np.where(networks <= most * _ROUNDING, networks, np.inf), lost])
        kept = nondominated(rows)
        steps.append((kept // len(sizes), sizes[kept % len(sizes)].astype(np.intp)))
        states = rows[kept]
    place = len(states) - 1  # states are sorted by rising numbers of networks, and so by falling loss
    counts = []
    for before, taken in reversed(steps):
        counts.append(int(taken[place]))
        place = int(before[place])
    return counts[::-1]
