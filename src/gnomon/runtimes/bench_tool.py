"""Tools of vendors that convert, run and measure a model by themselves, and tell statistics instead of samples.

They are no `Runtime`: no process of the agent loads anything, operators are not placed, there is no raw time of a call
to be interleaved with another's. What they tell is kept as what it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gnomon.core.sample import Failure
from gnomon.devices.base import Device
from gnomon.runtimes.base import Probe


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOrder:
    """What a tool is asked: `runs` repetitions over `inputs` random inputs drawn by `seed`, on these backends.

    `settings` are the tool's own, by name. `timeout_s` holds for each program that it starts.
    """

    backends: tuple[str, ...] = ()
    runs: int = 5
    inputs: int = 10
    seed: int = 0
    timeout_s: float = 1800.0
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Benched:
    """What a tool told of one model, times in seconds: by backend, then key, then statistic.

    `failures` say of backends without times why. `layers` are times of the model's parts, likewise by backend.
    `figures` are the times as the tool wrote them, in its own unit; `told` is what it says of the device and of itself.
    """

    times_s: Mapping[str, Mapping[str, Mapping[str, float]]]
    figures: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    layers_s: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    failures: Mapping[str, Failure] = field(default_factory=dict)
    told: Mapping[str, str] = field(default_factory=dict)

    def reported_s(self) -> dict[str, float]:
        """All times by one name, "GPU/Layers Time/Avg_Time"."""
        return {
            f"{backend}/{key}/{statistic}": value
            for backend, keys in self.times_s.items()
            for key, statistics in keys.items()
            for statistic, value in statistics.items()
        }


class BenchTool(Protocol):
    """A tool that measures by itself, on a device that it reaches in its own way.

    Contract: what the tool does wrong with a model is a `Failure`, a device that left is a `DeviceError` with
    `transient`, a tool that is not installed is a `RuntimeMissingError`. Nothing stays on this machine or the device.
    """

    name: str
    #: Graph.format values that the tool converts from.
    formats: frozenset[str]
    #: Key and statistic of what a model takes without the call around it, which adds up over the parts of a net.
    lookup: tuple[str, str]
    #: What its times are rounded to, in seconds.
    resolution_s: float
    #: The backend that is meant where none is named.
    usual: str

    def probe(self) -> Probe:
        """The tool that is installed here: its version, and the backends that may be asked for."""
        ...

    def measure(self, device: Device, model: Path, order: BenchOrder) -> Benched | Failure:
        """Convert a model file and measure it on an open device; UsageError for a device that the tool cannot reach."""
        ...


def bench_tools() -> dict[str, BenchTool]:
    """The tools by name."""
    from gnomon.runtimes.snpe import Snpe

    return {tool.name: tool for tool in (Snpe(),)}
