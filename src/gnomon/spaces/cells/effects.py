"""What each primitive of each cell group adds to a price, learned from a few networks, with what is left unknown.

The price of a network is taken as a constant and one effect a cell group. The effect of primitive p in group g is
``scale_g * (family_p + main_p + own_gp)``, all three normal with mean 0: a hierarchical model, in which an effect that
is measured badly is pulled towards that of the same primitive in other groups, and that towards its family's. Their
sizes, a scale of each group among them, are those that make the measurements most likely, under a weak prior that keeps
them finite (empirical Bayes: Efron and Morris, "Data analysis using Stein's estimator and its generalizations", 1975).

Nothing asks for one-change variants: any networks will do, and what they leave open shows in the covariance.

The effects on accuracy may have a part more, where those on latency are known: a slower block is often the more
accurate one. By how much, if at all, is one more size.

What no sum of effects explains, the misfit, is taken as effects of pairs: for each two cell groups one of each two
primitives, all normal and of one size. Over the primitives of either group they add up to nothing, as what does not is
an effect already (functional analysis of variance: Durrande, Ginsbourger, Roustant and Carraro, "ANOVA kernels and RKHS
of zero mean functions for model-based sensitivity analysis", 2013). The best of many networks owe something to the
misfit, so that what is said of a front has to know it (`Learned.draw`).

Accuracy is modelled on the logit scale: there effects add up without leaving 0 to 1, a gain near 1 is as hard as it is,
and no Pareto front changes, as the logit rises with accuracy. Latency is a sum of its parts, hence additive as it is,
after division by a reference that frees it of its unit; its errors are relative.

`Likelihood` finds the sizes of the parts: the restricted likelihood of a normal model with one constant, climbed by
Fisher scoring (Patterson and Thompson, "Recovery of inter-block information when block sizes are unequal", 1971), under
a weak prior on the logarithm of each size, which keeps sizes finite that the measurements leave open. The misfit's is
half normal, as wide as the values spread: it may be nothing or all, and measurements alone speak against either
(Gelman, "Prior distributions for variance parameters in hierarchical models", 2006).

`balanced_design` draws the networks that tell the most about each choice. In a table of one-change variants a network
says something of one choice; in a balanced design, with every primitive equally often in each cell group, it says
something of as many as there are cell groups, so that the same trainings tell effects far more closely (Fisher, "The
Design of Experiments", 1935; Box, Hunter and Hunter, "Statistics for Experimenters", 2005). Columns are as little
correlated as a search over random balanced ones finds.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats, Ints
from gnomon.core.space import Space
from gnomon.spaces.cells.primitives import parse_name
from gnomon.spaces.features import Ints as Int64s

Scale = Literal["plain", "logit"]
PARTS = ("misfit", "family", "main", "own", "slower")
"""The parts whose sizes are estimated, before the scale of each group."""

_USUAL = (0.15, 1.0, 0.5, 0.5, 0.5)  # where the search for sizes begins, and the middle of the weak prior on effects
_SPREAD = 1.0  # standard deviation of the weak prior on the logarithm of each size of effects
_SIZES = 20  # so many times sizes are drawn among draws of networks
_FORGOTTEN, _APART = 20, 5  # steps before the first drawn sizes, and from one to the next
_GROUP_SPREAD = 0.5  # and on that of a group's scale, about 1
_LEAST_NOISE = 1e-4  # of the spread of the values: what is told to be exact must not make the sums singular
_WIDE = 1e2  # prior standard deviation of the constant, in the spread of the values
_ROUNDS = 40
_STEP = 1.0  # the most that a logarithm changes in a round
_ENOUGH = 1e-7  # a round that gains less is the last
_FLOOR = 1e-3  # accuracies nearer to 0 or 1 than this are taken as this: their logit would be anything
_NORMAL_95 = 1.959964
_TRIES = 200  # random tables of which a design is the best
_RIDGE = 0.1  # the weak prior of a design's information
_ALL = 4096  # for a design a space of no more networks than this is written out
_EXCHANGES = 50  # a network that is there twice in a design is changed so often at most, on average


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evidence:
    """Networks (N, groups) as indices of a space's choices, what they cost (N,), and its standard errors (N,)."""

    assignments: Ints
    values: Floats
    errors: Floats


class Likelihood:
    """The restricted likelihood of log sizes: of the misfit, of each part of the effects, and of each group's scale."""

    def __init__(self, space: Space, known: Evidence, *, mixed: bool, slower: Floats | None) -> None:
        """Of evidence in units of its spread; `mixed` if networks tell what no sum of effects explains.

        `slower` (C,) is how much slower each choice is than others of its group, None where that is not looked at.
        """
        names = np.array([name for slot in space.slots for name in slot.choices])
        families = np.array([parse_name(str(name))[0] for name in names])
        self.group = np.repeat(np.arange(len(space.slots)), [len(slot.choices) for slot in space.slots])
        kin = (families[:, None] == families[None, :]).astype(np.float64)
        self.parts = [kin, (names[:, None] == names[None, :]).astype(np.float64), np.eye(len(names))]
        if slower is not None:
            self.parts.append(np.outer(slower, slower))
        self.space, self.assignments, self.values, self.mixed = space, known.assignments, known.values, mixed
        self.design, self.pairs = design_matrix(space, known.assignments), shared_pairs(space, known.assignments)
        self.noise = known.errors**2 + _LEAST_NOISE**2
        self.groups, self.last = len(space.slots), 1 + len(self.parts)
        usual = np.log(_USUAL[: self.last]) - 0.5 * math.log(self.groups)
        self.start = np.concatenate([usual, np.zeros(self.groups)])
        spread = np.concatenate([np.full(self.last, _SPREAD), np.full(self.groups, _GROUP_SPREAD)])
        self.weights = 1 / spread**2
        self.weights[0] = 0.0 if mixed else 1.0  # half normal; where no network tells it is not looked at

    def prior(self, sizes: Floats) -> Floats:
        """The covariance of the effects."""
        return np.asarray(np.sum(self._terms(sizes), axis=0))

    def _terms(self, sizes: Floats) -> list[Floats]:
        """What each part adds to the covariance of the effects."""
        scale = np.exp(sizes[self.last :])[self.group]
        outer = np.outer(scale, scale)
        return [math.exp(2 * size) * part * outer for size, part in zip(sizes[1 : self.last], self.parts, strict=True)]

    def _slopes(self, sizes: Floats, prior: Floats) -> list[Floats]:
        """The derivative of the covariance of the effects by each log size but that of the misfit."""
        slopes = [2 * term for term in self._terms(sizes)]
        for g in range(self.groups):
            own = (self.group == g).astype(np.float64)
            slopes.append(prior * (own[:, None] + own[None, :]))
        return slopes

    def covariance(self, sizes: Floats, prior: Floats) -> Floats:
        """The covariance of the measured values, but for the constant."""
        effects = self.design[:, 1:]
        made = effects @ prior @ effects.T + self.misfit(sizes) ** 2 * self.pairs
        made[np.diag_indices_from(made)] += self.noise
        return np.asarray(made)

    def misfit(self, sizes: Floats) -> float:
        """The standard deviation of what no sum of effects explains; 0 where no network tells."""
        return math.exp(float(sizes[0])) if self.mixed else 0.0

    def best(self) -> tuple[Floats, Floats]:
        """The log sizes of the largest penalised likelihood, and its curvature there."""
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
        slope[1:] = [
            0.5 * (back @ one @ back - np.trace(product)) for one, product in zip(slopes, products, strict=True)
        ]
        curvature[1:, 1:] = [[0.5 * float((a * b.T).sum()) for b in products] for a in products]
        if self.mixed:
            variance, spread = 2 * math.exp(2 * sizes[0]), projected @ self.pairs
            slope[0] = 0.5 * variance * (float(pulled @ self.pairs @ pulled) - float(np.trace(spread)) - 1) + 1
            curvature[0, 0] = 0.5 * variance**2 * float((spread * spread.T).sum()) + variance
            between = effects.T @ spread @ projected @ effects
            curvature[0, 1:] = curvature[1:, 0] = [0.5 * variance * float((between * one).sum()) for one in slopes]
        slope -= self.weights * (sizes - self.start)
        return score, slope, np.asarray(curvature + np.diag(self.weights), dtype=np.float64)

    def _likely(self, sizes: Floats, prior: Floats) -> tuple[float, Floats, Floats]:
        """The penalised likelihood, what makes residuals of values, and these residuals."""
        inverse = np.linalg.inv(self.covariance(sizes, prior))
        ones = inverse.sum(axis=1)
        total = float(ones.sum())
        projected = inverse - np.outer(ones, ones) / total
        pulled = projected @ self.values
        score = 0.5 * (float(np.linalg.slogdet(inverse)[1]) - math.log(total) - float(self.values @ pulled))
        score -= 0.5 * float((self.weights * (sizes - self.start) ** 2).sum())
        if self.mixed:
            score += float(sizes[0]) - 0.5 * math.exp(2 * float(sizes[0]))
        return score, projected, np.asarray(pulled)

    def sampled(self, middle: Floats, doubt: Floats, count: int, rng: np.random.Generator) -> Floats:
        """Log sizes as likely as they are: (count, sizes), from the most likely ones and a root of their covariance.

        By elliptical slice sampling around that normal approximation, which corrects it where a size has a long tail
        (Murray, Adams and MacKay, "Elliptical slice sampling", 2010; Nishihara, Murray and Adams, "Parallel MCMC with
        generalized elliptical slice sampling", 2014).
        """
        precision = np.linalg.inv(doubt @ doubt.T)

        def excess(away: Floats) -> float:
            sizes = middle + away
            return self._likely(sizes, self.prior(sizes))[0] + 0.5 * float(away @ precision @ away)

        away, found = np.zeros(len(middle)), []
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
                found.append(middle + away)
        return np.array(found)

    def posterior(self, sizes: Floats) -> tuple[Floats, Floats]:
        """The covariance of constant and effects, and what makes their mean of the values: (1 + C, N)."""
        whole, crossed, covariance = self._known(sizes)
        gain = np.linalg.solve(covariance, crossed.T).T
        left = whole - gain @ crossed.T
        return np.asarray((left + left.T) / 2), np.asarray(gain)

    def drawn(self, sizes: Floats, networks: Ints, shared: Floats, count: int, rng: np.random.Generator) -> Floats:
        """Values of networks (M, groups) that may be true under these sizes: (count, M).

        `shared` (M, N) is what they share with those that were measured (`shared_pairs`).

        A draw of all effects, those of pairs too, of which nothing is known, with noise as that of the measurements; it
        is corrected by how far it is from them (Matheron's rule: Journel and Huijbregts, "Mining Geostatistics", 1978).
        """
        whole, crossed, covariance = self._known(sizes)
        root = _root(whole[1:, 1:])
        effects = np.zeros((count, len(whole)))
        effects[:, 1:] = rng.standard_normal((count, len(root))) @ root
        effects[:, 0] = _WIDE * rng.standard_normal(count)
        misfit = self.misfit(sizes)
        here, there = (misfit * one for one in _drawn_pairs(self.space, (self.assignments, networks), count, rng))
        noise = rng.standard_normal((count, len(self.values))) * np.sqrt(self.noise)
        off = self.values - effects @ self.design.T - here - noise
        pull = np.linalg.solve(covariance, off.T)
        effects += (crossed @ pull).T
        there += misfit**2 * (shared @ pull).T
        return np.asarray(effects @ design_matrix(self.space, networks).T + there)

    def _known(self, sizes: Floats) -> tuple[Floats, Floats, Floats]:
        """Covariances beforehand: of constant and effects, of these with the values, and of the values."""
        prior = self.prior(sizes)
        whole = np.zeros((len(prior) + 1, len(prior) + 1))
        whole[0, 0], whole[1:, 1:] = _WIDE**2, prior
        crossed = whole @ self.design.T
        return whole, crossed, self.design @ crossed + self.covariance(sizes, np.zeros_like(prior))


def _root(covariance: Floats) -> Floats:
    """The symmetric root of a covariance."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


def shared_pairs(space: Space, assignments: Ints, others: Ints | None = None) -> Floats:
    """How far what pairs add to a network (N, groups) tells what they add to another: correlations (N, M).

    Below 0 where two networks share less than chance has it. One cell group alone is its own pair.
    """
    other = assignments if others is None else others
    total, squares = np.zeros((2, len(assignments), len(other)))
    groups = _open_groups(space)
    for g in groups:
        count = len(space.slots[g].choices)
        alike = np.where(assignments[:, None, g] == other[None, :, g], 1.0, -1 / (count - 1))
        total += alike
        squares += alike**2
    return (total**2 - squares) / (len(groups) * (len(groups) - 1)) if len(groups) > 1 else total


def _drawn_pairs(space: Space, networks: tuple[Ints, Ints], count: int, rng: np.random.Generator) -> list[Floats]:
    """Sums over the pairs of cell groups of what each two primitives add, at random; a network's variance is 1."""
    groups = _open_groups(space)
    pairs = list(combinations(groups, 2)) or [(g, g) for g in groups]
    found = [np.zeros((count, len(rows))) for rows in networks]
    for pair in pairs:
        own = tuple(dict.fromkeys(pair))
        sizes = tuple(len(space.slots[g].choices) for g in own)
        table = rng.standard_normal((count, *sizes)) / math.sqrt(len(pairs))
        for axis, size in enumerate(sizes, 1):
            table = (table - table.mean(axis=axis, keepdims=True)) * math.sqrt(size / (size - 1))
        for one, rows in zip(found, networks, strict=True):
            one += table.reshape(count, -1)[:, np.ravel_multi_index(tuple(rows[:, own].T), sizes)]
    return found


def _open_groups(space: Space) -> list[int]:
    """The cell groups that have a choice."""
    return [g for g, slot in enumerate(space.slots) if len(slot.choices) > 1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Effects:
    """What is believed of the effects: normal, with `mean` (1 + C,) and `covariance` (1 + C, 1 + C).

    The first is the constant, then come the choices of the first group, of the second, and so on. On the scale that
    `scale` names. `sizes` are the standard deviations of the parts "family", "main", "own", "slower" (where latencies
    are known beside) and "misfit", the last of which is what no sum of effects explains (0 unless networks that differ
    in several groups were measured).
    """

    space: Space
    scale: Scale
    mean: Floats
    covariance: Floats
    sizes: dict[str, float]

    def draw(self, count: int, *, seed: int) -> tuple[Floats, ...]:
        """Effects drawn from what is believed, on the scale of the model: an array (count, choices) a group.

        The sum over the groups is a network's price; the constant is spread evenly over them.
        """
        root = _root(self.covariance)
        # Noise goes by names: as the root is symmetric, the order of groups and choices changes no draw.
        names = [(slot.name, name) for slot in self.space.slots for name in slot.choices]
        order = [0, *(1 + place for place in sorted(range(len(names)), key=names.__getitem__))]
        noise = np.empty((count, len(self.mean)))
        noise[:, order] = np.random.default_rng(seed).standard_normal((count, len(self.mean)))
        return self.tables(self.mean + noise @ root)

    def tables(self, effects: Floats) -> tuple[Floats, ...]:
        """Vectors (K, 1 + C) of constant and effects, as an array (K, choices) a group, the constant spread evenly."""
        ends = np.cumsum([len(slot.choices) for slot in self.space.slots])
        even = effects[:, :1] / len(self.space.slots)
        return tuple(part + even for part in np.split(effects[:, 1:], ends[:-1], axis=1))

    def predict(self, assignments: NDArray[np.integer] | Sequence[Sequence[int]]) -> tuple[Floats, Floats, Floats]:
        """The expected value of networks (N, groups) and the ends of its 95 % interval, on the values' own scale."""
        design = design_matrix(self.space, assignments)
        middle = design @ self.mean
        spread = np.einsum("ni,ij,nj->n", design, self.covariance, design) + self.sizes["misfit"] ** 2
        half = _NORMAL_95 * np.sqrt(np.maximum(spread, 0.0))
        if self.scale == "plain":
            return middle, middle - half, middle + half
        return expit(middle), expit(middle - half), expit(middle + half)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Learned:
    """The effects of a price, and all else that is believed of networks. Made by `learn`."""

    effects: Effects
    likelihood: Likelihood = field(repr=False)
    sizes: Floats
    doubt: Floats
    gain: Floats = field(repr=False)
    unit: float
    center: float

    def draw(self, networks: Ints, count: int, *, seed: int) -> Floats:
        """Prices of networks (M, groups) that may be true, on the scale of the model: (count, M).

        With what pairs of primitives add, and with the doubt about all sizes: they are drawn several times.
        """
        rng, own = np.random.default_rng(seed), self.likelihood
        sure = not self.doubt.any()
        parts = np.array_split(np.arange(count), 1 if sure else min(_SIZES, count))
        every = self.sizes[None] if sure else own.sampled(self.sizes, self.doubt, len(parts), rng)
        shared = shared_pairs(own.space, networks, own.assignments)
        drawn = [own.drawn(sizes, networks, shared, len(part), rng) for sizes, part in zip(every, parts, strict=True)]
        return np.asarray(np.concatenate(drawn) * self.unit + self.center)

    def again(self, count: int, *, seed: int) -> list[Learned]:
        """What would be believed if the same networks were measured again, with the same sizes: so many times."""
        own = self.likelihood
        truth = (self.draw(own.assignments, count, seed=seed) - self.center) / self.unit
        noise = np.random.default_rng([seed, 1]).standard_normal(truth.shape) * np.sqrt(own.noise)
        found = []
        for values in truth + noise:
            mean = self.gain @ values * self.unit
            mean[0] += self.center
            other = copy.copy(own)
            other.values = values
            found.append(
                replace(self, effects=replace(self.effects, mean=mean), likelihood=other, doubt=0 * self.doubt)
            )
        return found


def fit_effects(space: Space, evidence: Evidence, *, scale: Scale) -> Effects:
    """The effects of a space's choices on a price; choices are primitives by name, alike where the name is.

    With `scale` "logit" values lie from 0 to 1, and those nearer to an end than 0.001 count as 0.001 from it.
    """
    return learn(space, evidence, scale=scale).effects


def learn_both(space: Space, accuracy: Evidence, latency: Evidence) -> tuple[Learned, Learned]:
    """What is believed of accuracies, as logits, and of latencies; the former may follow the latter."""
    fast = learn(space, latency, scale="plain")
    return learn(space, accuracy, scale="logit", latency=fast.effects), fast


def learn(space: Space, evidence: Evidence, *, scale: Scale, latency: Effects | None = None) -> Learned:
    """As `fit_effects`, with what is believed of whole networks; the effects on `latency` may be followed by these."""
    values, errors = evidence.values, evidence.errors
    if scale == "logit":
        inside = np.clip(values, _FLOOR, 1 - _FLOOR)
        values, errors = np.log(inside / (1 - inside)), errors / (inside * (1 - inside))
    # Everything in units of the spread of the values: the limits and the weak prior then mean the same everywhere.
    unit = float(values.std()) or float(np.abs(values).max()) or 1.0
    center = float(values.mean())
    known = replace(evidence, values=(values - center) / unit, errors=errors / unit)
    mixed = _swaps(evidence.assignments) > 1
    likelihood = Likelihood(space, known, mixed=mixed, slower=None if latency is None else _slower(latency))
    sizes, curvature = likelihood.best()
    covariance, gain = likelihood.posterior(sizes)
    mean = gain @ known.values * unit
    mean[0] += center
    found = {name: math.exp(size) * unit for name, size in zip(PARTS, sizes[: likelihood.last], strict=False)}
    found["misfit"] = found["misfit"] if mixed else 0.0
    values, vectors = np.linalg.eigh(curvature)
    return Learned(
        effects=Effects(space=space, scale=scale, mean=mean, covariance=covariance * unit**2, sizes=found),
        likelihood=likelihood,
        sizes=sizes,
        doubt=(vectors / np.sqrt(np.maximum(values, 1e-12))) @ vectors.T,
        gain=gain,
        unit=unit,
        center=center,
    )


def _slower(latency: Effects) -> Floats:
    """How much slower each choice is than the mean of its group, in standard deviations of the group's: (C,).

    Nothing where a group's choices differ by rounding alone.
    """
    groups = [own - own.mean() for (own,) in latency.tables(latency.mean[None])]
    least = 1e-9 * max(float(away.std()) for away in groups)
    return np.concatenate([away / away.std() if away.std() > least else 0 * away for away in groups])


def design_matrix(space: Space, assignments: NDArray[np.integer] | Sequence[Sequence[int]]) -> Floats:
    """A one for the constant and for each choice that a network takes: (N, 1 + C)."""
    return _with_constant(indicators(assignments, [len(slot.choices) for slot in space.slots]))


def _with_constant(columns: Floats) -> Floats:
    return np.concatenate([np.ones((len(columns), 1)), columns], axis=1)


def expit(values: Floats) -> Floats:
    """The inverse of the logit, without overflow."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * values)))


def _swaps(assignments: Ints) -> int:
    """The largest number of groups in which a network differs from that one which is nearest to all others."""
    apart = (assignments[:, None, :] != assignments[None, :, :]).sum(axis=2)
    # Of each network's nearest relative: one-change variants of a default are one group from it.
    centers = [int(row) for row in np.flatnonzero((apart <= 1).sum(axis=1) > 2)]
    return int(apart[:, centers].min(axis=1).max()) if centers else assignments.shape[1]


def balanced_design(counts: Sequence[int], networks: int, *, seed: int = 0) -> Int64s:
    """Assignments of shape (networks, slots), choice k of a slot as often as any other of it, give or take one.

    `counts` are the numbers of choices. Of many random balanced tables that one is taken under which the effects are
    known best (the log determinant of the information with a weak prior, Bayesian D-optimality). No network is there
    twice before all are there once. Depends on the arguments alone.
    """
    rng = np.random.default_rng([seed, networks, *counts])
    best, most = _drawn(rng, counts, networks), -np.inf
    for _ in range(_TRIES):
        table = _drawn(rng, counts, networks)
        told = _information(table, counts) - _repeated(table, counts)
        if told > most:
            best, most = table, told
    return best


def indicators(assignments: Sequence[Sequence[int]] | NDArray[np.integer], counts: Sequence[int]) -> Floats:
    """A column a choice, 1 where a network has it: shape (networks, sum of counts)."""
    chosen = np.asarray(assignments, np.int64).reshape(-1, len(counts))
    made = np.zeros((len(chosen), int(np.sum(counts))))
    np.put_along_axis(made, chosen + np.cumsum([0, *counts[:-1]]), 1.0, axis=1)
    return made


def _drawn(rng: np.random.Generator, counts: Sequence[int], networks: int) -> Int64s:
    """A random balanced table, all networks of a space before any is there again."""
    size = math.prod(counts)
    if size > _ALL or 2 * networks <= size:
        return _distinct(rng, _columns(rng, counts, networks))
    whole, rest = divmod(networks, size)
    every = np.stack(np.unravel_index(np.arange(size), tuple(counts)), axis=1).astype(np.int64)
    parts = [every] * whole
    if 0 < 2 * rest <= size:
        parts.append(_distinct(rng, _columns(rng, counts, rest)))
    elif rest:
        # Nearly all are drawn by those few that are left out: what is left of a balanced table is balanced too.
        left_out = _distinct(rng, _columns(rng, counts, size - rest))
        parts.append(np.delete(every, np.ravel_multi_index(tuple(left_out.T), tuple(counts)), axis=0))
    return rng.permutation(np.concatenate(parts), axis=0)


def _distinct(rng: np.random.Generator, table: Int64s) -> Int64s:
    """The table, its networks that are there twice changed by exchanging choices with others: columns keep theirs."""
    for _ in range(_EXCHANGES * len(table)):
        again = _again(table)
        if not again:
            break
        one, other, slot = rng.choice(again), rng.integers(len(table)), rng.integers(table.shape[1])
        table[[one, other], slot] = table[[other, one], slot]
    return table


def _columns(rng: np.random.Generator, counts: Sequence[int], networks: int) -> Int64s:
    columns = []
    for count in counts:
        levels = np.concatenate([rng.permutation(count) for _ in range(-(-networks // count))])[:networks]
        columns.append(rng.permutation(levels))
    return np.stack(columns, axis=1).astype(np.int64)


def _information(table: Int64s, counts: Sequence[int]) -> float:
    x = _with_constant(indicators(table, counts))
    return float(np.linalg.slogdet(x.T @ x + _RIDGE * np.eye(x.shape[1]))[1])


def _repeated(table: Int64s, counts: Sequence[int]) -> float:
    """A fine for networks that are there twice, beyond what cannot be helped."""
    spare = max(0, len(table) - math.prod(counts))
    return 10.0 * max(0, len(_again(table)) - spare)


def _again(table: Int64s) -> list[int]:
    """The rows that are there further up already; for tables of some rows much quicker than numpy's own."""
    first: dict[tuple[int, ...], int] = {}
    return [row for row, network in enumerate(map(tuple, table.tolist())) if first.setdefault(network, row) != row]
