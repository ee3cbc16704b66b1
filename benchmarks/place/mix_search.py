"""How good the mixes are that `place` finds across runtimes in made-up worlds, and how many chains it runs to find
them.

In a world, the blocks of a model take different times on each runtime, and each cut has a cost for leaving and for
entering a segment. The profile gives the blocks' times with an error of 5 % each; a chain is measured with an error of
1.5 % as a whole and 2 % for each segment. gnomon's own search looks for a mix, and its choice is compared with the best
possible one. A mix that is slower than the best whole model counts as that model, because the proof would reject it.
Figures: how much longer the choice takes than the best (mean and largest, in percent), and how many processes ran
chains.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from benchmarks.common import arguments, publish
from gnomon.core.pricing.price import SegmentPrices, SegmentTime
from gnomon.core.solver.solve import solve
from gnomon.jobs.place.across import AcrossPlacer, Chain, merge
from gnomon.jobs.place.limits import Limits
from gnomon.measure.effort import Effort

BLOCKS, SEEDS = 8, 60
CUTS, SPREADS = (0.01, 0.03, 0.08, 0.15), (0.1, 0.25, 0.5)
"""The mean cost of an end of a segment, as a share of the model's time; and how much runtimes differ in a block."""


class MadeUp(AcrossPlacer):
    """Searches a world instead of a device: chains are not built, and the times of their segments are drawn."""

    def __init__(self, seed: int, *, runtimes: int, cut: float, spread: float) -> None:
        self.rng = rng = np.random.default_rng(seed)
        block_s = rng.dirichlet(np.full(BLOCKS, 4.0))[:, None] * np.exp(rng.normal(0, spread, (BLOCKS, runtimes)))
        enter_s, leave_s = rng.exponential(cut, (2, BLOCKS + 1, runtimes))
        enter_s[0] = leave_s[BLOCKS] = 0.0
        self.truth = SegmentPrices(block_s=block_s / block_s.sum(axis=0).min(), enter_s=enter_s, leave_s=leave_s)
        self.totals_s = self.truth.block_s.sum(axis=0)
        self.targets = cast(Any, [SimpleNamespace(configuration=SimpleNamespace(name=str(k))) for k in range(runtimes)])
        self.files = cast(Any, SimpleNamespace(places=range(BLOCKS + 1)))
        self.session = cast(Any, SimpleNamespace(request=SimpleNamespace(seed=seed, effort=Effort())))
        self._taken, self._refused, self.processes = set(), [], 0
        self.limits, self._lost = Limits(), set()

    def chain(self, kind: Any, label: str, chain: Chain, predicted_s: float | None) -> Any:
        """Return the chain itself: nothing is built."""
        return chain

    def _times(self, stage: str, chains: Any, anchor: Any, effort: Effort) -> list[SegmentTime]:
        times = []
        for chain in [chain for chain in chains for _ in range(effort.processes_least)]:
            self.processes += 1
            speed = np.exp(self.rng.normal(0, 0.015))
            for first, last, backend in chain:
                seconds = self.true_s(((first, last, backend),)) * speed * np.exp(self.rng.normal(0, 0.02))
                times.append(SegmentTime(first=first, last=last, backend=backend, time_s=float(seconds)))
        return times

    def true_s(self, chain: Chain) -> float:
        """The true time of a chain."""
        return self.truth.chain_s(chain)

    def choice(self) -> Chain:
        """The mix that gnomon's search ends with, or the best whole model."""
        prior = self.truth.block_s * np.exp(self.rng.normal(0, 0.05, self.truth.block_s.shape))
        prior *= self.totals_s / prior.sum(axis=0)
        alone = [
            SegmentTime(first=0, last=BLOCKS, backend=b, time_s=float(t), weight=4.0)
            for b, t in enumerate(self.totals_s * np.exp(self.rng.normal(0, 0.005, len(self.totals_s))))
        ]
        greedy = merge([int(b) for b in prior.argmin(axis=1)])
        times = alone + self.price_chains(prior, alone, cast(Any, None), greedy)
        enough_s = min(time.time_s for time in alone)
        prices, solution = self._settle(prior, times, cast(Any, None), enough_s)
        mixes = cast(list[Chain], self._extra(prices, merge(solution.assignment), greedy, enough_s))
        return min(mixes, key=self.true_s, default=((0, BLOCKS, int(self.totals_s.argmin())),))


def figures(runtimes: int, cut: float, spread: float) -> dict[str, Any]:
    """The worlds of one kind."""
    longer, processes, possible = [], [], []
    for seed in range(SEEDS):
        world = MadeUp(seed, runtimes=runtimes, cut=cut, spread=spread)
        alone_s = float(world.totals_s.min())
        best_s = min(solve(world._model(world.truth)).value, alone_s)
        longer.append(100 * (min(world.true_s(world.choice()), alone_s) / best_s - 1))
        possible.append(100 * (alone_s / best_s - 1))
        processes.append(world.processes)
    return {
        "runtimes": runtimes,
        "cut_share": cut,
        "spread": spread,
        "alone_longer_percent": float(np.mean(possible)),
        "longer_percent": {"mean": float(np.mean(longer)), "most": float(np.max(longer))},
        "processes": {"mean": float(np.mean(processes)), "most": max(processes)},
    }


def main() -> None:
    """Run all kinds of worlds."""
    given = arguments(__doc__)
    rows = [figures(runtimes, cut, spread) for runtimes in (2, 4) for cut in CUTS for spread in SPREADS]
    publish({"benchmark": "mix_search", "worlds_each": SEEDS, "kinds": rows}, given)


if __name__ == "__main__":
    main()
