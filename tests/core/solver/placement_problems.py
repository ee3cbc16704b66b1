"""Random problems and the exhaustive oracle that the solver's tests compare with."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from string import ascii_lowercase

import numpy as np
from numpy.typing import NDArray

from gnomon.core.cost import Charge, CostModel, Limit, Objective, PairCost
from gnomon.core.space import Slot, Space

Floats = NDArray[np.float64]


def random_problem(seed: int, *, largest: int = 6, objectives: int = 1, impossible: float = 0.1) -> CostModel:
    """A small problem: whole-number costs (so many ties) or normal ones, infinities, repeated pairs, charges."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, size=int(rng.integers(0, largest + 1)))

    def costs(*shape: int) -> Floats:
        whole = rng.integers(-3, 9, size=shape).astype(float)
        drawn = whole if seed % 2 else rng.normal(size=shape)
        drawn[rng.random(shape) < impossible] = np.inf
        return drawn

    slots = tuple(Slot(f"s{i}", tuple(rng.permutation(list("abcde"))[:k].tolist())) for i, k in enumerate(sizes))
    ends = [(i, j) for i in range(len(sizes)) for j in range(len(sizes)) if i != j and rng.random() < 0.3]
    pairs = tuple(PairCost(i, j, costs(sizes[i], sizes[j], objectives)) for i, j in ends)
    charges = tuple(Charge(c, rng.integers(0, 4, objectives).astype(float)) for c in "abcz" if rng.random() < 0.6)
    names = tuple(Objective(f"o{m}", "s") for m in range(objectives))
    return CostModel(Space(slots), names, tuple(costs(k, objectives) for k in sizes), pairs, charges)


def random_limits(model: CostModel, seed: int) -> CostModel:
    """The model with one to three limits of whole numbers, some on pairs and charges; often nothing keeps them."""
    rng = np.random.default_rng(seed)
    limits = []
    for number in range(int(rng.integers(1, 4))):
        sizes = [len(slot.choices) for slot in model.space.slots]
        slots = tuple(rng.integers(0, 10, k).astype(float) * (rng.random(k) < 0.6) for k in sizes)
        shapes = [pair.cost.shape[:2] for pair in model.pairs] if rng.random() < 0.4 else []
        pairs = tuple(rng.integers(0, 5, shape).astype(float) for shape in shapes)
        charges = rng.integers(0, 3, len(model.charges)).astype(float).tolist() if rng.random() < 0.3 else ()
        most = float(int(rng.random() * sum(use.max() for use in slots)))
        limits.append(Limit(name=f"l{number}", at_most=most, slots=slots, pairs=pairs, charges=tuple(charges)))
    return replace(model, limits=tuple(limits))


def every_cost(model: CostModel) -> Floats:
    """The costs of all assignments (N, objectives), +inf of those that do not keep the limits."""
    ranges = [range(len(slot.choices)) for slot in model.space.slots]
    rows = np.array(list(itertools.product(*ranges)), dtype=np.intp).reshape(model.space.size, len(ranges))
    costs = model.evaluate(rows)
    for limit in model.limits:
        costs[[model.used(limit, row) > limit.at_most for row in rows.tolist()]] = np.inf
    return costs


def exhaustive(model: CostModel, weights: Mapping[str, float]) -> float:
    """The least weighted cost over all assignments, +inf where none is allowed."""
    costs = every_cost(model)
    vector = np.array([weights.get(objective.name, 0.0) for objective in model.objectives])
    values = np.where(np.isinf(costs), 0.0, costs) @ vector
    values[np.isinf(costs).any(axis=1)] = np.inf
    return float(values.min())


def graph_problem(edges: Sequence[tuple[int, int]], sizes: Sequence[int], seed: int) -> CostModel:
    """Uniform random costs, without anything impossible, on a given graph."""
    rng = np.random.default_rng(seed)
    slots = tuple(Slot(f"s{i}", tuple(ascii_lowercase[:k])) for i, k in enumerate(sizes))
    unary = tuple(rng.random((k, 1)) for k in sizes)
    pairs = tuple(PairCost(a, b, rng.random((sizes[a], sizes[b], 1))) for a, b in edges)
    return CostModel(Space(slots), (Objective("latency", "s"),), unary, pairs)
