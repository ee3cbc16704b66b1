"""This process's limit on open files, and the number of its open files."""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path


def allow_files(wanted: int) -> int:
    """Allow this process to open `wanted` files in total, as far as the system permits; return the new limit.

    The soft limit is raised at most to the hard limit, and never lowered. Processes started later inherit it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard < 0 else min(wanted, hard), hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def open_files() -> int:
    """The number of open descriptors of this process; 0 if the system has no /proc/self/fd."""
    try:
        return len(list(Path("/proc/self/fd").iterdir()))
    except OSError:
        return 0
