"""Files to and from a device behind adb or sdb. Whether a push or pull did its work is seen there and here."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.devices.bridge_sh import arrived_script, fetch_script
from gnomon.devices.pushed import Part
from gnomon.devices.shell_link import LONG_S
from gnomon.devices.shell_visit import last, not_arrived, refusal
from gnomon.devices.ssh_plain_sh import quoted
from gnomon.errors import DeviceError

if TYPE_CHECKING:
    from gnomon.devices.bridge_link import BridgeLink

_AT_ONCE = 32
_COPIED = re.compile(r"([0-9]+)(?: ([0-9a-f]{64}))?\b")


def arrive(link: BridgeLink, files: Sequence[tuple[Part, str]]) -> None:
    """Bring files to their paths there, each checked by its size and, where that can be had, its SHA-256.

    They come under plain names first: the program shall see no path that it might take for something else.
    """
    for start in range(0, len(files), _AT_ONCE):
        scripts = []
        for number, (part, path) in enumerate(files[start : start + _AT_ONCE]):
            came = f"{link.base}/in/f{number}"
            link.pushed(part.source, came)
            scripts.append(arrived_script(came, path, part.size_bytes, part.digest, program=part.kind == "x"))
        status, told = link.do("\n".join(scripts), within_s=LONG_S)
        if status == "3":
            raise not_arrived(link.settings, told or "a file")
        if status != "0":
            raise refusal(link.settings, told, files[start][1])


def fetch(link: BridgeLink, path: str, local: Path) -> None:
    """Bring a file from there to a path here, which is written as it comes. OSError if it cannot be written."""
    copy = f"{link.base}/in/fetched"
    status, told = link.do(fetch_script(path, copy), within_s=LONG_S)
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
            hint=f"See whether the device is up ({link.settings.listing}), and the space here; then start again.",
            transient=True,
        )
