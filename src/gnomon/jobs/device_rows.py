"""What is told of a device, as records and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from gnomon.core.brief import brief
from gnomon.devices.config import DeviceConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeRow:
    """A runtime on a device. `version` is None where it is missing, for `reason`.

    `brought` are the packages that gnomon has for the device and brings when it is needed; its own come first.
    """

    name: str
    version: str | None = None
    backends: tuple[str, ...] = ()
    reason: str = ""
    hint: str = ""
    brought: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyRow:
    """The energy counters of a device; or the reason why `pareto --objective energy` cannot be had there.

    `counters` are their names and what they count; the slowest moves every `period_s`, and together they told
    `power_w` while they were looked at. `others` are there beside them.
    """

    counters: Mapping[str, str] = field(default_factory=dict)
    period_s: float | None = None
    power_w: float | None = None
    others: tuple[str, ...] = ()
    reason: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseLook:
    """What a close look at a device found.

    `overhead_s` is the median time of a command that does nothing, as gnomon sees it. The private folder of a visit
    is in `temporary`, with `temporary_free_bytes` of room.
    """

    overhead_s: float
    temporary: str
    temporary_free_bytes: int
    energy: EnergyRow = field(default_factory=EnergyRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """A device as it was found: "ready", "in use" by another gnomon, or "failed" for a reason."""

    config: DeviceConfig
    state: Literal["ready", "in use", "failed"]
    reason: str = ""
    hint: str = ""
    fingerprint: Mapping[str, Any] = field(default_factory=dict)
    python: str | None = None
    runtimes: tuple[RuntimeRow, ...] = ()
    check: CloseLook | None = None
    seconds: float = 0.0

    __repr__ = brief

    def document(self) -> dict[str, Any]:
        """The row as a JSON object."""
        config = self.config
        settings = {k: v for k, v in asdict(config).items() if k not in {"name", "address"}}
        return {
            "name": config.name,
            "address": str(config.address),
            "state": self.state,
            "reason": self.reason or None,
            "hint": self.hint or None,
            "fingerprint": dict(self.fingerprint) or None,
            "interpreter": self.python,
            "runtimes": [asdict(row) for row in self.runtimes],
            "check": asdict(self.check) if self.check else None,
            "settings": settings,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """What was removed from a device; `folder` is None where nothing is kept, as on this machine.

    `jobs` are the ids of searches that run there by themselves, or have: they stay.
    """

    name: str
    folder: str | None
    entries: int
    size_bytes: int
    jobs: tuple[str, ...] = ()
