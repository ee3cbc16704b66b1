"""How fast is the exact solver with limits, and is it correct? Prints one JSON document.

The problems are made-up placements on four backends with heavy-tailed weights (log-normal; 40 % of the slots have
none), times from operations and bytes, and transfers from the bytes of an edge. On one or two backends, bytes are
limited to a share of what the best placement without limits uses. The graphs are a chain, a training graph and a
partial 7-tree of 2,012 slots; a chain of 80 layers of six groups with three limits; and, with --data, the graphs of
published models, DIR/*.json with `edges`, `weights`, `acts`. Small random problems are compared with exhaustive search,
larger ones with HiGHS.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import gnomon
from benchmarks.common import parser, publish
from benchmarks.solver.speed import partial_tree, training
from gnomon.core.cost import CostModel, Limit, Objective, PairCost, limit_on
from gnomon.core.solver.solve import solve
from gnomon.core.space import Slot, Space
from gnomon.errors import InfeasibleError
from gnomon.formats.problem import write_problem

NAMES = ("cpu", "gpu", "npu", "dsp")
_SPEED = np.array([2e10, 2e11, 4e11, 6e10])
_BANDWIDTH = np.array([1e10, 4e10, 3e10, 1e10])
_START_S = np.array([1e-6, 8e-6, 6e-6, 4e-6])


def placement(
    seed: int, edges: list[tuple[int, int]], count: int, weights: np.ndarray | None, acts: np.ndarray | None
) -> tuple[CostModel, np.ndarray]:
    """A placement without limits, and the bytes that each slot takes on its backend."""
    rng = np.random.default_rng(seed)
    if weights is None or acts is None:
        weights = np.where(rng.random(count) < 0.4, 0, np.round(4 * rng.lognormal(9, 2, count)))
        acts = np.round(4 * rng.lognormal(9.5, 1, count))
    work = 2 * weights * rng.choice([1, 16, 64], count) + acts
    times = _START_S + np.maximum(work[:, None] / _SPEED, (weights + acts)[:, None] / _BANDWIDTH)
    times *= rng.lognormal(0, 0.3, times.shape)
    unlike = 1 - np.eye(4)
    pairs = tuple(
        PairCost(a, b, (unlike * (5e-6 + acts[a] / 6e9) * rng.lognormal(0, 0.1, (4, 4)))[..., None]) for a, b in edges
    )
    space = Space(tuple(Slot(f"s{i}", NAMES) for i in range(count)))
    model = CostModel(space, (Objective("latency", "s"),), tuple(times[..., None]), pairs)
    return model, weights + acts // 8


def limited(model: CostModel, sizes: np.ndarray, backends: tuple[int, ...], share: float) -> CostModel:
    """On each of some backends, limit the bytes to a share of what the best placement without limits uses there."""
    best = np.array(solve(model).assignment)
    limits = []
    for backend in backends:
        on = np.arange(4) == backend
        most = float(int(share * sizes[best == backend].sum()))
        limits.append(Limit(name=NAMES[backend], unit="B", at_most=most, slots=tuple(size * on for size in sizes)))
    return replace(model, limits=tuple(limits))


def chain(count: int) -> list[tuple[int, int]]:
    """Each slot linked to the next."""
    return [(i, i + 1) for i in range(count - 1)]


def layers(count: int = 80, groups: int = 6) -> list[tuple[int, int]]:
    """Layers of groups in a row, with a residual from each layer's first group to that of the next layer."""
    return chain(count * groups) + [(i * groups, (i + 1) * groups) for i in range(count - 1)]


def problems(data: Path | None, seeds: list[int]) -> Iterator[tuple[str, int, CostModel]]:
    """The family, the number of limits, and the problem."""
    for seed in seeds:
        made: list[tuple[str, list[tuple[int, int]], int, Any, Any]] = [
            ("chain", chain(2012), 2012, None, None),
            ("training", training(np.random.default_rng(seed)), 2012, None, None),
            ("partial 7-tree", partial_tree(np.random.default_rng(seed)), 2012, None, None),
            ("80 layers x 6", layers(), 480, None, None),
        ]
        for path in sorted(data.glob("*.json")) if data is not None else ():
            graph = json.loads(path.read_text(encoding="utf-8"))
            weights, acts = np.array(graph["weights"], dtype=float), np.array(graph["acts"], dtype=float)
            made.append((path.stem, [(a, b) for a, b in graph["edges"]], len(weights), weights, acts))
        for name, edges, count, weights, acts in made:
            model, sizes = placement(seed, edges, count, weights, acts)
            numbers = [(1, 2, 3)] if name.startswith("80") else [(2,), (1, 2)]
            for backends, share in itertools.product(numbers, (0.2, 0.5, 0.8)):
                yield name, len(backends), limited(model, sizes, backends, share)


def timed(model: CostModel, limit_s: float) -> dict[str, Any]:
    """The CPU seconds of a call of the public function, what was proved, and by which method."""
    text = write_problem(model)
    begin = time.process_time()
    found = gnomon.solve(text, time_limit_s=limit_s)
    seconds = time.process_time() - begin
    assert all(limit.slack >= 0 for limit in found.limits)
    gap = 1 - found.bound / found.cost[0] if found.bound is not None else None
    return {"cpu_s": round(seconds, 2), "optimal": found.optimal, "gap": gap, "method": found.method}


def small(count: int) -> dict[str, int]:
    """How many random problems agree with exhaustive search; they have one to three limits, ties, and often no allowed
    assignment.
    """
    tally = {"problems": count, "nothing_allowed": 0, "equal": 0}
    for seed in range(count):
        rng = np.random.default_rng(seed)
        slots, choices = int(rng.integers(2, 9)), int(rng.integers(2, 4))
        ends = [e for e in itertools.combinations(range(slots), 2) if rng.random() < 3 / slots]
        whole = seed % 3 == 0  # so that many are equal

        def drawn(*shape: int, rng: np.random.Generator = rng, whole: bool = whole) -> np.ndarray:
            return np.round(4 * rng.random(shape)) if whole else rng.random(shape)

        space = Space(tuple(Slot(f"s{i}", NAMES[:choices]) for i in range(slots)))
        model = CostModel(
            space,
            (Objective("o"),),
            tuple(drawn(choices, 1) for _ in range(slots)),
            tuple(PairCost(a, b, drawn(choices, choices, 1)) for a, b in ends),
        )
        limits = []
        for number in range(int(rng.integers(1, 4))):
            use = rng.integers(0, 10, (slots, choices)) * (rng.random((slots, choices)) < 0.6)
            most = float(int(rng.random() * use.max(axis=1).sum()))
            limits.append(Limit(name=f"l{number}", at_most=most, slots=tuple(use.astype(float))))
        if ends and rng.random() < 0.3:
            limits.append(limit_on(model, "switches", (), float(rng.integers(0, len(ends)))))
        model = replace(model, limits=tuple(limits))
        rows = np.array(list(itertools.product(range(choices), repeat=slots)))
        costs = model.evaluate(rows)[:, 0]
        costs[[any(model.used(one, row) > one.at_most for one in limits) for row in rows.tolist()]] = np.inf
        try:
            found = gnomon.solve(write_problem(model))
            value = found.cost[0] if found.optimal else float("nan")
        except InfeasibleError:
            value = np.inf
        tally["nothing_allowed"] += bool(costs.min() == np.inf)
        tally["equal"] += bool(value == costs.min() or abs(value - costs.min()) < 1e-9)
    return tally


def beside_highs(count: int, limit_s: float) -> dict[str, int]:
    """How many problems of 20 to 60 slots agree with HiGHS."""
    tally = {"problems": count, "equal": 0}
    for seed in range(count):
        rng = np.random.default_rng(seed)
        slots = int(rng.integers(20, 60))
        edges = chain(slots) + [(int(a), int(a) + int(rng.integers(2, 6))) for a in rng.integers(0, slots - 6, 8)]
        model, sizes = placement(seed, list(dict.fromkeys(edges)), slots, None, None)
        text = write_problem(
            limited(model, sizes, ((2,), (1, 2), (1, 2, 3))[seed % 3], float(rng.choice([0.2, 0.5, 0.8])))
        )
        one, other = (gnomon.solve(text, method=m, time_limit_s=limit_s) for m in ("auto", "milp"))
        tally["equal"] += abs(one.cost[0] / other.cost[0] - 1) < 1e-6
    return tally


def main() -> None:
    """Run all and print."""
    made = parser(__doc__)
    made.add_argument("--seeds", type=int, nargs="*", default=[100, 101, 102], help="of the made-up costs")
    made.add_argument("--time-limit", type=float, default=20.0, help="seconds for each problem (20)")
    made.add_argument("--small", type=int, default=2000, help="random problems beside exhaustive search")
    made.add_argument("--beside", type=int, default=100, help="larger problems beside HiGHS")
    given = made.parse_args()
    rows: list[dict[str, Any]] = []
    for name, limits, model in problems(given.data, given.seeds):
        rows.append(
            {"graph": name, "slots": len(model.space.slots), "limits": limits, **timed(model, given.time_limit)}
        )
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    kinds = {
        (row["slots"] >= 2012, row["limits"], row["graph"] if row["slots"] < 2012 else "2,012 x 4") for row in rows
    }
    summary = []
    for large, limits, name in sorted(kinds):
        part = [row for row in rows if row["limits"] == limits and (row["slots"] >= 2012) == large]
        part = [row for row in part if large or row["graph"] == name]
        seconds = [row["cpu_s"] for row in part]
        proved = sum(row["optimal"] for row in part)
        median, most = statistics.median(seconds), max(seconds)
        gaps = [row["gap"] for row in part if row["gap"] is not None]
        told = {"graph": name, "limits": limits, "problems": len(part), "proved": proved, "largest_gap": max(gaps)}
        summary.append(told | {"median_cpu_s": median, "most_cpu_s": most})
    publish(
        {
            "benchmark": "limits",
            "small": small(given.small),
            "beside_highs": beside_highs(given.beside, given.time_limit),
            "summary": summary,
            "rows": rows,
        },
        given,
    )


if __name__ == "__main__":
    main()
