"""Simulated machines on which it is known whether anything changed: levels of processes as `gnomon compare` gets them.

A world defines how the levels of fresh processes scatter, which part of the scatter is common to a session, how the
machine drifts meanwhile, and how many configurations a run has. All values are relative: standard deviations of the
logarithm of time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnomon.core.stats import Side

Floats = NDArray[np.float64]
_APART_S, _BETWEEN_S = 2.0, 10.0  # from process to process, and from run to run


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A machine and a way to run.

    `luck` is the scatter of processes; if `heavy`, it has Student's distribution with three degrees of freedom. With
    probability `disturbed`, a process is slower by a fifth on average (exponential distribution); with `layouts`, one
    process in five is slower by this share. `session` is the scatter of what is common to all processes of a run.
    `ramp` is the slowdown of the machine from the first process of the first run to the last of the second. `wander` is
    the scatter of a drift in speed that loses its memory within `memory_s` (an autoregression).
    """

    name: str
    processes: int = 6
    configurations: int = 1
    luck: float = 0.01
    heavy: bool = False
    disturbed: float = 0.0
    layouts: float = 0.0
    session: float = 0.0
    ramp: float = 0.0
    wander: float = 0.0
    memory_s: float = 30.0

    def runs(self, rng: np.random.Generator, count: int) -> list[list[Side]]:
        """This many consecutive runs, each with one side per configuration, all with the same true time."""
        n, k = self.processes, self.configurations
        moments = np.arange(count)[:, None] * (n * _APART_S + _BETWEEN_S) + np.arange(n)[None, :] * _APART_S
        shape = (count, n, k)
        luck = rng.standard_t(3, shape) / 3**0.5 if self.heavy else rng.standard_normal(shape)
        logs = self.luck * luck
        logs += np.log1p(rng.exponential(0.2, shape)) * (rng.random(shape) < self.disturbed)
        logs += self.layouts * (rng.random(shape) < 0.2)
        logs += self.session * rng.standard_normal((count, 1, k))
        machine = self.ramp * (moments - moments[0, 0]) / (moments[min(count, 2) - 1, -1] - moments[0, 0])
        if self.wander:
            machine += self.wander * _wander(rng, moments.ravel(), self.memory_s).reshape(moments.shape)
        levels = 5e-3 * np.exp(logs + machine[:, :, None])
        return [
            [Side(levels_s=tuple(levels[run, :, c].tolist()), moments_s=tuple(moments[run].tolist())) for c in range(k)]
            for run in range(count)
        ]


def _wander(rng: np.random.Generator, at_s: Floats, memory_s: float) -> Floats:
    """A stationary first-order autoregression with variance 1, at these moments."""
    kept = np.exp(-np.diff(at_s) / memory_s)
    found = [rng.standard_normal()]
    for share, shock in zip(kept, rng.standard_normal(at_s.size - 1), strict=True):
        found.append(share * found[-1] + (1 - share**2) ** 0.5 * shock)
    return np.asarray(found)


WORLDS = (
    World(name="3 processes, quiet", processes=3),
    World(name="6 processes, quiet"),
    World(name="30 processes, quiet", processes=30, luck=0.005),
    World(name="100 processes, quiet", processes=100, luck=0.005),
    World(name="6 processes, heavy tails", heavy=True),
    World(name="12 processes, a tenth disturbed", processes=12, disturbed=0.1),
    World(name="6 processes, two layouts 4 % apart", luck=0.003, layouts=0.04),
    World(name="20 configurations of 6 processes", configurations=20),
    World(name="40 configurations of 3 processes", processes=3, configurations=40),
    World(name="20 configurations of 6, heavy tails", configurations=20, heavy=True),
    World(name="6 processes, ramp of 2 %", luck=0.005, ramp=0.02),
    World(name="12 processes, ramp of 5 %", processes=12, luck=0.005, ramp=0.05),
    World(name="30 processes, ramp of 2 %", processes=30, luck=0.005, ramp=0.02),
    World(name="6 processes, speed wanders 1 % in 30 s", luck=0.005, wander=0.01),
    World(name="12 processes, speed wanders 1 % in 10 s", processes=12, luck=0.005, wander=0.01, memory_s=10.0),
    World(name="12 processes, speed wanders 2 % in 100 s", processes=12, luck=0.005, wander=0.02, memory_s=100.0),
    World(name="30 processes, speed wanders 1 % in 30 s", processes=30, luck=0.005, wander=0.01),
    World(name="10 configurations of 12, wandering", processes=12, configurations=10, luck=0.005, wander=0.01),
    World(name="6 processes, sessions differ by 1 %", luck=0.005, session=0.01),
    World(name="12 processes, sessions differ by 1 %", processes=12, luck=0.005, session=0.01),
    World(name="12 processes, sessions differ by 2 %", processes=12, luck=0.005, session=0.02),
    World(name="12 processes, sessions differ by 4 %", processes=12, luck=0.005, session=0.04),
    World(name="30 processes, sessions differ by 0.5 %", processes=30, luck=0.005, session=0.005),
)
