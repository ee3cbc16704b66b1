"""Blocks of a model: stretches between narrow cuts, which are the slots of placement across runtimes."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.jobs.kernels import Kernel
from gnomon.models.cut import Cutter, Segment
from gnomon.runtimes.base import Configuration, PlacedModel, Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Places in the cutter's order where the model is cut: block k is [places[k], places[k + 1])."""

    places: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many blocks there are."""
        return len(self.places) - 1


def choose_blocks(cutter: Cutter, weight: Sequence[float], most: int, split: Container[int] = ()) -> Blocks:
    """Up to `most` blocks of about equal weight, cut where few and small tensors are alive.

    `weight` is the time of each node in the cutter's order. Candidates are the narrowest cuts there are: with one
    live tensor, or with as few as give two blocks for each one wanted, up to four. Places in `split` would cut
    through a kernel, and are taken only where there is no other.
    """
    total = max(float(sum(weight)), 1e-12)
    before = np.concatenate([[0.0], np.cumsum(weight)]) / total
    candidates: list[int] = []
    for live in range(1, 5):
        candidates = [p for p in cutter.cut_points(live) if 0.02 < before[p] < 0.98]
        if len(candidates) >= 2 * most:
            break
    size = {p: sum(t.size_bytes or 0 for t in cutter.live(p)) for p in candidates}
    largest = max(size.values(), default=1) or 1
    places: list[int] = []
    for number in range(1, most):
        wanted = number / most
        near = [p for p in candidates if abs(before[p] - wanted) < 0.5 / most and p not in places]
        near = [p for p in near if p not in split] or near
        if near:
            places.append(min(near, key=lambda p: (abs(before[p] - wanted) * most + 0.5 * size[p] / largest, p)))
    return Blocks(places=(0, *sorted(places), len(cutter.order)))


def node_times(cutter: Cutter, kernels: Sequence[Kernel]) -> list[float]:
    """Seconds of each node in the cutter's order, from the kernels of a profiled run of the whole model.

    A kernel that computes several nodes gives its time to them in proportion to their multiply-accumulates. Time
    of kernels that the runtime added itself (reorders) goes to the node whose kernel ran before it.
    """
    place = {index: k for k, index in enumerate(cutter.order)}
    times = [0.0] * len(cutter.order)
    last = 0
    for kernel in kernels:
        known = [place[i] for i in kernel.operators or kernel.named if i in place]
        if not known:
            times[last] += kernel.time_s
            continue
        macs = [float(cutter.graph.operators[cutter.order[k]].macs or 0) + 1.0 for k in known]
        for k, share in zip(known, macs, strict=True):
            times[k] += kernel.time_s * share / sum(macs)
        last = max(known)
    return times


def kernel_spans(cutter: Cutter, kernels: Sequence[Kernel]) -> list[tuple[int, int, float]]:
    """For each kernel the first and last node that its time can belong to, in the cutter's order, and its seconds.

    These are the operators that the runtime named, and others of multiply-accumulates that the kernel computes. A
    kernel that the runtime added itself belongs to the one before it or to the one after it, nobody knows to which.
    """
    place = {index: k for k, index in enumerate(cutter.order)}
    operators = cutter.graph.operators
    known = [
        [place[i] for i in place if i in k.named or (i in k.operators and (not k.named or operators[i].macs != 0))]
        for k in kernels
    ]
    spans: list[tuple[int, int, float]] = []
    for number, kernel in enumerate(kernels):
        before = next((nodes for nodes in reversed(known[: number + 1]) if nodes), [0])
        after = next((nodes for nodes in known[number:] if nodes), [len(cutter.order) - 1])
        spans.append((min(*before, *after), max(*before, *after), kernel.time_s))
    return spans


def split_places(cutter: Cutter, kernels: Sequence[Kernel]) -> set[int]:
    """The places in the cutter's order where a cut would go through a kernel; one of the whole model does not count."""
    place = {index: k for k, index in enumerate(cutter.order)}
    found: set[int] = set()
    for kernel in kernels:
        nodes = [place[i] for i in kernel.operators if i in place]
        if nodes and len(nodes) < len(place):
            found.update(range(min(nodes) + 1, max(nodes) + 1))
    return found


def least_times(spans: Sequence[tuple[int, int, float]], places: Sequence[int]) -> list[float]:
    """Seconds that each block takes at least: of the kernels that are surely within it, see `kernel_spans`."""
    return [sum(t for first, last, t in spans if a <= first and last < b) for a, b in pairwise(places)]


class SegmentFiles:
    """Segment models on disk and on the device, cut when first asked for.

    `made` collects the host's path of each by its file name.
    """

    def __init__(
        self, cutter: Cutter, blocks: Blocks, folder: Path, push: Callable[[Path, str], str], made: dict[str, Path]
    ) -> None:
        self.cutter, self.blocks = cutter, blocks
        self._folder, self._push, self._files = folder, push, made
        self._made: dict[tuple[int, int], tuple[Segment, str]] = {}

    def segment(self, first: int, last: int) -> tuple[Segment, str]:
        """The segment of blocks [first, last) and its path on the device."""
        key = (first, last)
        if key not in self._made:
            path = self._folder / f"segment-{first}-{last}.{self.cutter.graph.format}"
            made = self.cutter.segment(self.blocks.places[first], self.blocks.places[last], path)
            self._files[path.name] = path
            self._made[key] = (made, self._push(path, path.name))
        return self._made[key]

    def agent_segment(
        self, first: int, last: int, runtime: Runtime, configuration: Configuration, *, chained: bool
    ) -> dict[str, Any]:
        """What the agent loads for a segment in a configuration; a chain's sessions share their arena."""
        segment, path = self.segment(first, last)
        placed = PlacedModel(
            graph=self.cutter.graph,
            path=path,
            inputs=tuple(t.name for t in segment.inputs),
            outputs=tuple(t.name for t in segment.outputs),
        )
        made = runtime.segment(placed, configuration, {})
        if chained:
            made["options"] = {**made["options"], "shared_arena": True}
        return made

    def boundary(self, chain: Sequence[tuple[int, int]], whole: PlacedModel) -> dict[str, dict[str, Any]]:
        """Buffers between the segments of a chain; tensors that are never alive together share a slab."""
        outer = {*whole.inputs, *whole.outputs}
        last_use: dict[str, int] = {}
        for k, (first, last) in enumerate(chain):
            for tensor in self.segment(first, last)[0].inputs:
                last_use[tensor.name] = k
        tensors: dict[str, dict[str, Any]] = {}
        free: list[int] = []
        busy: dict[str, int] = {}
        slabs = 0
        for k, (first, last) in enumerate(chain):
            for tensor in self.segment(first, last)[0].outputs:
                if tensor.name in outer or tensor.name in tensors:
                    continue
                slab = free.pop() if free else slabs
                slabs = max(slabs, slab + 1)
                busy[tensor.name] = slab
                tensors[tensor.name] = {"shape": list(tensor.shape or ()), "dtype": tensor.dtype, "slab": slab}
            for name in [n for n, _ in busy.items() if last_use.get(n, k) <= k]:
                free.append(busy.pop(name))
        return tensors


def random_chains(
    blocks: int, backends: int, count: int, rng: np.random.Generator, *, most_segments: int = 4
) -> list[tuple[tuple[int, int, int], ...]]:
    """Different random chains of at least two segments (first, last, backend), neighbours on unlike backends.

    Drawn so that every cut is used about equally often in both directions.
    """
    chains: dict[tuple[tuple[int, int, int], ...], None] = {}
    used = np.zeros(blocks + 1)
    ceiling = min(count, _possible(blocks, backends))
    for _ in range(50 * count):
        if len(chains) >= ceiling:
            break
        cuts_wanted = int(rng.integers(1, min(most_segments, blocks)))
        inner = np.arange(1, blocks)
        weight = 1.0 / (1.0 + used[1:blocks]) ** 2
        cuts = np.sort(rng.choice(inner, size=cuts_wanted, replace=False, p=weight / weight.sum()))
        edges = [0, *(int(c) for c in cuts), blocks]
        backend = int(rng.integers(backends))
        chain = []
        for first, last in pairwise(edges):
            chain.append((first, last, backend))
            backend = (backend + int(rng.integers(1, backends))) % backends
        if tuple(chain) not in chains:
            chains[tuple(chain)] = None
            used[cuts] += 1
    return list(chains)


def _possible(blocks: int, backends: int) -> int:
    return sum(
        math.comb(blocks - 1, cuts) * backends * max(backends - 1, 1) ** cuts for cuts in range(1, min(4, blocks))
    )
