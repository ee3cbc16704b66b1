"""What installed packages add to gnomon: their entry points, which tell of runtimes, devices, spaces and others."""

from __future__ import annotations

import functools
import sys
from importlib import metadata
from pathlib import Path


def entry_points(*, group: str) -> metadata.EntryPoints:
    """The entry points of a group, as `importlib.metadata.entry_points` finds them.

    That reads a file of each installed package, which takes longer than most commands have to do: it is done once for
    each state of the folders of packages.
    """
    return _found(group, tuple((path, _changed_ns(path)) for path in sys.path))


@functools.lru_cache(maxsize=32)
def _found(group: str, where: tuple[tuple[str, int], ...]) -> metadata.EntryPoints:
    return metadata.entry_points(group=group)


def _changed_ns(path: str) -> int:
    """When something was last added to a folder or taken from it; 0 where there is none."""
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0
