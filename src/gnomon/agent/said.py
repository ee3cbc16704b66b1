"""The printed output of a runtime: some runtimes only return a number if a model does not load, and print the
reason.
"""

from __future__ import annotations

import ctypes
import os

_LIBC = ctypes.CDLL(None)


def printed() -> int | None:
    """The length of this process's output so far, if its standard error is a file (as in a worker)."""
    _flush()
    try:
        return os.lseek(2, 0, os.SEEK_CUR)
    except OSError:
        return None


def lines_since(begun: int | None) -> list[str]:
    """The lines printed since `begun`; none if `begun` is unknown."""
    if begun is None:
        return []
    _flush()
    try:
        return os.pread(2, os.fstat(2).st_size, begun).decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def said_since(begun: int | None) -> str:
    """The last lines printed since `begun`, without lines that begin with "[", as those about Vulkan devices do."""
    lines = [line.strip() for line in lines_since(begun) if line.strip() and not line.startswith("[")]
    return "; ".join(lines[-3:])[-300:]


def _flush() -> None:
    """Make the C library write its buffered standard output, which in a worker goes to the same file."""
    _LIBC.fflush(None)
