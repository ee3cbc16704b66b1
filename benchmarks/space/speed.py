"""How fast are the units of a search space listed, and nets counted? Prints one JSON document.

For each shipped space: the seconds until all units are known, unfused and with convolutions fused, each in a fresh
process; and the nets counted and the nets summed per second, over ROUNDS rounds of BATCH assignments.
"""

from __future__ import annotations

import multiprocessing
import time
from typing import Any

import numpy as np

from benchmarks.common import arguments, publish, spread
from gnomon.spaces import UNFUSED, FusionRules, draw, known_spaces, load_space, rules

ROUNDS = 5
BATCH = 100_000
MOST_NUMBERS = 50_000_000  # of a matrix of counts: spaces with many units are counted in smaller batches
FUSED = rules([f"Conv+BatchNormalization+{kind}" for kind in ("Relu", "Relu6", "HardSwish", "Add")])


def found_in(name: str, in_force: FusionRules) -> tuple[float, int]:
    """The seconds and the units when a space is first examined."""
    started = time.perf_counter()
    units = len(load_space(name).tables(in_force).units)
    return time.perf_counter() - started, units


def examine(name: str, pool: Any) -> dict[str, Any]:
    """The figures of one space."""
    told: dict[str, Any] = {}
    for word, in_force in (("unfused", UNFUSED), ("fused", FUSED)):
        runs = pool.starmap(found_in, [(name, in_force)] * ROUNDS, chunksize=1)
        told[word] = {"units": runs[0][1], "found_s": spread([seconds for seconds, _ in runs])}
    tables = load_space(name).tables(UNFUSED)
    columns = tables.rows.shape[1]
    batch = min(BATCH, MOST_NUMBERS // columns)
    values = np.ones(columns)
    counted, summed = [], []
    for seed in range(ROUNDS):
        chosen = draw(tables, batch, seed=seed, distinct=False)
        started = time.perf_counter()
        counts = tables.counts(chosen)
        between = time.perf_counter()
        sums = tables.sums(chosen, values)
        counted.append(batch / (between - started))
        summed.append(batch / (time.perf_counter() - between))
        assert np.array_equal(sums, counts.sum(axis=1))
    return {**told, "batch": batch, "counted_per_s": spread(counted), "summed_per_s": spread(summed)}


def main() -> None:
    """Measure and print."""
    given = arguments(__doc__)
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        publish({"spaces": {name: examine(name, pool) for name in known_spaces()}}, given)


if __name__ == "__main__":
    main()
