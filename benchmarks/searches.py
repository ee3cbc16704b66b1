"""How much of the true front do searches find, with how few evaluations? Prints one JSON document.

Each strategy searches each space with ten seeds; the prices come from a table of all assignments. After 1/16, 1/8
and 1/4 of them: the share of the true front's hypervolume, median and quartiles over the seeds, and the share of the
space that a median run needs for 95 % of it (null: more than a quarter). The reference point lies beyond the true
front's worst in each objective by a tenth of the front's range there (of the range of all, where the front has none).

The spaces are made up (see search_spaces.py) and, with --data DIR, the exhaustive dumps and tables of that folder.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from common import arguments, publish
from gnomon.core.cost import Floats
from gnomon.core.dominance import nondominated
from gnomon.core.hypervolume import hypervolume
from gnomon.search.registry import make_strategy
from search_spaces import Priced, made_up, read_folder

SEEDS = 10
SHARES = (1 / 16, 1 / 8, 1 / 4)
STRATEGIES = ("random", "hlps", "nsga2", "spea2")
ENOUGH = 0.95


def reference_of(costs: Floats) -> tuple[Floats, Floats]:
    """The true front's costs, and the point up to which volumes are measured."""
    told = costs[~np.isnan(costs).any(axis=1)]
    front = told[nondominated(told)]
    span = np.ptp(front, axis=0)
    return front, front.max(axis=0) + 0.1 * np.where(span > 0, span, np.ptp(told, axis=0) + 1e-9)


def searched(priced: Priced, name: str, seed: int, most: int) -> list[int]:
    """The codes that a strategy evaluates, in order."""
    strategy = make_strategy(name, priced.space, seed=seed)
    codes: list[int] = []
    while len(codes) < most and (asked := strategy.ask(1)):
        code = priced.space.encode(asked[0])
        row = priced.costs[code]
        strategy.tell(asked[0], None if np.isnan(row).any() else tuple(row.tolist()))
        codes.append(code)
    return codes


def shares_of(priced: Priced, codes: list[int], counts: list[int], front: Floats, reference: Floats) -> list[float]:
    """The share of the true hypervolume after each of these counts of evaluations."""
    rows = priced.costs[codes]
    whole = hypervolume(front, reference.tolist())
    found = []
    for count in counts:
        part = rows[:count]
        found.append(hypervolume(part[~np.isnan(part).any(axis=1)], reference.tolist()) / whole)
    return found


def evaluations_needed(priced: Priced, codes: list[int], front: Floats, reference: Floats) -> float:
    """How many evaluations give 95 % of the hypervolume, by bisection; infinity where none of these do."""
    low, high = 0, len(codes)
    if shares_of(priced, codes, [high], front, reference)[0] < ENOUGH:
        return float("inf")
    while high - low > 1:
        middle = (low + high) // 2
        enough = shares_of(priced, codes, [middle], front, reference)[0] >= ENOUGH
        low, high = (low, middle) if enough else (middle, high)
    return high


def examine(priced: Priced) -> dict[str, Any]:
    """One space: what each strategy finds."""
    front, reference = reference_of(priced.costs)
    size = priced.space.size
    counts = [max(1, int(size * share)) for share in SHARES]
    strategies: dict[str, Any] = {}
    for name in STRATEGIES:
        runs = [searched(priced, name, seed, counts[-1]) for seed in range(SEEDS)]
        found = np.array([shares_of(priced, codes, counts, front, reference) for codes in runs])
        needed = float(np.median([evaluations_needed(priced, codes, front, reference) for codes in runs]))
        q1, median, q3 = np.quantile(found, [0.25, 0.5, 0.75], axis=0)
        strategies[name] = {
            "median": median.round(4).tolist(),
            "lower_quartile": q1.round(4).tolist(),
            "upper_quartile": q3.round(4).tolist(),
            "share_of_space_for_95_percent": round(needed / size, 4) if np.isfinite(needed) else None,
            "evaluations_median": int(np.median([len(codes) for codes in runs])),
        }
    return {"space": priced.name, "assignments": size, "front": len(front), "strategies": strategies}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Over all spaces: means, worst cases, and whether the targets are met."""
    median = {n: np.array([row["strategies"][n]["median"] for row in rows]) for n in STRATEGIES}
    return {
        "mean_of_medians": {n: m.mean(axis=0).round(4).tolist() for n, m in median.items()},
        "worst_median": {n: m.min(axis=0).round(4).tolist() for n, m in median.items()},
        "spaces_with_95_percent": {n: (m >= ENOUGH).sum(axis=0).tolist() for n, m in median.items()},
        "hlps_below_random": [
            {"space": row["space"], "budgets": np.flatnonzero(gap > 1e-9).tolist()}
            for row, gap in zip(rows, median["random"] - median["hlps"], strict=True)
            if (gap > 1e-9).any()
        ],
        "below_95_percent_at_a_quarter": {
            n: [row["space"] for row, m in zip(rows, median[n], strict=True) if m[-1] < ENOUGH] for n in STRATEGIES
        },
    }


def main() -> None:
    """Examine all spaces."""
    given = arguments(__doc__)
    spaces = [*made_up(), *(read_folder(given.data) if given.data else ())]
    rows = []
    for priced in spaces:
        rows.append(examine(priced))
        print(priced.name, file=sys.stderr, flush=True)
    publish({"seeds": SEEDS, "budgets": SHARES, "summary": summary(rows), "spaces": rows}, given)


if __name__ == "__main__":
    main()
