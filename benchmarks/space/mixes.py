"""How accurate the latencies of mixes are if families differ 20-fold. Prints one JSON document.

The latencies for docs/examples/digits.yaml are made up: VGG blocks take about a twentieth of the time of Mobile blocks,
and Res blocks are between the two. The latency of a network is the sum of its blocks' costs, and each two neighbours
add or subtract a share of their own costs. This share depends on the two primitives and on their place; with --met, it
depends only on the two primitives, or only on their families. --pairs is its standard deviation. What `gnomon space
profile` measures by default is imported, with an error of 2 %: one-change variants, 12 mixed networks of each family,
and 72 across families. Then `gnomon.open_profile` predicts the latencies of networks that were not measured, half of
them drawn from all networks, half from one family each, and `gnomon.select_primitives` writes the lookup table of the
default choice.

Reported for networks of several families (`mixes`) and of one: the mean error, and the share of 95 % intervals that
contain the true latency, each as mean, standard deviation, least and most over the spaces; and the numbers of
predictions, ends of their intervals, and entries of lookup tables and of their intervals that are not above 0
(`not_above_0`).

    python -m benchmarks.space.mixes --spaces 20
"""

from __future__ import annotations

import csv
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import gnomon
from benchmarks.common import parser, publish
from gnomon.core.cost import Floats
from gnomon.core.stats import student_quantile
from gnomon.jobs.space.job import MIXED, measured_networks
from gnomon.jobs.space.profiling.methods import plan, recipes
from gnomon.jobs.space.profiling.study import open_study

CONFIG = Path(__file__).parents[2] / "docs" / "examples" / "digits.yaml"
GROUPS, NOISE, PROCESSES = 3, 0.02, 6
FAMILIES = {"Mobile": (0, 1, 3, 4), "Res": (0, 1, 3, 4), "VGG": (0, 1, 2, 3)}
NAMES = tuple(f"{family}block_{number}" for family, numbers in FAMILIES.items() for number in numbers)
BLOCKS = 4
SPREAD = {"Mobile": 20**0.5, "Res": 1.0, "VGG": 20**-0.5}
Network = tuple[int, ...]


def latencies(networks: Sequence[Network], seed: int, pairs: float, met: str) -> Floats:
    """The true seconds of networks in the space of this seed."""
    rng = np.random.default_rng([40, seed])
    own = np.repeat(list(SPREAD.values()), BLOCKS) * np.exp(rng.normal(0, 0.3, len(NAMES)))
    costs = (
        1e-4 * rng.dirichlet(np.full(GROUPS, 4.0))[:, None] * own * np.exp(rng.normal(0, 0.15, (GROUPS, len(NAMES))))
    )
    fits = rng.normal(0, pairs, (GROUPS - 1, len(NAMES), len(NAMES)))
    if met == "anywhere":
        fits = np.broadcast_to(fits[0], fits.shape)
    elif met == "families":
        kin = np.arange(len(NAMES)) // BLOCKS
        fits = np.broadcast_to(fits[0][kin][:, kin], fits.shape)
    rows = np.array(networks)
    each = costs[np.arange(GROUPS), rows]
    more = [fits[g][rows[:, g], rows[:, g + 1]] * (each[:, g] + each[:, g + 1]) for g in range(GROUPS - 1)]
    return np.asarray(each.sum(axis=1) + np.sum(more, axis=0))


def profiled(seed: int) -> list[Network]:
    """The networks that a profile measures by default, some of which were trained."""
    study = open_study(CONFIG.read_text(encoding="utf-8"), (1, 8, 8))
    (trainings,) = plan("balanced", study, recipes(study), seed=seed)
    chosen = measured_networks(study, [one.network for one in trainings], MIXED, seed)
    return [tuple(NAMES.index(name) for name in one.primitives) for one in chosen]


def families(network: Network) -> int:
    """The number of families in a network."""
    return len({choice // BLOCKS for choice in network})


def unseen(known: set[Network], count: int, seed: int) -> list[Network]:
    """Networks that are not known, half of them drawn from all, half from one family each."""
    rng = np.random.default_rng([41, seed])
    found: dict[Network, None] = {}
    while len(found) < count:
        first = BLOCKS * int(rng.integers(len(FAMILIES)))
        of_one = len(found) % 2
        drawn = tuple(rng.integers(first, first + BLOCKS, GROUPS) if of_one else rng.integers(0, len(NAMES), GROUPS))
        if drawn not in known:
            found[tuple(map(int, drawn))] = None
    return list(found)


def judge(seed: int, count: int, pairs: float, met: str, folder: Path) -> dict[str, Any]:
    """One space: measured, imported, predicted and chosen from."""
    rng = np.random.default_rng([42, seed])
    known = profiled(seed)
    took = latencies(known, seed, pairs, met) * np.exp(rng.normal(0, NOISE, len(known)))
    half = student_quantile(0.975, PROCESSES - 1) * NOISE
    work = rng.normal(0, 0.02, len(NAMES))
    with (folder / "nets.csv").open("w", encoding="utf-8", newline="") as file:
        made = csv.writer(file)
        made.writerow(
            [
                *(f"cell{g}" for g in range(GROUPS)),
                "accuracy",
                "accuracy_error",
                "latency_s",
                "low_s",
                "high_s",
                "processes",
            ]
        )
        for network, seconds in zip(known, took.tolist(), strict=True):
            accuracy = 0.85 + float(work[list(network)].sum())
            ends = seconds * (1 - half), seconds * (1 + half)
            made.writerow([*(NAMES[k] for k in network), accuracy, 0.01, seconds, *ends, PROCESSES])
    gnomon.import_networks([folder / "nets.csv"], folder / "p", config=CONFIG)
    believer = gnomon.open_profile(folder / "p")
    others = unseen(set(known), count, seed)
    told = [believer.latency_s([NAMES[k] for k in network]) for network in others]
    true, mixes = latencies(others, seed, pairs, met), np.array([families(network) > 1 for network in others])
    off = np.abs([one.value for one in told] / true - 1)
    inside = np.array([one.low <= each <= one.high for one, each in zip(told, true.tolist(), strict=True)])
    chosen = gnomon.select_primitives(folder / "p")
    lookup = Path(chosen.lookup or "")
    about = json.loads(lookup.with_suffix(".json").read_text(encoding="utf-8"))
    entries = [float(word) for word in lookup.read_text(encoding="utf-8").split()]
    entries += [value for ends in ("low", "high") for row in about[ends] for value in row]
    values = [value for one in told for value in (one.value, one.low, one.high)]
    return {
        "mixes": {"mean_error": off[mixes].mean(), "covered": inside[mixes].mean()},
        "of one family": {"mean_error": off[~mixes].mean(), "covered": inside[~mixes].mean()},
        "numbers": len(values) + len(entries),
        "not_above_0": sum(value <= 0 for value in (*values, *entries)),
    }


def main() -> None:
    """Judge all spaces and print."""
    options = parser(__doc__)
    options.add_argument("--spaces", type=int, default=20)
    options.add_argument("--first", type=int, default=1000, help="seed of the first")
    options.add_argument("--networks", type=int, default=200, help="that are told of each")
    options.add_argument("--pairs", type=float, default=0.05)
    options.add_argument("--met", choices=["places", "anywhere", "families"], default="places")
    given = options.parse_args()
    rows = []
    for seed in range(given.first, given.first + given.spaces):
        with tempfile.TemporaryDirectory(prefix="gnomon-benchmark-") as folder:
            rows.append(judge(seed, given.networks, given.pairs, given.met, Path(folder)))
    document: dict[str, Any] = {"spaces": len(rows), "first": given.first, "pairs": given.pairs, "met": given.met}
    for kind in ("mixes", "of one family"):
        columns = {key: np.array([row[kind][key] for row in rows]) for key in ("mean_error", "covered")}
        document[kind] = {
            key: [round(float(one), 4) for one in (own.mean(), own.std(), own.min(), own.max())]
            for key, own in columns.items()
        }
    document |= {key: sum(row[key] for row in rows) for key in ("numbers", "not_above_0")}
    publish(document, given)


if __name__ == "__main__":
    main()
