"""A PostgreSQL server of the tests' own: Debian's, in a temporary folder, that only this user reaches."""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OWNER = "owner"
_SERVER_S = 60.0


def why_not() -> str | None:
    """What is missing here to run a server; None where nothing is."""
    if importlib.util.find_spec("gnomon_postgres") is None or importlib.util.find_spec("psycopg") is None:
        return "gnomon-postgres is not installed: pip install ./packages/postgres"
    return None if _programs() else "no PostgreSQL server here (Debian: postgresql)"


def _programs() -> Path | None:
    """The folder of the newest server's programs: Debian keeps them off the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if found:
        return found[-1].parent
    own = shutil.which("initdb")
    return Path(own).resolve().parent if own else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server; `port` is on this machine, `folder` holds its socket."""

    port: int
    folder: Path

    def url(self, database: str, role: str = OWNER) -> str:
        """The address of a database, through the socket, where every role is trusted."""
        return f"postgresql://{role}@/{database}?host={self.folder}&port={self.port}"

    def url_with_password(self, database: str, role: str) -> str:
        """The address of a database, where a role's password is asked for."""
        return f"postgresql://{role}@127.0.0.1:{self.port}/{database}"

    def run(self, statement: str, *, database: str = "postgres", role: str = OWNER) -> list[tuple[Any, ...]]:
        """Run one statement; what it answered."""
        import psycopg

        with psycopg.connect(self.url(database, role), autocommit=True) as db:
            done = db.execute(statement)
            return done.fetchall() if done.description else []

    def database(self) -> str:
        """A fresh database, by its name."""
        name = f"lab_{secrets.token_hex(6)}"
        self.run(f"CREATE DATABASE {name}")
        return name


@contextmanager
def running_server(*settings: str, durable: bool = False) -> Iterator[Server]:
    """A server, stopped and removed afterwards. It refuses to run as root: Debian's user `postgres` runs it then."""
    programs = _programs()
    assert programs is not None
    user: Any = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.getuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="gnomon-pg-", dir="/tmp") as made:
        folder = Path(made)
        if user:
            shutil.chown(folder, user["user"])
        trust = ("-U", OWNER, "-E", "UTF8", "--locale=C.UTF-8", "--auth-local=trust", "--auth-host=scram-sha-256")
        subprocess.run(
            [programs / "initdb", "-D", folder / "data", *trust, "--no-sync"],
            check=True,
            capture_output=True,
            cwd=folder,
            **user,
        )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        given = (f"port={port}", f"unix_socket_directories={folder}", "listen_addresses=127.0.0.1", *settings)
        if not durable:
            given += ("fsync=off",)
        process = subprocess.Popen(
            [programs / "postgres", "-D", folder / "data", *(word for one in given for word in ("-c", one))],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            **user,
        )
        server = Server(port=port, folder=folder)
        try:
            _wait(server, process)
            yield server
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


def _wait(server: Server, process: subprocess.Popen[bytes]) -> None:
    import psycopg

    deadline = time.monotonic() + _SERVER_S
    while True:
        try:
            server.run("SELECT 1")
        except psycopg.OperationalError:
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.05)
        else:
            return
