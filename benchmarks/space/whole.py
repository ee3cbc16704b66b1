"""A search space in which every network is known, as a standard for selections."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats
from gnomon.core.front.dominance import hypervolume
from gnomon.spaces.features import Ints

GOAL = (0.1, 0.95)
"""At most this share of the networks, with at least this share of the hypervolume."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Whole:
    """All networks of a space: choices (N, groups), accuracies by seed (seeds, N), and latencies (N,) in seconds."""

    choices: Ints
    accuracies: Floats
    latencies: Floats

    @property
    def within(self) -> float | None:
        """The standard deviation of an accuracy between seeds, pooled over networks."""
        seeds = len(self.accuracies)
        return float(np.sqrt(self.accuracies.var(axis=0, ddof=1).mean())) if seeds > 1 else None

    @property
    def points(self) -> Floats:
        """The latency and the error of each network."""
        return self.of(self.accuracies.mean(axis=0))

    def of(self, accuracy: Floats) -> Floats:
        """The latency and the error with these accuracies."""
        return np.column_stack([self.latencies, 1 - accuracy])

    def inside(self, kept: Sequence[Iterable[int]]) -> NDArray[np.bool_]:
        """Which networks consist of these choices in each group."""
        made: NDArray[np.bool_] = np.all(
            [np.isin(column, list(own)) for column, own in zip(self.choices.T, kept, strict=True)], axis=0
        )
        return made

    def share(self, kept: Sequence[Iterable[int]]) -> float:
        """The share of the whole space's hypervolume that networks of these choices reach."""
        points = self.points
        worst = points.max(axis=0).tolist()
        return hypervolume(points[self.inside(kept)], worst) / hypervolume(points, worst)


def described(whole: Whole) -> dict[str, Any]:
    """Figures of the whole space: the ranges (5 to 95 %), and the noise of one training."""
    accuracy, latency = whole.accuracies.mean(axis=0), whole.latencies * 1e6
    return {
        "networks": len(accuracy),
        "seeds": len(whole.accuracies),
        "accuracy": np.quantile(accuracy, [0, 0.05, 0.5, 0.95, 1]).tolist(),
        "latency_us": np.quantile(latency, [0, 0.05, 0.5, 0.95, 1]).tolist(),
        "sd_of_a_training": whole.within,
    }


def worth(whole: Whole) -> list[float] | None:
    """For each seed, the share of its hypervolume that the front by the mean of the other seeds reaches."""
    found = []
    for seed in range(len(whole.accuracies)):
        others = np.delete(whole.accuracies, seed, axis=0)
        if not len(others):
            return None
        told, mine = whole.of(others.mean(axis=0)), whole.of(whole.accuracies[seed])
        front = np.array([not ((told <= one).all(axis=1) & (told < one).any(axis=1)).any() for one in told])
        worst = mine.max(axis=0).tolist()
        found.append(hypervolume(mine[front], worst) / hypervolume(mine, worst))
    return found


def greedy(whole: Whole) -> dict[str, Any]:
    """The selection if the truth is known: drop the least valuable choices until few enough networks are left."""
    kept = [list(range(int(column.max()) + 1)) for column in whole.choices.T]
    while int(whole.inside(kept).sum()) > GOAL[0] * len(whole.choices):
        tries = [
            (whole.share([*kept[:g], [k for k in own if k != one], *kept[g + 1 :]]), g, one)
            for g, own in enumerate(kept)
            for one in own
            if len(own) > 1
        ]
        _, group, one = max(tries)
        kept[group].remove(one)
    return {"networks": float(whole.inside(kept).mean()), "hypervolume": whole.share(kept), "kept": kept}


def at_random(whole: Whole, sizes: Sequence[int], *, seed: int, count: int = 200) -> list[float]:
    """The hypervolume of random reduced spaces with as many primitives per group, in any order: 5 %, median, 95 %."""
    rng = np.random.default_rng(seed)
    choices = [np.unique(column) for column in whole.choices.T]
    shares = [
        whole.share(
            [rng.choice(own, size, replace=False) for own, size in zip(choices, rng.permutation(sizes), strict=True)]
        )
        for _ in range(count)
    ]
    return [float(one) for one in np.quantile(shares, [0.05, 0.5, 0.95])]
