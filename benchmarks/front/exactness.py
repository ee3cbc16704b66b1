"""Are fronts exact? Prints one JSON document.

Seeded random problems of two and three objectives, with charges, impossible choices and pairs, and many ties, are
compared with exhaustive search over up to 2^14 assignments. Their epsilon fronts are checked against the exact ones.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import numpy as np

from gnomon.core.cost import Charge, CostModel, Objective, PairCost
from gnomon.core.front.dominance import nondominated
from gnomon.core.front.front import exact_front
from gnomon.core.space import Slot, Space
from gnomon.errors import InfeasibleError

_MOST = 1 << 14


def random_model(seed: int, objectives: int) -> CostModel:
    """A model of up to 2^14 assignments, with costs in whole numbers (odd seeds) or eighths, so that sums are exact and
    ties common.
    """
    rng = np.random.default_rng(seed)
    sizes: list[int] = []
    most = int(2 ** rng.uniform(4, 14))
    while np.prod(sizes, initial=1.0) * 4 <= most:
        sizes.append(int(rng.integers(1, 5)))

    def costs(*shape: int) -> np.ndarray:
        high = 9 if seed % 3 else 400
        drawn = rng.integers(1, high, size=shape).astype(float) if seed % 2 else rng.integers(1, 8 * high, shape) / 8
        drawn[rng.random(shape) < 0.02] = np.inf
        return drawn

    slots = tuple(Slot(f"s{i}", tuple(rng.permutation(list("abcde"))[:k].tolist())) for i, k in enumerate(sizes))
    links = [(i, j) for i in range(len(sizes)) for j in range(len(sizes)) if i != j and rng.random() < 0.15]
    pairs = tuple(PairCost(i, j, costs(sizes[i], sizes[j], objectives)) for i, j in links)
    charges = tuple(Charge(c, rng.integers(0, 30, objectives).astype(float)) for c in "abc" if rng.random() < 0.6)
    names = tuple(Objective(f"o{m}") for m in range(objectives))
    return CostModel(Space(slots), names, tuple(costs(k, objectives) for k in sizes), pairs, charges)


def every_assignment(model: CostModel) -> np.ndarray:
    """All assignments, as an array (assignments, slots)."""
    sizes = [len(slot.choices) for slot in model.space.slots]
    return np.indices(sizes).reshape(len(sizes), -1).T


def checked(model: CostModel, epsilon: float) -> dict[str, bool]:
    """Whether the exact front equals the exhaustive one, and the epsilon front covers it as its certificate says."""
    costs = model.evaluate(every_assignment(model))
    best = costs[nondominated(costs)]
    try:
        exact, near = exact_front(model), exact_front(model, epsilon=epsilon)
    except InfeasibleError:
        return {"infeasible": True, "exact_equal": not len(best), "epsilon_kept": not len(best)}
    needed = float((near.costs[None] / best[:, None]).max(axis=2).min(axis=1).max()) if len(best) else 1.0
    proved = near.certificate.epsilon or 0.0
    return {
        "infeasible": False,
        "exact_equal": exact.certificate.kind == "exact" and np.array_equal(exact.costs, best),
        "epsilon_kept": proved <= epsilon and needed <= 1 + proved + 1e-12,
    }


def main() -> None:
    """Run and print; exit with status 1 if anything differed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="unused: the problems are made up")
    parser.add_argument("--random", type=int, default=500, help="number of random problems of each kind")
    options = parser.parse_args()
    report: dict[str, Any] = {}
    for objectives in (2, 3):
        begin = time.process_time()
        rows = [checked(random_model(seed, objectives), 0.05) for seed in range(options.random)]
        tally = {key: sum(row[key] for row in rows) for key in rows[0]}
        report[f"{objectives} objectives"] = {
            "problems": len(rows),
            **tally,
            "cpu_s": round(time.process_time() - begin, 2),
        }
    same = all(r["exact_equal"] == r["epsilon_kept"] == r["problems"] for r in report.values())
    print(json.dumps({**report, "exact": same}, indent=1))
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
