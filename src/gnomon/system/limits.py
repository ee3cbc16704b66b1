"""How many files this process may have open, and how many of them it has."""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path


def allow_files(wanted: int) -> int:
    """Let this process open so many files in all, as far as it may say so itself; how many it may now.

    The soft limit goes up to the hard one at most, never down. What is started from here on inherits it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard < 0 else min(wanted, hard), hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def open_files() -> int:
    """How many descriptors this process has open; 0 where the system has no /proc/self/fd."""
    try:
        return len(list(Path("/proc/self/fd").iterdir()))
    except OSError:
        return 0
