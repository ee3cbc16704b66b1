"""How fast are the choices of `gnomon overlay`, and how often is a portfolio proven? No reference data needed.

Analysis: theta, M, the choice, its worst regret and estimates of 50 layers of 10,000 configurations on 100 devices (all
times made up, each layer's its own; once complete, once with a fifth of them missing and a few that cannot be times).
Memory is what the analysis takes on top of the times. Portfolios: the best p of 1,000 configurations for 100 devices in
several kinds of made-up regrets, each with several seeds; a search ends at 10 seconds, and `gap` is what is then not
proved, as a part of the value. Seconds are wall time of one call, without making up the times.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from common import parser, publish, spread
from gnomon.core.cost import Floats
from gnomon.core.overlay.choice import LayerTimes, choose_network
from gnomon.core.overlay.portfolio import best_portfolio
from gnomon.errors import InfeasibleError

LAYERS, CONFIGURATIONS, DEVICES = 50, 10_000, 100
CHOICES = 1_000  # configurations of a portfolio's problem
LIMIT_S = 10.0

Kind = Callable[[np.random.Generator], Floats]


def layers(generator: np.random.Generator, missing: float) -> list[LayerTimes]:
    """Made-up layers: log-normal times, a part of them missing, and of those a few that cannot be times."""
    devices = tuple(f"device{i}" for i in range(DEVICES))
    made = []
    for number in range(LAYERS):
        times_s = np.exp(generator.normal(-7, 0.5, (CONFIGURATIONS, DEVICES)))
        if missing:
            times_s[: CONFIGURATIONS // 2][generator.random((CONFIGURATIONS // 2, DEVICES)) < 2 * missing] = np.nan
            times_s[generator.integers(0, CONFIGURATIONS, 9), generator.integers(0, DEVICES, 9)] = 0.0
        made.append(
            LayerTimes(
                name=f"layer{number}",
                layer=str(number),
                weight=1 + number % 3,
                devices=devices,
                configurations=tuple(f"{c:016x}" for c in range(CONFIGURATIONS)),
                hosts=tuple((devices[c % DEVICES],) for c in range(CONFIGURATIONS)),
                times_s=times_s,
            )
        )
    return made


def analysis(seeds: int, missing: float) -> dict[str, Any]:
    """Seconds over several seeds, three calls each, and the memory of one call a seed."""
    seconds, peaks = [], []
    for seed in range(seeds):
        made = layers(np.random.default_rng(seed), missing)
        for _ in range(3):
            begin = time.perf_counter()
            found = choose_network(made)
            seconds.append(time.perf_counter() - begin)
        assert not found.left_out
        tracemalloc.start()
        choose_network(made)
        peaks.append(float(tracemalloc.get_traced_memory()[1]))
        tracemalloc.stop()
    size = {"layers": LAYERS, "configurations": CONFIGURATIONS, "devices": DEVICES}
    return {**size, "missing": missing, "seeds": seeds, "seconds": spread(seconds), "peak_bytes": spread(peaks)}


def regrets(times: Floats) -> Floats:
    """Regret of made-up times."""
    return np.asarray(times / times.min(axis=0) - 1)


def uniform(generator: np.random.Generator) -> Floats:
    """Independent, from 0 to 1."""
    return generator.random((CHOICES, DEVICES))


def lognormal(generator: np.random.Generator) -> Floats:
    """Times that are independent."""
    return regrets(np.exp(generator.normal(0, 0.5, (CHOICES, DEVICES))))


def quality(generator: np.random.Generator) -> Floats:
    """Times with a part that is a configuration's own, on all devices."""
    return regrets(np.exp(generator.normal(0, 0.3, (CHOICES, 1)) + generator.normal(0, 0.3, (CHOICES, DEVICES))))


def clusters(generator: np.random.Generator, number: int = 4) -> Floats:
    """Times that are alike on devices of one cluster."""
    member = generator.integers(0, number, DEVICES)
    common = generator.normal(0, 0.5, (CHOICES, number))[:, member]
    return regrets(np.exp(common + generator.normal(0, 0.15, (CHOICES, DEVICES))))


def many_clusters(generator: np.random.Generator) -> Floats:
    """Four times as many clusters as portfolios have configurations."""
    return clusters(generator, 12)


def five_factors(generator: np.random.Generator) -> Floats:
    """Times of low rank: five properties of configurations, weighed otherwise by each device."""
    factors = generator.normal(size=(CHOICES, 5)) @ generator.normal(size=(5, DEVICES))
    return regrets(np.exp(0.3 * factors + 0.1 * generator.normal(size=(CHOICES, DEVICES))))


def whole(generator: np.random.Generator) -> Floats:
    """Integers from 0 to 4: many ties."""
    return generator.integers(0, 5, (CHOICES, DEVICES)).astype(float)


def mostly_one(generator: np.random.Generator) -> Floats:
    """0 with probability 0.1, else 1."""
    return (generator.random((CHOICES, DEVICES)) < 0.9).astype(float)


def equal(generator: np.random.Generator) -> Floats:
    """All the same."""
    return np.full((CHOICES, DEVICES), float(generator.random()))


def nearly_equal(generator: np.random.Generator) -> Floats:
    """Equal to seven digits."""
    return np.asarray(1 + 1e-7 * generator.random((CHOICES, DEVICES)))


def twins(generator: np.random.Generator) -> Floats:
    """Each configuration twice."""
    return np.repeat(generator.random((CHOICES // 2, DEVICES)), 2, axis=0)


def heavy(generator: np.random.Generator) -> Floats:
    """Times over many orders of magnitude."""
    return regrets(np.exp(generator.normal(0, 3, (CHOICES, DEVICES))))


def holes(generator: np.random.Generator) -> Floats:
    """Independent; half of the configurations' times missing."""
    costs = generator.random((CHOICES, DEVICES))
    costs[generator.random((CHOICES, DEVICES)) < 0.5] = np.inf
    return costs


KINDS: tuple[Kind, ...] = (
    uniform,
    lognormal,
    quality,
    clusters,
    many_clusters,
    five_factors,
    whole,
    mostly_one,
    equal,
    nearly_equal,
    twins,
    heavy,
    holes,
)


def portfolios(kind: Kind, size: int, seeds: int) -> dict[str, Any]:
    """Seconds over several seeds, and what was proved."""
    seconds, nodes, gaps, proven, infeasible = [], [], [], 0, 0
    for seed in range(seeds):
        costs = kind(np.random.default_rng(seed))
        begin = time.perf_counter()

        def out_of_time(end: float = begin + LIMIT_S) -> bool:
            return time.perf_counter() > end

        try:
            found = best_portfolio(costs, size, out_of_time=out_of_time)
        except InfeasibleError:  # proved as well
            seconds.append(time.perf_counter() - begin)
            infeasible += 1
            continue
        seconds.append(time.perf_counter() - begin)
        nodes.append(float(found.nodes))
        proven += found.proven
        if not found.proven:
            gaps.append(1 - found.bound / found.value if found.chosen else 1.0)
    return {
        "kind": kind.__name__,
        "p": size,
        "proven": proven,
        "proven_infeasible": infeasible,
        "of": seeds,
        "seconds": spread(seconds),
        "branches": spread(nodes) if nodes else None,
        "gap": spread(gaps) if gaps else None,
    }


def main() -> None:
    """Both figures."""
    made = parser(__doc__)
    made.add_argument("--seeds", type=int, default=5)
    given = made.parse_args()
    rows = [portfolios(kind, size, given.seeds) for size in (3, 1, 2) for kind in KINDS]
    rows += [portfolios(kind, size, min(given.seeds, 2)) for size in (4, 5) for kind in KINDS]
    document = {
        "benchmark": "overlay_scale",
        "analysis": [analysis(given.seeds, missing) for missing in (0.0, 0.2)],
        "portfolio": {"configurations": CHOICES, "devices": DEVICES, "limit_s": LIMIT_S, "runs": rows},
    }
    publish(document, given)


if __name__ == "__main__":
    main()
