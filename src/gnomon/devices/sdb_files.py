"""Files to and from a Tizen device. Whether `sdb push` and `sdb pull` did their work is seen on the device and here."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from gnomon.devices.pushed import Part
from gnomon.devices.sdb_link import SdbLink
from gnomon.devices.sdb_program import SdbSettings, last
from gnomon.devices.sdb_sh import arrived_script, fetch_script
from gnomon.devices.ssh_plain_sh import quoted
from gnomon.errors import DeviceError

_AT_ONCE = 32
_LONG_S = 24 * 3600.0
_FULL = ("No space left", "quota exceeded")
_DENIED = ("Permission denied", "Read-only file system", "Operation not permitted")
_COPIED = re.compile(r"([0-9]+)(?: ([0-9a-f]{64}))?\b")


def arrive(link: SdbLink, files: Sequence[tuple[Part, str]]) -> None:
    """Bring files to their paths there, each checked by its size and, where that can be had, its SHA-256.

    They come under plain names first: sdb shall see no path that it might take for something else.
    """
    for start in range(0, len(files), _AT_ONCE):
        scripts, said = [], ""
        for number, (part, path) in enumerate(files[start : start + _AT_ONCE]):
            came = f"{link.base}/in/f{number}"
            said = link.pushed(part.source, came)
            scripts.append(arrived_script(came, path, part.size_bytes, part.digest, program=part.kind == "x"))
        status, told = link.do("\n".join(scripts), within_s=_LONG_S)
        if status == "3":
            raise DeviceError(
                f"a file did not arrive on {link.settings.destination} as it was sent: {told or last(said)}",
                hint="Check the space in /opt/usr and /tmp there, and that nobody changes the file.",
                transient=True,
            )
        if status != "0":
            raise refusal(link.settings, told, files[start][1])


def fetch(link: SdbLink, path: str, local: Path) -> None:
    """Bring a file from there to a path here, which is written as it comes. OSError if it cannot be written."""
    copy = f"{link.base}/in/fetched"
    status, told = link.do(fetch_script(path, copy), within_s=_LONG_S)
    found = _COPIED.match(told)
    if status != "0" or found is None:
        raise refusal(link.settings, told, path)
    local.write_bytes(b"")
    said = link.pull(copy, local, int(found[1]))
    link.do(f"rm -f {quoted(copy)}")
    with local.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if local.stat().st_size != int(found[1]) or (found[2] and digest != found[2]):
        raise DeviceError(
            f"{path} did not come from {link.settings.destination} as it is there: {last(said)}",
            hint="See whether the device is up (sdb devices), and the space here; then start again.",
            transient=True,
        )


def refusal(settings: SdbSettings, said: str, what: str) -> DeviceError:
    """The error of what the device could not do, by what its shell said."""
    where, reason = f"{what} on {settings.destination}", last(said) or "it does not say why"
    if any(sign in said for sign in _FULL):
        return DeviceError(
            f"the disk is full: {where}: {reason}",
            hint="Free space there, or name a folder on another disk: folder = ... of the device.",
        )
    if any(sign in said for sign in _DENIED):
        return DeviceError(
            f"no permission to write: {where}: {reason}",
            hint="Name a folder that its user may write: folder = ... of the device.",
        )
    return DeviceError(f"{where}: {reason}", hint="Check that path on the device.")
