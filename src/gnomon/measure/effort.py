"""How hard a measurement tries, and when it stops."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """The energy counters to read around each block, by their names on the device; none are the machine's usual ones.

    `period_ns` and `step_uj` are how long and how far they move, 0 as long as nobody has looked.
    """

    counters: tuple[str, ...] = ()
    period_ns: int = 0
    step_uj: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """The protocol of a measurement.

    A candidate is visited `rounds` times in each of `processes_least` to `processes_most` fresh processes. A visit
    is a block: samples of at least `sample_s` each (an inner loop makes short calls longer) for `block_s` seconds,
    at least `samples_least` of them, after calls for `rewarm_s` that refill the caches. A fresh process first
    makes `warm_count` calls for at least `warm_s`; its very first call is kept apart. More processes are started
    until each candidate's median is known within `half_width` of itself (95 % interval), or until `budget_s` is over.
    A profiled run is one visit, as long as all visits of an unprofiled one together.
    A candidate more than `laggard` times slower than the fastest gets few visits in two or three processes: it has
    lost, and its time is better spent on the others.
    At most `together` candidates' processes are alive at once; more are measured in groups.
    A process that does not answer within `timeout_s` is killed: it hangs.
    With `energy`, what each block took is read from counters of the device; see `gnomon.measure.energy.metered`.
    """

    processes_least: int = 3
    processes_most: int = 6
    rounds: int = 5
    block_s: float = 0.06
    sample_s: float = 1e-3
    samples_least: int = 2
    samples_most: int = 2000
    warm_count: int = 3
    warm_s: float = 0.05
    rewarm_s: float = 0.003
    half_width: float = 0.02
    laggard: float = 1.6
    together: int = 8
    budget_s: float = 60.0
    timeout_s: float = 60.0
    energy: Energy | None = None

    @property
    def hopeless(self) -> float:
        """How many times slower than the fastest a candidate is for which one visit tells that it lags."""
        return max(3.0, self.laggard)

    def request(self) -> dict[str, Any]:
        """The part of a request to the agent that the protocol decides."""
        return {
            "rounds": self.rounds,
            "laggard": self.laggard,
            "hopeless": self.hopeless,
            "timeout_s": self.timeout_s,
            "warm": {"warm_count": self.warm_count, "warm_s": self.warm_s},
            "block": {
                "sample_ns": int(self.sample_s * 1e9),
                "seconds": self.block_s,
                "least": self.samples_least,
                "most": self.samples_most,
                "rewarm_s": self.rewarm_s,
                **({"energy": asdict(self.energy)} if self.energy is not None else {}),
            },
            "profile": {"seconds": self.block_s * self.rounds, "most": self.samples_most},
        }
