"""Placement across runtimes: the slots are a model's blocks, and the choices are runtimes, each in a configuration.

A block is a stretch of the model between two narrow cuts. It is priced first inside the whole graph, then inside real
chains of contiguous segments that share buffers. The chains show what a cut costs: layout reorders, lost fusions and
cold memory. See docs/jobs/place.md.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gnomon import wire
from gnomon.core.brief import brief
from gnomon.core.cost import CostModel, Objective, PairCost
from gnomon.core.graph import Graph
from gnomon.core.pricing.price import Array, SegmentPrices, SegmentTime, segment_prices
from gnomon.core.sample import Run
from gnomon.core.solver.solve import Solution
from gnomon.core.space import Slot, Space
from gnomon.core.stats import quantile
from gnomon.errors import ModelError
from gnomon.jobs.place.limits import Limits, names_of, solved
from gnomon.measure.campaign import SEGMENT, Candidate
from gnomon.measure.effort import QUANTILE, Clock, Effort
from gnomon.runtimes.base import PlacedModel, chained_options
from gnomon.session.contender import Anchor, Contender, Kind, Part, contender_in, level, measure_beside, trace_of
from gnomon.session.kernels import Kernel, kernels
from gnomon.session.model_session import ModelSession
from gnomon.session.targets import Target

if TYPE_CHECKING:
    from gnomon.models.cut import Cutter, Segment


def choose_blocks(cutter: Cutter, weight: Sequence[float], most: int, split: Container[int] = ()) -> tuple[int, ...]:
    """Choose up to `most` blocks of about equal weight, separated where only a few small tensors are alive.

    Returns the boundaries of the blocks as places in the cutter's order: block k is [places[k], places[k + 1]).
    `weight` is the time of each node in the cutter's order. Candidates are the narrowest cuts: those with at most one
    live tensor or, if that gives fewer than two candidates per wanted block, at most two, three or four. Places in
    `split` would cut through a kernel and are used only if there is no other candidate nearby. If no candidate suits,
    because a single node takes nearly all of the time, the model is cut at the candidate nearest to half of the time.
    """
    total = max(float(sum(weight)), 1e-12)
    before = np.concatenate([[0.0], np.cumsum(weight)]) / total
    candidates: list[int] = []
    for live in range(1, 5):
        candidates = [p for p in cutter.cut_points(live) if 0.02 < before[p] < 0.98]
        if len(candidates) >= 2 * most:
            break
    candidates = candidates or list(cutter.cut_points(4))
    size = {p: sum(t.size_bytes or 0 for t in cutter.live(p)) for p in candidates}
    largest = max(size.values(), default=1) or 1
    places: list[int] = []
    for number in range(1, most):
        wanted = number / most
        near = [p for p in candidates if abs(before[p] - wanted) < 0.5 / most and p not in places]
        near = [p for p in near if p not in split] or near
        if near:
            places.append(min(near, key=lambda p: (abs(before[p] - wanted) * most + 0.5 * size[p] / largest, p)))
    if not places and most > 1 and candidates:
        places = [min(candidates, key=lambda p: (abs(before[p] - 0.5), p))]
    return (0, *sorted(places), len(cutter.order))


def node_times(cutter: Cutter, kernels: Sequence[Kernel]) -> list[float]:
    """Seconds of each node in the cutter's order, from the kernels of a profiled run of the whole model.

    The time of a kernel that computes several nodes is divided among them in proportion to their multiply-accumulates.
    The time of kernels that the runtime added (reorders) goes to the last node of the preceding kernel.
    """
    place = {index: k for k, index in enumerate(cutter.order)}
    times = [0.0] * len(cutter.order)
    last = 0
    for kernel in kernels:
        nodes = [place[i] for i in kernel.operators or kernel.named if i in place]
        if not nodes:
            times[last] += kernel.time_s
            continue
        macs = [float(cutter.graph.operators[cutter.order[k]].macs or 0) + 1.0 for k in nodes]
        for k, share in zip(nodes, macs, strict=True):
            times[k] += kernel.time_s * share / sum(macs)
        last = max(nodes)
    return times


def kernel_spans(cutter: Cutter, kernels: Sequence[Kernel]) -> list[tuple[int, int, float]]:
    """For each kernel, the first and last nodes that its time can belong to, in the cutter's order, and its seconds.

    The time can belong to the operators that the runtime named and to the kernel's other operators with
    multiply-accumulates; if the runtime named none, to all of the kernel's operators. The time of a kernel that the
    runtime added can belong to the nodes of the kernel before or after it.
    """
    place = {index: k for k, index in enumerate(cutter.order)}
    operators = cutter.graph.operators
    groups = [
        [place[i] for i in place if i in k.named or (i in k.operators and (not k.named or operators[i].macs != 0))]
        for k in kernels
    ]
    spans: list[tuple[int, int, float]] = []
    for number, kernel in enumerate(kernels):
        before = next((nodes for nodes in reversed(groups[: number + 1]) if nodes), [0])
        after = next((nodes for nodes in groups[number:] if nodes), [len(cutter.order) - 1])
        spans.append((min(*before, *after), max(*before, *after), kernel.time_s))
    return spans


def split_places(cutter: Cutter, kernels: Sequence[Kernel]) -> set[int]:
    """The places in the cutter's order where a cut would split a kernel that computes less than the whole model."""
    place = {index: k for k, index in enumerate(cutter.order)}
    split: set[int] = set()
    for kernel in kernels:
        nodes = [place[i] for i in kernel.operators if i in place]
        if nodes and len(nodes) < len(place):
            split.update(range(min(nodes) + 1, max(nodes) + 1))
    return split


def least_times(spans: Sequence[tuple[int, int, float]], places: Sequence[int]) -> list[float]:
    """The least time of each block in seconds: that of the kernels certainly within it (see `kernel_spans`)."""
    return [sum(t for first, last, t in spans if a <= first and last < b) for a, b in pairwise(places)]


def placed_segment(graph: Graph, segment: Segment, path: str) -> PlacedModel:
    """A part of a model, stored in a file at this path on the device."""
    return PlacedModel(
        graph=graph,
        path=path,
        inputs=tuple(t.name for t in segment.inputs),
        outputs=tuple(t.name for t in segment.outputs),
    )


class SegmentFiles:
    """Segment models on disk and on the device, cut on first use; `places` are the boundaries of the blocks."""

    def __init__(self, cutter: Cutter, places: tuple[int, ...], folder: Path, session: ModelSession) -> None:
        self.cutter, self.places = cutter, places
        self._folder, self._lab = folder, session
        self._segments: dict[tuple[int, int], tuple[Segment, str]] = {}

    def segment(self, first: int, last: int) -> tuple[Segment, str]:
        """The segment of blocks [first, last) and its path on the device."""
        key = (first, last)
        if key not in self._segments:
            path = self._folder / f"segment-{first}-{last}.{self.cutter.graph.format}"
            segment = self.cutter.segment(self.places[first], self.places[last], path)
            self._lab.cut_files[path.name] = path
            self._segments[key] = (segment, self._lab.push(path, path.name))
        return self._segments[key]

    def agent_segment(self, first: int, last: int, target: Target) -> wire.Segment:
        """A chain's segment for the agent's job, in a target's configuration."""
        segment, path = self.segment(first, last)
        placed = placed_segment(self.cutter.graph, segment, path)
        part = target.runtime.segment(placed, target.configuration, {})
        return {**part, "options": {**part["options"], **chained_options(target.runtime)}}

    def boundary(self, chain: Sequence[tuple[int, int]], whole: PlacedModel) -> dict[str, wire.Tensor]:
        """The buffers between a chain's segments; tensors that are never alive at the same time may share a slab."""
        outer = {*whole.inputs, *whole.outputs}
        last_use = {tensor.name: k for k, span in enumerate(chain) for tensor in self.segment(*span)[0].inputs}
        tensors: dict[str, wire.Tensor] = {}
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
            for name in [n for n in busy if last_use.get(n, k) <= k]:
                free.append(busy.pop(name))
        return tensors


_WORTH = 0.98
"""A mix is sought if it might take less than this share of the fastest whole model's time."""
_ATTEMPTS = 8
"""The maximum number of chains considered in one round of promising chains."""
_OTHERWISE = 0.015
"""The cost added to a chain's cuts for the rest of the round, as a share of the whole time, so that the next chain uses
other cuts.
"""

_ROUND = 3
"""The maximum number of chains in one round of promising chains."""

_MOST_SEGMENTS = 4
"""The maximum number of segments in a random chain."""

Chain = tuple[tuple[int, int, int], ...]
End = tuple[int, int, bool]
"""A cut, the index of a configuration, and whether its segment begins (True) or ends (False) at the cut."""


def random_chains(blocks: int, backends: int, count: int, rng: np.random.Generator) -> list[Chain]:
    """Distinct random chains of segments (first, last, backend), at least two each; neighbours have different backends.

    Every cut is used about equally often, between backends drawn at random.
    """
    chains: dict[Chain, None] = {}
    used = np.zeros(blocks + 1)
    for _ in range(50 * count):  # limited, because there may be fewer distinct chains than requested
        if len(chains) == count:
            break
        cuts_wanted = int(rng.integers(1, min(_MOST_SEGMENTS, blocks)))
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


_REFITS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AcrossResult:
    """The prices, the solution and the contenders of a placement across runtimes.

    `prices` and `solution` are None if nothing could be mixed. `why` is the reason if no mix is among the contenders.
    `ideal_s` is a lower bound: the time that the model would take if every block ran on its best runtime and cuts were
    free, counting only kernels that are certainly within a block. It is None if it was not computed or if the profilers
    distinguish no blocks.
    """

    contenders: tuple[Contender, ...]
    prices: SegmentPrices | None
    solution: Solution | None
    ideal_s: float | None
    why: str

    __repr__ = brief


class AcrossPlacer:
    """Prices the targets of a session that take the whole model, and solves for the fastest placement across them.

    `folder` receives the segment files and must outlive their use. `files` holds the segments and is available once the
    blocks have been chosen.
    """

    files: SegmentFiles

    def __init__(
        self,
        session: ModelSession,
        targets: Sequence[Target],
        folder: Path,
        limits: Limits | None = None,
        *,
        most_blocks: int = 8,
    ) -> None:
        self.session, self.folder, self.most_blocks = session, folder, most_blocks
        self.limits = limits or Limits()
        self.targets = tuple(targets)
        # The segment ends of chains that ran and, for each refused chain, the ends that may have caused the refusal.
        self._taken: set[End] = set()
        self._refused: list[set[End]] = []
        self._lost: set[str] = set()  # whole models that break a limit

    def whole(self, target: Target, predicted_s: float | None = None) -> Contender:
        """The contender for the whole model in one configuration."""
        name = target.configuration.name
        backends = {op.index: name for op in target.placed.graph.operators}
        contender = contender_in(self.session, target, "single", name, backends, key=name, assigned=False)
        return replace(contender, predicted_s=predicted_s)

    def chain(self, kind: Kind, label: str, chain: Chain, predicted_s: float | None) -> Contender:
        """The contender for a chain of segments (first block, block after the last, index of the target)."""
        parts, segments = [], []
        for first, last, number in chain:
            target = self.targets[number]
            segment = self.files.segment(first, last)[0]
            backends = dict.fromkeys(segment.operators, target.configuration.name)
            parts.append(Part(target=target, operators=segment.operators, backends=backends))
            segments.append(self.files.agent_segment(first, last, target))
        spans = [(first, last) for first, last, _ in chain]
        identity = json.dumps([self.files.places, chain, [t.configuration.name for t in self.targets]])
        candidate = Candidate(
            key="chain/" + hashlib.sha256(identity.encode()).hexdigest()[:12],
            job=self.session.job(segments, self.files.boundary(spans, self.session.placed)),
            environment={name: value for part in parts for name, value in part.configuration.environment.items()},
            tolerance=max(self.session.tolerance(part.configuration) for part in parts),
        )
        return Contender(label=label, kind=kind, parts=tuple(parts), candidate=candidate, predicted_s=predicted_s)

    def run(self, alive: Sequence[Contender], clock: Clock, *, always: bool = False) -> AcrossResult:
        """Decide from the profiled whole models whether a mix can pay off, and if so, price chains and solve.

        A mix is ruled out only by the least times of the blocks, never by times that come from dividing up a kernel.
        With `always`, chains are priced even if a mix is ruled out. InfeasibleError if no whole model and no chain of
        blocks keeps the limits.
        """
        self.targets = tuple(c.parts[0].target for c in alive)
        wholes = [self.whole(c.parts[0].target, level(self.session.runner.known(c.key), clock)) for c in alive]
        totals = np.asarray([c.predicted_s or 0.0 for c in wholes])

        def unmixed(why: str, ideal_s: float | None = None) -> AcrossResult:
            return AcrossResult(contenders=tuple(wholes), prices=None, solution=None, ideal_s=ideal_s, why=why)

        traces = [self.session.runner.known(trace_of(c).key) for c in wholes]
        # A runtime that needs the model converted cannot take a part of it.
        own = [t.placed.graph is self.session.graph and t.configuration.clean for t in self.targets]
        mixable = [i for i, trace in enumerate(traces) if own[i] and trace.ok]
        slow_s = self.session.request.effort.laggard * float(totals[mixable].min()) if mixable else 0.0
        self._lost = {c.label for c in wholes if self.limits.broken(c)}
        always = always or (bool(mixable) and self._lost >= {wholes[i].label for i in mixable})
        # A configuration that runs the whole model slowly is worth a chain only if its profiler distinguishes parts of
        # the model.
        mixable = [
            i
            for i in mixable
            if always
            or totals[i] <= slow_s
            or any(0 < len(k.named) < len(wholes[i].backends) for k in kernels(self.session.graph, traces[i]))
        ]
        stopped = "the run was stopped before a mix was priced and proved"
        if len(mixable) < 2:
            few = "fewer than two configurations can run parts of the file, report times and are fast enough to mix"
            return unmixed(stopped if self.session.runner.stopped and sum(own) > 1 else few)
        wholes_of = {t.configuration.name: c for t, c in zip(self.targets, wholes, strict=True)}
        self.targets = tuple(self.targets[i] for i in mixable)
        totals = totals[mixable]
        try:
            from gnomon.models.cutters import open_cutter  # needed only if several runtimes may share a model

            cutter = open_cutter(self.session.read.source, self.session.graph.format)
        except ModelError as error:
            return unmixed(error.message)
        block_times = self._blocks(cutter, [wholes_of[t.configuration.name] for t in self.targets], totals)
        if block_times is None:
            hidden = cutter.unknown()
            if hidden is not None:
                return unmixed(f"not cut: the shape of {hidden.name!r} is unknown")
            return unmixed("the graph has no place that is narrow enough for a cut")
        prior, least = block_times
        ideal = float(least.min(axis=1).sum())
        alone = [
            SegmentTime(first=0, last=len(prior), backend=b, time_s=float(t), weight=4.0) for b, t in enumerate(totals)
        ]
        best_s = self._best_s(alone)
        if ideal > _WORTH * best_s and not always:
            return unmixed("even if cuts were free, no mix would be faster by more than the noise", ideal)
        # The proof alone would take about as long as the job has taken so far.
        if self.session.runner.over("price chains", needs_s=self.session.request.used_s):
            late = "too little of --max-time was left to price and prove mixes"
            return unmixed(stopped if self.session.request.interrupted else late, ideal)
        fastest = min(range(len(wholes)), key=lambda k: wholes[k].predicted_s or 0.0)
        anchor = Anchor(candidate=wholes[fastest].candidate, clock=clock)
        greedy = merge([int(b) for b in prior.argmin(axis=1)])
        enough_s = math.inf if always else best_s
        times = alone + self.price_chains(prior, alone, anchor, greedy)
        prices, solution = self._settle(prior, times, anchor, enough_s)
        extra = self._extra(prices, merge(solution.assignment), greedy, enough_s)
        why = "" if extra else "because of the cost of cuts, no mix is predicted to be faster than one runtime"
        return AcrossResult(
            contenders=(*wholes, *extra), prices=prices, solution=solution, ideal_s=ideal or None, why=why
        )

    def _best_s(self, alone: Sequence[SegmentTime]) -> float:
        """The seconds of the fastest whole model that keeps the limits."""
        kept = (time.time_s for time in alone if self.targets[time.backend].configuration.name not in self._lost)
        return min(kept, default=math.inf)

    def _solved(self, prices: SegmentPrices, extra_s: Mapping[End, float] | None = None) -> Solution:
        """The best assignment within the limits (see `solved`)."""
        model = self._model(prices, extra_s)
        if self.limits.asked:
            names = [names_of(t.configuration, t.configuration.name) for t in self.targets]
            groups = [self.files.cutter.order[a:b] for a, b in pairwise(self.files.places)]
            model = self.limits.within(model, self.session.graph, groups, names)
        return solved(model)

    def _blocks(self, cutter: Cutter, wholes: Sequence[Contender], totals: Array) -> tuple[Array, Array] | None:
        """Choose the blocks; return their times inside the whole graph, scaled to the total of unprofiled runs.

        The first array holds the likely times, for which the time of a kernel that spans a cut is divided among its
        blocks. The second holds the least times. None if there is no place to cut.
        """
        profiles = [kernels(self.session.graph, self.session.runner.known(trace_of(c).key)) for c in wholes]
        per_node = np.asarray([node_times(cutter, k) for k in profiles])
        scale = totals / np.maximum(per_node.sum(axis=1), 1e-12)
        per_node *= scale[:, None]
        split = {place for k in profiles for place in split_places(cutter, k)}
        places = choose_blocks(cutter, list(per_node.mean(axis=0)), self.most_blocks, split)
        if len(places) < 3:
            return None
        self.files = SegmentFiles(cutter, places, self.folder, self.session)
        sums = [per_node[:, a:b].sum(axis=1) for a, b in pairwise(places)]
        least = np.asarray([least_times(kernel_spans(cutter, k), places) for k in profiles]) * scale[:, None]
        return np.asarray(sums), least.T

    def price_chains(
        self, prior: Array, alone: Sequence[SegmentTime], anchor: Anchor, greedy: Chain
    ) -> list[SegmentTime]:
        """The times of segments inside real chains, each of which runs in a separate process.

        The greedy chain and random chains reveal the cost of cuts. Chains that should be faster than any whole model,
        according to the prices so far, follow until none is left or three per block have run.
        """
        blocks = len(prior)
        rng = np.random.default_rng([self.session.request.seed, 7])
        chains = random_chains(blocks, len(self.targets), max(2, blocks // 2), rng)
        if len(greedy) > 1 and greedy not in chains:
            chains.append(greedy)
        enough_s = _WORTH * self._best_s(alone)
        times: list[SegmentTime] = []
        tried: set[Chain] = set()
        while chains:
            contenders = [self.chain("plan", "chain", chain, None) for chain in chains]
            times += self._times("price chains", dict(zip(chains, contenders, strict=True)), anchor, self._once(1))
            tried.update(chains)
            room = min(_ROUND, 3 * blocks - len(tried))
            chains = self._promising(segment_prices(prior, [*alone, *times]), enough_s, tried, room)
        return times

    def _promising(self, prices: SegmentPrices, enough_s: float, tried: Container[Chain], room: int) -> list[Chain]:
        """The best untried chains that should take less than `enough_s`, at most `room` of them.

        Each chain after the first uses different cuts if possible, so that the round prices many cuts.
        """
        extra_s: dict[End, float] = {}
        chains: list[Chain] = []
        for _ in range(_ATTEMPTS * (room > 0)):
            chain = merge(self._solved(prices, extra_s).assignment)
            if len(chains) == room or len(chain) < 2 or prices.chain_s(chain) > enough_s:
                break
            if chain not in tried and chain not in chains:
                chains.append(chain)
            whole_s = enough_s if enough_s < math.inf else prices.chain_s(chain)
            for end in self._ends(chain):
                extra_s[end] = extra_s.get(end, 0.0) + _OTHERWISE * whole_s
        return chains

    def _times(
        self, stage: str, chains: Mapping[Chain, Contender], anchor: Anchor, effort: Effort
    ) -> list[SegmentTime]:
        """Measure the segments of chains; return times scaled to the machine's speed when the anchor was profiled.

        Also records which segment ends ran and which may have caused a refusal.
        """
        wanted = [trace_of(c) for c in chains.values()]
        measured, factor = measure_beside(self.session.runner, stage, wanted, anchor, effort)
        for chain, candidate in zip(chains, wanted, strict=True):
            outcome = measured[candidate.key]
            if outcome.worked:
                self._taken |= self._ends(chain)
            elif outcome.runs and outcome.failure is not None and not outcome.failure.transient:
                number = outcome.fact(SEGMENT)
                self._refused.append(self._ends(chain if number is None else [chain[number]]))
        return [
            replace(time, time_s=time.time_s * factor[candidate.key])
            for chain, candidate in zip(chains, wanted, strict=True)
            for run in measured[candidate.key].runs
            for time in _segment_times(chain, run, anchor.clock)
        ]

    def _settle(
        self, prior: Array, times: list[SegmentTime], anchor: Anchor, enough_s: float
    ) -> tuple[SegmentPrices, Solution]:
        """Solve, run the plan, add its times, and repeat until the plan no longer changes or promises too little.

        The plan that is best by uncertain prices looks better than it is; running it shows by how much. A refused plan
        is replaced by the best plan that avoids the cause of the refusal.
        """
        tried: set[Chain] = set()
        while True:
            prices = segment_prices(prior, times)
            solution = self._solved(prices)
            chain = merge(solution.assignment)
            enough = len(tried) >= _REFITS and self._ends(chain) <= self._taken
            if len(chain) < 2 or chain in tried or enough or prices.chain_s(chain) > enough_s:
                return prices, solution
            tried.add(chain)
            contender = self.chain("plan", "plan", chain, None)
            again = self._times("refine", {chain: contender}, anchor, self._once(2))
            times += [replace(t, weight=2.0) for t in again]

    def _ends(self, segments: Iterable[tuple[int, int, int]]) -> set[End]:
        """The segment ends at cuts, which excludes both ends of the model."""
        blocks = len(self.files.places) - 1
        ends = {end for first, last, b in segments for end in ((first, b, True), (last, b, False))}
        return {end for end in ends if 0 < end[0] < blocks}

    def _barred(self) -> set[End]:
        """The ends that no plan may have, because they may have caused a refusal.

        A runtime that takes the whole model takes every operator, so it can refuse only a cut, such as one between
        operators that it takes only together. An end that occurs in a chain that ran is not blamed, unless this would
        clear every end of the refused chain.
        """
        return {end for ends in self._refused for end in (ends - self._taken or ends)}

    def _once(self, processes: int) -> Effort:
        """The request's effort with a fixed number of processes and no early stop, for runs that only serve pricing."""
        effort = self.session.request.effort
        return replace(effort, processes_least=processes, processes_most=processes, laggard=1e9)

    def _model(self, prices: SegmentPrices, extra_s: Mapping[End, float] | None = None) -> CostModel:
        """The cost model of a row of blocks: neighbours in different configurations pay for leaving one and entering
        the other.

        `extra_s` is added to the cost of segment ends, as if it had been measured.
        """
        blocks = len(prices.block_s)
        names = tuple(t.configuration.name for t in self.targets)
        enter_s, leave_s = prices.enter_s.copy(), prices.leave_s.copy()
        for (cut, number, begins), seconds in {**(extra_s or {}), **dict.fromkeys(self._barred(), math.inf)}.items():
            (enter_s if begins else leave_s)[cut, number] += seconds
        pairs = []
        for cut in range(1, blocks):
            cost = leave_s[cut][:, None] + enter_s[cut][None, :]
            np.fill_diagonal(cost, 0.0)
            pairs.append(PairCost(first=cut - 1, second=cut, cost=cost[:, :, None]))
        return CostModel(
            space=Space(slots=tuple(Slot(name=f"block {k}", choices=names) for k in range(blocks))),
            objectives=(Objective(name="latency", unit="s"),),
            slot_costs=tuple(row[:, None] for row in prices.block_s),
            pairs=tuple(pairs),
        )

    def _extra(self, prices: SegmentPrices, plan: Chain, greedy: Chain, enough_s: float) -> list[Contender]:
        """The plan and the greedy choice per block, each only if it mixes, promises enough and was not refused."""
        kinds: dict[Chain, Kind] = {plan: "plan"}
        kinds.setdefault(greedy, "greedy")
        return [
            self.chain(kind, f"{kind} of {len(chain)} segments", chain, prices.chain_s(chain))
            for chain, kind in kinds.items()
            if len(chain) > 1 and prices.chain_s(chain) <= enough_s and not self._ends(chain) & self._barred()
        ]


def merge(assignment: Sequence[int]) -> Chain:
    """Merge neighbouring blocks with the same choice into one segment, because a cut between them has no benefit."""
    chain: list[tuple[int, int, int]] = []
    for block, choice in enumerate(assignment):
        if chain and chain[-1][2] == choice:
            chain[-1] = (chain[-1][0], block + 1, choice)
        else:
            chain.append((block, block + 1, choice))
    return tuple(chain)


def _segment_times(chain: Chain, run: Run, clock: Clock) -> list[SegmentTime]:
    """The times of a chain's segments: the chain's total by the deciding clock, divided in proportion to wall times.

    Segments are timed only by the wall clock. Dividing the total keeps interruptions of the calls out of the segments'
    times.
    """
    if run.samples is None or not run.operators:
        return []
    total = quantile(run.samples.cpu_s if clock == "cpu" else run.samples.wall_s, QUANTILE[clock])
    wall = [quantile(row.wall_ns, 0.3) for row in run.operators]
    return [
        SegmentTime(first=first, last=last, backend=number, time_s=total * share / sum(wall))
        for (first, last, number), share in zip(chain, wall, strict=True)
    ]
