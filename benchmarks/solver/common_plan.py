"""How fast is the plan for several devices at once? Prints one JSON document.

Seconds of `common_problem` and `least_total` on 2,000 slots of 4 choices and 3 devices with costs of
their own: operators without transfers, a chain that pays for unlike neighbours, a chain of random pair costs, and a
graph of width up to 7. Each operator has a size that the devices share, so that they agree partly, as real ones do.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.common import arguments, publish, spread
from benchmarks.solver.speed import partial_tree
from gnomon.core.cost import Charge, CostModel, Objective, PairCost
from gnomon.core.solver.common import CommonPlan, common_problem, least_total
from gnomon.core.space import Slot, Space

CHOICES = ("cpu", "gpu", "npu", "dsp")
KINDS = ("separate", "unlike", "chain", "graph")


def devices(kind: str, slots: int, count: int, seed: int) -> dict[str, CostModel]:
    """One model a device over the same slots."""
    rng = np.random.default_rng(seed)
    size = rng.lognormal(0.0, 1.0, (slots, 1))
    speed = rng.lognormal(0.0, 0.3, (slots, len(CHOICES)))
    space = Space(tuple(Slot(f"s{i}", CHOICES) for i in range(slots)))
    edges = [(i, i + 1) for i in range(slots - 1)] if kind != "graph" else partial_tree(rng, slots, 7, 2751)
    models = {}
    for number in range(count):
        costs = size * speed * rng.lognormal(0.0, 0.3, speed.shape)
        shape = (len(CHOICES), len(CHOICES))
        transfer = 1 - np.eye(len(CHOICES))
        tables = {
            "separate": [],
            "unlike": [transfer * 0.05 * rng.random() for _ in edges],
            "chain": [transfer * 0.2 * rng.random(shape) for _ in edges],
            "graph": [transfer * 0.2 * rng.random(shape) for _ in edges],
        }[kind]
        pairs = tuple(PairCost(a, b, t[..., None]) for (a, b), t in zip(edges, tables, strict=False))
        charges = (Charge("npu", np.array([3.0])),)
        models[f"device {number}"] = CostModel(
            space, (Objective("latency", "s"),), tuple(costs[:, :, None]), pairs, charges
        )
    return models


def told(plan: CommonPlan) -> dict[str, Any]:
    """The certificate."""
    return {
        "worst": plan.worst,
        "total": plan.total,
        "bound": plan.bound,
        "optimal": plan.optimal,
        "method": plan.method,
    }


def measured(kind: str, seeds: int, slots: int = 2000, count: int = 3) -> dict[str, Any]:
    """Seconds over several seeds, one call each."""
    seconds: dict[str, list[float]] = {"problem": [], "total": []}
    plans = []
    for seed in range(seeds):
        models = devices(kind, slots, count, seed)
        begin = time.perf_counter()
        problem = common_problem(models)
        seconds["problem"].append(time.perf_counter() - begin)
        begin = time.perf_counter()
        total = least_total(problem)
        seconds["total"].append(time.perf_counter() - begin)
        plans.append({"seed": seed, "total": told(total)})
    return {
        "kind": kind,
        "slots": slots,
        "choices": len(CHOICES),
        "devices": count,
        "seconds": {name: spread(values) for name, values in seconds.items()},
        "plans": plans,
    }


def main() -> None:
    """Measure every kind and print it."""
    asked = arguments(__doc__)
    publish({"benchmark": "common_plan", "rows": [measured(kind, 3) for kind in KINDS]}, asked)


if __name__ == "__main__":
    main()
