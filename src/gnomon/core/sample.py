"""What a measurement returns: raw samples, or the failure of the thing that was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Raw times of repeated calls, in the order in which they were taken.

    Each sample is the time of `inner` calls together, in nanoseconds of wall time and of the process's CPU
    time. Statistics are derived from samples (see `gnomon.core.stats`) and never stored in their place.
    """

    wall_ns: tuple[int, ...]
    cpu_ns: tuple[int, ...]
    inner: int = 1

    @property
    def wall_s(self) -> tuple[float, ...]:
        """Seconds of wall time of one call, a value a sample."""
        return tuple(t / self.inner * 1e-9 for t in self.wall_ns)

    @property
    def cpu_s(self) -> tuple[float, ...]:
        """Seconds of process CPU time of one call, a value a sample."""
        return tuple(t / self.inner * 1e-9 for t in self.cpu_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How a measured thing failed. It is data: a campaign goes on without the candidate.

    `stage` is "probe", "load", "run", "profile" or "check"; of a toolchain "convert", "quantize" or "compile". `kind`
    is "crash" (ended by a signal), "hang" (stopped at the time limit), "refused" (the runtime said no), "wrong-output",
    "memory" or "vanished". `transient` says whether the same run may succeed later. `log_tail` is the end of what the
    process printed.
    """

    stage: str
    kind: str
    transient: bool
    message: str
    log_tail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSamples:
    """Times of one operator, or of one fused kernel of several, taken inside the whole graph.

    `sources` are the indices of the model's operators that the kernel computes (empty for what the runtime
    added itself, such as a layout reorder). `backend` is where the runtime's own trace says it ran.
    """

    name: str
    sources: tuple[int, ...]
    backend: str
    wall_ns: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One block of samples of one candidate in one process: the unit that is recorded and resumed.

    `candidate` names what was measured within its campaign; `process` counts fresh processes and `block` the
    visits to that process. Exactly one of `samples` and `failure` is set. `operators` is filled by runs with
    the runtime's profiler on, which are never mixed with end-to-end runs (`profiled`). `facts` are further
    observations with their units in the names, such as `peak_rss_bytes`, `first_call_ns` or `load_average_before`.
    """

    candidate: str
    process: int
    block: int
    started_at_s: float
    samples: Samples | None = None
    failure: Failure | None = None
    profiled: bool = False
    operators: tuple[OperatorSamples, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
