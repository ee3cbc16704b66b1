"""The printed output of a runtime: if a model does not load, some runtimes return only a number and print the
reason.
"""

from __future__ import annotations

import ctypes
import os

_LIBC = ctypes.CDLL(None)


def printed() -> int | None:
    """The length of this process's output so far; None unless its standard error is a file, as it is in a worker."""
    _flush()
    try:
        return os.lseek(2, 0, os.SEEK_CUR)
    except OSError:
        return None


def lines_since(begun: int | None) -> list[str]:
    """The lines printed after the first `begun` bytes; none if `begun` is None."""
    if begun is None:
        return []
    _flush()
    try:
        return os.pread(2, os.fstat(2).st_size, begun).decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def said_since(begun: int | None) -> str:
    """The last lines printed after the first `begun` bytes, except lines that begin with "[", such as those about
    Vulkan devices.
    """
    lines = [line.strip() for line in lines_since(begun) if line.strip() and not line.startswith("[")]
    return "; ".join(lines[-3:])[-300:]


def _flush() -> None:
    """Make the C library write its buffered standard output, which in a worker goes to the same file as standard
    error.
    """
    _LIBC.fflush(None)
