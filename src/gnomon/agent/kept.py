"""Converted models of a worker, kept for other processes of the same campaign.

A worker's temporary folder is the private folder on the device, which gnomon removes when it is done. A converted model
is stored there under the digest of everything it was made from, so that the fresh processes of a campaign convert it
only once.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .plan import digest_of

_PREFIX, _MAKING = "gnomon-made-", "gnomon-making-"
_KEPT_MOST = 64


@contextmanager
def made_of(model: str, said: Any, make: Callable[[str], None]) -> Iterator[str]:
    """A folder that `make` has filled from the file `model` and the settings in `said`, which are JSON values.

    An earlier process may have filled the folder. Load the files and leave the context soon: another process may remove
    the folder to make room.
    """
    folder = tempfile.gettempdir()
    kept = os.path.join(folder, f"{_PREFIX}{_digest(model, said)}") if _private(folder) else None
    if kept is not None and os.path.isdir(kept):
        yield kept
        return
    own = tempfile.mkdtemp(prefix=_MAKING)
    try:
        make(own)
        if kept is None:
            # Other users could create a folder with that name, and this process would load its files.
            yield own
            return
        _keep_few(folder)
        try:
            os.rename(own, kept)
        except OSError:  # another process was faster
            if not os.path.isdir(kept):
                raise
    finally:
        shutil.rmtree(own, ignore_errors=True)
    yield kept


def _digest(model: str, said: Any) -> str:
    # Weights stored next to the file are identified by its path, and do not change during a visit.
    whole = json.dumps([digest_of(model), os.path.abspath(model), said], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:32]


def _private(folder: str) -> bool:
    status = os.stat(folder)
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _keep_few(folder: str) -> None:
    """Remove the oldest folders if there are many: a latency table measures thousands of networks in one visit."""
    mine = [os.path.join(folder, name) for name in os.listdir(folder) if name.startswith(_PREFIX)]
    for path in sorted(mine, key=os.path.getmtime)[: max(0, len(mine) + 1 - _KEPT_MOST)]:
        shutil.rmtree(path, ignore_errors=True)  # another process may be faster
