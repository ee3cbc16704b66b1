"""The posterior of the accuracies and latencies of a space's networks, from measurements of some of them.

The posterior shows what share of a front's hypervolume the remaining networks reach, and how uncertain this share is.

Primitives are chosen by effects that add up, but the hypervolume that a choice keeps does not follow from effects
alone. The best of many networks owe part of their quality to how their primitives fit together, and there are more such
networks among all networks than among the remaining ones. The prices of whole networks are therefore drawn from the
whole posterior (`effects.Learned.draw`), and each draw has its own front.

If the space is small enough, the same draws then improve the choice: primitives are exchanged as long as the expected
share increases (`exchanged`).

All networks of a small space are considered. Of a large space, only networks that may be on a front are considered:
those on the fronts of resampled effects, each moved by a typical misfit, in the whole space and in the remaining space.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats, Ints
from gnomon.core.space import Space
from gnomon.core.stats import median
from gnomon.spaces.cells.effects import Evidence, Learned, expit, learn_both
from gnomon.spaces.selection.reduce import Resamples

_DIGITS = 9

MOST_LOOKED_AT = 8000
"""The largest number of networks that are considered one by one."""

MOST_EXCHANGED = 2000
"""The largest space in which draws of all networks improve a choice."""

_MOVED = 4
"""The number of times that each resample of the effects is moved."""

_AT_ONCE = 1 << 17
"""The number of values that are processed together: more would not fit into the processor's caches."""

_SEED = 2
_ROUNDING = 1 + 1e-9

_Place = tuple[int, int]
"""A cell group and one of its choices."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Beliefs:
    """The posterior of all networks of a space. Made by `believe`.

    `reference` is the relative latency and the error rate up to which hypervolume counts: the worst predictions for the
    measured networks. `unit` is the median measured latency, in the unit of the measurements.
    """

    space: Space
    accurate: Learned
    fast: Learned
    reference: tuple[float, float]
    unit: float

    def points(self, networks: Ints) -> Floats:
        """The relative latency and the error rate (N, 2) of networks, from the sums of their costs and effects."""
        return _points(self.accurate, self.fast, networks)

    def expected(self, networks: Ints) -> Floats:
        """The points of networks, corrected by the misfits of measured networks that share pairs of primitives with
        them.
        """
        return np.column_stack([self.fast.predict(networks)[0], 1 - self.accurate.predict(networks)[0]])

    def drawn(self, networks: Ints, count: int, *, seed: int) -> Floats:
        """Possible true points (count, N, 2) of networks, including the effects of pairs of primitives."""
        latencies = self.fast.draw(networks, count, seed=seed)
        return np.stack([latencies, expit(-self.accurate.draw(networks, count, seed=seed + 1))], axis=2)

    def resamples(self, count: int, seed: int) -> Resamples:
        """The possible true costs of each group's choices, drawn `count` times."""
        return Resamples(
            latencies=self.fast.effects.draw(count, seed=seed),
            logits=self.accurate.effects.draw(count, seed=seed + 1),
            reference=self.reference,
        )

    def again(self, count: int, *, seed: int) -> list[Beliefs]:
        """The posteriors after `count` simulated repeats of the same measurements, with the same sizes."""
        worlds = zip(self.accurate.again(count, seed=seed), self.fast.again(count, seed=seed), strict=True)
        return [replace(self, accurate=accurate, fast=fast) for accurate, fast in worlds]


def _points(accurate: Learned, fast: Learned, networks: Ints) -> Floats:
    logits, latencies = (own.effects.totals(own.effects.mean[None], networks)[0] for own in (accurate, fast))
    return np.column_stack([latencies, expit(-logits)])


def believe(space: Space, accuracy: Evidence, latency: Evidence) -> Beliefs:
    """The posterior from accuracies (fractions) and latencies (any unit, above 0) of some networks.

    The networks need not be the same in both. ProblemError for networks outside the space.
    """
    unit = median(latency.values.tolist())
    accurate, fast = learn_both(space, accuracy, _unit_free(latency, unit))
    measured = np.unique(np.concatenate([accuracy.assignments, latency.assignments]), axis=0)
    worst = _points(accurate, fast, measured).max(axis=0).tolist()
    return Beliefs(space=space, accurate=accurate, fast=fast, reference=(worst[0], worst[1]), unit=unit)


def _unit_free(latency: Evidence, unit: float) -> Evidence:
    """Latencies and their errors, divided by `unit` and rounded to nine digits, so that the unit in which latencies are
    given does not matter.

    Without the rounding, the last bits would depend on that unit and break ties.
    """
    values = np.array([_rounded(value / unit) for value in latency.values.tolist()])
    shares = np.array([_rounded(share) for share in (latency.errors / latency.values).tolist()])
    return Evidence(assignments=latency.assignments, values=values, errors=values * shares)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS - 1}e}")


class Front:
    """K draws of the points of a space's networks (M, groups), which are indices of choices in the learned space.

    `wide` and `high` (K, M) are the gaps between the reference and the drawn points (K, M, 2) in relative latency and
    in error rate, by rising latency. `whole` (K,) are the hypervolumes of all networks together.
    """

    def __init__(self, networks: Ints, points: Floats, reference: tuple[float, float]) -> None:
        self.networks = networks
        gaps = np.maximum(np.asarray(reference) - points, 0.0)
        self.order = np.argsort(-gaps[:, :, 0], axis=1, kind="stable")
        self.wide, self.high = (np.take_along_axis(gaps[:, :, k], self.order, axis=1) for k in (0, 1))
        self.whole = self.volumes(np.ones(len(networks), dtype=bool))

    def volumes(self, inside: NDArray[np.bool_]) -> Floats:
        """The hypervolume (K,) of some of the networks (M,) in each draw. Sets of networks with the same front have
        exactly the same hypervolume.
        """
        high = np.where(inside[self.order], self.high, 0.0)
        return np.asarray(np.einsum("km,km->k", np.maximum.accumulate(high, axis=1), _steps(self.wide)))

    def shares(self, kept: Sequence[Ints]) -> Floats:
        """The share of each draw's hypervolume that the networks of these choices reach: (K,)."""
        inside = np.all([np.isin(column, own) for column, own in zip(self.networks.T, kept, strict=True)], axis=0)
        return ratios(self.volumes(inside), self.whole)


def ratios(some: Floats, others: Floats) -> Floats:
    """Hypervolumes divided by others; 1 if the others are 0."""
    return np.where(others > 0, some / np.where(others > 0, others, 1.0), 1.0)


def _steps(wide: Floats) -> Floats:
    """The distance from each point of a draw to the next slower one, or to the reference."""
    return -np.diff(wide, axis=1, append=0.0)


def drawn_front(beliefs: Beliefs, resamples: Resamples, kept: Sequence[Ints], *, seed: int = _SEED) -> Front:
    """Draws of the networks from a seed, as many as there are resamples; `kept` are the remaining choices."""
    size = math.prod(resamples.counts)
    if size <= MOST_LOOKED_AT:
        networks = np.array(list(itertools.product(*(range(count) for count in resamples.counts))), dtype=np.intp)
    else:
        networks = _promising(beliefs, resamples, kept)
    return Front(networks, beliefs.drawn(networks, resamples.count, seed=seed), resamples.reference)


def exchanged(front: Front, kept: Sequence[Ints], most: float) -> tuple[Ints, ...]:
    """The kept choices of each group, improved until no exchange keeps a larger share of the draws' hypervolume.

    In each step, a choice of a group is exchanged for another choice, of the same or of a different group, or a choice
    is added; at most `most` networks may remain. No such step would improve the result further, but a better result may
    exist.
    """
    left = [np.isin(np.arange(int(column.max()) + 1), own) for column, own in zip(front.networks.T, kept, strict=True)]
    every = [(g, choice) for g, marks in enumerate(left) for choice in range(len(marks))]
    share = next(_without(front, left, [None]))[1]
    while True:
        before = share
        for into in every:
            if left[into[0]][into[1]]:
                continue
            outs: list[_Place | None] = [None, *(out for out in every if left[out[0]][out[1]])]
            _turn(left, into)
            sizes = [int(marks.sum()) for marks in left]
            fitting = [out for out in outs if 0 < _count(sizes, out) <= most]
            tried = ((out, reached) for out, reached in _without(front, left, fitting) if reached > share * _ROUNDING)
            better = next(tried, None)
            if better is None:
                _turn(left, into)
            else:
                out, share = better
                _turn(left, out)
        if share == before:
            return tuple(np.flatnonzero(marks) for marks in left)


def _turn(left: Sequence[NDArray[np.bool_]], place: _Place | None) -> None:
    """Drop a place that is kept, or restore a place that was dropped."""
    if place is not None:
        left[place[0]][place[1]] ^= True


def _count(sizes: Sequence[int], out: _Place | None) -> int:
    """The number of networks without a place, given the number of choices in each group."""
    every = math.prod(sizes)
    return every if out is None else every // sizes[out[0]] * (sizes[out[0]] - 1)


def _without(
    front: Front, left: Sequence[NDArray[np.bool_]], outs: Sequence[_Place | None]
) -> Iterator[tuple[_Place | None, float]]:
    """For each of these places, the mean share that the remaining networks reach without the place."""
    inside = np.all([marks[column] for marks, column in zip(left, front.networks.T, strict=True)], axis=0)
    names, whole = front.networks[inside], np.where(front.whole > 0, front.whole, 1.0)
    own = np.flatnonzero(inside[front.order]).reshape(len(whole), -1)  # the same number in each draw
    place = (np.cumsum(inside) - 1)[front.order.ravel()[own]]
    high, steps = front.high.ravel()[own], _steps(front.wide.ravel()[own]) / (whole[:, None] * len(whole))
    few = max(1, _AT_ONCE // own.size)
    for some in (outs[k : k + few] for k in range(0, len(outs), few)):
        stay = np.array([np.ones(len(names), bool) if out is None else names[:, out[0]] != out[1] for out in some])
        heights = np.where(stay[:, place], high, 0.0)
        shares = np.einsum("okm,km->o", np.maximum.accumulate(heights, axis=2), steps)
        yield from zip(some, shares.tolist(), strict=True)


def _promising(beliefs: Beliefs, resamples: Resamples, kept: Sequence[Ints]) -> Ints:
    """Networks (M, groups) that may be on a front, as indices among the resampled choices."""
    wide = moved(beliefs, resamples)
    left = on_fronts(wide.restricted(kept))
    rows = np.column_stack([names[column] for names, column in zip(kept, left.T, strict=True)])
    return np.unique(np.concatenate([on_fronts(wide)[: MOST_LOOKED_AT // 2], rows[: MOST_LOOKED_AT // 2]]), axis=0)


def moved(beliefs: Beliefs, resamples: Resamples) -> Resamples:
    """Several copies of each resample of the effects, each moved by a typical misfit."""
    rng = np.random.default_rng(_SEED)
    sizes = [
        own.effects.sizes["misfit"] / math.sqrt(len(beliefs.space.slots)) for own in (beliefs.accurate, beliefs.fast)
    ]
    logits, latencies = (
        [np.repeat(table, _MOVED, axis=0) for table in tables] for tables in (resamples.logits, resamples.latencies)
    )
    return Resamples(
        logits=tuple(table + sizes[0] * rng.standard_normal(table.shape) for table in logits),
        latencies=tuple(table * np.exp(sizes[1] * rng.standard_normal(table.shape)) for table in latencies),
        reference=resamples.reference,
    )


def on_fronts(resamples: Resamples) -> Ints:
    """The networks (M, groups) on the resamples' fronts, beginning with those on the most fronts."""
    rows = np.concatenate([front.assignments for front in resamples.fronts()])
    rows, often = np.unique(rows, axis=0, return_counts=True)
    return np.asarray(rows[np.argsort(-often, kind="stable")], dtype=np.intp)
