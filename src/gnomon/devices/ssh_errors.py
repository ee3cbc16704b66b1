"""What went wrong on the way to a device or on it, told apart by the texts of the OpenSSH client and of the keeper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.devices.ssh_program import OLDEST_PYTHON, PYTHON_MARK, SshSettings
from gnomon.errors import DeviceError


class NoPythonError(DeviceError):
    """The device was reached and has a shell, but no Python of any kind."""


_SSH_FAILED = 255
_SHOWN = 300

# What the client says (OpenSSH 7 to 10; it speaks English only), what it means, what helps, whether waiting can help.
_REFUSALS: tuple[tuple[str, str, str, bool], ...] = (
    (
        "IDENTIFICATION HAS CHANGED",
        "{where} shows another host key than before: it was set up anew, or something else answers in its place",
        "If you know why, remove the old key by: ssh-keygen -R {keyname}; then connect once by: {by_hand}",
        False,
    ),
    (
        "Host key verification failed",
        "the host key of {where} is not known here",
        "Connect once by hand and compare the key: {by_hand}",
        False,
    ),
    (
        "Could not resolve hostname",
        "the name {host} is not known to this machine",
        "Check its spelling, /etc/hosts and ~/.ssh/config, or give the address.",
        False,
    ),
    (
        "Connection refused",
        "{where} refuses the connection: nothing listens on that port",
        "Start its SSH server, or give the right port as ssh://host:port.",
        True,
    ),
    (
        "Permission denied (",
        "{where} does not let this user in with the keys at hand",
        "Check the user, and bring your key there by ssh-copy-id; it must work without a password: {by_hand}",
        False,
    ),
    (
        "Too many authentication failures",
        "{where} does not let this user in with the keys at hand: too many were tried",
        'Name the right one: ssh_options = ["IdentityFile=...", "IdentitiesOnly=yes"].',
        False,
    ),
    (
        "Bad configuration option",
        "the SSH client does not know one of its options: {said}",
        "Correct ssh_options of the device, or ~/.ssh/config.",
        False,
    ),
    (
        "command-line line",
        "the SSH client does not take one of its options: {said}",
        "Correct ssh_options of the device.",
        False,
    ),
)
_UNREACHABLE = ("timed out", "No route to host", "Network is unreachable", "Host is down", "Network is down")


def not_connected(settings: SshSettings, returncode: int | None, stderr: str, stdout: str) -> DeviceError:
    """Why there is no keeper, from how the client ended (None: it had not) and what it and the device printed."""
    said = _last(stderr) or _last(stdout)
    places = _places(settings, said)
    if PYTHON_MARK in stdout:
        return _python(settings, stdout.rpartition(PYTHON_MARK)[2].splitlines()[0].split())
    if returncode is None:
        return DeviceError(
            f"{settings.destination} is connected but stays silent",
            hint=f"See whether this ends by itself: {places['by_hand']} true",
            transient=True,
        )
    for sign, message, hint, transient in _REFUSALS if returncode == _SSH_FAILED else ():
        if sign in stderr:
            return DeviceError(message.format(**places), hint=hint.format(**places), transient=transient)
    if returncode == _SSH_FAILED and any(sign in stderr for sign in _UNREACHABLE):
        return DeviceError(
            f"{settings.destination} cannot be reached: {said}",
            hint="Check that the device is on and in the same network, and its address.",
            transient=True,
        )
    if returncode == _SSH_FAILED:
        return DeviceError(
            f"the connection to {settings.destination} failed: {said or 'the SSH client does not say why'}",
            hint=f"See what the client says: {places['by_hand']} -v",
            transient=True,
        )
    return DeviceError(
        f"{settings.destination} let gnomon in, but did not start its program (status {returncode}): {said}",
        hint=f"This must work there: {places['by_hand']} sh -c true",
    )


def _python(settings: SshSettings, seen: list[str]) -> DeviceError:
    versions = [word.partition("=")[::2] for word in seen if "=" in word]
    hint = f"Install Python {OLDEST_PYTHON} or newer there, or name one: python = ... of the device."
    if not versions:
        missing = f"no {settings.python}" if settings.python else "no Python"
        kind = DeviceError if settings.python else NoPythonError
        return kind(f"there is {missing} on {settings.destination}", hint=hint)
    found = ", ".join(f"{path} is {version or 'broken'}" for path, version in versions)
    why = "is too old" if any(version for _, version in versions) else "does not start"
    return DeviceError(f"Python on {settings.destination} {why}: {found}", hint=hint)


def lost(settings: SshSettings, returncode: int | None, stderr: str) -> DeviceError:
    """The connection ended, or (None) fell silent, after it had been good."""
    if returncode is None:
        return DeviceError(
            f"{settings.destination} has been silent for {settings.silence_s:g} s",
            hint="See whether the device hangs or its network is cut, then start again: what was measured is kept.",
            transient=True,
        )
    said = _last(stderr)
    return DeviceError(
        f"the connection to {settings.destination} was lost{f': {said}' if said else ''}",
        hint="See whether the device and its network are up, then start again: what was measured is kept.",
        transient=True,
    )


def overdue(settings: SshSettings, timeout_s: float) -> DeviceError:
    """The device neither ended a command at its time limit nor fell silent."""
    return DeviceError(
        f"{settings.destination} did not end a command after {timeout_s:g} s, as it was told",
        hint="See what keeps the device from it (top, dmesg), or restart it.",
        transient=True,
    )


def senseless(settings: SshSettings, told: bytes) -> DeviceError:
    """The device answered what no keeper says."""
    return DeviceError(
        f"{settings.destination} answers what gnomon does not understand: {told!r}",
        hint="See what else writes to the connection there, then open the device anew.",
        transient=True,
    )


def refused(settings: SshSettings, answer: Mapping[str, Any]) -> DeviceError:
    """What the keeper said that it could not do."""
    kind, what, reason = str(answer["error"]), str(answer.get("what", "")), str(answer.get("reason", ""))
    where = f"{what} on {settings.destination}"
    if kind == "busy":
        return DeviceError(
            f"device {settings.name!r} is in use by process {reason} there",
            hint="Wait for it to end, or end it: the lease goes with its process.",
            transient=True,
        )
    if kind == "start":
        return DeviceError(
            f"the program cannot be started on {settings.destination}: {reason}",
            hint="Check that the program is installed on the device, executable, and on its PATH.",
        )
    if kind == "stuck":
        return DeviceError(
            f"process {where} does not end though it was killed: it hangs in a driver",
            hint="Restart the device, and leave out the backend that hung.",
        )
    if kind == "full":
        return DeviceError(
            f"the disk is full: {where}: {reason}",
            hint="Free space there, or name a folder on another disk: folder = ... of the device; TMPDIR there.",
        )
    if kind == "permission":
        return DeviceError(
            f"no permission to write: {where}: {reason}",
            hint="Name a folder that its user may write: folder = ... of the device; TMPDIR or GNOMON_LEASES there.",
        )
    return DeviceError(f"{where}: {reason}", hint="Check that path on the device.")


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "".join(c if c.isprintable() else " " for c in lines[-1][:_SHOWN]) if lines else ""


def _places(settings: SshSettings, said: str) -> dict[str, str]:
    user = f"{settings.user}@" if settings.user else ""
    port = f"-p {settings.port} " if settings.port else ""
    named = f"[{settings.host}]:{settings.port}" if settings.port and settings.port != 22 else settings.host
    return {
        "where": settings.destination,
        "host": settings.host,
        "said": said,
        "by_hand": f"ssh {port}{user}{settings.host}",
        "keyname": f"'{named}'",
    }
