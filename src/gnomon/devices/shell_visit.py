"""The begin of a visit to a device that is served by its shell: its lease, where pushed files are, and its refusals."""

from __future__ import annotations

import time
from collections.abc import Callable

from gnomon.devices.lease import Waiting
from gnomon.devices.shell_link import ShellLink, ShellSettings
from gnomon.devices.ssh_plain_sh import quoted
from gnomon.devices.stopping import pause
from gnomon.errors import DeviceError

_LEASE_WAIT_S = 3600.0
_ASK_AGAIN_S = 0.25
_SHOWN = 300
_FULL = ("No space left", "quota exceeded")
_DENIED = ("Permission denied", "Read-only file system", "Operation not permitted")


def take_lease(settings: ShellSettings, ask: Callable[[], str], on_wait: Callable[[str], None] | None) -> None:
    """Wait until the device's lease is held there, telling once who has it. DeviceError after an hour.

    `ask` says how it stands: "held", "busy PROCESS", or "fail WHY".
    """
    deadline_s, told = time.monotonic() + _LEASE_WAIT_S, False
    while True:
        kind, _, rest = ask().partition(" ")
        if kind == "held":
            return
        if kind == "fail":
            raise refusal(settings, rest, "the lease of the device")
        if kind == "busy" and not told and on_wait is not None and rest != "nobody":
            told = True
            told_who = f"another gnomon (process {rest} there) measures on {settings.name}: waiting for it to end"
            on_wait(Waiting(told_who))
        if time.monotonic() > deadline_s:
            raise DeviceError(
                f"device {settings.name!r} is in use by process {rest} there",
                hint="Wait for it to end, or end it: the lease goes with its process.",
                transient=True,
            )
        pause(_ASK_AGAIN_S)


def pushed_place(settings: ShellSettings, link: ShellLink) -> str:
    """The folder of pushed files there, which is made. DeviceError if it cannot be written."""
    given = settings.folder
    if not settings.keep:
        root = quoted(f"{link.base}/pushed")
    elif given is None:
        root = f"{link.cache}/gnomon"
    elif given.startswith("~/"):
        root = f'"$HOME"/{quoted(given[2:])}'
    else:
        root = quoted(given)
    script = f'umask 077; r={root}; mkdir -p "$r/pushed-plain" && cd "$r/pushed-plain" && [ -w . ] && pwd -P'
    status, said = link.do(script)
    if status != "0":
        raise refusal(settings, said or "Permission denied", given or "the cache folder")
    return said


def refusal(settings: ShellSettings, said: str, what: str) -> DeviceError:
    """The error of what the device could not do, by what its shell said."""
    where, reason = f"{what} on {settings.destination}", last(said) or "it does not say why"
    if any(sign in said for sign in _FULL):
        return DeviceError(
            f"the disk is full: {where}: {reason}",
            hint="Free space there, or name a folder on another disk: folder = ... of the device; TMPDIR there.",
        )
    if any(sign in said for sign in _DENIED):
        return DeviceError(
            f"no permission to write: {where}: {reason}",
            hint="Name a folder that its user may write: folder = ... of the device; TMPDIR or GNOMON_LEASES there.",
        )
    return DeviceError(f"{where}: {reason}", hint="Check that path on the device.")


def not_arrived(settings: ShellSettings, source: object) -> DeviceError:
    """The error of a file that is not there as it was sent."""
    return DeviceError(
        f"{source} did not arrive on {settings.destination} as it was sent",
        hint="Check the device's disk and its temporary folder, and that nobody changes the file; then start again.",
        transient=True,
    )


def last(text: str) -> str:
    """The last line that says something, fit to be shown."""
    rows = [row.strip() for row in text.splitlines() if row.strip()]
    return "".join(c if c.isprintable() else " " for c in rows[-1][:_SHOWN]) if rows else ""
