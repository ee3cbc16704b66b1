"""A real lab of labgrid on loopback: its coordinator and an exporter, whose places have SSH servers of the tests."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.devices.shell import sshkit
from tests.devices.shell.sshkit import SshServer, user
from tests.processkit import becomes

_CLIENTS = """
import json, os, sys
from labgrid.remote.client import main
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if not child:
        for number, path in enumerate(asked["printed"], 1):
            os.dup2(os.open(path, os.O_WRONLY), number)
        os.environ |= asked["env"]
        sys.argv = ["labgrid-client", *asked["words"]]
        sys.exit(main())
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Labgrid's own client, each call in a process of its own that has it loaded: loading takes most of a call."""


@functools.cache
def _clients() -> subprocess.Popen[str]:
    """The program that forks clients, for all labs of a run."""
    program = subprocess.Popen(
        [sys.executable, "-c", _CLIENTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(program.communicate)
    return program


def missing() -> str | None:
    """What this machine lacks for a lab, if anything."""
    if importlib.util.find_spec("gnomon_labgrid") is None or importlib.util.find_spec("labgrid") is None:
        return "gnomon-labgrid is not installed: pip install ./packages/labgrid"
    return sshkit.missing()


class Lab:
    """A running lab; `address` is its coordinator's, `coordinator` its process."""

    def __init__(self, address: str, coordinator: int) -> None:
        self.address, self.coordinator = address, coordinator

    def client(self, *words: str, name: str = "desk/bob", check: bool = True) -> str:
        """What labgrid's own client prints, as somebody calls it."""
        host, user = name.split("/")
        program = _clients()
        assert program.stdin is not None and program.stdout is not None
        with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as errors:
            asked = {
                "words": ["-x", self.address, *words],
                "env": {"LG_HOSTNAME": host, "LG_USERNAME": user},
                "printed": [out.name, errors.name],
            }
            program.stdin.write(json.dumps(asked) + "\n")
            program.stdin.flush()
            status = int(program.stdout.readline())
            assert not check or status == 0, errors.read()
            return out.read()

    def held(self) -> list[str]:
        """Who has which place: "USER HOST PLACE", sorted."""
        return sorted(" ".join(line.split()[:3]) for line in self.client("who").splitlines()[1:])


def service(server: SshServer) -> dict[str, Any]:
    """The resource of a board that a server stands for."""
    return {"NetworkService": {"address": server.address, "port": server.port, "username": user()}}


def options(server: SshServer) -> tuple[str, ...]:
    """What ssh needs to know of a server of the tests."""
    root = server.root
    return (
        f"IdentityFile={root}/user_key",
        "IdentitiesOnly=yes",
        f"UserKnownHostsFile={root}/known_hosts",
        "StrictHostKeyChecking=yes",
    )


@contextmanager
def lab(
    folder: Path,
    places: Mapping[str, Mapping[str, Any]],
    tags: Mapping[str, Mapping[str, str]] | None = None,
) -> Iterator[Lab]:
    """A lab with these places, each with its resources."""
    folder.mkdir(parents=True, exist_ok=True)
    known = {
        name: {
            "aliases": [],
            "comment": "",
            "tags": dict((tags or {}).get(name, {})),
            "matches": [{"exporter": "*", "group": name, "cls": "*", "name": None, "rename": None}],
            "created": 0.0,
            "changed": 0.0,
        }
        for name in places
    }
    (folder / "places.yaml").write_text(json.dumps(known))  # JSON is YAML
    (folder / "exporter.yaml").write_text(json.dumps(places))
    with ExitStack() as stack:
        coordinator = _program(folder, "coordinator", "-l", "127.0.0.1:0", ready="listening on ")
        address, pid = stack.enter_context(coordinator)
        words = ("-c", address, "-n", "host", "--hostname", "127.0.0.1", str(folder / "exporter.yaml"))
        stack.enter_context(_program(folder, "exporter", *words, ready="Exporter ready"))
        found = Lab(address, pid)
        wanted = sum(map(len, places.values()))
        assert becomes(lambda: len(found.client("resources").splitlines()) >= wanted), (
            folder / "exporter.log"
        ).read_text()
        yield found


@contextmanager
def _program(folder: Path, name: str, *words: str, ready: str) -> Iterator[tuple[str, int]]:
    """A program of labgrid's, once it has printed that it is ready: what it printed behind that, and its process."""
    log = folder / f"{name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", f"labgrid.remote.{name}", *words],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        assert becomes(lambda: ready in log.read_text(errors="replace") or process.poll() is not None)
        printed = log.read_text(errors="replace")
        assert ready in printed, printed
        yield printed.partition(ready)[2].split("\n")[0], process.pid
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
