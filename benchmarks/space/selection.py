"""How good are the selections of a search space's primitives? Prints one JSON document.

`same` and `unit_free` count random tables: those on which the published rule agrees with an independent implementation
of it, and those on which no change of unit changes a Pareto selection. `rules` shows, for each rule and each kind of
made-up space (`truths`), how similar two selections from two measurements of the same space are (Jaccard index of
(group, primitive)), and which share of the true front's hypervolume is kept, also by the rule's own candidates and by
the best single family; each value is the mean over spaces, with the worst space. `largest_share` is the largest share
of networks. `seconds` is the time of a selection.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.common import parser, publish, spread
from benchmarks.space.truths import BLOCKS, FAMILIES, GROUPS, Truth, measure, truth
from gnomon.core.front.dominance import hypervolume
from gnomon.core.stats import median
from gnomon.errors import ProblemError
from gnomon.spaces.cells.effects import Evidence, expit, learn
from gnomon.spaces.selection.pareto import ParetoOptions, select_pareto
from gnomon.spaces.selection.published import Network, PublishedRule, select_published
from gnomon.spaces.selection.reduce import front_of_sums

KINDS: dict[str, dict[str, float]] = {
    "sd 3 points, half by family": {"spread": 0.03, "family_share": 0.5},
    "sd 3 points, 85 % by family": {"spread": 0.03, "family_share": 0.85},
    "sd 1.5 points, half by family": {"spread": 0.015, "family_share": 0.5},
    "sd 6 points, half by family": {"spread": 0.06, "family_share": 0.5},
}
UNITS = (1e-9, 1e-6, 1e-3, 0.3, 7.0, 1e3, 1e6, 1e9)
Pairs = frozenset[tuple[int, str]]
Rule = Callable[[Truth, Evidence, Evidence], Pairs]
Prices = dict[Network, tuple[float, float]]
PRIMITIVES = {family: tuple(f"{family}block_{i}" for i in range(BLOCKS)) for family in FAMILIES}


def prices(made: Truth, accuracy: Evidence, latency: Evidence, scale: float) -> Prices:
    """The measurements in the form that the published rule takes."""
    keys = [(FAMILIES[int(f)], tuple(int(k) for k in row)) for f, row in zip(made.family, made.networks, strict=True)]
    both = zip(accuracy.values.tolist(), (latency.values * scale).tolist(), strict=True)
    return dict(zip(keys, both, strict=True))


def pairs_of(groups: tuple[tuple[str, ...], ...]) -> Pairs:
    """The (group, primitive) pairs of a selection."""
    return frozenset((g, name) for g, names in enumerate(groups) for name in names)


def published(scale: float) -> Rule:
    """The published rule, for a median default network that takes this many milliseconds."""
    return lambda made, a, b: pairs_of(select_published(PRIMITIVES, prices(made, a, b, scale), PublishedRule()).groups)


def pareto(resamples: int) -> Rule:
    """The Pareto rule."""
    chosen = ParetoOptions(resamples=resamples)
    return lambda made, a, b: pairs_of(select_pareto(made.space, a, b, chosen).groups)


def means(made: Truth, accuracy: Evidence, latency: Evidence) -> Pairs:
    """A rule that keeps everything on the front of expected values."""
    unit = median(latency.values.tolist())
    relative = replace(latency, values=latency.values / unit, errors=latency.errors / unit)
    fast, accurate = (
        learn(made.space, relative, scale="sums").effects,
        learn(made.space, accuracy, scale="logit").effects,
    )
    costs = [
        np.column_stack([a[0], -b[0]])
        for a, b in zip(fast.tables(fast.mean[None]), accurate.tables(accurate.mean[None]), strict=True)
    ]
    used = front_of_sums(costs).used([len(slot.choices) for slot in made.space.slots])
    return frozenset(
        (g, made.space.slots[g].choices[int(i)]) for g, marks in enumerate(used) for i in np.flatnonzero(marks)
    )


def rules(resamples: int) -> dict[str, Rule]:
    """All rules, by name."""
    return {
        "published, 0.1 ms": published(0.1),
        "published, 10 ms": published(10.0),
        "published, 1000 ms": published(1000.0),
        "front of the means": means,
        "pareto, mixed (default)": pareto(resamples),
    }


def volume(made: Truth, kept: Pairs | None, families: tuple[str, ...]) -> float:
    """The true hypervolume of the networks of these primitives, or of all networks of these families."""
    names = made.space.slots[0].choices
    latency, logit = made.side_by_side(made.latency), made.side_by_side(made.logit)
    costs = []
    for g in range(GROUPS):
        own = [i for i, name in enumerate(names) if name.startswith(families) and (kept is None or (g, name) in kept)]
        costs.append(np.column_stack([latency[g, own], -logit[g, own]]))
    front = front_of_sums(costs).costs
    return hypervolume(np.column_stack([front[:, 0], expit(front[:, 1])]), made.points().max(axis=0).tolist())


def judge(task: tuple[str, int, int, int]) -> list[dict[str, Any]]:
    """A row for each rule on one made-up space."""
    kind, seed, pairs, resamples = task
    made = truth(seed, **KINDS[kind])
    noisy = [measure(made, (seed, k)) for k in range(2 * pairs)]
    alone = max(volume(made, None, (family,)) for family in FAMILIES)
    rows = []
    for name, rule in rules(resamples).items():
        found = [rule(made, *one) for one in noisy]
        alike = [len(a & b) / len(a | b) for a, b in zip(found[::2], found[1::2], strict=True)]
        recalls, shares, best = [], [], []
        for kept in found:
            single = {name.split("block_")[0] for _, name in kept}
            families = FAMILIES if "mixed" in name or "means" in name else tuple(single)
            reached = volume(made, kept, FAMILIES)
            recalls.append(reached / volume(made, None, families))
            best.append(reached / alone)
            sizes = np.bincount([g for g, _ in kept], minlength=GROUPS)
            shares.append(float(np.prod(sizes / (BLOCKS * len(families)))))
        row: dict[str, Any] = {"kind": kind, "rule": name, "jaccard": float(np.mean(alike))}
        rows.append(
            {**row, "recall": float(np.mean(recalls)), "share": max(shares), "of_best_family": float(np.mean(best))}
        )
    return rows


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The mean over the spaces, and the worst of them."""
    told = []
    for kind in [kind for kind in KINDS if any(row["kind"] == kind for row in rows)]:
        for rule in dict.fromkeys(row["rule"] for row in rows):
            own = [row for row in rows if row["kind"] == kind and row["rule"] == rule]
            entry: dict[str, Any] = {"kind": kind, "rule": rule, "spaces": len(own)}
            for key in ("jaccard", "recall", "of_best_family"):
                values = [row[key] for row in own]
                entry[key] = [round(float(np.mean(values)), 3), round(min(values), 3)]
            told.append({**entry, "largest_share": round(max(row["share"] for row in own), 4)})
    return told


def read_anew(given: Prices, rule: PublishedRule) -> list[list[str]] | None:
    """An independent implementation of the published rule: the family whose k-th best network ranks first."""
    ranked = sorted(
        (
            np.exp((rule.accuracy_threshold - accuracy) / rule.accuracy_cost_scale)
            - rule.latency_cost_coeff / latency_ms,
            line,
            key,
        )
        for line, (key, (accuracy, latency_ms)) in enumerate(given.items())
    )
    places = {family: [i for i, one in enumerate(ranked) if one[2][0] == family] for family in PRIMITIVES}
    ready = {
        family: own[rule.select_ss_threshold - 1]
        for family, own in places.items()
        if len(own) >= rule.select_ss_threshold
    }
    if not ready:
        return None
    winner = min(ready, key=lambda family: ready[family])
    chosen = [ranked[i][2][1] for i in places[winner][: rule.select_ss_threshold]]
    return [[PRIMITIVES[winner][i] for i in sorted({row[g] for row in chosen})] for g in range(GROUPS)]


def random_tables(seed: int) -> tuple[Prices, PublishedRule]:
    """Measurements of a made-up space, with some scale and some constants."""
    rng = np.random.default_rng((7, seed))
    made = truth(seed)
    given = prices(made, *measure(made, (seed, 99)), scale=float(10 ** rng.uniform(-2, 3)))
    return given, PublishedRule(
        accuracy_threshold=float(rng.uniform(0.7, 0.95)),
        accuracy_cost_scale=float(rng.uniform(0.1, 2)),
        latency_cost_coeff=float(10 ** rng.uniform(-2, 1)),
        select_ss_threshold=int(rng.integers(1, 25)),
    )


def identical(seed: int) -> tuple[bool, bool]:
    """Whether the published rule agrees with its independent implementation, and whether no change of unit changes the
    Pareto rule.
    """
    given, rule = random_tables(seed)
    try:
        groups = select_published(PRIMITIVES, given, rule).groups
        found: list[list[str]] | None = [list(names) for names in groups]
    except ProblemError:
        found = None
    unit = UNITS[seed % len(UNITS)]
    made = truth(seed)
    a, b = measure(made, (seed, 99))
    other = Evidence(assignments=b.assignments, values=b.values * unit, errors=b.errors * unit)
    options = ParetoOptions(resamples=5)
    chosen = [select_pareto(made.space, a, one, options).groups for one in (b, other)]
    return found == read_anew(given, rule), chosen[0] == chosen[1]


def timed(seed: int) -> float:
    """The seconds of a selection from 15 primitives in 5 groups with 200 resamples."""
    made = truth(seed)
    noisy = measure(made, (seed, 0))
    started = time.perf_counter()
    select_pareto(made.space, *noisy)
    return time.perf_counter() - started


def main() -> None:
    """Judge all rules and print."""
    options = parser(__doc__)
    options.add_argument("--truths", type=int, default=30, help="made-up spaces of each kind")
    options.add_argument("--first", type=int, default=100, help="seed of the first; defaults were chosen on 0 to 11")
    options.add_argument("--pairs", type=int, default=20, help="pairs of measurements of each")
    options.add_argument("--resamples", type=int, default=60, help="of each selection that is judged")
    options.add_argument("--tables", type=int, default=1000, help="random tables for the identities")
    options.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS), help="kinds of spaces")
    given = options.parse_args()
    tasks = [
        (kind, seed, given.pairs, given.resamples)
        for kind in given.kinds
        for seed in range(given.first, given.first + given.truths)
    ]
    seconds = [timed(seed) for seed in range(10)]
    with multiprocessing.get_context("spawn").Pool() as pool:
        same = pool.map(identical, range(given.tables), chunksize=10)
        rows = [row for rows in pool.imap_unordered(judge, tasks) for row in rows]
    document = {
        "same": sum(one[0] for one in same),
        "unit_free": sum(one[1] for one in same),
        "tables": given.tables,
        "pairs": given.pairs,
        "rules": summary(rows),
        "seconds": spread(seconds),
    }
    publish(document, given)


if __name__ == "__main__":
    main()
