"""A folder of programs in the place of a device's PATH: a shell and small programs, and no Python of any kind."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

NEEDED = (
    *("sh", "cat", "chmod", "env", "find", "id", "kill", "mkdir", "mv", "rm", "sleep", "touch", "wc", "du", "ls"),
    *("echo", "printf", "pwd", "true", "false", "uname", "yes", "head", "seq", "df"),
)
HELPFUL = ("setsid", "flock", "sha256sum", "ldd", "taskset")


def missing() -> str | None:
    """What of these programs this machine lacks, if anything."""
    lacking = [name for name in NEEDED if shutil.which(name) is None]
    return f"not installed: {', '.join(lacking)}" if lacking else None


def android(folder: Path) -> Path | str:
    """A folder with the shell and the small programs of Android alone, mksh and toybox; or what is not installed."""
    shell, tools = shutil.which("mksh"), shutil.which("toybox")
    if shell is None or tools is None:
        lacking = [name for name, found in (("mksh", shell), ("toybox", tools)) if found is None]
        return f"not installed: {', '.join(lacking)} (Debian: {' '.join(lacking)})"
    folder.mkdir(parents=True)
    for name in subprocess.run([tools], capture_output=True, text=True, check=True).stdout.split():
        (folder / name).symlink_to(tools)
    (folder / "sh").symlink_to(shell)
    return folder


def programs(folder: Path, *, helpful: bool = True, shell: str | None = None) -> Path:
    """The folder, filled; `helpful`: also with what is used only where it is there. `shell`: the path of its sh."""
    folder.mkdir(parents=True)
    for name in (*NEEDED, *(HELPFUL if helpful else ())):
        found = shutil.which(name)
        if found is not None:
            (folder / name).symlink_to(os.path.realpath(found) if name != "sh" else shell or os.path.realpath(found))
    return folder
