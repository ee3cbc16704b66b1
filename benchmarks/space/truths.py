"""Made-up cell spaces whose true values are known, and simulated measurements of their one-change variants.

Blocks of a family get slower from first to last, and somewhat more accurate; each group has its own share of the
latency and its own influence on accuracy; each block in each group deviates from both. Effects add up: latency
directly, accuracy on the logit scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnomon.core.cost import Floats, Ints
from gnomon.core.space import Slot, Space
from gnomon.spaces.cells.effects import Evidence, expit

FAMILIES = ("Mobile", "Res", "VGG")
GROUPS = BLOCKS = 5
MIDDLE = 0.85  # the mean accuracy
LATENCY_NOISE = 0.03


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Truth:
    """The relative latency and the logit of each block: (families, groups, blocks). The measured `networks` are of
    `family`.
    """

    latency: Floats
    logit: Floats
    networks: Ints
    family: Ints

    @property
    def space(self) -> Space:
        """The space of all families' blocks."""
        names = [f"{family}block_{i}" for family in FAMILIES[: len(self.latency)] for i in range(self.latency.shape[2])]
        return Space(tuple(Slot(f"cell{g}", tuple(names)) for g in range(self.latency.shape[1])))

    def side_by_side(self, table: Floats) -> Floats:
        """A table (families, groups, blocks) as (groups, families * blocks)."""
        return table.transpose(1, 0, 2).reshape(table.shape[1], -1)

    def sums(self, table: Floats) -> Floats:
        """The sum of each measured network."""
        groups = np.arange(table.shape[1])
        return np.array([table[f, groups, row].sum() for f, row in zip(self.family, self.networks, strict=True)])

    def points(self) -> Floats:
        """The true latency and error rate of each measured network."""
        return np.column_stack([self.sums(self.latency), 1 - expit(self.sums(self.logit))])


def truth(seed: int, *, spread: float = 0.03, family_share: float = 0.5) -> Truth:
    """A space in which the accuracies of the measured networks have this spread, with this share of the variance by
    family.
    """
    rng = np.random.default_rng(seed)
    count = len(FAMILIES)
    level = rng.standard_normal(count)
    level = (level - level.mean()) / level.std() * np.sqrt(family_share / (1 - family_share))
    share, influence = rng.dirichlet(np.full(GROUPS, 4.0)), rng.lognormal(0, 0.4, GROUPS)
    latency, logit = np.empty((count, GROUPS, BLOCKS)), np.empty((count, GROUPS, BLOCKS))
    for f in range(count):
        work = np.sort(rng.normal(0, 0.5, BLOCKS))
        own = rng.normal(0, 0.2, (GROUPS, BLOCKS))
        latency[f] = rng.lognormal(0, 0.3) * share[:, None] * np.exp(work + own)
        quality = 1.4 * work * rng.lognormal(0, 0.3) + rng.normal(0, 0.5, BLOCKS)
        logit[f] = influence[:, None] * (quality + rng.normal(0, 0.6, (GROUPS, BLOCKS)))
    networks, family, defaults = swaps(rng.integers(0, BLOCKS, count))
    made = Truth(latency=latency, logit=logit, networks=networks, family=family)
    sums = made.sums(logit)
    within = float(np.sqrt(np.mean([sums[family == f].var() for f in range(count)])))
    for f in range(count):
        logit[f] += (level[f] * within - sums[family == f].mean()) / GROUPS
    logit *= spread / (MIDDLE * (1 - MIDDLE)) / made.sums(logit).std()
    logit += (np.log(MIDDLE / (1 - MIDDLE)) - made.sums(logit).mean()) / GROUPS
    latency /= np.median(made.sums(latency)[defaults])
    return made


def swaps(default: Ints) -> tuple[Ints, Ints, Ints]:
    """The default of each family and its one-change variants: networks (N, groups), family (N,), and places of the
    defaults.
    """
    networks: list[list[int]] = []
    family: list[int] = []
    defaults: list[int] = []
    for f, block in enumerate(default):
        usual = [int(block)] * GROUPS
        defaults.append(len(networks))
        networks.append(usual)
        for g in range(GROUPS):
            networks += [[*usual[:g], b, *usual[g + 1 :]] for b in range(BLOCKS) if b != block]
        family += [f] * (1 + GROUPS * (BLOCKS - 1))
    return np.array(networks), np.array(family), np.array(defaults)


def measure(
    made: Truth, seed: tuple[int, ...], *, accuracy_sd: float = 0.01, latency_sd: float = LATENCY_NOISE
) -> tuple[Evidence, Evidence]:
    """Accuracies with an absolute error, and latencies with a relative error, both of the given sizes."""
    rng = np.random.default_rng(seed)
    points = made.points()
    accuracy = np.clip(1 - points[:, 1] + rng.normal(0, accuracy_sd, len(points)), 0, 1)
    latency = points[:, 0] * np.exp(rng.normal(0, latency_sd, len(points)))
    rows = made.networks + made.family[:, None] * BLOCKS
    return (
        Evidence(assignments=rows, values=accuracy, errors=np.full(len(rows), accuracy_sd)),
        Evidence(assignments=rows, values=latency, errors=latency * latency_sd),
    )
