"""How fast is the solver? Prints one JSON document.

Seconds are the wall time of one call of `solve` (weighing, ordering, elimination and evaluation, but not the
construction of the model). The problems are a chain of 10,000 slots with 8 choices, and graphs of 2,012 slots with 4
choices and about 2,750 pairs, in several shapes of up to width 7. Each graph has several seeds and random costs, so no
choice is dominated by design.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable

import numpy as np

from gnomon.core.cost import CostModel, Objective, PairCost
from gnomon.core.solver.solve import solve
from gnomon.core.space import Slot, Space

Edges = list[tuple[int, int]]


def chain(rng: np.random.Generator, count: int = 10_000) -> Edges:
    """Each slot linked to the next."""
    return [(i, i + 1) for i in range(count - 1)]


def partial_tree(rng: np.random.Generator, count: int = 2012, width: int = 7, pairs: int = 2751) -> Edges:
    """A random 7-tree, grown near its end, of which a random part of the edges is kept."""
    cliques = [tuple(range(width + 1))]
    edges = set(itertools.combinations(range(width + 1), 2))
    for v in range(width + 1, count):
        ring = rng.permutation(cliques[rng.integers(max(0, len(cliques) - 50), len(cliques))])[:width].tolist()
        edges.update((u, v) for u in ring)
        cliques.append((*ring, v))
    listed = sorted(edges)
    return [listed[i] for i in rng.permutation(len(listed))[:pairs]]


def hard_core(rng: np.random.Generator, count: int = 2012) -> Edges:
    """Blocks of complete 7-trees joined in a row, with chains attached; every block has width 7."""
    core = partial_tree(rng, 300, 7, 10**9)[:1500]
    return core + [(int(rng.integers(max(0, i - 40), i)), i) for i in range(300, count)]


def training(rng: np.random.Generator, count: int = 2012, layers: int = 12) -> Edges:
    """A transformer's forward pass, its mirror image backwards, and long edges from each part to its gradient."""
    half = count // 2
    edges = {(i, i + 1) for i in range(count - 1)}
    step = half // layers
    for start in range(0, half - step, step):
        edges |= {(start, start + step // 2), (start + step // 2, start + step)}
        edges |= {(count - 1 - b, count - 1 - a) for a, b in [(start, start + step // 2), (start, start + 4)]}
        for part in range(start, start + step, 5):  # three projections that meet again
            edges |= {(part, part + 3), (part + 1, part + 4)}
    mirrored = rng.permutation(half - 1)[:300].tolist()
    edges |= {(i, count - 1 - i) for i in mirrored}
    return sorted((a, b) for a, b in edges if a < b < count)


def model_of(edges: Edges, count: int, choices: int, rng: np.random.Generator) -> CostModel:
    """Uniform random costs on a graph."""
    names = tuple(f"c{c}" for c in range(choices))
    slots = tuple(Slot(f"s{i}", names) for i in range(count))
    tables = rng.random((len(edges), choices, choices, 1))
    pairs = tuple(PairCost(a, b, table) for (a, b), table in zip(edges, tables, strict=True))
    return CostModel(Space(slots), (Objective("latency", "s"),), tuple(rng.random((count, choices, 1))), pairs)


def timed(make: Callable[[np.random.Generator], Edges], count: int, choices: int, seeds: int) -> dict[str, object]:
    """The seconds over several seeds, with three calls each."""
    seconds, widths, methods, pairs = [], set(), set(), set()
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        edges = make(rng)
        model = model_of(edges, count, choices, rng)
        for _ in range(3):
            begin = time.perf_counter()
            found = solve(model)
            seconds.append(time.perf_counter() - begin)
        widths.add(found.width)
        methods.add(found.method)
        pairs.add(len(edges))
    return {
        "family": make.__name__,
        "slots": count,
        "choices": choices,
        "pairs": sorted(pairs),
        "widths": sorted(widths),
        "methods": sorted(methods),
        "count": len(seconds),
        "median_s": round(statistics.median(seconds), 4),
        "min_s": round(min(seconds), 4),
        "max_s": round(max(seconds), 4),
    }


def main() -> None:
    """Run all families and print their times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="not used: the problems are made up")
    parser.add_argument("--seeds", type=int, default=5)
    seeds = parser.parse_args().seeds
    rows = [timed(chain, 10_000, 8, seeds)]
    rows += [timed(make, 2012, 4, seeds) for make in (partial_tree, hard_core, training)]
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
