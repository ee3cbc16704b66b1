"""What is believed of a study's networks from the lines of its journals: accuracies, with their noise, and rankings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnomon.errors import UsageError
from gnomon.jobs.space_folder import AccuracyRow
from gnomon.jobs.space_methods import METHODS
from gnomon.jobs.space_study import Family, Network, Study
from gnomon.spaces.effects import Effects, Evidence, fit_effects
from gnomon.spaces.features import Floats, Ints
from gnomon.spaces.rank_agreement import kendall_tau

_DRAWS = 60
_NO_NOISE_SEEN = 0.005
"""The standard deviation of an accuracy by the seed where no network was trained twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A network's accuracy: the mean over its trainings, and its standard error by the seed and by the images."""

    network: Network
    accuracy: float
    error: float
    trainings: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ranking:
    """The single swaps of a family by accuracy, the best first, and how much of that order is noise.

    `means` with `lows` to `highs` (95 %) are what is believed of each. `repeatability` is the expected Kendall's tau of
    two such rankings from as much evidence: an order that cannot repeat itself cannot be right. `noise` is the standard
    deviation of one training's accuracy by its seed, None where no network was trained twice.
    """

    family: str
    method: str
    networks: tuple[Network, ...]
    means: Floats
    lows: Floats
    highs: Floats
    repeatability: float
    noise: float | None
    trainings: int

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        rows = zip(self.networks, self.means.tolist(), self.lows.tolist(), self.highs.tolist(), strict=True)
        return {
            "family": self.family,
            "method": self.method,
            "repeatability": self.repeatability,
            "noise": self.noise,
            "trainings": self.trainings,
            "networks": [
                {"id": n.id, "primitives": list(n.primitives), "accuracy": m, "low": lo, "high": hi}
                for n, m, lo, hi in rows
            ],
        }


def method_of(rows: Iterable[AccuracyRow], wanted: str | None) -> str:
    """The method whose rows are used: the wanted one, or the first of METHODS that there is. UsageError without any."""
    there = {row.method for row in rows if row.validation is not None and not row.reason}
    known = [name for name in METHODS if name in there]
    if wanted is None and known:
        return known[0]
    if wanted is None or wanted not in there:
        raise UsageError(
            f"no network was trained{'' if wanted is None else f' by the method {wanted}'}",
            hint=f"Methods with trained networks: {', '.join(known) or 'none; run gnomon space profile first'}.",
        )
    return wanted


def seen_networks(study: Study, rows: Iterable[AccuracyRow], method: str) -> dict[str, Seen]:
    """The networks that a method trained, by id; of a network's stages only the last counts. Failed ones stay out."""
    last = _last(row for row in rows if row.method == method)
    noise = training_noise(last)
    found: dict[str, Seen] = {}
    by_network: dict[str, list[AccuracyRow]] = {}
    for row in last:
        by_network.setdefault(row.network, []).append(row)
    for name, ones in by_network.items():
        mean = float(np.mean([row.validation for row in ones]))
        images = max(row.images for row in ones) or 1
        sampling = math.sqrt(max(mean * (1 - mean), 1e-4) / images)
        error = math.hypot(sampling, (_NO_NOISE_SEEN if noise is None else noise) / math.sqrt(len(ones)))
        found[name] = Seen(network=study.mixed(ones[0].primitives), accuracy=mean, error=error, trainings=len(ones))
    return found


def _last(rows: Iterable[AccuracyRow]) -> list[AccuracyRow]:
    """Of each training of a network from a seed the last stage that did not fail."""
    last: dict[tuple[str, int], AccuracyRow] = {}
    for row in rows:
        if row.validation is not None and not row.reason:
            before = last.get((row.network, row.seed))
            if before is None or row.epochs >= before.epochs:
                last[row.network, row.seed] = row
    return list(last.values())


def training_noise(rows: Iterable[AccuracyRow]) -> float | None:
    """The standard deviation of a training's accuracy by its seed, pooled over networks trained from several seeds.

    Of rows of one method; of a training's stages only the last counts, and failed ones stay out. None where there is
    no such network.
    """
    by_network: dict[str, list[float]] = {}
    for row in _last(rows):
        by_network.setdefault(row.network, []).append(row.validation or 0.0)
    again = [np.array(ones) for ones in by_network.values() if len(ones) > 1]
    if not again:
        return None
    squares = sum(float(((ones - ones.mean()) ** 2).sum()) for ones in again)
    return math.sqrt(squares / sum(len(ones) - 1 for ones in again))


def accuracy_effects(family: Family, seen: Mapping[str, Seen]) -> Effects | None:
    """What each primitive of each cell group does to the accuracy of a family's networks; None without any network."""
    ones = [one for one in seen.values() if one.network.family == family.name]
    if not ones:
        return None
    evidence = Evidence(
        assignments=np.array([one.network.assignment for one in ones]),
        values=np.array([one.accuracy for one in ones]),
        errors=np.array([one.error for one in ones]),
    )
    return fit_effects(family.space.space, evidence, scale="logit")


def ranking(family: Family, seen: Mapping[str, Seen], method: str, noise: float | None) -> Ranking | None:
    """The single swaps of a family in the order of what is believed of them; None where none of it was trained."""
    effects = accuracy_effects(family, seen)
    if effects is None:
        return None
    networks = family.swaps()
    chosen = np.array([n.assignment for n in networks])
    means, lows, highs = effects.predict(chosen)
    order = np.argsort(-means, kind="stable")
    return Ranking(
        family=family.name,
        method=method,
        networks=tuple(networks[k] for k in order),
        means=means[order],
        lows=lows[order],
        highs=highs[order],
        repeatability=_repeatability(effects, chosen),
        noise=noise,
        trainings=sum(one.trainings for one in seen.values() if one.network.family == family.name),
    )


def _repeatability(effects: Effects, chosen: Ints) -> float:
    """The mean tau between what is believed and what may be true: draws of the effects."""
    tables = effects.draw(_DRAWS, seed=0)
    drawn = sum(table[:, chosen[:, group]] for group, table in enumerate(tables))
    values = np.asarray(drawn, np.float64)
    middle = effects.predict(chosen)[0]
    if len(middle) < 2:
        return 1.0
    return float(np.mean([kendall_tau(middle, row) for row in values]))
