"""Processes of this machine as tests see them: which run, in which folder, and whether something becomes true."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def runs(pid: int) -> bool:
    """Whether the process runs; one that has ended and waits to be asked how does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def becomes(truth: Callable[[], object]) -> bool:
    """Whether the function says yes, in the end: within minutes, as the machine may be busy."""
    for _ in range(18_000):
        if truth():
            return True
        time.sleep(0.01)
    return False


def gone(pid: int) -> bool:
    """Whether the process has ended, waiting for it to do so."""
    return becomes(lambda: not runs(pid))


def all_processes() -> list[int]:
    """The numbers of all processes."""
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]


def words_of(pid: int) -> list[bytes]:
    """The command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def processes_with(variable: str, value: str) -> list[int]:
    """The processes that run with this in their environment; `value` is a whole one, or a folder and what is below."""
    wanted, found = f"{variable}={value}".encode(), []
    for pid in all_processes():
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(v == wanted or v.startswith(wanted + b"/") for v in variables) and runs(pid):
            found.append(pid)
    return found
