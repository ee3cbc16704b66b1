"""A small process that cleans up after gnomon was killed: ends what it had running, removes its folder.

The kernel tells only a direct child of its parent's death, and only if the child asks. The guard holds
the other end of a pipe instead: when gnomon dies in whatever way the pipe ends, and the guard does the
rest.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

_SCRIPT = r"""
import os, shutil, signal, sys
groups, clean = set(), False
for line in sys.stdin:
    word, _, number = line.strip().partition(" ")
    if word == "add": groups.add(int(number))
    elif word == "drop": groups.discard(int(number))
    elif word == "done": clean = True
if not clean:
    for group in groups:
        try: os.killpg(group, signal.SIGKILL)
        except OSError: pass
    shutil.rmtree(sys.argv[1], ignore_errors=True)
"""


class Guard:
    """Watches over one private folder and the process groups started from it, until `close`."""

    def __init__(self, folder: Path) -> None:
        # A session of its own: Ctrl-C in the terminal must not reach it before gnomon has cleaned up.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _SCRIPT, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        assert self._process.stdin is not None  # noqa: S101
        self._pipe: IO[bytes] = self._process.stdin

    def add(self, group: int) -> None:
        """Kill this process group if gnomon dies."""
        self._say(f"add {group}")

    def drop(self, group: int) -> None:
        """The group has ended, and its number may soon be another's."""
        self._say(f"drop {group}")

    def close(self) -> None:
        """Gnomon has cleaned up itself."""
        self._say("done")
        with contextlib.suppress(BrokenPipeError):
            self._pipe.close()
        self._process.wait()

    def _say(self, line: str) -> None:
        # Somebody may have killed the guard; the work it guards goes on without that net.
        with contextlib.suppress(BrokenPipeError):
            self._pipe.write(line.encode() + b"\n")
            self._pipe.flush()


@contextlib.contextmanager
def guarded_folder(prefix: str) -> Iterator[Path]:
    """A temporary folder on this machine that goes away at the end of the block, and also if gnomon is killed."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    guard = Guard(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        guard.close()
