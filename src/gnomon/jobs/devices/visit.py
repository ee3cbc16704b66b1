"""What is done on an open device to look at it closely, and to clean it.

What is told of a device, as records and as JSON.

What is done on an open device without Python to look at it closely, and to clean it: by its shell.
"""

from __future__ import annotations

import re
import secrets
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from gnomon.devices.base import Device
from gnomon.devices.config import DeviceConfig
from gnomon.devices.health import Health, Quarantine
from gnomon.devices.shell.scripts import OWN_FOLDER, UPLOADED
from gnomon.errors import DeviceError
from gnomon.measure.energy import LEAVE, find_counters
from gnomon.measure.link import AgentLink
from gnomon.report.answer import Answer
from gnomon.system.process import guarded_folder


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
class DeviceRow(Answer):
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
    health: Health = field(default_factory=Health)

    __repr__ = Answer.__repr__

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
            "health": asdict(self.health),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHealth:
    """How a device is known to be now; `was` is the quarantine that was ended by hand."""

    name: str
    health: Health
    was: Quarantine | None

    def document(self) -> dict[str, Any]:
        """It in JSON values."""
        return {"format": "gnomon-device-health", "version": 1, **asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """What was removed from a device; `folder` is None where nothing is kept, as on this machine."""

    name: str
    folder: str | None
    entries: int
    size_bytes: int

    def document(self) -> dict[str, Any]:
        """It in JSON values."""
        return {"format": "gnomon-device-cleaned", "version": 2, **asdict(self)}


PUSHED = "pushed"
"""The folder of pushed files on such a device."""

_SHELL_TIMEOUT_S = 600.0
_CLEAN = f"""
[ ! -L "$1" ] && cd "$1" && {OWN_FOLDER} || {{ echo "it is a link, or belongs to somebody else" >&2; exit 1; }}
n=$(ls -d {UPLOADED} 2>/dev/null | wc -l); k=$(du -sk . 2>/dev/null)
for d in {UPLOADED} .new-*; do rm -rf "./$d"; done
echo "$((n)) ${{k%%[!0-9]*}}"
"""


def _written(device: Device) -> dict[str, Any]:
    """Write, read and remove a file: whether it read the `same`, the temporary `folder`, and the `free` bytes there."""
    data = secrets.token_hex(1 << 18)
    done = device.run(
        ["sh", "-c", "cat >written && cat written; s=$?; rm -f written; exit $s"],
        env={},
        stdin=data.encode(),
        timeout_s=_SHELL_TIMEOUT_S,
    )
    if not done.ok:
        raise _failed("a file cannot be written in the private folder", done.stderr)
    told = device.run(["sh", "-c", "pwd -P; df -Pk ."], env={}, timeout_s=_SHELL_TIMEOUT_S)
    lines = told.stdout.splitlines()
    fields = lines[-1].split() if len(lines) > 2 else []
    free_kib = next((int(f) for f in fields[3:4] if re.fullmatch("[0-9]{1,15}", f)), 0)
    private = PurePosixPath(lines[0]) if lines else PurePosixPath("/")
    own = next((path for path in reversed(private.parents) if path.name.startswith("gnomon-")), private)
    folder = own.parent
    return {"same": done.stdout == data, "folder": str(folder), "free": free_kib * 1024}


def _emptied(device: Device, cache: PurePosixPath) -> dict[str, Any]:
    """Remove everything from the folder of pushed files: how many `entries` there were, and their `size` in bytes."""
    done = device.run(["sh", "-c", _CLEAN, "sh", str(cache)], env={}, timeout_s=_SHELL_TIMEOUT_S)
    found = re.fullmatch(r"([0-9]{1,9}) ([0-9]{0,15})\n", done.stdout)
    if not done.ok or found is None:
        raise _failed(f"{cache} cannot be cleaned", done.stderr)
    return {"entries": int(found[1]), "size": int(found[2] or 0) * 1024}


def _failed(what: str, stderr: str) -> DeviceError:
    last = stderr.strip().splitlines()[-1:] or ["it does not say why"]
    return DeviceError(f"{what}: {last[0][:300]}", hint="Look at its free space and at who may write there.")


_COMMANDS = 21
_TIMEOUT_S = 60.0


def look_closely(device: Device) -> CloseLook:
    """Measure the overhead of a command, and write, read and remove a file. DeviceError if that does not work."""
    overheads = []
    for _ in range(_COMMANDS):
        done = device.run(["true"], env={}, timeout_s=_TIMEOUT_S)
        if not done.ok:
            raise DeviceError(
                f"the command `true` ended with {done.returncode if done.signal is None else f'signal {done.signal}'}",
                hint="See whether `true` is on the PATH of the device.",
            )
        overheads.append(done.duration_s)
    found = _written(device)
    if found.get("same") is not True:
        raise DeviceError(
            "a file that was written on the device reads otherwise", hint="Look at the health of its disk (dmesg)."
        )
    return CloseLook(
        # The first commands find programs and libraries on the disk.
        overhead_s=statistics.median(overheads[1:]),
        temporary=str(found["folder"]),
        temporary_free_bytes=int(found["free"]),
    )


def look_for_energy(link: AgentLink) -> EnergyRow:
    """The device's energy counters, or why there is none. DeviceError if the device fails in the middle of it."""
    try:
        found = find_counters(link)
    except DeviceError as error:
        if error.transient:
            raise
        reason = error.message.partition("reports no energy: ")[2] or error.message
        return EnergyRow(reason=reason, hint="" if error.hint == LEAVE else error.hint)
    return EnergyRow(
        counters=dict(zip(found.names, found.domains, strict=True)),
        period_s=found.period_s,
        power_w=found.power_w,
        others=found.others,
    )


def clean_cache(device: Device, name: str) -> Cleaned:
    """Remove everything that gnomon put into the device's cache of pushed files."""
    with guarded_folder("gnomon-clean-") as folder:
        probe = Path(folder) / "probe"
        probe.write_bytes(b"")
        placed = PurePosixPath(device.push(probe, probe.name))
    cache = placed.parent.parent  # pushed/<digest>/<name>
    if cache.name != PUSHED or not cache.is_absolute():
        return Cleaned(name=name, folder=None, entries=0, size_bytes=0)
    found = _emptied(device, cache)
    # The file that showed where the cache is does not count.
    return Cleaned(
        name=name,
        folder=str(cache),
        entries=max(0, int(found["entries"]) - 1),
        size_bytes=int(found["size"]),
    )
