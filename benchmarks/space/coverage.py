"""Does the reported interval of the kept hypervolume contain the truth? Prints one JSON document.

In made-up spaces, every network is known. A space has two or three families, and three to five cell groups. Latency and
the logit of accuracy are each a sum of effects, plus what each two primitives of two groups add to it. `interaction` is
the standard deviation of the latter over networks, divided by that of the former; for latency it is a quarter of that.
The simulated measurements are those that `gnomon space profile` makes by default: a balanced design of each family and
one across families, and one-change variants with mixed networks of each family and twice as many across. Then the
default choice is made.

Reported for each setting: `covered`, the share of spaces whose reported interval contains the true share of the
hypervolume, with its 95 % interval; `kept`, the true share, and `told`, the expected one (mean, standard deviation,
least and most); the mean `width` of the interval; and how many choices were `refused`. With --again, each space is
measured and chosen from twice: `again` has the mean Jaccard index of the two choices, and the mean of the reported
ones.

    python -m benchmarks.space.coverage --worlds 100
"""

from __future__ import annotations

import functools
import itertools
import math
import multiprocessing
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.common import parser, publish
from gnomon.core.cost import Floats, Ints
from gnomon.core.front.dominance import hypervolume
from gnomon.core.space import Slot, Space
from gnomon.errors import UsageError
from gnomon.jobs.space.job import ACROSS, MIXED
from gnomon.spaces.cells.effects import Evidence, balanced_design, expit
from gnomon.spaces.selection.beliefs import believe
from gnomon.spaces.selection.pareto import ParetoOptions, ParetoSelection, select_pareto

SETTINGS = {
    f"noise {noise:.1%}, interaction {interaction:g}": (noise, interaction)
    for interaction in (0.0, 0.15, 0.4, 0.5, 0.8, 1.0)
    for noise in (0.008, 0.02)
}
LATENCY_NOISE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class World:
    """A space in which every network is known: choices (N, groups), accuracies and latencies (N,)."""

    space: Space
    families: tuple[tuple[int, ...], ...]
    networks: Ints
    accuracy: Floats
    latency: Floats

    def rows(self, chosen: Ints) -> Ints:
        """The indices of networks among all."""
        counts = tuple(len(slot.choices) for slot in self.space.slots)
        return np.asarray(np.ravel_multi_index(tuple(chosen.T), counts), dtype=np.intp)


def world(seed: int, interaction: float) -> World:
    """A made-up space: slower blocks are somewhat more accurate, and groups and families differ."""
    rng = np.random.default_rng([17, seed])
    groups = int(rng.integers(3, 6))
    sizes = [int(n) for n in rng.integers(2, {3: 6, 4: 4, 5: 3}[groups], int(rng.integers(2, 4)))]
    names = [f"{family}block_{i}" for family, size in zip(("A", "B", "C"), sizes, strict=False) for i in range(size)]
    ends = np.cumsum([0, *sizes])
    families = tuple(tuple(range(a, b)) for a, b in itertools.pairwise(ends.tolist()))
    space = Space(tuple(Slot(f"cell{g}", tuple(names)) for g in range(groups)))
    kin = np.repeat(np.arange(len(sizes)), sizes)
    work = rng.normal(0, 0.4, len(names)) + rng.normal(0, 0.3, len(sizes))[kin]
    latency = rng.dirichlet(np.full(groups, 4.0))[:, None] * np.exp(work + rng.normal(0, 0.2, (groups, len(names))))
    quality = 1.2 * work + rng.normal(0, 0.4, len(sizes))[kin] + rng.normal(0, 0.4, len(names))
    logit = rng.lognormal(0, 0.3, groups)[:, None] * (quality + rng.normal(0, 0.4, (groups, len(names))))
    networks = np.array(list(itertools.product(range(len(names)), repeat=groups)), dtype=np.intp)
    sums = [_with_pairs(t, networks, share, rng) for t, share in ((logit, interaction), (latency, interaction / 4))]
    spread = rng.uniform(0.3, 0.8)
    logits = rng.uniform(1.0, 2.2) + spread * (sums[0] - sums[0].mean()) / sums[0].std()
    fast = np.maximum(sums[1], 0.2 * sums[1].mean())
    return World(space=space, families=families, networks=networks, accuracy=np.asarray(expit(logits)), latency=fast)


def _with_pairs(table: Floats, networks: Ints, share: float, rng: np.random.Generator) -> Floats:
    """The sums of effects of all networks, plus random effects of pairs with this share of the sums' standard
    deviation.
    """
    groups, count = table.shape
    sums = table[np.arange(groups), networks].sum(axis=1)
    added = np.zeros(len(networks))
    for a, b in itertools.combinations(range(groups), 2):
        pair = rng.normal(0, 1, (count, count))
        pair -= pair.mean(axis=0) + pair.mean(axis=1)[:, None] - pair.mean()
        added += pair[networks[:, a], networks[:, b]]
    return np.asarray(sums + share * sums.std() * added / added.std())


@functools.cache
def _design(counts: tuple[int, ...], networks: int, seed: int) -> Ints:
    return np.asarray(balanced_design(counts, networks, seed=seed), dtype=np.intp)


def measured(made: World, noise: float, seed: tuple[int, ...]) -> tuple[Evidence, Evidence]:
    """The measurements that a profile holds."""
    rng = np.random.default_rng(seed)
    groups = len(made.space.slots)
    design, swaps, most = [], [], 0
    for own in made.families:
        place = np.array(own)
        variants = [
            [own[0]] * groups,
            *([*[own[0]] * g, one, *[own[0]] * (groups - 1 - g)] for g in range(groups) for one in own[1:]),
        ]
        swaps += [*variants, *place[_design((len(own),) * groups, MIXED, seed[-1])].tolist()]
        design += place[_design((len(own),) * groups, len(variants), seed[-1])].tolist()
        most = max(most, len(variants))
    counts = tuple(len(slot.choices) for slot in made.space.slots)
    design += _design(counts, most, seed[-1]).tolist()
    across = min(ACROSS * MIXED * len(made.families), len(made.networks))
    swaps += _design(counts, across, seed[-1] + 1).tolist()
    trained, timed = np.unique(np.array(design), axis=0), np.unique(np.array(swaps), axis=0)
    right = np.clip(made.accuracy[made.rows(trained)] + rng.normal(0, noise, len(trained)), 0, 1)
    took = made.latency[made.rows(timed)] * np.exp(rng.normal(0, LATENCY_NOISE, len(timed)))
    return (
        Evidence(assignments=trained, values=right, errors=np.full(len(trained), noise)),
        Evidence(assignments=timed, values=took, errors=took * LATENCY_NOISE),
    )


def kept_share(made: World, found: ParetoSelection, evidence: tuple[Evidence, Evidence]) -> float:
    """The share of the true hypervolume that the kept networks reach, up to the reference that the choice used."""
    beliefs = believe(made.space, *evidence)
    points = np.column_stack([made.latency / beliefs.unit, 1 - made.accuracy])
    inside = np.ones(len(points), dtype=bool)
    for slot, names, column in zip(made.space.slots, found.groups, made.networks.T, strict=True):
        inside &= np.isin(column, [slot.choices.index(name) for name in names])
    return hypervolume(points[inside], beliefs.reference) / hypervolume(points, beliefs.reference)


def judge(task: tuple[str, int, bool]) -> dict[str, Any]:
    """One space in one setting."""
    setting, seed, again = task
    noise, interaction = SETTINGS[setting]
    made = world(seed, interaction)
    found = []
    for number in range(1 + again):
        evidence = measured(made, noise, (seed, number))
        try:
            one = select_pareto(made.space, *evidence, ParetoOptions())
        except UsageError:
            return {"setting": setting, "refused": True}
        found.append((one, kept_share(made, one, evidence)))
    pairs = [{(g, name) for g, names in enumerate(one.groups) for name in names} for one, _ in found]
    first, share = found[0]
    mean, low, high = first.share_kept
    return {
        "setting": setting,
        "refused": False,
        "kept": share,
        "told": mean,
        "inside": low - 1e-9 <= share <= high + 1e-9,
        "width": high - low,
        "alike": len(pairs[0] & pairs[-1]) / len(pairs[0] | pairs[-1]),
        "stability": getattr(first, "stability", 0.0),
    }


def summary(rows: list[dict[str, Any]], again: bool) -> list[dict[str, Any]]:
    """A row for each setting."""
    told = []
    for setting in SETTINGS:
        own = [row for row in rows if row["setting"] == setting]
        done = [row for row in own if not row["refused"]]
        if not done:
            continue
        inside, count = sum(row["inside"] for row in done), len(done)
        middle = (inside + 1.92) / (count + 3.84)
        half = 1.96 * math.sqrt(inside * (count - inside) / count + 0.9604) / (count + 3.8416)
        entry: dict[str, Any] = {"setting": setting, "spaces": count, "refused": len(own) - count}
        entry["covered"] = [round(one, 3) for one in (inside / count, middle - half, middle + half)]
        for key in ("kept", "told"):
            values = [row[key] for row in done]
            entry[key] = [round(float(one), 3) for one in (np.mean(values), np.std(values), min(values), max(values))]
        entry["width"] = round(float(np.mean([row["width"] for row in done])), 3)
        if again:
            entry["again"] = [round(float(np.mean([row[key] for row in done])), 3) for key in ("alike", "stability")]
        told.append(entry)
    return told


def main() -> None:
    """Judge all settings and print."""
    options = parser(__doc__)
    options.add_argument("--worlds", type=int, default=100, help="made-up spaces of each setting")
    options.add_argument("--first", type=int, default=1000, help="seed of the first; priors are from 100 to 159")
    options.add_argument("--settings", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    options.add_argument("--again", action="store_true", help="measure and choose twice")
    options.add_argument("--workers", type=int, default=1)
    given = options.parse_args()
    tasks = [
        (name, seed, given.again) for name in given.settings for seed in range(given.first, given.first + given.worlds)
    ]
    with multiprocessing.get_context("spawn").Pool(given.workers) as pool:
        rows = list(pool.imap_unordered(judge, tasks))
    publish({"worlds": given.worlds, "first": given.first, "settings": summary(rows, given.again)}, given)


if __name__ == "__main__":
    main()
