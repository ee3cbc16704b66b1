"""The output of a runtime: several return a number where a model does not load, and print the reason."""

from __future__ import annotations

import ctypes
import os

_LIBC = ctypes.CDLL(None)


def printed() -> int | None:
    """How much this process has printed, if its standard error is a file (as a worker's is)."""
    _flush()
    try:
        return os.lseek(2, 0, os.SEEK_CUR)
    except OSError:
        return None


def lines_since(begun: int | None) -> list[str]:
    """The lines that were printed since then; none where that is not known."""
    if begun is None:
        return []
    _flush()
    try:
        return os.pread(2, os.fstat(2).st_size, begun).decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def said_since(begun: int | None) -> str:
    """The last lines printed since then, without those that begin with "[", as those on Vulkan devices do."""
    lines = [line.strip() for line in lines_since(begun) if line.strip() and not line.startswith("[")]
    return "; ".join(lines[-3:])[-300:]


def _flush() -> None:
    """Have C write what it keeps back of the standard output, which in a worker is that file too."""
    _LIBC.fflush(None)
