"""Is the solver exact? Prints one JSON document.

Each graph in DATA/graphs (with its two recorded processors, then with three and four backends, the further ones seeded)
is solved by elimination, by gnomon's own program for HiGHS, and by a simpler formulation through SciPy. A thousand
seeded random problems with charges and impossible choices are compared with exhaustive search.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix

from gnomon.core.cost import Charge, CostModel, Objective, PairCost
from gnomon.core.solver.solve import solve
from gnomon.core.space import Slot, Space
from gnomon.errors import InfeasibleError

_LATENCY = (Objective("latency", "s"),)


def graph_model(data: dict[str, Any], backends: int, seed: int = 0) -> CostModel:
    """The times of a recorded graph; a tensor that crosses between backends costs its edge's transfer."""
    rng = np.random.default_rng(seed)
    nodes = data["nodes"]
    place = {node["id"]: i for i, node in enumerate(nodes)}
    cpu = np.array([float(node["cpuLatency"]) for node in nodes])
    accelerator = np.array([float(node["fpgaLatency"]) for node in nodes])
    supported = np.array([bool(node["supportedOnFpga"]) for node in nodes])
    times = [cpu, np.where(supported, accelerator, np.inf)]
    for _ in range(2, backends):
        between = np.sqrt(np.maximum(cpu, 1e-9) * np.maximum(accelerator, 1e-9)) * rng.lognormal(0, 0.7, len(nodes))
        times.append(np.where(rng.random(len(nodes)) < 0.85, between, np.inf))
    names = ("cpu", "accelerator", "extra1", "extra2")[:backends]
    unlike = 1.0 - np.eye(backends)
    pairs = []
    for edge in data["edges"]:
        a, b = place[edge["sourceId"]], place[edge["destId"]]
        if a != b:
            pairs.append(PairCost(a, b, (unlike * float(edge["cost"]))[..., None]))
    slots = tuple(Slot(f"{i}:{node['name']}", names) for i, node in enumerate(nodes))
    return CostModel(Space(slots), _LATENCY, tuple(np.stack(times, axis=1)[..., None]), tuple(pairs))


def scipy_value(model: CostModel) -> float:
    """The optimum by SciPy: one continuous variable per edge, at least the difference in each backend."""
    count, backends = len(model.slot_costs), len(model.space.slots[0].choices)
    unary = np.stack([cost[:, 0] for cost in model.slot_costs])
    transfers = [(p.first, p.second, float(p.cost[0, 1, 0])) for p in model.pairs if p.cost[0, 1, 0] > 0]
    binaries = count * backends
    rows: list[int] = [i for i in range(count) for _ in range(backends)]
    columns: list[int] = list(range(binaries))
    values: list[float] = [1.0] * binaries
    lower, upper = [1.0] * count, [1.0] * count
    for edge, (a, b, _) in enumerate(transfers):
        for c, sign in itertools.product(range(backends), (1.0, -1.0)):
            rows += [len(lower)] * 3
            columns += [binaries + edge, a * backends + c, b * backends + c]
            values += [1.0, -sign, sign]
            lower.append(0.0)
            upper.append(np.inf)
    unit = 1e5 / max(float(unary[:, 0].sum()), 1e-30)
    costs = np.concatenate([np.where(np.isinf(unary), 0, unary).ravel(), [c for _, _, c in transfers]]) * unit
    matrix = csr_matrix((values, (rows, columns)), shape=(len(lower), len(costs)))
    result = milp(
        costs,
        integrality=[1] * binaries + [0] * len(transfers),
        bounds=Bounds(0, np.concatenate([np.where(np.isinf(unary), 0, 1).ravel(), np.ones(len(transfers))])),
        constraints=LinearConstraint(matrix, lower, upper),
        options={"mip_rel_gap": 0, "time_limit": 120},
    )
    return float(result.fun) / unit if result.status == 0 else float("nan")


def graphs(folder: Path) -> list[dict[str, Any]]:
    """A row for each graph and number of backends."""
    rows = []
    for path in sorted(folder.glob("*.json")):
        data = json.loads(path.read_text())
        for backends in (2, 3, 4):
            model = graph_model(data, backends)
            begin = time.perf_counter()
            found = solve(model)
            middle = time.perf_counter()
            programme = solve(model, method="milp", time_limit_s=120)
            end = time.perf_counter()
            plain = scipy_value(model)
            singles = model.evaluate([[c] * len(model.space.slots) for c in range(backends)])
            greedy = model.evaluate([[int(cost.argmin()) for cost in model.slot_costs]])[0, 0]
            rows.append(
                {
                    "graph": path.stem,
                    "slots": len(model.space.slots),
                    "pairs": len(model.pairs),
                    "backends": backends,
                    "method": found.method,
                    "width": found.width,
                    "value": found.value,
                    "seconds": round(middle - begin, 4),
                    "milp_seconds": round(end - middle, 3),
                    "milp_optimal": programme.optimal,
                    "equals_milp": bool(np.isclose(found.value, programme.value, rtol=1e-9)),
                    "equals_scipy": bool(np.isclose(found.value, plain, rtol=1e-6)),
                    "greedy_over_best": round(float(greedy / found.value), 4),
                    "single_over_best": round(float(singles.min() / found.value), 4),
                }
            )
    return rows


def random_model(seed: int) -> CostModel:
    """A small problem with charges, in which a tenth of the choices and pairs are impossible."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, size=int(rng.integers(1, 8)))

    def costs(*shape: int) -> np.ndarray:
        drawn = rng.integers(-3, 9, size=shape).astype(float) if seed % 2 else rng.normal(size=shape)
        drawn[rng.random(shape) < 0.1] = np.inf
        return drawn

    slots = tuple(Slot(f"s{i}", tuple(rng.permutation(list("abcde"))[:k].tolist())) for i, k in enumerate(sizes))
    ends = [(i, j) for i in range(len(sizes)) for j in range(len(sizes)) if i != j and rng.random() < 0.3]
    pairs = tuple(PairCost(i, j, costs(sizes[i], sizes[j], 1)) for i, j in ends)
    charges = tuple(Charge(c, rng.integers(0, 4, 1).astype(float)) for c in "abc" if rng.random() < 0.6)
    return CostModel(Space(slots), _LATENCY, tuple(costs(k, 1) for k in sizes), pairs, charges)


def random_problems(count: int) -> dict[str, int]:
    """For how many random problems elimination and the program for HiGHS agree with exhaustive search."""
    tally = {"problems": count, "infeasible": 0, "elimination_equal": 0, "milp_equal": 0}
    for seed in range(count):
        model = random_model(seed)
        rows = np.array(list(itertools.product(*[range(len(s.choices)) for s in model.space.slots])))
        best = float(model.evaluate(rows).min())
        tally["infeasible"] += best == np.inf
        for method in ("elimination", "milp"):
            try:
                value = solve(model, method=method).value
            except InfeasibleError:
                value = np.inf
            tally[f"{method}_equal"] += value == best or abs(value - best) < 1e-9
    return tally


def main() -> None:
    """Run and print; exit with status 1 if anything differed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("GNOMON_DATA"), help="folder with graphs/*.json")
    parser.add_argument("--random", type=int, default=1000, help="number of random problems")
    options = parser.parse_args()
    report: dict[str, Any] = {"random": random_problems(options.random)}
    if options.data:
        report["graphs"] = graphs(Path(options.data) / "graphs")
    else:
        report["graphs"] = "skipped: give --data or set GNOMON_DATA"
    rows = report["graphs"] if options.data else []
    tally = report["random"]
    same = tally["elimination_equal"] == tally["milp_equal"] == tally["problems"]
    report["exact"] = same and all(row["equals_milp"] and row["equals_scipy"] for row in rows)
    print(json.dumps(report, indent=1))
    sys.exit(0 if report["exact"] else 1)


if __name__ == "__main__":
    main()
