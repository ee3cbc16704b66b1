"""The predicted front: the best networks of a whole space by accuracy and latency, and the networks to measure.

Both prices are sums of effects, so the front over all networks is exact (`reduce.front_of_sums`), however many networks
there are, and so is its part below a given latency. This front does not include the misfit, the part that no sum of
effects explains. The intervals do, because they come from posterior draws of whole networks (`effects.Learned.draw`).

These draws decide which networks are worth measuring, one after the other: each is the network that most increases the
expected hypervolume of those chosen so far (expected hypervolume improvement: Emmerich, Giannakoglou and Naujoks,
"Single- and multiobjective evolutionary optimization assisted by Gaussian random field metamodels", 2006). The gain of
a network decreases as others are chosen, so a network can be skipped if its old gain is below the new gain of another
(Minoux, "Accelerated greedy algorithms for maximizing submodular set functions", 1978). In these draws, the result
reaches at least 1 - 1/e of the hypervolume of the best set of the same size (Nemhauser, Wolsey and Fisher, 1978).

If the networks are then measured, this is done in a few rounds. What a round shows about effects, families and pairs
decides which networks the next round measures (batch Bayesian optimisation; `in_rounds`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats, Ints
from gnomon.core.front.dominance import hypervolume, nondominated
from gnomon.core.space import Space
from gnomon.errors import ProblemError
from gnomon.spaces.selection.beliefs import MOST_LOOKED_AT, Beliefs, moved, on_fronts, ratios
from gnomon.spaces.selection.reduce import SumFront, front_of_sums

_SOME = 2000
"""The largest number of candidates for the front in a space that has too many networks to consider each of them."""

_ROUNDS, _LEAST_ROUND = 5, 4
"""The number of rounds, and the smallest number of networks in each; a round's networks are trained side by side."""

_SEED = 4
_ROUNDING = 1 + 1e-9  # sums of the same effects differ with the order of addition


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontOptions:
    """The networks to find: at most `networks`, with a predicted latency of at most `most_latency` (None: any).

    The latency is in the unit of the measurements. `choices` are the indices that each cell group may use (None: all);
    `draws` posterior samples are drawn, always the same ones.
    """

    networks: int = 50
    most_latency: float | None = None
    choices: tuple[tuple[int, ...], ...] | None = None
    draws: int = 200


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PredictedFront:
    """Networks (N, groups) as indices of the space's choices, by rising predicted latency, with their predictions.

    `latency` and `accuracy` (N, 3) are the predicted values and the ends of their 95 % intervals; latency is in the
    unit of the measurements. `on_front` marks the networks on the exact front of the sums of effects, which has `size`
    networks. `chance` is the share of posterior draws in which a network is on the front, and `meets` is the share in
    which it meets the requested latency. `share` is the expected share of the hypervolume of all networks (or of those
    predicted to meet that latency) that these networks reach, with its 95 % interval.
    """

    networks: Ints
    latency: Floats
    accuracy: Floats
    on_front: NDArray[np.bool_]
    chance: Floats
    meets: Floats
    size: int
    share: tuple[float, float, float]


def predict_front(beliefs: Beliefs, options: FrontOptions, *, beside: Ints | None = None) -> PredictedFront:
    """The best of all networks.

    These are the networks of the exact front. If there are too many of them, the ones with the most hypervolume are
    used; if there are too few, others that may be on the front are added. `beside` (N, groups) are networks that have
    already been chosen: the result is then the networks that are expected to add most to them, on the exact front or
    not, and `share` is the share that both reach together. ProblemError if no network is predicted to meet the latency.
    """
    front = exact_front(beliefs, options)
    there = front[:0] if beside is None else beside
    rows = np.unique(np.concatenate([front, _candidates(beliefs, options), there]), axis=0)
    bound = _bound(beliefs, options)
    fits = beliefs.expected(rows)[:, 0] <= bound * _ROUNDING
    if fits.any():
        rows = rows[fits | _among(rows, there)]
    points = _drawn(beliefs, rows, options)
    sure, had = _among(rows, front), np.flatnonzero(_among(rows, there))
    first = had[points[:, had, 0].mean(axis=0) <= bound]
    if beside is not None:
        free = np.concatenate([first, np.setdiff1d(np.arange(len(rows)), had)])
        count = len(first) + options.networks
        chosen = free[taken(points[:, free], beliefs.reference, count, first=range(len(first)))][len(first) :]
    elif sure.sum() > options.networks:
        chosen = np.flatnonzero(sure)[taken(points[:, sure], beliefs.reference, options.networks)]
    else:
        chosen = taken(points, beliefs.reference, options.networks, first=np.flatnonzero(sure))
    expected = beliefs.expected(rows[chosen])
    order = np.lexsort((expected[:, 1], expected[:, 0]))
    chosen, expected = chosen[order], expected[order]
    return PredictedFront(
        networks=rows[chosen],
        latency=beliefs.unit * _intervals(expected[:, 0], points[:, chosen, 0]),
        accuracy=_intervals(1 - expected[:, 1], 1 - points[:, chosen, 1]),
        on_front=sure[chosen],
        chance=_often(points)[chosen],
        meets=(points[:, chosen, 0] <= bound).mean(axis=0),
        size=len(front),
        share=_interval(_ratios(points[:, np.concatenate([first, chosen])], points, beliefs.reference)),
    )


def in_rounds(
    beliefs: Beliefs, options: FrontOptions, measured: Callable[[PredictedFront], Beliefs]
) -> tuple[PredictedFront, ...]:
    """The best networks in a few rounds, each predicted after the earlier rounds were measured.

    `measured` measures the networks of a round, and returns the new posterior. The predictions of a round's networks
    are made before the round; `share` is the share that the networks of this and all earlier rounds reach. The rounds
    end early if no network remains, or if no network is predicted to meet the latency. ProblemError as for
    `predict_front`.
    """
    count = min(_ROUNDS, max(1, options.networks // _LEAST_ROUND))
    fronts: list[PredictedFront] = []
    mine = np.empty((0, len(beliefs.space.slots)), dtype=np.intp)
    for size in (len(part) for part in np.array_split(np.arange(options.networks), count)):
        try:
            front = predict_front(beliefs, replace(options, networks=size), beside=mine)
        except ProblemError:
            if not fronts:
                raise
            break
        if not len(front.networks):
            break
        fronts.append(front)
        mine = np.concatenate([mine, front.networks])
        beliefs = measured(front)
    return tuple(fronts)


def share_of(beliefs: Beliefs, networks: Ints, options: FrontOptions) -> tuple[float, float, float]:
    """The expected share of the hypervolume of all networks that these networks reach, and its 95 % interval."""
    rows = np.unique(np.concatenate([networks, _candidates(beliefs, options)]), axis=0)
    points = _drawn(beliefs, rows, options)
    mine = _among(rows, networks)
    return _interval(_ratios(points[:, mine], points, beliefs.reference))


def taken(points: Floats, reference: tuple[float, float], count: int, *, first: Sequence[int] | Ints = ()) -> Ints:
    """The places of the points (K, M, 2), in K draws, that together should reach the largest mean hypervolume.

    These are the `first` ones and then, one after the other, the point that adds most, until there are `count` points
    or no more are left.
    """
    corner = np.asarray(reference)
    gaps = np.maximum(corner - points, 0.0)
    steps = _Steps(count=len(points))
    chosen = [int(place) for place in first]
    for place in chosen:
        steps.add(gaps[:, place])
    gains = gaps.prod(axis=2).mean(axis=0)  # of each point alone: together with others it gains less
    gains[chosen] = -math.inf
    while len(chosen) < min(count, points.shape[1]):
        before = -1
        while (best := int(gains.argmax())) != before:
            gains[best], before = steps.gain(gaps[:, best]), best
        steps.add(gaps[:, best])
        chosen.append(best)
        gains[best] = -math.inf
    return np.array(chosen, dtype=np.intp)


class _Steps:
    """In each of K draws, the staircase below which all points are reached, given as gaps to the reference.

    `widths` (K, S) fall and `heights` (K, S) rise: up to each width, everything no higher than its height is reached.
    """

    def __init__(self, *, count: int) -> None:
        self.widths, self.heights = np.zeros((count, 1)), np.zeros((count, 1))

    def gain(self, gaps: Floats) -> float:
        """The mean area that a box with these gaps (K, 2) adds."""
        ends = np.minimum(self.widths, gaps[:, :1])
        # Between a width and the next smaller one, the reached height is that of the width; beyond the largest it is 0.
        whole = np.concatenate([gaps[:, :1], ends], axis=1)
        reached = np.concatenate([np.zeros_like(gaps[:, :1]), self.heights], axis=1)
        spans = whole - np.concatenate([ends, np.zeros_like(gaps[:, :1])], axis=1)
        return float((spans * np.maximum(gaps[:, 1:] - reached, 0.0)).sum() / len(gaps))

    def add(self, gaps: Floats) -> None:
        """Mark boxes with these gaps (K, 2) as reached too."""
        widths = np.concatenate([self.widths, gaps[:, :1]], axis=1)
        order = np.argsort(-widths, axis=1, kind="stable")
        self.widths = np.take_along_axis(widths, order, axis=1)
        heights = np.take_along_axis(np.concatenate([self.heights, gaps[:, 1:]], axis=1), order, axis=1)
        self.heights = np.maximum.accumulate(heights, axis=1)


def _drawn(beliefs: Beliefs, networks: Ints, options: FrontOptions) -> Floats:
    return beliefs.drawn(networks, options.draws, seed=_SEED)


def _bound(beliefs: Beliefs, options: FrontOptions) -> float:
    """The largest relative latency that is allowed."""
    return math.inf if options.most_latency is None else options.most_latency / beliefs.unit


def _among(rows: Ints, networks: Ints) -> NDArray[np.bool_]:
    """For each row, whether it is one of these networks."""
    return np.asarray((rows[:, None, :] == networks[None, :, :]).all(axis=2).any(axis=1))


def exact_front(beliefs: Beliefs, options: FrontOptions) -> Ints:
    """The networks (N, groups) that are on the exact front of the sums of effects and meet the latency.

    ProblemError if no network is predicted to meet it.
    """
    sums, bound = _sums(beliefs, options), _bound(beliefs, options)
    kept = sums.costs[:, 0] <= bound * _ROUNDING
    if not kept.any():
        raise ProblemError(
            "no network is predicted to meet the latency: the fastest is predicted to take "
            f"{float(sums.costs[0, 0]) / bound:.3g} times as long",
            hint="Allow a longer latency, or add faster primitives to the space.",
        )
    return _placed(sums.assignments[kept], options)


def _sums(beliefs: Beliefs, options: FrontOptions) -> SumFront:
    tables = [own.effects.tables(own.effects.mean[None]) for own in (beliefs.fast, beliefs.accurate)]
    picked = _picked(beliefs.space, options)
    return front_of_sums(
        [np.column_stack([fast[0, own], -right[0, own]]) for fast, right, own in zip(*tables, picked, strict=True)]
    )


def _picked(space: Space, options: FrontOptions) -> list[Ints]:
    """The choices of each group that are considered."""
    if options.choices is None:
        return [np.arange(len(slot.choices)) for slot in space.slots]
    return [np.array(own, dtype=np.intp) for own in options.choices]


def _placed(chosen: Ints, options: FrontOptions) -> Ints:
    """Networks as indices of the choices of the whole space."""
    if options.choices is None:
        return chosen
    return np.column_stack([np.array(own)[column] for own, column in zip(options.choices, chosen.T, strict=True)])


def _candidates(beliefs: Beliefs, options: FrontOptions) -> Ints:
    """Networks that meet the latency and may be on the front; in a small space, all networks that meet it."""
    picked = _picked(beliefs.space, options)
    small = math.prod(map(len, picked)) <= MOST_LOOKED_AT
    if small:
        rows = np.array(list(itertools.product(*picked)), dtype=np.intp)
    else:
        resamples = beliefs.resamples(options.draws, 0).restricted(picked)
        rows = _placed(on_fronts(moved(beliefs, resamples)), options)
    rows = rows[beliefs.points(rows)[:, 0] <= _bound(beliefs, options) * _ROUNDING]
    return rows if small else rows[:_SOME]


def _intervals(expected: Floats, drawn: Floats) -> Floats:
    """Expected values (N,) with the ends of the 95 % intervals of draws (K, N), widened to include the
    expected values.
    """
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return np.column_stack([expected, np.minimum(low, expected), np.maximum(high, expected)])


def _often(points: Floats) -> Floats:
    """The share of draws in which each of M networks is on the front, from their points (K, M, 2)."""
    counts = np.zeros(points.shape[1])
    for draw in points:
        counts[nondominated(draw)] += 1
    return counts / len(points)


def _ratios(points: Floats, others: Floats, reference: tuple[float, float]) -> Floats:
    """The hypervolume of points (K, N, 2) divided by that of others (K, M, 2) in each draw; 1 if both are 0."""
    mine, theirs = (np.array([hypervolume(draw, reference) for draw in some]) for some in (points, others))
    return ratios(mine, theirs)


def _interval(values: Floats) -> tuple[float, float, float]:
    low, high = np.quantile(values, [0.025, 0.975]).tolist()
    return float(values.mean()), low, high
