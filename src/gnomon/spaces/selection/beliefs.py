"""What is believed of all networks of a space by accuracy and latency, from some that were measured."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gnomon.core.cost import Floats, Ints
from gnomon.core.space import Space
from gnomon.core.stats import median
from gnomon.spaces.cells.effects import Evidence, Learned, expit, learn_both
from gnomon.spaces.selection.reduce import Resamples

_DIGITS = 9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Beliefs:
    """What is believed of all networks of a space. Made by `believe`.

    `measured` (N, groups) are the networks that it comes from. `reference` is the relative latency and the error rate
    up to which hypervolume counts, those of the worst of what was measured, as predicted; `unit` is the median latency
    that was measured, in its own unit.
    """

    space: Space
    accurate: Learned
    fast: Learned
    measured: Ints
    reference: tuple[float, float]
    unit: float

    def points(self, networks: Ints) -> Floats:
        """The relative latency and the error rate (N, 2) of networks as their effects add up."""
        return _points(self.accurate, self.fast, networks)

    def drawn(self, networks: Ints, count: int, *, seed: int) -> Floats:
        """Points (count, N, 2) of networks that may be true, with what pairs of primitives add."""
        latencies = self.fast.draw(networks, count, seed=seed)
        return np.stack([latencies, expit(-self.accurate.draw(networks, count, seed=seed + 1))], axis=2)

    def resamples(self, count: int, seed: int) -> Resamples:
        """What the choices of each group may truly cost, so many times."""
        return Resamples(
            latencies=self.fast.effects.draw(count, seed=seed),
            logits=self.accurate.effects.draw(count, seed=seed + 1),
            reference=self.reference,
        )

    def again(self, count: int, *, seed: int) -> list[Beliefs]:
        """What would be believed if the same networks were measured again, with the same sizes: so many times."""
        worlds = zip(self.accurate.again(count, seed=seed), self.fast.again(count, seed=seed), strict=True)
        return [replace(self, accurate=accurate, fast=fast) for accurate, fast in worlds]


def _points(accurate: Learned, fast: Learned, networks: Ints) -> Floats:
    return np.column_stack([fast.effects.predict(networks)[0], 1 - accurate.effects.predict(networks)[0]])


def believe(space: Space, accuracy: Evidence, latency: Evidence) -> Beliefs:
    """What accuracies (fractions) and latencies (any unit, above 0) of some networks tell of all.

    The networks need not be the same in both. ProblemError for networks outside the space.
    """
    unit = median(latency.values.tolist())
    accurate, fast = learn_both(space, accuracy, _unit_free(latency, unit))
    measured = np.unique(np.concatenate([accuracy.assignments, latency.assignments]), axis=0)
    worst = _points(accurate, fast, measured).max(axis=0).tolist()
    return Beliefs(
        space=space, accurate=accurate, fast=fast, measured=measured, reference=(worst[0], worst[1]), unit=unit
    )


def _unit_free(latency: Evidence, unit: float) -> Evidence:
    """Latencies over their unit, with their errors, to nine digits: a change of unit then changes none of them.

    Without the rounding the last bits would differ, and order what was a tie.
    """
    values = np.array([_rounded(value / unit) for value in latency.values.tolist()])
    shares = np.array([_rounded(share) for share in (latency.errors / latency.values).tolist()])
    return Evidence(assignments=latency.assignments, values=values, errors=values * shares)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS - 1}e}")
