"""The effects of each primitive in each cell group on a price, and their uncertainty, learned from a few networks.

The accuracy of a network, as a logit, is the sum of a constant and one effect for each cell group. Its latency is the
sum of one cost for each cell group; each cost is the exponential of a constant plus an effect. Therefore no cost is
below 0, all errors of latency are relative, and a block of 10 us counts as much as one of 1 ms. The sum is linearised
around the current costs again and again until the costs no longer change (the Gauss-Newton method); a step that would
make the measurements less likely is shortened.

The effect of primitive p in group g is ``scale_g * (family_p + main_p + own_gp)``; all three parts are normal with mean
0. In this hierarchical model, an effect that is known only roughly is pulled towards the effect of the same primitive
in other groups, and the primitive's effect towards that of its family. A cost also has a part for its group, and an
effect on accuracy also has a part that follows latency, because a slower block is often more accurate. The sizes of the
parts are those that make the measurements most likely, under a weak prior that keeps them finite (empirical Bayes:
Efron and Morris, 1975).

One-change variants are not required: any networks will do, and the covariance shows what remains uncertain.

The misfit is the part of a price that no sum explains. It consists of effects of pairs of cell groups, where all
effects of a kind have the same size, and of an effect of each whole network. For accuracies, the kinds of pairs are two
primitives in neighbouring groups, two primitives in any two groups, and the families of two primitives in any two
groups. For latencies, only neighbours have a common effect, for example because a runtime converts a layout between
them; this effect is proportional to the costs of both. Its kinds are two primitives in given places and, with one size
for both, two primitives in any place and their families in any place. The best of many networks are the best partly
because of their misfit, so statements about a front must include the misfit (`Learned.draw`), and so must statements
about a network near measured ones (`Learned.predict`).

`Likelihood` finds the sizes: it maximises the restricted likelihood of a normal model with one constant by Fisher
scoring (Patterson and Thompson, "Recovery of inter-block information when block sizes are unequal", 1971). The priors
of misfits are half normal, as wide as the spread of the values: a misfit may be nothing or everything, and only
measurements can exclude either (Gelman, "Prior distributions for variance parameters in hierarchical models", 2006).

`balanced_design` draws the networks that are most informative about each choice. Every primitive occurs equally often
in each cell group, so each network tells something about one primitive in every group (Fisher, "The Design of
Experiments", 1935).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats, Ints
from gnomon.core.space import Space
from gnomon.spaces.cells.primitives import family_of
from gnomon.spaces.features import Ints as Int64s

Scale = Literal["sums", "logit"]
"""Costs that add up, or effects on a logit."""

_MISFITS = 4
_USUAL = {"family": 1.0, "main": 0.5, "own": 0.5, "group": 0.5, "slower": 0.5}
"""The parts of effects whose sizes are estimated. Each value is the starting point of the search and the middle of the
weak prior.
"""

_USUAL_MISFIT = 0.1
_RESIZED = 12  # the largest number of times that sizes are estimated
_LINEARISED = 50  # the largest number of times that costs are linearised
_LEAST_STEP = 1e-3  # a step from one linearisation to the next is not shortened below this share
_TELLS = 1e-9  # networks with a precision below this share of the largest are not predicted by the others
_STAYS = 1e-3  # costs with smaller relative changes count as unchanged
_SPREAD = 1.0  # standard deviation of the weak prior on the logarithm of each size of effects
_LARGEST = math.log(100.0)  # the largest size, in units of the spread of the values
_SIZES = 20  # the largest number of draws of sizes, which all draws of networks share
_FORGOTTEN, _APART = 20, 5  # steps before the first drawn sizes, and between drawn sizes
_GROUP_SPREAD = 0.5  # standard deviation of the prior on the logarithm of a group's scale, which is about 1
_ROUNDING = 1e-9  # values with smaller relative differences count as equal
_LEAST_NOISE = 1e-4  # in units of the spread of the values: with errors of 0, covariances could be singular
_WIDE = 1e2  # prior standard deviation of the constant, in units of the spread of the values
_ROUNDS = 40
_STEP = 1.0  # the largest change of a logarithm in a round
_ENOUGH = 1e-7  # a round that gains less than this is the last
_FLOOR = 1e-3  # accuracies nearer than this to 0 or 1 are moved to this distance: their logit would be arbitrary
_NORMAL_95 = 1.959964
_TRIES = 200  # the number of random tables; the best one becomes the design
_RIDGE = 0.1  # the weak prior of a design's information
_ALL = 4096  # the largest space for which a design lists all networks
_EXCHANGES = 50  # the largest number of exchanges for each network of a design, on average


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evidence:
    """Networks (N, groups) as indices of a space's choices, with their values (N,) and the values' standard errors
    (N,).
    """

    assignments: Ints
    values: Floats
    errors: Floats

    def at(self, rows: Ints) -> Evidence:
        """The evidence for some of the networks."""
        return Evidence(assignments=self.assignments[rows], values=self.values[rows], errors=self.errors[rows])


Networks = tuple[Ints, Floats]
"""Networks (N, groups) as indices of a space's choices, and their design (N, 1 + C) from `Effects.design`, where C is
the number of choices in all groups.
"""


class Likelihood:
    """The restricted likelihood of log sizes: of each misfit, each part of the effects, and each group's scale."""

    def __init__(
        self, space: Space, evidence: Evidence, *, scale: Scale, mixed: bool, parts: Mapping[str, Floats]
    ) -> None:
        """Set up the likelihood for evidence in units of its spread; `mixed` says whether the networks can show a
        misfit.

        `parts` has, by the name of a size, the covariance (C, C) of the effects of this size.
        """
        self.space, self.scale, self.assignments, self.values = space, scale, evidence.assignments, evidence.values
        self.group = _groups_of(space)
        self.parts = dict(parts)
        self.linearise(design_matrix(space, evidence.assignments))
        # With a single family, the effect of its pairs is the same for all networks and so belongs to the constant.
        families = max(len({family_of(name) for name in slot.choices}) for slot in space.slots)
        # For latencies, pairs of families share a size with pairs of primitives.
        self.varied = np.array([mixed, mixed, mixed and families > 1 and scale == "logit", mixed])
        self.noise = evidence.errors**2 + _LEAST_NOISE**2
        self.groups, self.last = len(space.slots), _MISFITS + len(self.parts)
        usual = np.log([_USUAL_MISFIT] * _MISFITS + [_USUAL[name] for name in parts]) - 0.5 * math.log(self.groups)
        self.start = np.concatenate([usual, np.zeros(self.groups)])
        spread = np.concatenate([np.full(self.last, _SPREAD), np.full(self.groups, _GROUP_SPREAD)])
        self.weights = 1 / spread**2
        self.weights[:_MISFITS][self.varied] = 0.0  # their prior is half normal; other misfits are ignored

    def linearise(self, design: Floats) -> None:
        """Describe the measured networks as sums of effects, by a design (N, 1 + C)."""
        self.design, self.pairs = design, shared_pairs(self.space, self.scale, (self.assignments, design))

    def shared(self, networks: Networks) -> Floats:
        """The covariances, for misfits of size 1, between networks and the measured ones: (misfits, M, N)."""
        return shared_pairs(self.space, self.scale, networks, (self.assignments, self.design))

    def prior(self, sizes: Floats) -> Floats:
        """The covariance of the effects."""
        return np.asarray(np.sum(self._terms(sizes), axis=0))

    def _terms(self, sizes: Floats) -> list[Floats]:
        """The share of each part in the covariance of the effects."""
        scale = np.exp(sizes[self.last :])[self.group]
        outer = np.outer(scale, scale)
        return [
            math.exp(2 * size) * part * outer
            for size, part in zip(sizes[_MISFITS : self.last], self.parts.values(), strict=True)
        ]

    def _slopes(self, sizes: Floats, prior: Floats) -> list[Floats]:
        """The derivatives of the covariance of the effects with respect to all log sizes except those of misfits."""
        slopes = [2 * term for term in self._terms(sizes)]
        for g in range(self.groups):
            own = (self.group == g).astype(np.float64)
            slopes.append(prior * (own[:, None] + own[None, :]))
        return slopes

    def covariance(self, sizes: Floats, prior: Floats) -> Floats:
        """The covariance of the measured values, without the constant."""
        effects = self.design[:, 1:]
        whole = effects @ prior @ effects.T + self.misfits(sizes, self.pairs)
        whole[np.diag_indices_from(whole)] += self.noise
        return np.asarray(whole)

    def misfits(self, sizes: Floats, shared: Floats) -> Floats:
        """The covariance of all misfits together, from their covariances for size 1 (misfits, N, M). Misfits that no
        network shows count as 0.
        """
        return np.asarray(np.tensordot(self.misfit(sizes) ** 2, shared, axes=1))

    def alone(self, sizes: Floats, networks: Networks) -> Floats:
        """The variance of each network's misfit (M,)."""
        kinds = [kind.variances() for kind in _pairs(self.space, self.scale, networks)]
        return np.asarray(self.misfit(sizes) ** 2 @ np.array([*kinds, np.ones(len(networks[0]))]))

    def misfit(self, sizes: Floats) -> Floats:
        """The standard deviation of each misfit."""
        return np.where(self.varied, np.exp(sizes[:_MISFITS]), 0.0)

    def best(self, start: Floats) -> tuple[Floats, Floats]:
        """The log sizes with the largest penalised likelihood, and the curvature at that point."""
        sizes, damping = start.copy(), 1e-3
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
        return sizes, curvature

    def _score(self, sizes: Floats) -> tuple[float, Floats, Floats]:
        """The penalised likelihood, its gradient, and its expected curvature."""
        prior = self.prior(sizes)
        slopes = self._slopes(sizes, prior)
        effects = self.design[:, 1:]
        score, projected, pulled = self._likely(sizes, prior)
        back, crossed = effects.T @ pulled, effects.T @ projected @ effects
        products = [crossed @ slope for slope in slopes]
        slope, curvature = np.zeros(len(sizes)), np.zeros((len(sizes), len(sizes)))
        first = _MISFITS
        slope[first:] = [
            0.5 * (back @ part @ back - np.trace(product)) for part, product in zip(slopes, products, strict=True)
        ]
        curvature[first:, first:] = [[0.5 * float((a * b.T).sum()) for b in products] for a in products]
        spreads = {k: projected @ self.pairs[k] for k in np.flatnonzero(self.varied)}
        for k, spread in spreads.items():
            variance = 2 * self.misfit(sizes)[k] ** 2
            slope[k] = 0.5 * variance * (float(pulled @ self.pairs[k] @ pulled) - float(np.trace(spread)) - 1) + 1
            between = effects.T @ spread @ projected @ effects
            curvature[k, first:] = curvature[first:, k] = [
                0.5 * variance * float((between * part).sum()) for part in slopes
            ]
            for other, another in spreads.items():
                crossing = 2 * self.misfit(sizes)[other] ** 2 * float((spread * another.T).sum())
                curvature[k, other] = 0.5 * variance * crossing
            curvature[k, k] += variance
        slope -= self.weights * (sizes - self.start)
        return score, slope, np.asarray(curvature + np.diag(self.weights), dtype=np.float64)

    def _likely(self, sizes: Floats, prior: Floats) -> tuple[float, Floats, Floats]:
        """The penalised likelihood, the matrix that turns values into residuals, and the residuals."""
        inverse = np.linalg.inv(self.covariance(sizes, prior))
        ones = inverse.sum(axis=1)
        total = float(ones.sum())
        projected = inverse - np.outer(ones, ones) / total
        pulled = projected @ self.values
        score = 0.5 * (float(np.linalg.slogdet(inverse)[1]) - math.log(total) - float(self.values @ pulled))
        score -= 0.5 * float((self.weights * (sizes - self.start) ** 2).sum())
        looked_at = sizes[:_MISFITS][self.varied]
        score += float(np.sum(looked_at - 0.5 * np.exp(2 * looked_at)))
        return score, projected, np.asarray(pulled)

    def left_out(self, sizes: Floats) -> tuple[Floats, Floats]:
        """The difference between each value and its prediction from all others, or NaN if they predict nothing, and
        the precision of each prediction.
        """
        projected, pulled = self._likely(sizes, self.prior(sizes))[1:]
        alone = np.diag(projected)
        tells = alone > _TELLS * float(np.diag(np.linalg.inv(self.covariance(sizes, self.prior(sizes)))).max())
        return np.divide(pulled, alone, out=np.full(len(alone), np.nan), where=tells), alone

    def looseness(self, sizes: Floats) -> float:
        """The factor by which the errors of left-out networks exceed the model's own errors; at least 1."""
        off, precision = self.left_out(sizes)
        tells = np.isfinite(off)
        return max(1.0, float(np.sqrt(np.mean(off[tells] ** 2 * precision[tells])))) if tells.any() else 1.0

    def sampled(self, middle: Floats, doubt: Floats, count: int, rng: np.random.Generator) -> Floats:
        """Draws (count, sizes) of log sizes, given the most likely ones and a square root of their covariance.

        The draws are made by elliptical slice sampling around this normal approximation, which corrects it for sizes
        with a long tail (Murray, Adams and MacKay, "Elliptical slice sampling", 2010; Nishihara, Murray and Adams,
        "Parallel MCMC with generalized elliptical slice sampling", 2014).
        """
        precision = np.linalg.inv(doubt @ doubt.T)

        def excess(away: Floats) -> float:
            sizes = middle + away
            if sizes.max() > _LARGEST:  # beyond this, the priors have no influence and covariances are singular
                return -math.inf
            return self._likely(sizes, self.prior(sizes))[0] + 0.5 * float(away @ precision @ away)

        away, samples = np.zeros(len(middle)), []
        level = excess(away)
        for step in range(1 - _FORGOTTEN, 1 + count * _APART):
            other, least = doubt @ rng.standard_normal(len(middle)), level - rng.exponential()
            angle = rng.uniform(0, 2 * math.pi)
            low, high = angle - 2 * math.pi, angle
            while True:
                tried = away * math.cos(angle) + other * math.sin(angle)
                level = excess(tried)
                if level >= least:
                    break
                low, high = (angle, high) if angle < 0 else (low, angle)
                angle = rng.uniform(low, high)
            away = tried
            if step > 0 and step % _APART == 0:
                samples.append(middle + away)
        return np.array(samples)

    def posterior(self, sizes: Floats) -> tuple[Floats, Floats]:
        """The covariance of the constant and the effects, and the matrix (1 + C, N) that gives their mean from the
        values.
        """
        whole, crossed, covariance = self.joint(sizes)
        gain = np.linalg.solve(covariance, crossed.T).T
        left = whole - gain @ crossed.T
        return np.asarray((left + left.T) / 2), np.asarray(gain)

    def drawn(
        self, sizes: Floats, networks: Networks, shared: Floats, count: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Possible true constants and effects under these sizes (count, 1 + C), and misfits of networks (count, M).

        `shared` (misfits, M, N) are the covariances of the networks with the measured ones.

        First all effects, including those of pairs, are drawn from the prior, and noise like that of the measurements
        is added. Then each draw is corrected by its difference from the measurements (Matheron's rule: Journel and
        Huijbregts, "Mining Geostatistics", 1978).
        """
        whole, crossed, covariance = self.joint(sizes)
        root = _root(whole[1:, 1:])
        effects = np.zeros((count, len(whole)))
        effects[:, 1:] = rng.standard_normal((count, len(root))) @ root
        effects[:, 0] = _WIDE * rng.standard_normal(count)
        rows, design = networks
        both = np.concatenate([self.assignments, rows]), np.concatenate([self.design, design])
        drawn = _drawn_pairs(self.space, self.scale, both, self.misfit(sizes), count, rng)
        here, there = np.split(drawn, [len(self.values)], axis=1)
        noise = rng.standard_normal((count, len(self.values))) * np.sqrt(self.noise)
        off = self.values - effects @ self.design.T - here - noise
        pull = np.linalg.solve(covariance, off.T)
        return np.asarray(effects + (crossed @ pull).T), np.asarray(there + (self.misfits(sizes, shared) @ pull).T)

    def joint(self, sizes: Floats) -> tuple[Floats, Floats, Floats]:
        """The prior covariances of the constant and the effects, of these with the values, and of the values."""
        prior = self.prior(sizes)
        whole = np.zeros((len(prior) + 1, len(prior) + 1))
        whole[0, 0], whole[1:, 1:] = _WIDE**2, prior
        crossed = whole @ self.design.T
        return whole, crossed, self.design @ crossed + self.covariance(sizes, np.zeros_like(prior))


def _root(covariance: Floats) -> Floats:
    """The symmetric square root of a covariance."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pairs:
    """The pairs of primitives in networks, as numbers (N, pairs), and the weight of each pair.

    Each number identifies an effect. With `anywhere` the effect is the same in all places, otherwise it belongs to one
    place.
    """

    numbers: Ints
    counts: Floats
    anywhere: bool

    def shared(self, other: _Pairs) -> Floats:
        """The covariances (N, M) with other networks, for effects of size 1."""
        others = np.unique(other.numbers)
        theirs = np.zeros((len(others) + 1, len(other.numbers)))  # the last row is for effects that `other` lacks
        for numbers, counts in zip(other.numbers.T, other.counts.T, strict=True):
            theirs[np.searchsorted(others, numbers), np.arange(len(numbers))] += counts
        rows = np.where(np.isin(self.numbers, others), np.searchsorted(others, self.numbers), len(others))
        total = sum(theirs[row] * counts[:, None] for row, counts in zip(rows.T, self.counts.T, strict=True))
        return np.asarray(total / self.numbers.shape[1])

    def variances(self) -> Floats:
        """The variance of each network's sum of effects of size 1: (N,)."""
        if not self.anywhere:
            return np.asarray((self.counts**2).mean(axis=1))
        same = self.numbers[:, :, None] == self.numbers[:, None, :]
        shared = np.einsum("na,nab,nb->n", self.counts, same, self.counts)
        return np.asarray(shared / self.counts.shape[1])

    def drawn(self, count: int, rng: np.random.Generator) -> Floats:
        """The sums, for each network, of random effects of size 1: (count, N)."""
        which = np.unique(self.numbers, return_inverse=True)[1].reshape(self.numbers.shape)
        effects, sums = rng.standard_normal((count, which.max() + 1)), np.zeros((count, len(which)))
        for place, counts in enumerate(self.counts.T):
            sums += effects[:, which[:, place]] * counts
        return np.asarray(sums / math.sqrt(self.counts.shape[1]))


def _pairs(space: Space, scale: Scale, networks: Networks) -> list[_Pairs]:
    """The pairs of each misfit except that of whole networks. A single cell group forms a pair with itself."""
    groups = [g for g, slot in enumerate(space.slots) if len(slot.choices) > 1] or [0]
    every = list(combinations(groups, 2)) or [(groups[0], groups[0])]
    near = list(pairwise(groups)) or every
    names = [name for slot in space.slots for name in slot.choices]
    first = np.cumsum([0, *(len(slot.choices) for slot in space.slots)])[:-1]
    shares = np.add.reduceat(networks[1][:, 1:], first, axis=1)
    shares = shares / shares.mean(axis=1, keepdims=True)

    def pairs(places: list[tuple[int, int]], names: list[str], *, anywhere: bool) -> _Pairs:
        own = np.unique(names, return_inverse=True)[1][first + networks[0]]
        left, right = (list(side) for side in zip(*places, strict=True))
        apart = 0 if anywhere else np.arange(len(places))
        numbers = (apart * len(names) + own[:, left]) * len(names) + own[:, right]
        return _Pairs(numbers=numbers, counts=(shares[:, left] + shares[:, right]) / 2, anywhere=anywhere)

    kin, placed = [family_of(name) for name in names], pairs(near, names, anywhere=False)
    if scale == "logit":
        return [placed, pairs(every, names, anywhere=False), pairs(every, kin, anywhere=False)]
    named, akin = pairs(near, names, anywhere=True), pairs(near, kin, anywhere=True)
    numbers = np.concatenate([named.numbers, akin.numbers + len(names) ** 2], axis=1)
    return [placed, replace(named, numbers=numbers, counts=np.tile(named.counts, 2)), akin]


def shared_pairs(space: Space, scale: Scale, networks: Networks, others: Networks | None = None) -> Floats:
    """The covariances (misfits, N, M) between the misfits of networks and of others, for misfits of size 1."""
    theirs = networks if others is None else others
    both = zip(_pairs(space, scale, networks), _pairs(space, scale, theirs), strict=True)
    alike = (networks[0][:, None] == theirs[0]).all(axis=2)
    return np.array([*(own.shared(other) for own, other in both), alike])


def _drawn_pairs(
    space: Space, scale: Scale, networks: Networks, sizes: Floats, count: int, rng: np.random.Generator
) -> Floats:
    """Random misfits of these sizes: of pairs of cell groups, and of each network as a whole."""
    kinds = _pairs(space, scale, networks)
    sums = sum(size * kind.drawn(count, rng) for size, kind in zip(sizes[:-1], kinds, strict=True))
    different, which = np.unique(networks[0], axis=0, return_inverse=True)
    return np.asarray(sums + sizes[-1] * rng.standard_normal((count, len(different)))[:, which.ravel()])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Effects:
    """The posterior of the effects: normal, with `mean` (1 + C,) and `covariance` (1 + C, 1 + C).

    The constant comes first, then the choices of the first group, of the second, and so on. `scale` says whether the
    effects are logits or logarithms of costs. `sizes` are the standard deviations of the parts; that of "misfit", the
    part that no sum explains, is relative for "sums", and 0 if the measured networks cannot show it.
    """

    space: Space
    scale: Scale
    mean: Floats
    covariance: Floats
    sizes: dict[str, float]

    def draw(self, count: int, *, seed: int) -> tuple[Floats, ...]:
        """Draw costs or effects from the posterior: one array (count, choices) for each group. The price of a network
        is the sum over its choices.
        """
        root = _root(self.covariance)
        # Noise is assigned by name. The root is symmetric, so the order of groups and choices does not change a draw.
        names = [(slot.name, name) for slot in self.space.slots for name in slot.choices]
        order = [0, *(1 + place for place in sorted(range(len(names)), key=names.__getitem__))]
        noise = np.empty((count, len(self.mean)))
        noise[:, order] = np.random.default_rng(seed).standard_normal((count, len(self.mean)))
        return self.tables(self.mean + noise @ root)

    def tables(self, effects: Floats) -> tuple[Floats, ...]:
        """One array (K, choices) for each group, from K vectors (K, 1 + C) of effects. The price of a network is the
        sum over its choices.

        The constant of logits is spread evenly over the groups; the constant of costs is in each cost.
        """
        ends = np.cumsum([len(slot.choices) for slot in self.space.slots])
        parts = np.split(effects[:, 1:], ends[:-1], axis=1)
        if self.scale == "sums":
            return tuple(np.exp(effects[:, :1] + part) for part in parts)
        return tuple(effects[:, :1] / len(self.space.slots) + part for part in parts)

    def totals(self, effects: Floats, networks: Ints) -> Floats:
        """The sums of networks (M, groups) under vectors (K, 1 + C) of the constant and effects: (K, M)."""
        tables = self.tables(effects)
        return np.asarray(np.sum([table[:, networks[:, g]] for g, table in enumerate(tables)], axis=0))

    def design(self, networks: Ints) -> Floats:
        """The weights (N, 1 + C) of the constant and of each effect in networks (N, groups).

        For costs, the weight of an effect is the share of its cost in the sum of all costs.
        """
        matrix = design_matrix(self.space, networks)
        if self.scale == "sums":
            matrix[:, 1:] *= np.concatenate(self.tables(self.mean[None]), axis=1)
            matrix[:, 1:] /= matrix[:, 1:].sum(axis=1, keepdims=True)
        return matrix


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Learned:
    """The effects of a price, and the rest of the posterior of networks. Made by `learn`.

    `loose` is the factor by which intervals must be wider than the model's; it is found by leaving out each measured
    network in turn.
    """

    effects: Effects
    likelihood: Likelihood = field(repr=False)
    sizes: Floats
    doubt: Floats
    gain: Floats = field(repr=False)
    unit: float
    center: float
    loose: float

    def predict(self, networks: NDArray[np.integer] | Sequence[Sequence[int]]) -> tuple[Floats, Floats, Floats]:
        """Predicted prices of networks (N, groups), and the ends of their 95 % intervals, on the scale of the measured
        values.

        The prediction includes the misfit, as far as measured networks with the same pairs show it.
        """
        rows = np.asarray(networks, dtype=np.intp).reshape(-1, len(self.effects.space.slots))
        own, design = self.likelihood, self.effects.design(rows)
        whole, crossed, covariance = own.joint(self.sizes)
        shared = own.misfits(self.sizes, own.shared((rows, design)))
        both = design @ crossed + shared
        pull = np.linalg.solve(covariance, np.column_stack([own.values, both.T]))
        spread = np.einsum("ni,ij,nj->n", design, whole, design) + own.alone(self.sizes, (rows, design))
        spread = np.maximum(spread - np.einsum("nm,mn->n", both, pull[:, 1:]), 0.0)
        half = _NORMAL_95 * self.loose * self.unit * np.sqrt(spread)
        middle, misfit = self.effects.totals(self.effects.mean[None], rows)[0], self.unit * shared @ pull[:, 0]
        if self.effects.scale == "sums":
            middle = middle * np.exp(misfit)
            return middle, middle * np.exp(-half), middle * np.exp(half)
        middle = middle + misfit
        return expit(middle), expit(middle - half), expit(middle + half)

    def left_out(self) -> Floats:
        """The difference between each measured network (N,) and its prediction from all others, as a logit or a
        logarithm.
        """
        return self.unit * self.likelihood.left_out(self.sizes)[0]

    def draw(self, networks: Ints, count: int, *, seed: int) -> Floats:
        """Possible true prices of networks (M, groups), as logits or latencies: (count, M).

        They include the effects of pairs of primitives and the uncertainty of all sizes, which are therefore drawn
        several times.
        """
        rng, own = np.random.default_rng(seed), self.likelihood
        sure = not self.doubt.any()
        parts = np.array_split(np.arange(count), 1 if sure else min(_SIZES, count))
        every = self.sizes[None] if sure else own.sampled(self.sizes, self.doubt, len(parts), rng)
        design, middle = self.effects.design(networks), self.effects.totals(self.effects.mean[None], networks)
        shared = own.shared((networks, design))
        draws = []
        for sizes, part in zip(every, parts, strict=True):
            effects, misfit = own.drawn(sizes, (networks, design), shared, len(part), rng)
            effects = effects * self.unit
            effects[:, 0] += self.center
            # Costs are linearised as in learning: in a sum, exponentials of distant effects would not cancel.
            away = (effects - self.effects.mean) @ design.T + self.unit * misfit
            draws.append(middle * np.exp(away) if self.effects.scale == "sums" else middle + away)
        return np.concatenate(draws)

    def again(self, count: int, *, seed: int) -> list[Learned]:
        """The posteriors after `count` simulated repeats of the same measurements, with the same sizes."""
        own = self.likelihood
        truth = self._worked(self.draw(own.assignments, count, seed=seed))
        noise = np.random.default_rng([seed, 1]).standard_normal(truth.shape) * np.sqrt(own.noise)
        fits = []
        for values in truth + noise:
            mean = self.gain @ values * self.unit
            mean[0] += self.center
            other = copy.copy(own)
            other.values = values
            fits.append(replace(self, effects=replace(self.effects, mean=mean), likelihood=other, doubt=0 * self.doubt))
        return fits

    def _worked(self, prices: Floats) -> Floats:
        """Prices (K, N) of the measured networks, in the form that the likelihood uses."""
        if self.effects.scale == "logit":
            return (prices - self.center) / self.unit
        return _linear(self.effects, self.likelihood.assignments, prices, self.center) / self.unit


def _linear(effects: Effects, networks: Ints, latencies: Floats, center: float) -> Floats:
    """Latencies (K, N) of networks as sums of shares of effects, linearised around the mean
    effects, minus the center.
    """
    here = effects.mean.copy()
    here[0] -= center
    apart = np.log(latencies) - np.log(effects.totals(effects.mean[None], networks))
    return np.asarray(apart + effects.design(networks) @ here)


def learn_both(space: Space, accuracy: Evidence, latency: Evidence) -> tuple[Learned, Learned]:
    """The posteriors of accuracies, as logits, and of latencies; accuracies may follow latencies."""
    fast = learn(space, latency, scale="sums")
    return learn(space, accuracy, scale="logit", latency=fast.effects), fast


def learn(space: Space, evidence: Evidence, *, scale: Scale, latency: Effects | None = None) -> Learned:
    """The posterior of all networks of a space; effects on accuracy may follow those on `latency`.

    Choices are primitives by name; choices with the same name are the same primitive. Accuracies ("logit") lie between
    0 and 1; an accuracy within 0.001 of either end counts as 0.001 away from it.
    """
    values, errors = evidence.values, evidence.errors
    parts = _parts_of(space)
    if scale == "logit":
        inside = np.clip(values, _FLOOR, 1 - _FLOOR)
        values, errors = np.log(inside / (1 - inside)), errors / (inside * (1 - inside))
        del parts["group"]
        if latency is not None:
            parts["slower"] = np.outer(*[_slower(latency)] * 2)
    else:
        values, errors = np.log(values), errors / values
    # All values are in units of their spread, so that the limits and the weak prior mean the same everywhere.
    unit, chosen = float(values.std()), design_matrix(space, evidence.assignments)
    # If there are more networks than unknowns in the sums, they show the misfit even if they are all similar.
    more = len(values) > np.linalg.matrix_rank(chosen @ chosen.T, hermitian=True)
    mixed = bool(more) or _swaps(evidence.assignments) > 1
    unit = unit if unit > _ROUNDING * float(np.abs(values).max()) else 1.0
    center = float(values.mean()) - (math.log(len(space.slots)) if scale == "sums" else 0.0)
    scaled = replace(evidence, values=(values - center) / unit, errors=errors / unit)
    own = Likelihood(space, scaled, scale=scale, mixed=mixed, parts=parts)
    effects, sizes = _flat(space, evidence.assignments, values, center), own.start
    if scale == "sums":
        effects = _settled(own, sizes, effects, evidence.values, unit, center)
    for _ in range(_RESIZED if scale == "sums" else 1):
        sizes, curvature = own.best(sizes)
        before = effects
        if scale == "sums":
            effects = _settled(own, sizes, effects, evidence.values, unit, center)
        else:
            effects = _effects(own, sizes, scale, unit, center)
        if np.abs(effects.mean - before.mean).max() < _STAYS:
            break
    values, vectors = np.linalg.eigh(curvature)
    return Learned(
        effects=effects,
        likelihood=own,
        sizes=sizes,
        doubt=(vectors / np.sqrt(np.maximum(values, 1e-12))) @ vectors.T,
        gain=own.posterior(sizes)[1],
        unit=unit,
        center=center,
        loose=own.looseness(sizes),
    )


def _settled(
    own: Likelihood, sizes: Floats, effects: Effects, latencies: Floats, unit: float, center: float
) -> Effects:
    """The posterior of costs under these sizes; the likelihood is linearised around them."""
    for _ in range(_LINEARISED):
        own.linearise(effects.design(own.assignments))
        own.values = _linear(effects, own.assignments, latencies[None], center)[0] / unit
        before, effects = effects, _effects(own, sizes, "sums", unit, center)
        if np.abs(effects.mean - before.mean).max() < _STAYS:
            break
        effects = _nearer(own, sizes, before, effects, latencies, unit, center)
    return effects


def _nearer(
    own: Likelihood, sizes: Floats, before: Effects, after: Effects, latencies: Floats, unit: float, center: float
) -> Effects:
    """The effects `after` a step or, if these make the measured latencies less likely than those `before`, the effects
    after a shorter step.
    """
    whole, _, covariance = own.joint(sizes)
    noise = covariance - own.design @ whole @ own.design.T

    def unlikely(mean: Floats) -> float:
        off = (np.log(latencies) - np.log(after.totals(mean[None], own.assignments)[0])) / unit
        here = mean.copy()
        here[0] -= center
        return float(off @ np.linalg.solve(noise, off) + here @ np.linalg.solve(whole, here) / unit**2)

    level, step = unlikely(before.mean), 1.0
    while step > _LEAST_STEP and unlikely(before.mean + step * (after.mean - before.mean)) > level:
        step /= 2
    return replace(after, mean=before.mean + step * (after.mean - before.mean))


def _flat(space: Space, networks: Ints, logs: Floats, center: float) -> Effects:
    """Initial costs: for each choice, the mean of the networks that have it, or of all networks if none has it."""
    chosen = design_matrix(space, networks)[:, 1:]
    often = chosen.sum(axis=0)
    apart = chosen.T @ (logs - logs.mean()) / np.maximum(often, 1.0)
    mean = np.concatenate([[center], apart])
    return Effects(space=space, scale="sums", mean=mean, covariance=np.zeros((len(mean), len(mean))), sizes={})


def _effects(own: Likelihood, sizes: Floats, scale: Scale, unit: float, center: float) -> Effects:
    """The posterior of effects under these sizes."""
    covariance, gain = own.posterior(sizes)
    mean = gain @ own.values * unit
    mean[0] += center
    spreads = dict(zip(own.parts, (unit * np.exp(sizes[_MISFITS : own.last])).tolist(), strict=True))
    spreads["misfit"] = unit * float(np.linalg.norm(own.misfit(sizes)))
    return Effects(space=own.space, scale=scale, mean=mean, covariance=covariance * unit**2, sizes=spreads)


def _parts_of(space: Space) -> dict[str, Floats]:
    """For the name of each size, the covariance (C, C) of the effects of this size."""
    names = np.array([name for slot in space.slots for name in slot.choices])
    families, group = np.array([family_of(str(name)) for name in names]), _groups_of(space)
    alike = {"family": families, "main": names, "own": np.arange(len(names)), "group": group}
    return {name: (kind[:, None] == kind[None, :]).astype(np.float64) for name, kind in alike.items()}


def _groups_of(space: Space) -> Ints:
    """The cell group of each choice."""
    return np.repeat(np.arange(len(space.slots)), [len(slot.choices) for slot in space.slots])


def _slower(latency: Effects) -> Floats:
    """How much slower each choice is than the mean of its group, in standard deviations of the group: (C,).

    All are 0 in a group whose choices differ only by rounding.
    """
    groups = [own - own.mean() for (own,) in latency.tables(latency.mean[None])]
    least = _ROUNDING * max(float(away.std()) for away in groups)
    return np.concatenate([away / away.std() if away.std() > least else 0 * away for away in groups])


def design_matrix(space: Space, assignments: NDArray[np.integer] | Sequence[Sequence[int]]) -> Floats:
    """The design matrix (N, 1 + C): 1 for the constant and for each choice that a network has, otherwise 0."""
    return np.insert(indicators(assignments, [len(slot.choices) for slot in space.slots]), 0, 1.0, axis=1)


def expit(values: Floats) -> Floats:
    """The inverse of the logit, without overflow."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * values)))


def _swaps(assignments: Ints) -> int:
    """The largest number of groups in which a network differs from its nearest center."""
    apart = (assignments[:, None, :] != assignments[None, :, :]).sum(axis=2)
    # A center is a network with several one-change variants, such as the default.
    centers = [int(row) for row in np.flatnonzero((apart <= 1).sum(axis=1) > 2)]
    return int(apart[:, centers].min(axis=1).max()) if centers else assignments.shape[1]


def balanced_design(counts: Sequence[int], networks: int, *, seed: int = 0) -> Int64s:
    """Assignments of shape (networks, slots) in which the choices of a slot occur equally often, give or take one.

    `counts` are the numbers of choices. Of many random balanced tables, the one that determines the effects best is
    used (by the log determinant of the information with a weak prior: Bayesian D-optimality). No network occurs twice
    before all have occurred once. The result depends on the arguments alone.
    """
    rng = np.random.default_rng([seed, networks, *counts])
    best, most = _drawn(rng, counts, networks), -np.inf
    for _ in range(_TRIES):
        table = _drawn(rng, counts, networks)
        score = _information(table, counts) - _repeated(table, counts)
        if score > most:
            best, most = table, score
    return best


def indicators(assignments: Sequence[Sequence[int]] | NDArray[np.integer], counts: Sequence[int]) -> Floats:
    """One column for each choice, 1 if a network has it: shape (networks, sum of counts)."""
    chosen = np.asarray(assignments, np.int64).reshape(-1, len(counts))
    table = np.zeros((len(chosen), int(np.sum(counts))))
    np.put_along_axis(table, chosen + np.cumsum([0, *counts[:-1]]), 1.0, axis=1)
    return table


def _drawn(rng: np.random.Generator, counts: Sequence[int], networks: int) -> Int64s:
    """A random balanced table, in which all networks of a space occur before any is repeated."""
    size = math.prod(counts)
    if size > _ALL or 2 * networks <= size:
        return _distinct(rng, _columns(rng, counts, networks))
    whole, rest = divmod(networks, size)
    every = np.stack(np.unravel_index(np.arange(size), tuple(counts)), axis=1).astype(np.int64)
    parts = [every] * whole
    if 0 < 2 * rest <= size:
        parts.append(_distinct(rng, _columns(rng, counts, rest)))
    elif rest:
        # If most are wanted, those to leave out are drawn as a balanced table, so that the rest is balanced too.
        left_out = _distinct(rng, _columns(rng, counts, size - rest))
        parts.append(np.delete(every, np.ravel_multi_index(tuple(left_out.T), tuple(counts)), axis=0))
    return rng.permutation(np.concatenate(parts), axis=0)


def _distinct(rng: np.random.Generator, table: Int64s) -> Int64s:
    """The table without repeated networks, as far as exchanging choices between networks can achieve this.

    Each column keeps its choices.
    """
    for _ in range(_EXCHANGES * len(table)):
        again = _again(table)
        if not again:
            break
        row, other, slot = rng.choice(again), rng.integers(len(table)), rng.integers(table.shape[1])
        table[[row, other], slot] = table[[other, row], slot]
    return table


def _columns(rng: np.random.Generator, counts: Sequence[int], networks: int) -> Int64s:
    columns = []
    for count in counts:
        levels = np.concatenate([rng.permutation(count) for _ in range(-(-networks // count))])[:networks]
        columns.append(rng.permutation(levels))
    return np.stack(columns, axis=1).astype(np.int64)


def _information(table: Int64s, counts: Sequence[int]) -> float:
    x = np.insert(indicators(table, counts), 0, 1.0, axis=1)
    return float(np.linalg.slogdet(x.T @ x + _RIDGE * np.eye(x.shape[1]))[1])


def _repeated(table: Int64s, counts: Sequence[int]) -> float:
    """The penalty for networks that occur twice, beyond unavoidable repetitions."""
    spare = max(0, len(table) - math.prod(counts))
    return 10.0 * max(0, len(_again(table)) - spare)


def _again(table: Int64s) -> list[int]:
    """The rows that repeat an earlier row. For tables with few rows this is much faster than numpy's functions."""
    first: dict[tuple[int, ...], int] = {}
    return [row for row, network in enumerate(map(tuple, table.tolist())) if first.setdefault(network, row) != row]
