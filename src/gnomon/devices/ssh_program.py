"""How the OpenSSH client is started, and what it starts on the device: a shell's one line, then the keeper."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gnomon.errors import UsageError

PYTHON_MARK = "GNOMON-PYTHON"
OLDEST_PYTHON = "3.10"
_KEEPER_FILES = ("keeper_files", "keeper_place", "keeper_run", "keeper")

# Whatever the login shell of the device's user is, it hands this on to sh as it stands: between single quotes there is
# nothing that sh, csh, fish or the like would touch (no quote, backslash, newline or exclamation mark). All that may
# hold such things, names and the program itself, comes as lines of standard input. sh reads no byte too many of it.
_SHELL_LINE = (
    "IFS= read -r given && IFS= read -r code || exit 96; "
    'case "$given" in '
    '"") set -- python3.13 python3.12 python3.11 python3.10 python3;; '
    '"~/"*) set -- "$HOME/${given#??}";; '
    '*) set -- "$given";; esac; '
    "for name; do "
    'path=$(command -v "$name") || continue; '
    'version=$("$path" -E -S -c "import sys; print(sys.version.split()[0]); sys.exit(sys.version_info < (3, 10))" '
    "</dev/null 2>/dev/null) "
    '&& exec "$path" -I -S -X utf8 -c "$code" "$path"; '
    'seen="$seen $path=$version"; done; '
    f'echo; echo "{PYTHON_MARK}$seen"; exit 97'
)

# The keeper's files import each other as siblings of one package, here and there. Written for any Python 3.
_STARTER = """
import json, os, sys, types
def take(count):
    data = b""
    while len(data) < count:
        more = os.read(0, count - len(data))
        if not more:
            sys.exit(95)
        data += more
    return data
package = types.ModuleType("gnomon_keeper")
package.__path__ = []
sys.modules["gnomon_keeper"] = package
for name, source in json.loads(take(int(take(10))).decode()):
    module = types.ModuleType("gnomon_keeper." + name)
    module.__package__ = "gnomon_keeper"
    sys.modules[module.__name__] = module
    exec(compile(source, name + ".py", "exec"), module.__dict__)
module.main()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SshSettings:
    """A device that is reached by SSH, and how.

    The user's own SSH configuration (keys, agents, aliases, jump hosts) holds for all that is None here.
    UsageError for a host, user, port or option that SSH could not take for what it is.
    """

    name: str
    """What the device is called."""
    host: str
    user: str | None = None
    port: int | None = None
    python: str | None = None
    """Python there: a path or a name; None for the newest of python3.10 to python3.13, else python3."""
    folder: str | None = None
    """Where pushed files are kept there; None for gnomon in the user's cache folder there."""
    keep: bool = True
    """Whether pushed files stay for the next time."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """For every command there."""
    ssh_options: tuple[str, ...] = ()
    """`Key=Value` as in ssh_config, stronger than that file."""
    connect_timeout_s: float = 10.0
    silence_s: float = 30.0
    """After so long without a word of the other side, the device is lost, and cleans up by itself."""
    program: str = "ssh"
    lease: bool = True
    """Whether to hold the device's lease. Without it commands run and files are fetched, but nothing is pushed."""

    def __post_init__(self) -> None:
        for what, value in (("host", self.host), ("user", self.user)):
            if value is not None and (not value or value[0] == "-" or not value.isprintable() or " " in value):
                raise UsageError(
                    f"{value[:80]!r} is no {what} that SSH can reach", hint="Give it as ssh://[user@]host[:port]."
                )
        if self.port is not None and not 1 <= self.port <= 65535:
            raise UsageError(f"{self.port} is no port", hint="Give one from 1 to 65535; SSH's own is 22.")
        for option in self.ssh_options:
            if not option.partition("=")[2] or not option.isprintable():
                raise UsageError(
                    f"{option[:80]!r} is no option of SSH",
                    hint="Give Key=Value as in ssh_config, such as IdentityFile=...",
                )
        for line in (self.python or "", self.folder or ""):
            if "\n" in line or "\0" in line:
                raise UsageError(f"{line[:80]!r} is no path", hint="Give the path as it is on the device.")

    @property
    def destination(self) -> str:
        """The device as people write it: `user@host:port`."""
        user = f"{self.user}@" if self.user else ""
        return f"{user}{self.host}{f':{self.port}' if self.port else ''}"


def ssh_argv(settings: SshSettings) -> list[str]:
    """The command that connects and starts the shell's line there."""
    options = [
        "BatchMode=yes",  # nobody is there to answer: unknown keys and passwords are errors
        *settings.ssh_options,
        f"ConnectTimeout={max(1, round(settings.connect_timeout_s))}",
        "ServerAliveInterval=5",
        "ServerAliveCountMax=3",
        "ControlMaster=no",  # a connection of the user's may be used, but none is left behind
        # What the user's configuration opens for people at a terminal is not the device's to use, and a port that
        # another connection has taken must not end this one.
        "ForwardAgent=no",
        "ForwardX11=no",
        "ClearAllForwardings=yes",
        "LogLevel=ERROR",
    ]
    argv = [settings.program, "-T", *(word for option in options for word in ("-o", option))]
    if settings.user is not None:
        argv += ["-l", settings.user]
    if settings.port is not None:
        argv += ["-p", str(settings.port)]
    return [*argv, "--", settings.host, f"sh -c '{_SHELL_LINE}'"]


def opening(settings: SshSettings) -> bytes:
    """What the shell's line reads: the Python to use, the starter, and the keeper's files."""
    here = Path(__file__).parent
    sources = [(name, (here / f"{name}.py").read_text(encoding="utf-8")) for name in _KEEPER_FILES]
    data = json.dumps(sources).encode()
    lines = f"{settings.python or ''}\nexec({_STARTER!r})\n"
    return lines.encode("utf-8", "surrogateescape") + b"%10d" % len(data) + data
