"""The begin of a visit to a Tizen device: its lease, its Python, and where pushed files are."""

from __future__ import annotations

import time
from collections.abc import Callable

from gnomon.devices.sdb_files import refusal
from gnomon.devices.sdb_link import SdbLink
from gnomon.devices.sdb_sh import FIND_PYTHON
from gnomon.devices.ssh_plain_sh import quoted
from gnomon.errors import DeviceError

_LEASE_WAIT_S = 3600.0
_PYTHONS = ("python3.13", "python3.12", "python3.11", "python3.10", "python3")


def take_lease(link: SdbLink, on_wait: Callable[[str], None] | None) -> None:
    """Wait until the watcher there has the device's lease, telling once who has it. DeviceError after an hour."""
    name = link.settings.name
    deadline_s, told = time.monotonic() + _LEASE_WAIT_S, False
    said = link.lease
    while True:
        link.check()
        kind, _, rest = said.partition(" ")
        if kind == "held":
            return
        if kind == "fail":
            raise refusal(link.settings, rest, "the lease of the device")
        if kind == "busy" and not told and on_wait is not None and rest != "nobody":
            told = True
            on_wait(f"another gnomon (process {rest} there) measures on {name}: waiting for it to end")
        if time.monotonic() > deadline_s:
            raise DeviceError(
                f"device {name!r} is in use by process {rest} there",
                hint="Wait for it to end, or end it: the lease goes with its process.",
                transient=True,
            )
        time.sleep(0.2)
        said = link.do(f"cat {quoted(f'{link.base}/lease')}")[1]


def pushed_place(link: SdbLink) -> str:
    """The folder of pushed files there, which is made. DeviceError if it cannot be written."""
    given = link.settings.folder
    if not link.settings.keep:
        root = quoted(f"{link.base}/pushed")
    elif given is None:
        root = '"${XDG_CACHE_HOME:-$HOME/.cache}/gnomon"'
    elif given.startswith("~/"):
        root = f'"$HOME"/{quoted(given[2:])}'
    else:
        root = quoted(given)
    script = f'umask 077; r={root}; mkdir -p "$r/pushed-plain" && cd "$r/pushed-plain" && [ -w . ] && pwd -P'
    status, said = link.do(script)
    if status != "0":
        raise refusal(link.settings, said or "Permission denied", given or "the cache folder")
    return said


def found_python(link: SdbLink) -> str:
    """The path of a Python of 3.10 or newer there; empty if there is none. DeviceError if the one named is none."""
    given = link.settings.python
    names = _PYTHONS if given is None else (given,)
    found = link.do(f"set -- {' '.join(map(quoted, names))}\n{FIND_PYTHON}")[1]
    if given is not None and not found:
        raise DeviceError(
            f"there is no Python of 3.10 or newer at {given} on {link.settings.destination}",
            hint="Name another by `python` in the file of devices, or leave it out.",
        )
    return found
