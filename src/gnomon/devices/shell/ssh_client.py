"""The command line of the OpenSSH client, and the classification of connection errors by the client's messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from gnomon.core.codec import Must, check_fields, whole
from gnomon.devices.shell.link import ShellSettings, broken, last
from gnomon.errors import DeviceError

OLDEST_PYTHON = "3.10"


def _is_name(text: str) -> bool:
    return bool(text) and text[0] != "-" and text.isprintable() and " " not in text


def _are_options(options: tuple[str, ...]) -> bool:
    return all(option.partition("=")[2] and option.isprintable() for option in options)


_Name = Annotated[str, Must(be="a name that SSH accepts, as in ssh://[user@]host[:port]", fits=_is_name)]
_Options = Annotated[tuple[str, ...], Must(be="Key=Value pairs, as in ssh_config: IdentityFile=...", fits=_are_options)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SshSettings(ShellSettings):
    """A device that is reached by SSH, with its connection settings.

    The user's SSH configuration (keys, agents, aliases, jump hosts) applies to everything that is None here. UsageError
    for a host, user, port or option that SSH could misinterpret.
    """

    host: _Name
    user: _Name | None = None
    port: Annotated[int, whole(1, 65535)] | None = None
    ssh_options: _Options = ()
    """`Key=Value` as in ssh_config, with precedence over that file."""
    program: str = "ssh"

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def destination(self) -> str:
        """The device as people write it: `user@host:port`."""
        user = f"{self.user}@" if self.user else ""
        return f"{user}{self.host}{f':{self.port}' if self.port else ''}"


def forward_argv(settings: SshSettings, port: int) -> list[str]:
    """The command whose standard input and output are a connection to a loopback port of the device."""
    return [*client_argv(settings, last=("ControlMaster=no",)), "-W", f"127.0.0.1:{port}", "--", settings.host]


def client_argv(settings: SshSettings, *, first: Sequence[str] = (), last: Sequence[str] = ()) -> list[str]:
    """The client and its options, without the host. If an option is given twice, the first one counts."""
    options = [
        "BatchMode=yes",  # nobody can answer prompts, so unknown keys and passwords are errors
        *first,
        *settings.ssh_options,
        f"ConnectTimeout={max(1, round(settings.connect_timeout_s))}",
        "ServerAliveInterval=5",
        "ServerAliveCountMax=3",
        # Forwardings in the user's configuration are meant for terminal sessions, not for the device, and a port that
        # is taken by another connection must not end this one.
        "ForwardAgent=no",
        "ForwardX11=no",
        "ClearAllForwardings=yes",
        "LogLevel=ERROR",
        *last,
    ]
    argv = [settings.program, "-T", *(word for option in options for word in ("-o", option))]
    if settings.user is not None:
        argv += ["-l", settings.user]
    if settings.port is not None:
        argv += ["-p", str(settings.port)]
    return argv


class TurnedAwayError(DeviceError):
    """The server ended the connection before login, as servers with too many connections at the moment do."""


_SSH_FAILED = 255

# The client's message (OpenSSH 7 to 10, always in English), its meaning, a hint, and whether waiting can help.
_REFUSALS: tuple[tuple[str, str, str, bool], ...] = (
    (
        "IDENTIFICATION HAS CHANGED",
        "the host key of {where} has changed: it was reinstalled, or another machine answers in its place",
        "If you know why, remove the old key with: ssh-keygen -R {keyname}; then connect once with: {by_hand}",
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
        "this machine cannot resolve the host name {host}",
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
        "{where} accepts none of the available keys for this user",
        "Check the user. Copy your key there with ssh-copy-id, or name its file in gnomon devices add with "
        "--ssh-option IdentityFile=FILE. This must work without a password: {by_hand}",
        False,
    ),
    (
        "Too many authentication failures",
        "{where} ended the login because too many keys were tried",
        'Name the right one: ssh_options = ["IdentityFile=...", "IdentitiesOnly=yes"].',
        False,
    ),
    (
        "Bad configuration option",
        "the SSH client does not know one of its options: {said}",
        "Correct the ssh_options of the device, or ~/.ssh/config.",
        False,
    ),
    (
        "command-line line",
        "the SSH client rejects one of its options: {said}",
        "Correct the ssh_options of the device.",
        False,
    ),
)
_TURNED_AWAY = ("kex_exchange_identification", "Connection reset", "closed by remote host")
_UNREACHABLE = ("timed out", "No route to host", "Network is unreachable", "Host is down", "Network is down")


def not_connected(settings: SshSettings, returncode: int | None, stderr: str, printed: bytes) -> DeviceError:
    """The error if no guard answers, from the client's return code (None: still running) and the printed output."""
    said = last(stderr) or last(printed.decode(errors="replace"))
    places = _places(settings, said)
    if offending := re.search(r"""ssh-keygen .*-R ["']?([^"'\s]+)""", stderr):  # if the host in the table is an alias
        places["keyname"] = f"'{offending[1]}'"
    if returncode is None:
        return DeviceError(
            f"{settings.destination} is connected but does not answer",
            hint=f"Check that this command ends: {places['by_hand']} true",
            transient=True,
        )
    for sign, message, hint, transient in _REFUSALS if returncode == _SSH_FAILED else ():
        if sign in stderr:
            return DeviceError(message.format(**places), hint=hint.format(**places), transient=transient)
    if returncode == _SSH_FAILED and any(sign in stderr for sign in _UNREACHABLE):
        return DeviceError(
            f"{settings.destination} cannot be reached: {said}",
            hint="Check the device's address, and that it is on and in the same network.",
            transient=True,
        )
    if returncode == _SSH_FAILED:
        kind = TurnedAwayError if any(sign in stderr for sign in _TURNED_AWAY) else DeviceError
        return kind(
            f"the connection to {settings.destination} failed: {said or 'the SSH client does not say why'}",
            hint=f"See what the client says: {places['by_hand']} -v",
            transient=True,
        )
    return DeviceError(
        f"{settings.destination} accepted the login, but did not start gnomon's program (status {returncode}): {said}",
        hint=f"This command must work: {places['by_hand']} sh -c true",
    )


def no_python(settings: SshSettings, seen: list[str]) -> DeviceError | None:
    """The error for a device without a usable Python, from the Pythons that were seen, each as PATH=VERSION.

    None if there is no Python at all and the settings name none.
    """
    versions = [word.partition("=")[::2] for word in seen if "=" in word]
    hint = f"Install Python {OLDEST_PYTHON} or newer there, or name one with `python` in the file of devices."
    if not versions:
        missing = f"there is no {settings.python} on {settings.destination}"
        return DeviceError(missing, hint=hint) if settings.python else None
    shown = ", ".join(f"{path} is {version or 'broken'}" for path, version in versions)
    why = "is too old" if any(version for _, version in versions) else "does not start"
    return DeviceError(f"Python on {settings.destination} {why}: {shown}", hint=hint)


def lost(settings: SshSettings, returncode: int | None, stderr: str) -> DeviceError:
    """The error for an established connection that ended or (None) fell silent."""
    if "Session open refused" in stderr and returncode is not None:
        return DeviceError(
            f"the SSH server of {settings.destination} allows too few sessions over one connection",
            hint="Set MaxSessions in its sshd_config to 10, its default, and restart the server.",
        )
    said = None if returncode is None else last(stderr)
    return broken(settings, said, way="network is down", look="whether the device and its network are up")


def _places(settings: SshSettings, said: str) -> dict[str, str]:
    user = f"{settings.user}@" if settings.user else ""
    port = f"-p {settings.port} " if settings.port else ""
    keys = [option.partition("=")[2] for option in settings.ssh_options if option.lower().startswith("identityfile=")]
    named = f"[{settings.host}]:{settings.port}" if settings.port and settings.port != 22 else settings.host
    return {
        "where": settings.destination,
        "host": settings.host,
        "said": said,
        "by_hand": f"ssh {port}{''.join(f'-i {key} ' for key in keys)}{user}{settings.host}",
        "keyname": f"'{named}'",
    }
