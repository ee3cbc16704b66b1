"""Made-up devices for the searches: operators on backends, and options that change a whole run at once.

Their prices do not add up: executors and threads multiply times, planners multiply memory, memory is that of the
largest operator instead of the sum, backends cost something as soon as any operator uses them, values are rounded or
noisy, assignments fail, and there is a third objective.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.search.spaces import Priced
from gnomon.core.cost import Floats
from gnomon.core.space import Slot, Space

KINDS = ("sum", "peak", "charge", "quantised", "peak quantised", "failing", "noisy", "three")
SHAPES = (  # the numbers of backends, operators, planners, executors and threads
    (2, 6, 1, 1, 1),
    (3, 4, 1, 1, 1),
    (2, 2, 3, 3, 4),
    (4, 4, 1, 1, 1),
    (2, 4, 3, 3, 2),
    (2, 5, 3, 3, 2),
)
_BACKENDS = ("cpu", "gpu", "npu", "dsp")
_OPTIONS = {"planner": ("wic", "first fit", "bump"), "executor": ("linear", "dataflow", "parallel")}
_THREADS = ("1", "2", "4", "8")


def devices(draws: range) -> Iterator[Priced]:
    """Every kind in every shape, once for each draw."""
    for shape in SHAPES:
        for kind in KINDS:
            for draw in draws:
                rng = np.random.default_rng([draw, *shape, *kind.encode()])
                name = f"{kind} {'x'.join(map(str, shape))} #{draw}"
                yield Priced(name=name, space=_space(shape), costs=_costs(shape, kind, rng))


def _space(shape: tuple[int, ...]) -> Space:
    backends, operators, *counts = shape
    slots = [Slot(f"operator {i}", _BACKENDS[:backends]) for i in range(operators)]
    for (name, values), count in zip({**_OPTIONS, "threads": _THREADS}.items(), counts, strict=True):
        if count > 1:
            slots.append(Slot(name, values[:count]))
    return Space(tuple(slots))


def _costs(shape: tuple[int, ...], kind: str, rng: np.random.Generator) -> Floats:
    backends, operators, *counts = shape
    space = _space(shape)
    table = np.array([space.decode(code) for code in range(space.size)])
    chosen, rest = table[:, :operators], iter(table[:, operators:].T)
    planner, executor, threads = (next(rest) if n > 1 else np.zeros(len(table), dtype=int) for n in counts)
    row = np.arange(operators)
    times = np.exp(rng.normal(0, 1, (operators, 1)) + rng.normal(0, 0.6, (operators, backends)))
    times = times * np.exp(rng.normal(0, 0.4, backends))
    number, parallel = 2.0**threads, rng.uniform(0, 0.9)
    speed = 1 - parallel + parallel / number + rng.uniform(0, 0.02) * number
    speed *= np.array([1, rng.uniform(0.95, 1.15), rng.uniform(0.7, 1.2)])[executor]
    crossings = (chosen[:, 1:] != chosen[:, :-1]).sum(axis=1) * rng.exponential(0.15)
    latency = times[row, chosen].sum(axis=1) * speed + crossings + rng.uniform(0.1, 0.5)
    buffers = rng.exponential(6, (operators, backends))[row, chosen]
    held = buffers.max(axis=1) if kind.startswith("peak") else buffers.sum(axis=1)
    held = held * np.array([1, rng.uniform(1, 1.1), rng.uniform(1.2, 2)])[planner]
    held *= np.array([1, rng.uniform(1.2, 2), rng.uniform(1.2, 2)])[executor]
    loaded = np.exp(rng.normal(4 if kind == "charge" else 2, 1, backends))
    memory = 20 + held + number * rng.uniform(0, 1.5)
    memory += sum(loaded[b] * (chosen == b).any(axis=1) for b in range(1, backends))
    columns = [latency, memory]
    if kind == "three":
        power = times * np.exp(rng.normal(0, 0.5, backends))
        columns.append(power[row, chosen].sum(axis=1) * (1 + 0.1 * number) + latency * rng.uniform(0.1, 0.5))
    spread = np.array([0.02, 0.002, 0.02])[: len(columns)] * (5 if kind == "noisy" else 1)
    costs = np.stack(columns, axis=1) * np.exp(rng.normal(0, 1, (len(table), len(columns))) * spread)
    if kind.endswith("quantised"):
        costs = np.round(costs / [0.1, 4.0]) * [0.1, 4.0]
    if kind == "failing":
        last = chosen == backends - 1
        fails = last[:, rng.integers(operators)] | (last.any(axis=1) & (executor == 2))
        costs[fails] = np.nan
    return np.asarray(costs, dtype=np.float64)
