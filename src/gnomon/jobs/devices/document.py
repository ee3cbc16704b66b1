"""The JSON documents of `gnomon devices`, `runtimes` and `serve`, as records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gnomon.devices.health import Health, Quarantine
from gnomon.jobs.devices.visit import CloseLook, RuntimeRow


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePart:
    """A device as it was found: "ready", "in use" by another gnomon, or "failed" for a reason.

    `settings` are those of the file of devices; `check` is what a close look found, `health` how it has been.
    """

    name: str
    address: str
    state: Literal["ready", "in use", "failed"]
    reason: str | None
    hint: str | None
    fingerprint: Mapping[str, Any] | None
    interpreter: str | None
    runtimes: tuple[RuntimeRow, ...]
    check: CloseLook | None
    settings: Mapping[str, Any]
    seconds: float
    health: Health = field(default_factory=Health)


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesDocument:
    """Devices: `gnomon devices`, `list` and `check`. `file` is the file of devices, `named`: some were asked for."""

    format: Literal["gnomon-devices"]
    version: Literal[1]
    file: str
    file_exists: bool
    named: bool
    devices: tuple[DevicePart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAddedDocument:
    """A device that was given a name: `gnomon devices add`; null where it was not looked at."""

    format: Literal["gnomon-device-added"]
    version: Literal[1]
    file: str
    added: str
    device: DevicePart | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRemovedDocument:
    """A name that was taken out of the file of devices: `gnomon devices remove`."""

    format: Literal["gnomon-device-removed"]
    version: Literal[1]
    file: str
    removed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCleanedDocument:
    """What was removed from a device: `gnomon devices clean`."""

    format: Literal["gnomon-device-cleaned"]
    version: Literal[2]
    name: str
    folder: str | None
    entries: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHealthDocument:
    """How a device is: `gnomon devices probe` and `release`. `was` is the quarantine that was ended by hand."""

    format: Literal["gnomon-device-health"]
    version: Literal[1]
    name: str
    health: Health
    was: Quarantine | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HerePart:
    """This machine, and the Python that runtimes are asked with."""

    name: str
    interpreter: str | None
    fingerprint: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRuntime:
    """A runtime, its version and backends here, or why it is missing and what installs it."""

    name: str
    installed: bool
    version: str | None
    backends: tuple[str, ...]
    formats: tuple[str, ...]
    details: Mapping[str, Any]
    reason: str | None
    install: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenAdapter:
    """An adapter that cannot be loaded, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimesDocument:
    """The runtimes that gnomon knows, those that are installed first: `gnomon runtimes`. `gnomon` is its version."""

    format: Literal["gnomon-runtimes"]
    version: Literal[1]
    gnomon: str
    device: HerePart
    runtimes: tuple[KnownRuntime, ...]
    broken: tuple[BrokenAdapter, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeDocument:
    """Where `gnomon serve` listens, in which process, and what measures there. `token`: one must be sent."""

    format: Literal["gnomon-serve"]
    version: Literal[1]
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
