"""Processes that must not outlive the process that started them."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies for any reason (Linux only; otherwise do nothing)."""
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent died before the request took effect
        os.kill(os.getpid(), signal.SIGKILL)


def kill_tree(pid: int) -> None:
    """Kill a process and all its descendants, as far as the kernel lists them (Linux)."""
    for number in (*_descendants(pid), pid):
        try:
            os.kill(number, signal.SIGKILL)
        except ProcessLookupError:
            pass


def _descendants(pid: int) -> list[int]:
    parents: dict[int, int] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
                    parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                pass
    tree = [pid]
    for own in tree:
        tree += [child for child, parent in parents.items() if parent == own]
    return tree[1:]
