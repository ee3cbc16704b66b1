"""What is done on an open device without Python to look at it closely, and to clean it: by its shell."""

from __future__ import annotations

import re
import secrets
from pathlib import PurePosixPath
from typing import Any

from gnomon.devices.base import Device
from gnomon.devices.ssh_plain_sh import OURS, OWN_FOLDER
from gnomon.errors import DeviceError

PUSHED = "pushed-plain"
"""The folder of pushed files on such a device."""

_TIMEOUT_S = 600.0
_CLEAN = f"""
[ ! -L "$1" ] && cd "$1" && {OWN_FOLDER} || {{ echo "it is a link, or belongs to somebody else" >&2; exit 1; }}
n=$(ls -d {OURS} 2>/dev/null | wc -l); k=$(du -sk . 2>/dev/null)
for d in {OURS} .new-*; do rm -rf "./$d"; done
echo "$((n)) ${{k%%[!0-9]*}}"
"""


def written_by_shell(device: Device) -> dict[str, Any]:
    """Write, read and remove a file: whether it read the `same`, the temporary `folder`, and the `free` bytes there."""
    data = secrets.token_hex(1 << 18)
    done = device.run(
        ["sh", "-c", "cat >written && cat written; s=$?; rm -f written; exit $s"],
        env={},
        stdin=data.encode(),
        timeout_s=_TIMEOUT_S,
    )
    if not done.ok:
        raise _failed("a file cannot be written in the private folder", done.stderr)
    told = device.run(["sh", "-c", "pwd -P; df -Pk ."], env={}, timeout_s=_TIMEOUT_S)
    lines = told.stdout.splitlines()
    fields = lines[-1].split() if len(lines) > 2 else []
    free_kib = next((int(f) for f in fields[3:4] if re.fullmatch("[0-9]{1,15}", f)), 0)
    # The private folder is one of two in gnomon's own, which is in the temporary one.
    folder = PurePosixPath(lines[0]).parent.parent if lines else PurePosixPath("/")
    return {"same": done.stdout == data, "folder": str(folder), "free": free_kib * 1024}


def cleaned_by_shell(device: Device, cache: PurePosixPath) -> dict[str, Any]:
    """Remove everything from the folder of pushed files: how many `entries` there were, and their `size` in bytes."""
    done = device.run(["sh", "-c", _CLEAN, "sh", str(cache)], env={}, timeout_s=_TIMEOUT_S)
    found = re.fullmatch(r"([0-9]{1,9}) ([0-9]{0,15})\n", done.stdout)
    if not done.ok or found is None:
        raise _failed(f"{cache} cannot be cleaned", done.stderr)
    return {"entries": int(found[1]), "size": int(found[2] or 0) * 1024}


def _failed(what: str, stderr: str) -> DeviceError:
    last = stderr.strip().splitlines()[-1:] or ["it does not say why"]
    return DeviceError(f"{what}: {last[0][:300]}", hint="Look at its free space and at who may write there.")
