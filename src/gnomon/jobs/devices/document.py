"""The JSON documents of `gnomon devices`, `runtimes` and `serve`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gnomon.devices.health import Health, Quarantine
from gnomon.errors import DeviceError
from gnomon.report.answer import Answer, FirstVersion
from gnomon.runtimes.registry import BrokenRuntime


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeRow:
    """A runtime on a device. If the runtime is missing, `version` is None, and `reason` has the reason.

    `brought` are the packages that gnomon installs on the device when needed; the device's own packages take
    precedence.
    """

    name: str
    version: str | None = None
    backends: tuple[str, ...] = ()
    reason: str = ""
    hint: str = ""
    brought: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyRow:
    """The energy counters of a device, or the reason why `pareto --objective energy` is not available there.

    `counters` maps the names of counters to what they count. The slowest is updated every `period_s`; together they
    reported `power_w` during the examination. `others` are additional counters.
    """

    counters: Mapping[str, str] = field(default_factory=dict)
    period_s: float | None = None
    power_w: float | None = None
    others: tuple[str, ...] = ()
    reason: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseLook:
    """The result of a close look at a device.

    `overhead_s` is the median time of a command that does nothing. gnomon's private folder on the device is in
    `temporary`, which has `temporary_free_bytes` of free space.
    """

    overhead_s: float
    temporary: str
    temporary_free_bytes: int
    energy: EnergyRow = field(default_factory=EnergyRow)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DeviceRow(Answer):
    """The state of a device: "ready", "in use" by another gnomon, or "failed" for a reason.

    `settings` come from the file of devices, `check` is the result of a close look, and `health` has the device's
    probes and quarantine.
    """

    name: str
    address: str
    state: Literal["ready", "in use", "failed"]
    reason: str | None
    hint: str | None
    fingerprint: Mapping[str, object] | None
    interpreter: str | None
    runtimes: tuple[RuntimeRow, ...]
    check: CloseLook | None
    settings: Mapping[str, Any]
    seconds: float
    health: Health = field(default_factory=Health)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DevicesDocument(FirstVersion):
    """The devices of `gnomon devices`, `list` and `check`. `file` is the file of devices; `named` is True for
    `check`.
    """

    format: Literal["gnomon-devices"] = "gnomon-devices"
    file: str
    file_exists: bool
    named: bool
    devices: tuple[DeviceRow, ...]

    @property
    def exit_code(self) -> int:
        """6 if a requested device is not ready, otherwise 0."""
        is_ready = all(row.state == "ready" for row in self.devices)
        return 0 if is_ready or not self.named else DeviceError.exit_code


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DeviceAddedDocument(FirstVersion):
    """A device that was given a name: `gnomon devices add`; `device` is null if it was not examined."""

    format: Literal["gnomon-device-added"] = "gnomon-device-added"
    file: str
    added: str
    device: DeviceRow | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DeviceRemovedDocument(FirstVersion):
    """A name that was removed from the file of devices: `gnomon devices remove`."""

    format: Literal["gnomon-device-removed"] = "gnomon-device-removed"
    file: str
    removed: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DeviceCleanedDocument(Answer):
    """The files that were removed from a device: `gnomon devices clean`."""

    format: Literal["gnomon-device-cleaned"] = "gnomon-device-cleaned"
    version: Literal[2] = 2
    name: str
    folder: str | None
    entries: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DeviceHealthDocument(FirstVersion):
    """The health of a device: `gnomon devices probe` and `release`. `was` is the quarantine that `release` ended."""

    format: Literal["gnomon-device-health"] = "gnomon-device-health"
    name: str
    health: Health
    was: Quarantine | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HerePart:
    """This machine, and the Python that probes the runtimes."""

    name: str
    interpreter: str | None
    fingerprint: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRuntime:
    """A runtime with its version and backends here, or the reason why it is missing and the command to install it."""

    name: str
    installed: bool
    version: str | None
    backends: tuple[str, ...]
    formats: tuple[str, ...]
    details: Mapping[str, object]
    reason: str | None
    install: str | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RuntimesDocument(FirstVersion):
    """The runtimes that gnomon knows, installed ones first: `gnomon runtimes`. `gnomon` is its version."""

    format: Literal["gnomon-runtimes"] = "gnomon-runtimes"
    gnomon: str
    device: HerePart
    runtimes: tuple[KnownRuntime, ...]
    broken: tuple[BrokenRuntime, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeDocument:
    """The address of `gnomon serve`, its process, and the device that measures. `token` tells whether requests need
    one.
    """

    format: Literal["gnomon-serve"] = "gnomon-serve"
    version: Literal[1] = 1
    url: str
    host: str
    port: int
    path: str
    runtime: str
    runtime_version: str
    configuration: str
    device: str
    token: bool
    process: int
