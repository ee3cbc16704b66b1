"""A model of the costs that is learned from the results and forecasts the costs of other assignments.

Each objective is a Gaussian process over the choices (Rasmussen and Williams, Gaussian Processes for Machine Learning,
2006, algorithm 2.1). Its kernel is that of an analysis of variance (Stitson et al., Support vector regression with
ANOVA decomposition kernels, 1999): each slot has an effect of its own, pairs of slots have a weaker effect, and so on.
In addition, it matters whether a choice's name is used in any slot, because the use of a backend has a price. The
strengths of interactions, of such prices and of noise are chosen from a few values by the marginal likelihood. Costs
that are all positive are modelled by their logarithms. Another model forecasts success, with 1 for a successful run and
0 for a failed run. Candidates of a search are ordered by the expected gain of the front.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Floats
from gnomon.core.space import Space
from gnomon.search.base import Assignment, Cost, names_of

MOST_RESULTS = 160
"""The largest number of results for a fit; if there are more, those nearest to the front are used."""

_INTERACTION = (0.4, 2.0, 6.0)  # the strength for all slots together, before it is divided among them
_USE = (0.0, 1.0)
_NOISE = (1e-3, 3e-2)
_GRID = tuple(itertools.product(_INTERACTION, _USE, _NOISE))
_HOPELESS = 0.25  # at this forecast of success or below, the chance of an assignment counts as 0
_MARGIN = 0.1  # in units of the front's range: how far beyond its worst costs a gain still counts
_TINY = 1e-6
LEAST_RESULTS = 2
_DIGITS = 7  # of gains that are compared: further digits are rounding errors of the machine's linear algebra


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Predicted costs: the median `middle` and the standard deviation `spread` for each assignment (row) and objective.

    If `logarithmic`, both refer to the logarithms of costs. `chance` is the probability that each assignment succeeds:
    1 is certain, 0 is hopeless.
    """

    middle: Floats
    spread: Floats
    logarithmic: bool
    chance: Floats

    def at(self, deviations: Floats) -> Floats:
        """The costs this many standard deviations from the middle, with one number for each objective."""
        values = self.middle + self.spread * deviations
        return np.asarray(np.exp(values) if self.logarithmic else values)


class Features:
    """Assignments of one space as numbers: a 1 for each choice taken, and for each name used in any slot."""

    def __init__(self, space: Space) -> None:
        self.radices = np.array([len(slot.choices) for slot in space.slots], dtype=np.int64)
        self._first = np.concatenate([[0], np.cumsum(self.radices)[:-1]]).astype(np.int64)[: len(self.radices)]
        shared = (name for name, count in names_of(space).items() if count > 1)
        names = {name: number for number, name in enumerate(shared)}
        self.names = len(names)
        self._named = np.zeros((int(self.radices.sum()), self.names))
        for row, name in enumerate(name for slot in space.slots for name in slot.choices):
            if name in names:
                self._named[row, names[name]] = 1.0

    def of(self, assignments: Sequence[Assignment]) -> tuple[Floats, Floats]:
        """The choices taken (N, choices), 0 or 1, and the names used (N, names), -1 or 1."""
        table = np.array(assignments, dtype=np.int64).reshape(len(assignments), len(self.radices))
        taken = np.zeros((len(table), len(self._named)))
        taken[np.arange(len(table))[:, None], table + self._first] = 1.0
        return taken, np.where(taken @ self._named > 0, 1.0, -1.0)


class _Process:
    """A Gaussian process over assignments for one quantity."""

    def __init__(self, features: Features) -> None:
        self._features = features
        self._parts = {strength: _parts(features.radices, strength) for strength in _INTERACTION}
        self._tuned = 0
        self._setting = _GRID[0]

    def fit(self, rows: tuple[Floats, Floats], values: Floats) -> None:
        """Learn values (N,); the strengths are chosen again if there are 10 % more values than at the last choice."""
        self._rows = rows
        self._mean, self._scale = float(values.mean()), float(values.std()) or 1.0
        scaled = (values - self._mean) / self._scale
        if len(values) >= 1.1 * self._tuned:
            self._tuned = len(values)
            kernels = {(first, use): self._kernel(rows, first, use) for first in _INTERACTION for use in _USE}
            self._setting = max(_GRID, key=lambda s: round(_evidence(_noisy(kernels[s[:2]], s[2]), scaled), 9))
        self._inverse = np.linalg.inv(_noisy(self._kernel(rows, *self._setting[:2]), self._setting[2]))
        self._weights = self._inverse @ scaled
        self._variance = (float(scaled @ self._weights) + 0.5) / (len(values) + 0.5)

    def predict(self, wanted: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
        """The mean and the standard deviation for each assignment."""
        across = self._kernel(wanted, *self._setting[:2])
        explained = ((across @ self._inverse) * across).sum(axis=1)
        variance = self._variance * np.maximum(2.0 - explained, 1e-9)
        return self._mean + self._scale * (across @ self._weights), self._scale * np.sqrt(variance)

    def _kernel(self, rows: tuple[Floats, Floats], interaction: float, use: float) -> Floats:
        """The covariance of `rows` with the known results; 2 for an assignment with itself, 1 of it for the mean."""
        equal, apart, whole = self._parts[interaction]
        product = np.exp((rows[0] * equal) @ self._rows[0].T + apart)
        kernel = (product - 1.0) / max(whole - 1.0, 1e-9)
        if self._features.names and use:
            shared = rows[1] @ self._rows[1].T / self._features.names
            kernel = (kernel + use * shared) / (1.0 + use)
        return np.asarray(kernel + 1.0)


def _noisy(kernel: Floats, noise: float) -> Floats:
    """The covariance of the known results, with noise on the diagonal."""
    return kernel + noise * np.eye(len(kernel))


def _evidence(kernel: Floats, scaled: Floats) -> float:
    """The log likelihood of these values under a covariance."""
    lower = np.linalg.cholesky(kernel)
    reached = np.linalg.solve(lower, scaled)
    variance = (float(reached @ reached) + 0.5) / (len(scaled) + 0.5)
    return float(-0.5 * len(scaled) * np.log(variance) - np.log(np.diag(lower)).sum())


def _parts(radices: NDArray[np.int64], asked: float) -> tuple[Floats, float, float]:
    """The parts of a kernel with this strength.

    They are the contribution of each choice that two assignments share to the logarithm of the kernel's product, this
    logarithm without any shared choice, and the product of an assignment with itself.
    """
    several = radices > 1
    strength = min(0.9, asked / max(int(several.sum()), 1))
    apart = np.where(several, np.log1p(-strength / np.where(several, radices - 1, 1)), 0.0)
    equal = np.where(several, np.log1p(strength), 0.0) - apart
    return np.repeat(equal, radices), float(apart.sum()), float(np.exp(np.log1p(strength) * several.sum()))


class Surrogate:
    """Learns from results and forecasts others."""

    def __init__(self, space: Space) -> None:
        self._features = Features(space)
        self._processes: list[_Process] = []
        self._chance = _Process(self._features)

    def fit(self, results: Mapping[Assignment, Cost | None]) -> None:
        """Learn the results, at least one of which is a success."""
        succeeded = [(a, c) for a, c in results.items() if c is not None]
        costs = np.array([c for _, c in succeeded])
        kept = _nearest(costs)
        self._logarithmic = bool((costs > 0).all())
        values = np.log(costs[kept]) if self._logarithmic else costs[kept]
        rows = self._features.of([succeeded[i][0] for i in kept])
        if not self._processes:
            self._processes = [_Process(self._features) for _ in range(costs.shape[1])]
        for process, column in zip(self._processes, values.T, strict=True):
            process.fit(rows, column)
        self._failures = len(results) > len(succeeded)
        if self._failures:
            latest = list(results.items())[-MOST_RESULTS:]
            outcomes = np.array([float(c is not None) for _, c in latest])
            self._chance.fit(self._features.of([a for a, _ in latest]), outcomes)

    def forecast(self, assignments: Sequence[Assignment]) -> Forecast:
        """The predicted cost of each of these assignments, and the probability that it succeeds."""
        wanted = self._features.of(assignments)
        columns = [process.predict(wanted) for process in self._processes]
        chance = np.ones(len(assignments))
        if self._failures:
            expected = self._chance.predict(wanted)[0]
            chance = np.clip((expected - _HOPELESS) / (1 - _HOPELESS), 0.0, 1.0)
        return Forecast(
            middle=np.stack([mean for mean, _ in columns], axis=1),
            spread=np.stack([deviation for _, deviation in columns], axis=1),
            logarithmic=self._logarithmic,
            chance=chance,
        )


def _nearest(costs: Floats) -> list[int]:
    """The rows to learn from, in their order: all, or those that the fewest others dominate."""
    if len(costs) <= MOST_RESULTS:
        return list(range(len(costs)))
    order = np.argsort(np.argsort(costs, axis=0, kind="stable"), axis=0, kind="stable") / len(costs)
    beaten = np.array([(order <= row).all(axis=1).sum() for row in order])
    return sorted(np.argsort(beaten, kind="stable")[:MOST_RESULTS].tolist())


def expected_gain(front: Floats, span: Floats, forecast: Forecast) -> Floats:
    """The mean gain of each forecast (rows) over a front (N, objectives), given its uncertainty.

    With two objectives the gain is the newly dominated area, up to a margin beyond the front. With any other number of
    objectives it is the distance from the region that the front dominates (the maximin improvement of Svenson and
    Santner, Multiobjective optimization of expensive-to-evaluate deterministic computer simulator models, 2016). Both
    are in units of the front's range; `span` (objectives,) replaces a range of 0, such as that of a single point. The
    mean is computed by a cubature of degree 3. If no forecast promises a gain, all values are negative: the farther a
    forecast falls short at its lower end and the likelier it is to fail, the lower its value.
    """
    low = front.min(axis=0)
    reach = np.ptp(front, axis=0)
    scale = np.where(reach > 0, reach, np.where(span > 0, span, 1.0))
    scaled = (front - low) / scale
    objectives = front.shape[1]
    steps = np.concatenate([np.eye(objectives), -np.eye(objectives)]) * np.sqrt(objectives)
    gain = np.zeros(len(forecast.middle))
    for step in steps:
        costs = (forecast.at(step) - low) / scale
        gain += _volume(scaled, costs) if objectives == 2 else np.maximum(_ahead(scaled, costs), 0.0)
    gain *= forecast.chance / len(steps)
    if gain.max(initial=0.0) >= _TINY:
        return gain
    likely = (forecast.at(-np.ones(objectives)) - low) / scale
    return np.minimum(_ahead(scaled, likely), 0.0) - 2.0 * (1.0 - forecast.chance) - 1.0


def _volume(front: Floats, costs: Floats) -> Floats:
    """The area that each row of `costs` adds to a front of two objectives."""
    ordered = front[np.argsort(front[:, 0], kind="stable")]
    corner = front.max(axis=0) + _MARGIN
    # Between two neighbours of the front the area ends at the second cost of the left one.
    left = np.concatenate([[-np.inf], ordered[:, 0]])
    right = np.concatenate([ordered[:, 0], corner[:1]])
    top = np.concatenate([corner[1:], ordered[:, 1]])
    width = np.maximum(right - np.maximum(left, costs[:, :1]), 0.0)
    return np.asarray((width * np.maximum(top - costs[:, 1:], 0.0)).sum(axis=1))


def _ahead(front: Floats, costs: Floats) -> Floats:
    """The lead of each row of `costs` over the nearest point of the front, in its best objective; negative for
    dominated rows.
    """
    nearest = np.full(len(costs), np.inf)
    for point in front:
        nearest = np.minimum(nearest, (point - costs).max(axis=1))
    return nearest


class Guide:
    """The model that a search has learned for a space; it depends only on the results and their order."""

    def __init__(self, space: Space) -> None:
        self._model = Surrogate(space)
        self._results: dict[Assignment, Cost | None] = {}
        self._succeeded = 0
        self._fitted = 0

    def learn(self, assignment: Assignment, cost: Cost | None) -> None:
        """Accept a result; of several results for one assignment, the first counts."""
        if assignment not in self._results:
            self._results[assignment] = cost
            self._succeeded += cost is not None

    @property
    def ready(self) -> bool:
        """Whether enough assignments succeeded for a forecast."""
        return self._succeeded >= LEAST_RESULTS

    def best(self, candidates: Sequence[Assignment], front: Sequence[Cost], count: int) -> list[Assignment]:
        """The `count` most promising candidates, the best first, once the guide is `ready`.

        The gain of each candidate is computed over the front and the forecasts of the candidates chosen before it (the
        kriging believer of Ginsbourger, Le Riche and Carraro, 2010). Of equal candidates, the first is chosen.
        """
        if self._fitted < len(self._results):
            self._fitted = len(self._results)
            self._model.fit(self._results)
        forecast = self._model.forecast(candidates)
        believed = forecast.at(np.zeros(forecast.middle.shape[1]))
        costs = np.array([c for c in self._results.values() if c is not None])
        span = np.ptp(costs, axis=0)
        points = np.array(front)
        open_ = np.ones(len(candidates), dtype=bool)
        chosen: list[Assignment] = []
        while len(chosen) < min(count, len(candidates)):
            gains = expected_gain(points, span, forecast).round(_DIGITS)
            number = int(np.argmax(np.where(open_, gains, -np.inf)))
            open_[number] = False
            chosen.append(candidates[number])
            points = np.concatenate([points, believed[number : number + 1]])
        return chosen
