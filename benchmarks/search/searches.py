"""How much of the true front do searches find, with how few evaluations? Prints one JSON document.

Each strategy searches each space with ten seeds; the prices come from a table of all assignments. Figures: the share of
the true front's hypervolume after 1/16, 1/8 and 1/4 of the assignments (median and quartiles over the seeds), and the
share of the space that a median run needs to reach 95 % of the hypervolume (null: more than a quarter). The medians of
HLPS and of random search are compared after every number of evaluations, from the first to half of the space, and the
smallest margin of HLPS is reported. In each objective, the reference point lies beyond the worst value of the true
front by a tenth of the front's range (or of the range of all assignments if the front has none). The spaces are made up
(see spaces.py, and devices.py with --devices) and, with --data DIR, come from the exhaustive dumps and tables in that
folder.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from benchmarks.common import parser, publish
from benchmarks.search.devices import devices
from benchmarks.search.spaces import Priced, made_up, read_folder
from gnomon.core.cost import Floats
from gnomon.core.front.dominance import hypervolume, nondominated
from gnomon.search.driver import make_strategy

SEEDS = 10
SHARES = (1 / 16, 1 / 8, 1 / 4)
STRATEGIES = ("random", "hlps", "nsga2")
ENOUGH = 0.95
COMPARED = ("random", "hlps")  # after every number of evaluations, up to half of the space


def reference_of(costs: Floats) -> tuple[Floats, Floats]:
    """The true front's costs, and the reference point for hypervolumes."""
    told = costs[~np.isnan(costs).any(axis=1)]
    front = told[nondominated(told)]
    span = np.ptp(front, axis=0)
    return front, front.max(axis=0) + 0.1 * np.where(span > 0, span, np.ptp(told, axis=0) + 1e-9)


def searched(priced: Priced, name: str, seed: int, front: Floats, reference: Floats, most: int) -> Floats:
    """The share of the true hypervolume after each evaluation (most,); a search ends early if it has all of it."""
    strategy = make_strategy(name, priced.space, seed=seed)
    whole = hypervolume(front, reference.tolist())
    found = np.empty((0, front.shape[1]))
    shares: list[float] = []
    share = 0.0
    while len(shares) < most and share < 1 - 1e-9 and (asked := strategy.ask(1)):
        row = priced.costs[priced.space.encode(asked[0])]
        failed = bool(np.isnan(row).any())
        strategy.tell(asked[0], None if failed else tuple(row.tolist()))
        if not failed and (row < reference).all() and not (found <= row).all(axis=1).any():
            found = np.concatenate([found[~(row <= found).all(axis=1)], row[None]])
            share = hypervolume(found, reference.tolist()) / whole
        shares.append(share)
    return np.array(shares + [share] * (most - len(shares)))


def examine(priced: Priced) -> dict[str, Any]:
    """One space: what each strategy finds, and the smallest margin of HLPS over random search."""
    front, reference = reference_of(priced.costs)
    size = priced.space.size
    counts = [max(1, int(size * share)) for share in SHARES]
    strategies: dict[str, Any] = {}
    medians: dict[str, Floats] = {}
    for name in STRATEGIES:
        most = max(1, size // 2) if name in COMPARED else counts[-1]
        found = np.array([searched(priced, name, seed, front, reference, most) for seed in range(SEEDS)])
        q1, medians[name], q3 = np.quantile(found, [0.25, 0.5, 0.75], axis=0)
        needed = np.median(np.where(found[:, -1] >= ENOUGH, (found < ENOUGH).sum(axis=1) + 1, np.inf))
        at = np.array(counts) - 1
        strategies[name] = {
            "median": medians[name][at].round(4).tolist(),
            "lower_quartile": q1[at].round(4).tolist(),
            "upper_quartile": q3[at].round(4).tolist(),
            "share_of_space_for_95_percent": round(needed / size, 4) if needed <= counts[-1] else None,
        }
    margins = medians["hlps"] - medians["random"]
    return {
        "space": priced.name,
        "assignments": size,
        "front": len(front),
        "strategies": strategies,
        "hlps_over_random": {
            "smallest": round(float(margins.min()), 4),
            "after_evaluations": int(margins.argmin()) + 1,
            "below_after": (np.flatnonzero(margins < -1e-9) + 1).tolist(),
        },
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Over all spaces: means, worst cases, and whether the targets are met."""
    median = {n: np.array([row["strategies"][n]["median"] for row in rows]) for n in STRATEGIES}
    return {
        "mean_of_medians": {n: m.mean(axis=0).round(4).tolist() for n, m in median.items()},
        "worst_median": {n: m.min(axis=0).round(4).tolist() for n, m in median.items()},
        "spaces_with_95_percent": {n: (m >= ENOUGH).sum(axis=0).tolist() for n, m in median.items()},
        "median_share_of_space_for_95_percent": {
            n: round(float(np.median([row["strategies"][n]["share_of_space_for_95_percent"] or 1 for row in rows])), 4)
            for n in STRATEGIES
        },
        "hlps_over_random": {
            "smallest": min(row["hlps_over_random"]["smallest"] for row in rows),
            "spaces_below": sum(bool(row["hlps_over_random"]["below_after"]) for row in rows),
            "last_below": max((max(row["hlps_over_random"]["below_after"], default=0) for row in rows), default=0),
            "below": {row["space"]: row["hlps_over_random"] for row in rows if row["hlps_over_random"]["below_after"]},
        },
        "below_95_percent_at_a_quarter": {
            n: [row["space"] for row, m in zip(rows, median[n], strict=True) if m[-1] < ENOUGH] for n in STRATEGIES
        },
    }


def main() -> None:
    """Examine all spaces."""
    options = parser(__doc__)
    options.add_argument("--devices", type=int, help="in place of the spaces: so many draws of devices")
    given = options.parse_args()
    spaces = list(devices(range(given.devices)) if given.devices else made_up())
    spaces += read_folder(given.data) if given.data else ()
    rows = []
    for priced in spaces:
        rows.append(examine(priced))
        print(priced.name, file=sys.stderr, flush=True)
    publish({"seeds": SEEDS, "budgets": SHARES, "summary": summary(rows), "spaces": rows}, given)


if __name__ == "__main__":
    main()
