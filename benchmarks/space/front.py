"""What the predicted front of the full space reaches, and how long it takes. Prints one JSON document.

As in coverage.py, every network of the made-up spaces is known, and the simulated measurements are those of `gnomon
space profile`. From that, the best 50 networks of the full space are predicted and measured, with the same noise, round
by round as `gnomon space front` does it. In addition, the best 10 networks of the full space, and of the reduced space
that the default choice leaves, are predicted at once. With "sums", the spaces are those of truths.py, with 759,375
networks, whose effects add up.

Reported for each setting: `reached`, the share of the true hypervolume of all networks that the 50 networks truly reach
(mean, least and most); `at_once`, the same if all 50 are predicted before any of them is measured; `covered`, the share
of spaces whose reported interval contains it, before and after the last round is measured, with its 95 % interval;
`inside`, the share of the 50 networks whose true accuracy and latency are within the predictions; and `ratio`, the true
ratio of the hypervolumes of the 10 networks of the two spaces. `seconds` and `cpu_seconds` are those of a whole
prediction in spaces of 10^12 and more networks.

    python -m benchmarks.space.front --worlds 60
"""

from __future__ import annotations

import math
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.common import parser, publish, spread
from benchmarks.space import coverage, truths
from gnomon.core.cost import Floats, Ints
from gnomon.core.front.dominance import hypervolume
from gnomon.core.space import Slot, Space
from gnomon.core.stats import median
from gnomon.errors import UsageError
from gnomon.spaces.cells.effects import Evidence, balanced_design, expit
from gnomon.spaces.selection.beliefs import Beliefs, believe
from gnomon.spaces.selection.front import (
    FrontOptions,
    PredictedFront,
    in_rounds,
    predict_front,
    share_of,
)
from gnomon.spaces.selection.pareto import select_pareto
from gnomon.spaces.selection.reduce import front_of_sums

NETWORKS, FEW = 50, 10
SUMS = {"sums, noise 1.0%": 0.01, "sums, noise 2.0%": 0.02}
SETTINGS = (*coverage.SETTINGS, *SUMS)
LARGE = {"12 groups of 10": (12, 10), "30 groups of 3": (30, 3)}

_Truth = tuple[Floats, Floats]
"""True latencies and accuracies of some networks."""


def more(evidence: Evidence, networks: Ints, values: Floats, errors: Floats, rng: np.random.Generator) -> Evidence:
    """Evidence extended by newly measured networks, with noise of these standard deviations."""
    return Evidence(
        assignments=np.concatenate([evidence.assignments, networks]),
        values=np.concatenate([evidence.values, values + errors * rng.standard_normal(len(values))]),
        errors=np.concatenate([evidence.errors, errors]),
    )


def judge(task: tuple[str, int]) -> dict[str, Any]:
    """One space in one setting."""
    setting, seed = task
    if setting in SUMS:
        return _judged_sums(setting, seed)
    noise, interaction = coverage.SETTINGS[setting]
    made = coverage.world(seed, interaction)
    accuracy, latency = coverage.measured(made, noise, (seed, 0))
    rng = np.random.default_rng([seed, 18])

    def priced(networks: Ints) -> _Truth:
        rows = made.rows(networks)
        return made.latency[rows], made.accuracy[rows]

    beliefs = believe(made.space, accuracy, latency)
    truth = np.column_stack([made.latency / beliefs.unit, 1 - made.accuracy])

    def volume(networks: Ints | None) -> float:
        return hypervolume(truth if networks is None else truth[made.rows(networks)], beliefs.reference)

    noises = noise, coverage.LATENCY_NOISE
    found = {"setting": setting, **_fronts(made.space, (accuracy, latency), priced, volume, noises, rng)}
    try:
        groups = select_pareto(made.space, accuracy, latency).groups
    except UsageError:
        return found
    places = tuple(
        tuple(slot.choices.index(name) for name in names) for slot, names in zip(made.space.slots, groups, strict=True)
    )
    few = [predict_front(beliefs, FrontOptions(networks=FEW, choices=choices)).networks for choices in (places, None)]
    return {**found, "ratio": volume(few[0]) / volume(few[1])}


def measured(
    known: tuple[Evidence, Evidence],
    networks: Ints,
    truth: _Truth,
    noises: tuple[float, float],
    rng: np.random.Generator,
) -> tuple[Evidence, Evidence]:
    """What is known after measuring these networks: noise is absolute for accuracies, and relative for latencies."""
    took, right = truth
    found = more(known[0], networks, right, np.full(len(networks), noises[0]), rng)
    return (
        replace(found, values=np.clip(found.values, 0, 1)),
        more(known[1], networks, took, noises[1] * took, rng),
    )


def _fronts(
    space: Space,
    evidence: tuple[Evidence, Evidence],
    priced: Callable[[Ints], _Truth],
    volume: Callable[[Ints | None], float],
    noises: tuple[float, float],
    rng: np.random.Generator,
) -> dict[str, Any]:
    """The shares that the best 50 networks reach if they are measured round by round, and if they are predicted at
    once.
    """
    known = [evidence]

    def after(front: PredictedFront) -> Beliefs:
        known.append(measured(known[-1], front.networks, priced(front.networks), noises, rng))
        return believe(space, *known[-1])

    beliefs, options = believe(space, *evidence), FrontOptions(networks=NETWORKS)
    at_once, rounds = predict_front(beliefs, options), in_rounds(beliefs, options, after)
    mine = np.concatenate([one.networks for one in rounds])
    took, right = priced(mine)
    reached = volume(mine) / volume(None)
    return {
        "networks": space.size,
        "on_front": at_once.size,
        "at_once": volume(at_once.networks) / volume(None),
        "reached": reached,
        "before": _holds(rounds[-1].share, reached),
        "after": _holds(share_of(believe(space, *known[-1]), mine, options), reached),
        "accuracy": _inside(np.concatenate([one.accuracy for one in rounds]), right),
        "latency": _inside(np.concatenate([one.latency for one in rounds]), took),
    }


def _judged_sums(setting: str, seed: int) -> dict[str, Any]:
    """A space whose effects add up, of which one-change variants were measured."""
    made = truths.truth(seed)
    accuracy, latency = truths.measure(made, (seed, 0), accuracy_sd=SUMS[setting])
    beliefs = believe(made.space, accuracy, latency)
    slow, right = made.side_by_side(made.latency), made.side_by_side(made.logit)
    unit = median(latency.values.tolist())
    groups = np.arange(len(slow))

    def points(costs: Floats) -> Floats:
        return np.column_stack([costs[:, 0] / unit, expit(costs[:, 1])])

    every = points(front_of_sums([np.column_stack([slow[g], -right[g]]) for g in groups]).costs)

    def priced(networks: Ints) -> _Truth:
        return slow[groups, networks].sum(axis=1), expit(right[groups, networks].sum(axis=1))

    def volume(networks: Ints | None) -> float:
        if networks is None:
            return hypervolume(every, beliefs.reference)
        took, rate = priced(networks)
        return hypervolume(np.column_stack([took / unit, 1 - rate]), beliefs.reference)

    noises, rng = (SUMS[setting], truths.LATENCY_NOISE), np.random.default_rng([seed, 18])
    return {"setting": setting, **_fronts(made.space, (accuracy, latency), priced, volume, noises, rng)}


def _holds(told: tuple[float, float, float], truth: float) -> bool:
    return told[1] - 1e-9 <= truth <= told[2] + 1e-9


def _inside(told: Floats, truth: Floats) -> float:
    return float(np.mean((told[:, 1] <= truth) & (truth <= told[:, 2])))


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each setting."""
    told = []
    for setting in SETTINGS:
        own = [row for row in rows if row["setting"] == setting]
        if not own:
            continue
        entry: dict[str, Any] = {"setting": setting, "spaces": len(own)}
        for key in ("networks", "on_front", "at_once", "reached"):
            values = [row[key] for row in own]
            entry[key] = [round(float(one), 3) for one in (np.mean(values), min(values), max(values))]
        entry["covered"] = {
            key: _share([row[key] for row in own if key in row]) for key in ("before", "after") if key in own[0]
        }
        entry["inside"] = {key: round(float(np.mean([row[key] for row in own])), 3) for key in ("accuracy", "latency")}
        chosen = [row for row in own if "ratio" in row]
        if chosen:
            ratios = [row["ratio"] for row in chosen]
            entry["ratio"] = [round(float(one), 3) for one in (np.mean(ratios), min(ratios), max(ratios))]
        told.append(entry)
    return told


def _share(held: list[bool]) -> list[float]:
    """A share with its 95 % interval (Agresti and Coull, 1998)."""
    inside, count = sum(held), len(held)
    middle = (inside + 1.92) / (count + 3.84)
    half = 1.96 * math.sqrt(middle * (1 - middle) / (count + 3.84))
    return [round(one, 3) for one in (inside / count, max(0.0, middle - half), min(1.0, middle + half))]


def seconds(groups: int, choices: int, seed: int) -> tuple[float, float]:
    """The wall and processor seconds from measurements to the front.

    As many networks are measured as there are one-change variants.
    """
    rng = np.random.default_rng(seed)
    space = Space(tuple(Slot(f"cell{g}", tuple(f"VGGblock_{i}" for i in range(choices))) for g in range(groups)))
    rows = np.unique(balanced_design([choices] * groups, 1 + groups * (choices - 1), seed=seed), axis=0)
    work = rng.normal(0, 0.4, (groups, choices))
    place = np.arange(groups)
    latency = (rng.dirichlet(np.full(groups, 4.0))[:, None] * np.exp(work))[place, rows].sum(axis=1)
    logit = (0.3 * work + rng.normal(0, 0.2, work.shape))[place, rows].sum(axis=1)
    noisy = expit(1.5 + logit) + rng.normal(0, 0.005, len(rows))
    started = time.perf_counter(), time.process_time()
    beliefs = believe(
        space,
        Evidence(assignments=rows, values=np.clip(noisy, 0, 1), errors=np.full(len(rows), 0.005)),
        Evidence(assignments=rows, values=latency, errors=0.02 * latency),
    )
    predict_front(beliefs, FrontOptions(networks=NETWORKS))
    return time.perf_counter() - started[0], time.process_time() - started[1]


def main() -> None:
    """Judge all settings and print."""
    options = parser(__doc__)
    options.add_argument("--worlds", type=int, default=60, help="made-up spaces of each setting")
    options.add_argument("--first", type=int, default=2000, help="seed of the first; 1000 to 1007 were developed on")
    options.add_argument("--settings", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    options.add_argument("--times", type=int, default=5, help="predictions that are timed of each large space")
    options.add_argument("--workers", type=int, default=1)
    given = options.parse_args()
    timed = {}
    for name, (groups, choices) in LARGE.items() if given.times else ():
        took = [seconds(groups, choices, k) for k in range(given.times)]
        walls, processor = zip(*took, strict=True)
        timed[name] = {
            "networks": f"{choices**groups:.3g}",
            "seconds": spread(list(walls)),
            "cpu_seconds": spread(list(processor)),
        }
    tasks = [(name, seed) for name in given.settings for seed in range(given.first, given.first + given.worlds)]
    with multiprocessing.get_context("spawn").Pool(given.workers) as pool:
        rows = list(pool.imap_unordered(judge, tasks))
    publish({"worlds": given.worlds, "first": given.first, "settings": summary(rows), "large": timed}, given)


if __name__ == "__main__":
    main()
