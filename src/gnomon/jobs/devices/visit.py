"""Examining and cleaning an open device through its shell, because the device may have no Python."""

from __future__ import annotations

import re
import secrets
import statistics
from pathlib import Path, PurePosixPath

from gnomon.core.codec import fields_of
from gnomon.devices.base import Device
from gnomon.devices.shell.scripts import OWN_FOLDER, UPLOADED
from gnomon.errors import DeviceError
from gnomon.jobs.devices.document import CloseLook, DeviceCleanedDocument, EnergyRow
from gnomon.measure.energy import LEAVE, find_counters
from gnomon.measure.link import AgentLink
from gnomon.system.process import guarded_folder

PUSHED = "pushed"
"""The name of the folder of uploaded files on a device with a shell."""

_SHELL_TIMEOUT_S = 600.0
_CLEAN = f"""
[ ! -L "$1" ] && cd "$1" && {OWN_FOLDER} || {{ echo "it is a link, or belongs to another user" >&2; exit 1; }}
n=$(ls -d {UPLOADED} 2>/dev/null | wc -l); k=$(du -sk . 2>/dev/null)
for d in {UPLOADED} .new-*; do rm -rf "./$d"; done
echo "$((n)) ${{k%%[!0-9]*}}"
"""


def _failed(what: str, stderr: str) -> DeviceError:
    last = stderr.strip().splitlines()[-1:] or ["the device gives no reason"]
    return DeviceError(f"{what}: {last[0][:300]}", hint="Check the free space and the permissions on the device.")


_COMMANDS = 21
_TIMEOUT_S = 60.0


def look_closely(device: Device) -> CloseLook:
    """Measure the overhead of a command, and write, read and remove a file. DeviceError if any of these fails."""
    overheads = []
    for _ in range(_COMMANDS):
        done = device.run(["true"], env={}, timeout_s=_TIMEOUT_S)
        if not done.ok:
            raise DeviceError(
                f"the command `true` ended with {done.returncode if done.signal is None else f'signal {done.signal}'}",
                hint="Check whether `true` is on the PATH of the device.",
            )
        overheads.append(done.duration_s)
    data = secrets.token_hex(1 << 18)
    script = "cat >written && cat written; s=$?; rm -f written; exit $s"
    done = device.run(["sh", "-c", script], env={}, stdin=data.encode(), timeout_s=_SHELL_TIMEOUT_S)
    if not done.ok:
        raise _failed("a file cannot be written in the private folder", done.stderr)
    if done.stdout != data:
        raise DeviceError(
            "a file written on the device reads back differently",
            hint="Check the device's disk, for example with dmesg.",
        )
    lines = device.run(["sh", "-c", "pwd -P; df -Pk ."], env={}, timeout_s=_SHELL_TIMEOUT_S).stdout.splitlines()
    fields = lines[-1].split() if len(lines) > 2 else []
    free_kib = next((int(f) for f in fields[3:4] if re.fullmatch("[0-9]{1,15}", f)), 0)
    private = PurePosixPath(lines[0]) if lines else PurePosixPath("/")
    own = next((path for path in reversed(private.parents) if path.name.startswith("gnomon-")), private)
    return CloseLook(
        # The first command still has to load programs and libraries from disk.
        overhead_s=statistics.median(overheads[1:]),
        temporary=str(own.parent),
        temporary_free_bytes=free_kib * 1024,
    )


def look_for_energy(link: AgentLink) -> EnergyRow:
    """The device's energy counters, or the reason why it has none. DeviceError if the device fails."""
    try:
        meter = find_counters(link)
    except DeviceError as error:
        if error.transient:
            raise
        reason = error.message.partition("reports no energy: ")[2] or error.message
        return EnergyRow(reason=reason, hint="" if error.hint == LEAVE else error.hint)
    return EnergyRow(counters=dict(zip(meter.names, meter.domains, strict=True)), **fields_of(EnergyRow, meter))


def clean_cache(device: Device, name: str) -> DeviceCleanedDocument:
    """Remove everything that gnomon put into the device's cache of uploaded files."""
    with guarded_folder("gnomon-clean-") as folder:
        probe = Path(folder) / "probe"
        probe.write_bytes(b"")
        placed = PurePosixPath(device.push(probe, probe.name))
    cache = placed.parent.parent  # pushed/<digest>/<name>
    if cache.name != PUSHED or not cache.is_absolute():
        return cleaned(name)
    done = device.run(["sh", "-c", _CLEAN, "sh", str(cache)], env={}, timeout_s=_SHELL_TIMEOUT_S)
    match = re.fullmatch(r"([0-9]{1,9}) ([0-9]{0,15})\n", done.stdout)
    if not done.ok or match is None:
        raise _failed(f"{cache} cannot be cleaned", done.stderr)
    # The file that was uploaded to find the cache does not count.
    return cleaned(name, str(cache), max(0, int(match[1]) - 1), int(match[2] or 0) * 1024)


def cleaned(name: str, folder: str | None = None, entries: int = 0, size_bytes: int = 0) -> DeviceCleanedDocument:
    """The document about the removed files; without a folder, as for this machine, none were removed."""
    return DeviceCleanedDocument(name=name, folder=folder, entries=entries, size_bytes=size_bytes)
