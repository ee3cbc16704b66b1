"""A real SSH server on this machine as a device of its own: its own port, keys, home, leases and temporary files.

Nothing of the user's is read or written: the client gets its own configuration, through a program that stands for ssh.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.processkit import all_processes, becomes, processes_with, words_of

from gnomon.devices.shell.ssh import SshDevice
from gnomon.devices.shell.ssh_client import SshSettings

__all__ = ["becomes"]

SSHD = "/usr/sbin/sshd"
_START_S = 20.0


def missing() -> str | None:
    """What is missing on this machine for an SSH server of one's own, if anything."""
    if not Path(SSHD).is_file():
        return f"an SSH server is not installed: {SSHD} (Debian: openssh-server)"
    for program in ("ssh", "ssh-keygen"):
        if shutil.which(program) is None:
            return f"the SSH client is not installed: {program} (Debian: openssh-client)"
    return None


def user() -> str:
    """Who the tests run as."""
    return pwd.getpwuid(os.getuid()).pw_name


@dataclass
class SshServer:
    """A running server. `root` holds the device's home, tmp and leases, and the client's configuration."""

    root: Path
    port: int
    argv: Sequence[str]
    address: str = "127.0.0.1"
    process: subprocess.Popen[bytes] = field(init=False)

    @property
    def home(self) -> Path:
        return self.root / "it's home"

    @property
    def tmp(self) -> Path:
        return self.root / "tmp"

    @property
    def leases(self) -> Path:
        return self.root / "leases"

    def settings(self, **changes: Any) -> SshSettings:
        """How to reach it."""
        known: dict[str, Any] = {
            "name": "board",
            "user": user(),
            "host": self.address,
            "port": self.port,
            "program": str(self.root / "ssh"),
        }
        return SshSettings(**{**known, **changes})

    def device(self, *, on_wait: Callable[[str], None] | None = None, **changes: Any) -> SshDevice:
        """It as a device."""
        return SshDevice(self.settings(**changes), on_wait=on_wait)

    def processes(self) -> list[int]:
        """What runs in the sessions of the server, the guard's watcher among them."""
        return processes_with("TMPDIR", str(self.tmp))

    def private_folders(self) -> list[Path]:
        """The private folders that are there now."""
        return sorted(self.tmp.glob("gnomon-*"))

    def kill_sessions(self) -> None:
        """Kill the server's processes of all connections, but not the server."""
        for pid in children(self.process.pid):
            for each in (pid, *(c for c in children(pid) if b"".join(words_of(c)).startswith(b"sshd"))):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)

    def stop(self) -> None:
        """End the server and all its connections."""
        self.kill_sessions()
        self.process.terminate()
        self.process.wait(timeout=20)

    def start(self) -> None:
        """Listen, again or for the first time, at the same port."""
        log = self.root / "sshd.log"
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                self.argv, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, start_new_session=True
            )
        deadline_s = time.monotonic() + _START_S
        while "Server listening" not in log.read_text(errors="replace"):
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"the SSH server does not start: {log.read_text(errors='replace')}")
            time.sleep(0.01)


def children(pid: int) -> list[int]:
    """The processes that this one started and that still are."""
    found = []
    for other in all_processes():
        with contextlib.suppress(OSError, IndexError):
            if int(Path(f"/proc/{other}/stat").read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(other)
    return found


def below(pid: int) -> Iterator[int]:
    """All processes that come from this one."""
    for child in children(pid):
        yield child
        yield from below(child)


def guard_of(server: SshServer) -> int:
    """The shell that serves the one open connection: the one that has a watcher, which has its command line."""
    return next(p for p in below(server.process.pid) if _served(p) and any(_served(child) for child in children(p)))


def _served(pid: int) -> bool:
    return b" ".join(words_of(pid)).startswith(b"sh -c IFS=")


def key(path: Path) -> Path:
    """A new key pair; the path of the private one."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


def free_port(address: str = "127.0.0.1") -> int:
    """A port where nobody listens, which neither the kernel nor another worker of these tests gives away meanwhile.

    What the kernel gives to who asks for any port is in use again a moment later, by any connection.
    """
    first = 10_000 + 1_000 * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 20)
    while True:
        port = first + random.randrange(1_000)
        if port in _given:
            continue
        _given.add(port)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((address, port))
            return port


_given: set[int] = set()


def _write_configuration(
    root: Path, address: str, port: int, environment: dict[str, str], lines: tuple[str, ...]
) -> None:
    for folder in ("it's home", "tmp", "leases"):
        (root / folder).mkdir(mode=0o700)
    key(root / "host_key")
    key(root / "user_key")
    shutil.copy(root / "user_key.pub", root / "authorized_keys")
    public = (root / "host_key.pub").read_text().split()
    named = f"[{address}]:{port}"
    (root / "known_hosts").write_text(f"{named} {public[0]} {public[1]}\n")
    seen = {
        "HOME": str(root / "it's home"),
        "TMPDIR": str(root / "tmp"),
        "GNOMON_LEASES": str(root / "leases"),
        "PATH": f"{Path(sys.base_prefix) / 'bin'}:/usr/local/bin:/usr/bin:/bin",
        **environment,
    }
    set_env = " ".join(f'"{name}={value}"' for name, value in seen.items())
    (root / "sshd_config").write_text(
        f"Port {port}\nListenAddress {address}\nHostKey {root}/host_key\nPidFile none\nUsePAM no\nStrictModes no\n"
        f"AuthorizedKeysFile {root}/authorized_keys\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        f"PermitRootLogin prohibit-password\nPrintMotd no\nUseDNS no\nMaxStartups 100\nSetEnv {set_env}\n"
        + "".join(f"{line}\n" for line in lines)
    )
    (root / "ssh_config").write_text(
        f"IdentityFile {root}/user_key\nIdentitiesOnly yes\nIdentityAgent none\nStrictHostKeyChecking yes\n"
        f"UserKnownHostsFile {root}/known_hosts\nGlobalKnownHostsFile /dev/null\n"
    )
    (root / "ssh").write_text(f'#!/bin/sh\nexec ssh -F "{root}/ssh_config" "$@"\n')
    (root / "ssh").chmod(0o755)


@contextlib.contextmanager
def ssh_server(
    root: Path,
    *,
    environment: dict[str, str] | None = None,
    inside: tuple[str, ...] = (),
    address: str = "127.0.0.1",
    lines: tuple[str, ...] = (),
) -> Iterator[SshServer]:
    """A server below this new folder.

    `environment` is the device's, `inside` goes before the server's command, `lines` are more of its configuration.
    """
    root.mkdir(parents=True, exist_ok=True)
    port = free_port() if not inside else 2222
    _write_configuration(root, address, port, environment or {}, lines)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where it locks itself in, which a package would make
    argv = (*inside, SSHD, "-D", "-e", "-f", str(root / "sshd_config"))
    server = SshServer(root=root, port=port, argv=argv, address=address)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    """One server for the tests of a module."""
    if what := missing():
        pytest.skip(what)
    with ssh_server(tmp_path_factory.mktemp("ssh") / "server") as running:
        yield running
