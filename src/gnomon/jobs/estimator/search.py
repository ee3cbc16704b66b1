"""Nets of a space that a user's score likes best, among those that meet a latency bound with enough confidence.

By evolution for any score: aging evolution (Real et al., Regularized Evolution for Image Classifier Architecture
Search, AAAI 2019), where of two nets that miss the bound the one that misses it by fewer deviations is the better.
Exactly for scores that add up over slots: the search space's steps are a chain, a step's state and choice together are
one slot of a cost model, and `gnomon.core.front.front` finds every net that none beats in both score and expected
latency.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gnomon.core.brief import brief
from gnomon.core.cost import CostModel, Objective, PairCost
from gnomon.core.front.front import exact_front
from gnomon.core.space import Slot, Space
from gnomon.errors import InfeasibleError, UsageError
from gnomon.estimate.columns import Floats, Unknown
from gnomon.jobs.estimator.job import SpaceEstimator
from gnomon.jobs.estimator.scores import AdditiveScores, Scores
from gnomon.spaces.features import CountTables, Ints, idle
from gnomon.spaces.loading import draw

Method = Literal["evolution", "exact"]

EVALUATIONS = 10_000
_POPULATION, _TOURNAMENT, _BATCH = 128, 16, 32
_CROSSED = 0.3
_TRIES = 20  # rounds without a new net
_SPARSE = 100  # a space with so many times more assignments than nets is not listed
_MOST_STATES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The bound in seconds, the least probability of meeting it, and how many nets are wanted."""

    bound_s: float
    confidence: float = 0.9
    nets: int = 10

    def __post_init__(self) -> None:
        if not (math.isfinite(self.bound_s) and self.bound_s > 0):
            raise UsageError(f"the bound is {self.bound_s} s", hint="Give a time above 0.")
        if not 0 < self.confidence < 1:
            raise UsageError(f"the confidence {self.confidence} is not a probability", hint="Give 0.9, for instance.")
        if self.nets < 1:
            raise UsageError(f"{self.nets} nets are wanted", hint="Ask for 1 or more.")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundNet:
    """A net with its score, its expected latency with the ends of the interval, and its chance to meet the bound."""

    assignment: tuple[int, ...]
    score: float
    mean_s: float
    low_s: float
    high_s: float
    probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """The best nets, the best first, and how many were looked at.

    With `most_score` no net that meets the bound with that confidence has a higher score (None: nothing is proved).
    """

    method: Method
    nets: tuple[FoundNet, ...]
    evaluations: int
    most_score: float | None = None

    __repr__ = brief


@dataclass(slots=True)
class _Judge:
    """Scores and chances of nets, each net looked at once."""

    made: SpaceEstimator
    scores: Scores
    wanted: Wanted
    known: dict[tuple[int, ...], tuple[float, float, float]] = field(default_factory=dict)

    def look(self, nets: Ints) -> list[tuple[float, float, float]]:
        """(chance in deviations, score, expected time) of canonical assignments."""
        rows = [tuple(net) for net in nets.tolist()]
        new = list(dict.fromkeys(row for row in rows if row not in self.known))
        if new:
            fresh = np.array(new, dtype=np.int64)
            told = self.made.predict(fresh, unknown=Unknown.WIDEN)
            chance = self._deviations(told.mean_s, told.high_s)
            found = zip(new, chance.tolist(), self.scores.of(fresh).tolist(), told.mean_s.tolist(), strict=True)
            self.known.update({row: (z, score, mean) for row, z, score, mean in found})
        return [self.known[row] for row in rows]

    def _deviations(self, mean: Floats, high: Floats) -> Floats:
        half = NormalDist().inv_cdf((1 + self.made.estimator.noise.coverage) / 2)
        found: Floats = (self.wanted.bound_s - mean) / np.maximum((high - mean) / half, 1e-300)
        return found

    @property
    def least(self) -> float:
        """How many deviations below the bound are enough."""
        return NormalDist().inv_cdf(self.wanted.confidence)

    def rank(self, looked: tuple[float, float, float]) -> tuple[bool, float]:
        """Larger is better: nets that meet the bound by their score, the others by how nearly they do."""
        chance, score, _ = looked
        meets = chance >= self.least and score > -math.inf
        return meets, score if meets else min(chance, self.least)

    def best(self) -> tuple[FoundNet, ...]:
        """The best of all that were looked at. InfeasibleError where none meets the bound."""
        meeting = [(net, looked) for net, looked in self.known.items() if self.rank(looked)[0]]
        if not meeting:
            fastest = min(looked[2] for looked in self.known.values())
            raise InfeasibleError(
                f"none of {len(self.known)} nets meets {self.wanted.bound_s:.4g} s with a probability of"
                f" {self.wanted.confidence:g}; the fastest is expected to take {fastest:.4g} s",
                hint="Give a larger bound or a lower confidence, or fit to more nets near the bound.",
            )
        meeting.sort(key=lambda one: (-one[1][1], one[1][2], one[0]))
        chosen = np.array([net for net, _ in meeting[: self.wanted.nets]], dtype=np.int64)
        told = self.made.predict(chosen, unknown=Unknown.WIDEN)
        chances = self.made.probability(chosen, self.wanted.bound_s, unknown=Unknown.WIDEN)
        columns = (told.mean_s, told.low_s, told.high_s, chances)
        return tuple(
            FoundNet(assignment=net, score=looked[1], mean_s=mean, low_s=low, high_s=high, probability=chance)
            for (net, looked), mean, low, high, chance in zip(meeting, *(c.tolist() for c in columns), strict=False)
        )


def search_nets(
    made: SpaceEstimator,
    scores: Scores,
    wanted: Wanted,
    *,
    method: Method = "evolution",
    evaluations: int = EVALUATIONS,
    seed: int = 0,
    watch: Callable[[int], Any] | None = None,
) -> Searched:
    """The best nets within the bound. Deterministic given the seed; `watch` is told the number of nets looked at.

    A space of no more nets than `evaluations` is looked at whole. "exact" needs additive scores and a linear
    estimator. UsageError where it has neither, InfeasibleError where no net meets the bound.
    """
    judge = _Judge(made=made, scores=scores, wanted=wanted)
    if method == "exact":
        return _exact(judge)
    tables = made.described.tables
    if max(tables.nets(), tables.space.size / _SPARSE) <= evaluations:
        judge.look(draw(tables, tables.nets(), seed=seed))
        best = judge.best()
        return Searched(method="evolution", nets=best, evaluations=len(judge.known), most_score=best[0].score)
    _evolve(judge, tables, evaluations, np.random.default_rng(seed), watch)
    return Searched(method="evolution", nets=judge.best(), evaluations=len(judge.known))


def _evolve(
    judge: _Judge,
    tables: CountTables,
    evaluations: int,
    rng: np.random.Generator,
    watch: Callable[[int], Any] | None,
) -> None:
    radices = np.array([len(slot.choices) for slot in tables.space.slots], np.int64)
    most = min(evaluations, tables.nets())
    population = tables.canonical(rng.integers(0, radices, size=(min(_POPULATION, most), len(radices))))
    ranks = [judge.rank(looked) for looked in judge.look(population)]
    fruitless = 0
    while len(judge.known) < most and fruitless < _TRIES:
        count = min(_BATCH, most - len(judge.known))
        children = tables.canonical(_children(population, ranks, radices, count, rng))
        before = len(judge.known)
        ranks += [judge.rank(looked) for looked in judge.look(children)]
        fruitless = fruitless + 1 if len(judge.known) == before else 0
        # The oldest die, however good: what is good is found again, what was lucky is not.
        population = np.concatenate([population, children])[-_POPULATION:]
        ranks = ranks[-_POPULATION:]
        if watch is not None:
            watch(len(judge.known))


def _children(
    population: Ints, ranks: list[tuple[bool, float]], radices: Ints, count: int, rng: np.random.Generator
) -> Ints:
    """Winners of tournaments, some crossed with another winner, each with one slot changed and at times more."""

    def winners() -> Ints:
        drawn = rng.integers(0, len(population), size=(count, _TOURNAMENT))
        return population[[max(row, key=lambda i: ranks[i]) for row in drawn.tolist()]]

    found = winners()
    other = winners()
    crossed = (rng.random(count) < _CROSSED)[:, None] & (rng.random(found.shape) < 0.5)
    found = np.where(crossed, other, found)
    several = np.flatnonzero(radices > 1)
    changed = rng.random(found.shape) < 0.5 / max(len(several), 1)
    if len(several):
        changed[np.arange(count), rng.choice(several, size=count)] = True
    steps = 1 + (rng.random(found.shape) * np.maximum(radices - 1, 1)).astype(np.int64)
    moved: Ints = np.where(changed & (radices > 1), (found + steps) % radices, found)
    return moved


def _exact(judge: _Judge) -> Searched:
    made, scores = judge.made, judge.scores
    if not isinstance(scores, AdditiveScores):
        raise UsageError(
            "the exact search needs scores that add up over slots",
            hint="Give a csv or JSON of scores by slot and choice, or --method evolution.",
        )
    if made.estimator.residual is not None:
        raise UsageError(
            "the estimator has a residual learner, and no exact search", hint="Use --method evolution instead."
        )
    tables = made.described.tables
    model, keys = chain_model(tables, scores, made.estimator.coefficients.mean[2:])
    front = exact_front(model)
    nets = np.zeros((len(front), len(tables.space.slots)), np.int64)
    for column, key in enumerate(keys):
        for slot, values in key.items():
            nets[:, slot] = values[front.assignments[:, column]]
    nets = tables.canonical(nets)
    judge.look(nets)
    return Searched(method="exact", nets=judge.best(), evaluations=len(front), most_score=_most_score(judge, nets))


def _most_score(judge: _Judge, front: Ints) -> float | None:
    """The best score of the front among nets whose expected time could meet the bound if only noise were in doubt."""
    noise = judge.made.estimator.noise
    half = NormalDist().inv_cdf((1 + noise.coverage) / 2)
    possible = []
    for _, score, mean in judge.look(front):
        deviation = noise.width * noise.relative * math.hypot(mean, noise.floor_s) / half
        enough = mean + judge.least * deviation <= judge.wanted.bound_s
        # Below one half, doubt helps to meet the bound: no deviation is the least that helps.
        if enough or judge.least < 0:
            possible.append(score)
    return max(possible) if possible else None


def chain_model(
    tables: CountTables, scores: AdditiveScores, prices: Floats
) -> tuple[CostModel, list[dict[int, NDArray[np.int64]]]]:
    """A space's steps as a cost model of (score lost, seconds): one slot a step that takes a state with a choice.

    Neighbouring steps forbid what does not follow. Returns with it, for each slot of the model, the choice of each
    slot of the space by the model's choice. UsageError where a step has more than 4,096 states and choices.
    """
    by_row = tables.rows.astype(np.float64) @ prices
    radix = [len(slot.choices) for slot in tables.space.slots]
    slots: list[Slot] = []
    costs: list[Floats] = []
    pairs: list[PairCost] = []
    keys: list[dict[int, NDArray[np.int64]]] = []
    reached = np.zeros(1, np.int64)
    before: NDArray[np.int64] | None = None
    for number, step in enumerate(tables.steps):
        choices = step.row.shape[1]
        state, choice = (part.ravel() for part in np.meshgrid(reached, np.arange(choices), indexing="ij"))
        if len(state) > max(_MOST_STATES, choices):
            raise UsageError(
                f"step {number} of the space has {len(state)} states and choices, too many for an exact search",
                hint="Use --method evolution instead.",
            )
        digits: dict[int, NDArray[np.int64]] = {}
        rest = choice
        for slot in step.slots:
            digits[slot], rest = rest % radix[slot], rest // radix[slot]
        counts = ~idle(step)[state]
        gained = sum((np.where(counts, scores.parts[s][d], 0.0) for s, d in digits.items()), np.zeros(len(state)))
        slots.append(Slot(str(number), tuple(map(str, range(len(state))))))
        costs.append(np.stack([gained.max() - gained, by_row[step.row[state, choice]]], axis=1))
        keys.append(digits)
        if before is not None and len(reached) > 1:
            allowed = np.where(before[:, None] == state[None, :], 0.0, np.inf)
            pairs.append(PairCost(number - 1, number, np.repeat(allowed[:, :, None], 2, axis=2)))
        before = step.next_state[state, choice]
        reached = np.unique(before)
    objectives = (Objective("score lost"), Objective("latency", "s"))
    return CostModel(Space(tuple(slots)), objectives, tuple(costs), tuple(pairs), ()), keys
