"""What is done on an open device to look at it closely, and to clean it."""

from __future__ import annotations

import json
import statistics
from pathlib import Path, PurePosixPath
from typing import Any

from gnomon.devices.base import Device
from gnomon.devices.guard import guarded_folder
from gnomon.devices.keeper_files import OURS
from gnomon.errors import DeviceError
from gnomon.jobs.device_rows import Cleaned, CloseLook, EnergyRow
from gnomon.jobs.device_shell import PUSHED, cleaned_by_shell, written_by_shell
from gnomon.measure.energy import LEAVE, find_counters
from gnomon.measure.link import AgentLink

_COMMANDS = 21
_TIMEOUT_S = 60.0

_WRITE = r"""
import json, os, shutil
data = os.urandom(1 << 20)
with open("written", "wb") as file:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())
with open("written", "rb") as file:
    same = file.read() == data
os.remove("written")
folder = os.getcwd()
print(json.dumps({"same": same, "folder": os.path.dirname(folder), "free": shutil.disk_usage(folder).free}))
"""

_CLEAN = r"""
import json, os, re, shutil, sys
root = sys.argv[1]
entries = size = 0
for name in os.listdir(root):
    path = os.path.join(root, name)
    if not re.fullmatch(sys.argv[2], name):
        continue
    if os.path.isdir(path) and not os.path.islink(path):
        for folder, _, files in os.walk(path):
            try:
                os.chmod(folder, 0o700)
                size += sum(os.lstat(os.path.join(folder, file)).st_size for file in files)
            except OSError:
                pass
        shutil.rmtree(path)
        entries += 1
    else:
        size += os.lstat(path).st_size
        os.remove(path)
print(json.dumps({"entries": entries, "size": size}))
"""


def look_closely(device: Device, python: str) -> CloseLook:
    """Measure the overhead of a command, and write, read and remove a file. DeviceError if that does not work.

    `python` is empty where the device has none.
    """
    overheads = []
    for _ in range(_COMMANDS):
        done = device.run(["true"], env={}, timeout_s=_TIMEOUT_S)
        if not done.ok:
            raise DeviceError(
                f"the command `true` ended with {done.returncode if done.signal is None else f'signal {done.signal}'}",
                hint="See whether `true` is on the PATH of the device.",
            )
        overheads.append(done.duration_s)
    if python:
        found = _asked(device, [python, "-I", "-c", _WRITE], "a file cannot be written in the private folder")
    else:
        found = written_by_shell(device)
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
        reason = error.message.partition("tells no energy: ")[2] or error.message
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
    if cache.name not in ("pushed", PUSHED) or not cache.is_absolute():
        return Cleaned(name=name, folder=None, entries=0, size_bytes=0)
    if cache.name == PUSHED:
        found = cleaned_by_shell(device, cache)
    else:
        python = device.describe().python
        found = _asked(device, [python, "-I", "-c", _CLEAN, str(cache), OURS], f"{cache} cannot be cleaned")
    # The file that showed where the cache is does not count.
    return Cleaned(
        name=name,
        folder=str(cache),
        entries=max(0, int(found["entries"]) - 1),
        size_bytes=int(found["size"]),
    )


def _asked(device: Device, argv: list[str], what: str) -> dict[str, Any]:
    done = device.run(argv, env={}, timeout_s=10 * _TIMEOUT_S)
    try:
        found = json.loads(done.stdout) if done.ok else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        last = done.stderr.strip().splitlines()[-1:] or ["it did not answer"]
        raise DeviceError(f"{what}: {last[0][:300]}", hint="Look at its free space and at who may write there.")
    return found
