"""How many assignments a second does a cost model evaluate? Prints one JSON document."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np

from front_models import blocks_model
from gnomon.core.batch import BatchEvaluator


def measured(slots: int, choices: int, count: int) -> dict[str, Any]:
    """The best of three evaluations of random assignments."""
    model = blocks_model(slots, choices)
    begin = time.perf_counter()
    evaluator = BatchEvaluator(model)
    made = time.perf_counter() - begin
    rows = np.random.default_rng(0).integers(0, choices, (count, slots)).astype(np.uint8)
    wall, cpu = [], []
    for _ in range(3):
        begin, begin_cpu = time.perf_counter(), time.process_time()
        costs = evaluator.evaluate(rows)
        wall.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - begin_cpu)
    sample = model.evaluate(rows[:10].astype(np.int64))
    return {
        "slots": slots,
        "choices": choices,
        "pairs": len(model.pairs),
        "objectives": 2,
        "assignments": count,
        "construction_s": round(made, 4),
        "wall_s": round(min(wall), 3),
        "cpu_s": round(min(cpu), 3),
        "a_second_of_cpu": round(count / min(cpu)),
        "same_in_small": bool(np.allclose(costs[:10], sample)),
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="unused: the problems are made up")
    parser.add_argument("--count", type=int, default=1_000_000)
    options = parser.parse_args()
    print(json.dumps([measured(200, k, options.count) for k in (2, 3)], indent=1))


if __name__ == "__main__":
    main()
