"""How likely measured prices are under sizes of the parts of effects, and the sizes that make them most likely.

The restricted likelihood of a normal model with one constant, climbed by Fisher scoring (Patterson and Thompson,
"Recovery of inter-block information when block sizes are unequal", 1971), under a weak prior on the logarithm of each
size, which keeps sizes finite that the measurements leave open.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gnomon.core.cost import Floats
from gnomon.core.space import Space
from gnomon.spaces.primitives import parse_name

PARTS = ("misfit", "family", "main", "own")
"""The parts whose sizes are estimated, before the scale of each group."""

_USUAL = (0.05, 1.0, 0.5, 0.5)  # the middle of the weak prior on their sizes, in the spread of the values
_SPREAD = 1.0  # standard deviation of the weak prior on the logarithm of each size
_GROUP_SPREAD = 0.5  # and on that of a group's scale, about 1
_LEAST_NOISE = 1e-4  # of the spread of the values: what is told to be exact must not make the sums singular
_WIDE = 1e3  # prior standard deviation of the constant, in the spread of the values
_ROUNDS = 40
_STEP = 1.0  # the most that a logarithm changes in a round
_ENOUGH = 1e-7  # a round that gains less is the last


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Told:
    """What is known, in units of the spread of the values; `mixed` if networks tell what no sum of effects explains."""

    design: Floats
    values: Floats
    errors: Floats
    mixed: bool


class Likelihood:
    """The restricted likelihood of log sizes: of the misfit, of each part of the effects, and of each group's scale."""

    def __init__(self, space: Space, told: Told) -> None:
        names = np.array([name for slot in space.slots for name in slot.choices])
        families = np.array([parse_name(str(name))[0] for name in names])
        self.group = np.repeat(np.arange(len(space.slots)), [len(slot.choices) for slot in space.slots])
        kin = (families[:, None] == families[None, :]).astype(np.float64)
        self.parts = [kin, (names[:, None] == names[None, :]).astype(np.float64), np.eye(len(names))]
        self.design, self.values, self.mixed = told.design, told.values, told.mixed
        self.noise = told.errors**2 + _LEAST_NOISE**2
        self.groups, self.last = len(space.slots), 1 + len(self.parts)
        usual = np.log(_USUAL) - 0.5 * math.log(self.groups)
        self.start = np.concatenate([usual, np.zeros(self.groups)])
        spread = np.concatenate([np.full(self.last, _SPREAD), np.full(self.groups, _GROUP_SPREAD)])
        self.weights = 1 / spread**2

    def prior(self, sizes: Floats) -> tuple[Floats, list[Floats]]:
        """The covariance of the effects, and its derivative by each log size but that of the misfit."""
        scale = np.exp(sizes[self.last :])[self.group]
        outer = np.outer(scale, scale)
        terms = [math.exp(2 * size) * part * outer for size, part in zip(sizes[1 : self.last], self.parts, strict=True)]
        total = np.asarray(terms[0] + terms[1] + terms[2])
        slopes = [2 * term for term in terms]
        for g in range(self.groups):
            own = (self.group == g).astype(np.float64)
            slopes.append(total * (own[:, None] + own[None, :]))
        return total, slopes

    def covariance(self, sizes: Floats, prior: Floats) -> Floats:
        """The covariance of the measured values, but for the constant."""
        effects = self.design[:, 1:]
        made = effects @ prior @ effects.T
        made[np.diag_indices_from(made)] += self.noise + (math.exp(2 * sizes[0]) if self.mixed else 0.0)
        return np.asarray(made)

    def best(self) -> Floats:
        """The log sizes of the largest penalised likelihood."""
        sizes, damping = self.start.copy(), 1e-3
        score, slope, curvature = self._score(sizes)
        for _ in range(_ROUNDS):
            step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), slope)
            step *= min(1.0, _STEP / max(float(np.abs(step).max()), 1e-12))
            tried = self._score(sizes + step)
            if tried[0] >= score:
                gained, sizes, damping = tried[0] - score, sizes + step, damping / 4
                score, slope, curvature = tried
                if gained < _ENOUGH:
                    break
            else:
                damping = max(damping * 8, 1e-2)
                if damping > 1e6:
                    break
        return sizes

    def _score(self, sizes: Floats) -> tuple[float, Floats, Floats]:
        """The penalised likelihood, its gradient, and its expected curvature."""
        prior, slopes = self.prior(sizes)
        effects = self.design[:, 1:]
        inverse = np.linalg.inv(self.covariance(sizes, prior))
        ones = inverse.sum(axis=1)
        total = float(ones.sum())
        projected = inverse - np.outer(ones, ones) / total
        pulled = projected @ self.values
        back, crossed = effects.T @ pulled, effects.T @ projected @ effects
        away = sizes - self.start
        score = 0.5 * (float(np.linalg.slogdet(inverse)[1]) - math.log(total) - float(self.values @ pulled))
        score -= 0.5 * float((self.weights * away**2).sum())
        products = [crossed @ slope for slope in slopes]
        slope, curvature = np.zeros(len(sizes)), np.zeros((len(sizes), len(sizes)))
        slope[1:] = [
            0.5 * (back @ one @ back - np.trace(product)) for one, product in zip(slopes, products, strict=True)
        ]
        curvature[1:, 1:] = [[0.5 * float((a * b.T).sum()) for b in products] for a in products]
        if self.mixed:
            variance = 2 * math.exp(2 * sizes[0])
            slope[0] = 0.5 * variance * (float(pulled @ pulled) - float(np.trace(projected)))
            curvature[0, 0] = 0.5 * variance**2 * float((projected**2).sum())
        return score, slope - self.weights * away, curvature + np.diag(self.weights)

    def posterior(self, sizes: Floats) -> tuple[Floats, Floats]:
        """Mean and covariance of constant and effects."""
        prior, _ = self.prior(sizes)
        whole = np.zeros((len(prior) + 1, len(prior) + 1))
        whole[0, 0], whole[1:, 1:] = _WIDE**2, prior
        noise = self.covariance(sizes, np.zeros_like(prior))
        crossed = whole @ self.design.T
        gain = np.linalg.solve(self.design @ crossed + noise, crossed.T).T
        covariance = whole - gain @ crossed.T
        return gain @ self.values, np.asarray((covariance + covariance.T) / 2)
