"""The settings of a server: where it listens, who may use it, and its limits."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from dataclasses import dataclass, field, replace
from pathlib import Path

from gnomon.devices.address import LOCAL
from gnomon.devices.opening import resolve
from gnomon.errors import UsageError
from gnomon.runtimes.declared import Declaration
from gnomon.system.files import read_file

TOKEN_VARIABLE = "GNOMON_SERVE_TOKEN"  # noqa: S105 - the variable's name
PUBLISHED_PATH = "/test_latency/test_latency/"
LEAST_TOKEN = 16
_MOST_TOKEN_BYTES = 4096
_MODEL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", re.ASCII)
_PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._~-]+)+/?", re.ASCII)

HEAD_S = 5.0
"""The longest time limit of a request's head."""

JOB_S, COMMAND_S = 120.0, 600.0
"""The time limits of a runtime's job and of a command's job; the latter is longer because programs for DPUs run for a
minute each time.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """The way to measure received models: the devices, and a runtime with its options or a command.

    `processes` is the number of fresh processes for each model. None means three for a command or on another machine,
    and otherwise one process that is kept from one model to the next. `model_name` is the name of the model's file for
    a command. `record` is the results database of runs; None is the user's own.
    """

    runtime: str = ""
    command: Declaration | None = None
    devices: tuple[str, ...] = (LOCAL,)
    model_name: str = "model"
    threads: int = 1
    backend: str | None = None
    precision: str | None = None
    processes: int | None = None
    seed: int = 0
    record: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits on the resources that clients may use.

    A model has at most `most_bytes`, and all waiting models together at most `most_held_bytes`; at most `queue`
    requests are admitted at once. Each piece of a request must arrive within `idle_s`, its head within `head_s`, and
    the whole request within `upload_s`. A job takes at most `job_s`, and each of its processes at most `memory_bytes`
    of address space.
    """

    most_bytes: int = 256 << 20
    most_held_bytes: int = 2 << 30
    queue: int = 1000
    head_s: float = HEAD_S
    idle_s: float = 20.0
    upload_s: float = 300.0
    job_s: float = JOB_S
    memory_bytes: int = 8 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """All settings of a server.

    `open_to_all` allows addresses other than loopback without a token, so that anyone who reaches them can measure.
    """

    measuring: Measuring
    host: str = "127.0.0.1"
    port: int = 8055
    path: str = PUBLISHED_PATH
    token: str | None = field(default=None, repr=False)
    open_to_all: bool = False
    limits: Limits = Limits()

    @property
    def url(self) -> str:
        """The address to which models are sent."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{self.path}"


def checked(settings: ServeSettings) -> tuple[ServeSettings, tuple[str, ...]]:
    """The settings with a path that ends in a slash, and the addresses to bind. UsageError with all errors.

    Host names are looked up here, so that exactly the checked addresses are bound.
    """
    wrong: list[str] = []
    addresses = _addresses(settings.host, wrong)
    if not _PATH.fullmatch(settings.path) or settings.path.strip("/") == "health":
        wrong.append(f"{settings.path!r} is not a valid path, such as {PUBLISHED_PATH}")
    if settings.token is not None and settings.open_to_all:
        wrong.append("both a token and --no-token are given")
    if settings.token is not None and not _is_token(settings.token):
        wrong.append(f"the token has fewer than {LEAST_TOKEN} characters, or some that headers forbid, such as blanks")
    beyond = [address for address in addresses if not ipaddress.ip_address(address.partition("%")[0]).is_loopback]
    if beyond and settings.token is None and not settings.open_to_all:
        wrong.append(f"{', '.join(beyond)} can be reached from other machines, but there is no token")
    measuring = settings.measuring
    machines: dict[tuple[str, str, int], str] = {}
    for text in measuring.devices:
        machine = resolve(text).address.machine
        if machine in machines:
            wrong.append(
                f"the devices {machines[machine]} and {text} are one machine, which measures one model at a time"
            )
        machines[machine] = text
    if not _MODEL_NAME.fullmatch(measuring.model_name):
        wrong.append(f"{measuring.model_name[:80]!r} is not a name for the model's file, such as model.xmodel")
    if wrong:
        raise UsageError(
            f"the server cannot be started: {'; '.join(wrong)}",
            hint=f"To serve other machines, give --token-file FILE or {TOKEN_VARIABLE}; --no-token admits everybody.",
        )
    return replace(settings, path=settings.path.rstrip("/") + "/"), addresses


def read_token(file: Path | None) -> str | None:
    """The token from a file, or without a file from the environment, or None. UsageError for a file that cannot be
    read.
    """
    if file is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    raw = read_file(file, hint=f"Write the token into a file, or into {TOKEN_VARIABLE}.", most_bytes=_MOST_TOKEN_BYTES)
    token = raw.decode("ascii", "replace").strip()
    if not _is_token(token):
        raise UsageError(
            f"{file} holds no valid token",
            hint=f"Write one line of at least {LEAST_TOKEN} characters, such as `openssl rand -hex 24` prints.",
        )
    return token


def _is_token(token: str) -> bool:
    return len(token) >= LEAST_TOKEN and token.isascii() and token.isprintable() and " " not in token


def _addresses(host: str, wrong: list[str]) -> tuple[str, ...]:
    try:
        entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        wrong.append(f"the host {host!r} has no address: {getattr(error, 'strerror', None) or error}")
        return ()
    return tuple(dict.fromkeys(str(address[4][0]) for address in entries))
