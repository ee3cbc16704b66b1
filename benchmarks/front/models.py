"""Recorded graphs as problems of two objectives, for the benchmarks of fronts."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np

from gnomon.core.cost import CostModel, Objective, PairCost
from gnomon.core.space import Slot, Space

_TOTAL = 1e6


def graph_model(path: Path, backends: int, seed: int = 0) -> CostModel:
    """The latency of a recorded graph, and a made-up memory, in whole numbers; all on the first backend cost a million.

    Backends beyond the two recorded ones support 85 % of the nodes, and take the geometric mean of both times
    multiplied by a lognormal factor of 0.7. Memory is the node's size multiplied by 1, 2, 2.5, .. for the backends in
    order, and by a lognormal factor of 0.2.
    """
    data = json.loads(path.read_text(encoding="utf-8"))
    rng = np.random.default_rng(seed)
    nodes = data["nodes"]
    place = {node["id"]: i for i, node in enumerate(nodes)}
    count = len(nodes)
    cpu, accelerator = (np.array([float(node[key]) for node in nodes]) for key in ("cpuLatency", "fpgaLatency"))
    supported = np.array([bool(node["supportedOnFpga"]) for node in nodes])
    size = np.array([float(node["size"]) for node in nodes])
    times = [cpu, np.where(supported, accelerator, np.inf)]
    for _ in range(2, backends):
        there = rng.random(count) < 0.85
        between = np.sqrt(np.maximum(cpu, 1e-9) * np.maximum(accelerator, 1e-9)) * rng.lognormal(0, 0.7, count)
        times.append(np.where(there, between, np.inf))
    factors = [1.0, *(1.5 + 0.5 * b for b in range(1, backends))]
    memory = [size * factor * rng.lognormal(0, 0.2, count) for factor in factors]
    latency_unit, memory_unit = _TOTAL / max(cpu.sum(), 1e-9), _TOTAL / max(memory[0].sum(), 1e-9)
    transfers: dict[tuple[int, int], float] = {}
    for edge in data["edges"]:
        a, b = sorted((place[edge["sourceId"]], place[edge["destId"]]))
        if a != b:
            transfers[a, b] = transfers.get((a, b), 0.0) + float(edge["cost"])
    lat, mem = np.rint(np.stack(times, 1) * latency_unit), np.rint(np.stack(memory, 1) * memory_unit)
    return _model(np.stack([lat, mem], axis=-1), {e: float(round(c * latency_unit)) for e, c in transfers.items()})


def blocks_model(count: int, backends: int, seed: int = 0) -> CostModel:
    """A synthetic net of `count` slots: modules of four branches with up to three slots each, as in inception nets."""
    rng = np.random.default_rng(seed)
    edges: list[tuple[int, int]] = []
    head = 0
    while head < count - 1:
        lengths = rng.integers(1, 4, size=4)
        if head + int(lengths.sum()) + 1 >= count:
            edges.append((head, head + 1))
            head += 1
            continue
        join = head + int(lengths.sum()) + 1
        start = head + 1
        for length in lengths.tolist():
            chain = [head, *range(start, start + length), join]
            edges += list(pairwise(chain))
            start += length
        head = join
    work = rng.lognormal(0, 1.2, count)
    latency = work[:, None] * rng.lognormal(0, 0.5, (count, backends)) / np.linspace(1, 3, backends)
    memory = rng.lognormal(0, 1.0, count)[:, None] * rng.lognormal(0, 0.2, (count, backends))
    memory *= np.linspace(1, 2, backends)
    unit = _TOTAL / latency[:, 0].sum()
    costs = np.rint(np.stack([latency * unit, memory * (_TOTAL / memory[:, 0].sum())], axis=-1))
    drawn = np.rint(rng.lognormal(-1.0, 0.7, len(edges)) * work.mean() * unit)
    return _model(costs, dict(zip(edges, drawn.tolist(), strict=True)))


def _model(costs: np.ndarray, transfers: dict[tuple[int, int], float]) -> CostModel:
    count, backends = costs.shape[:2]
    costs = np.where(np.isinf(costs).any(axis=2, keepdims=True), np.inf, costs)
    unlike = np.stack([1.0 - np.eye(backends), np.zeros((backends, backends))], axis=-1)
    pairs = tuple(PairCost(a, b, unlike * cost) for (a, b), cost in transfers.items())
    names = tuple(f"b{b}" for b in range(backends))
    slots = tuple(Slot(f"s{i}", names) for i in range(count))
    return CostModel(Space(slots), (Objective("latency"), Objective("memory")), tuple(costs), pairs)
