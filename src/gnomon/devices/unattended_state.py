# It runs on devices where every import counts, so it does without pathlib:
# ruff: noqa: PTH100, PTH101, PTH103, PTH104, PTH111, PTH112, PTH114, PTH118, PTH119, PTH123, PTH208
"""How the jobs are that run on a device by themselves: told by the files and the lock in the folder of each.

Runs on the device as a part of `unattended_program`: standard library only, Python 3.10 on.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Callable
from typing import Any

WAITING = "waiting for the device"
STOPPED = (130, 143)
ID = r"[0-9a-f]{4,32}"
_LOG_BYTES, _LOG_LINES = 1 << 14, 20
_MOST_FILE_BYTES = 4 << 20

Message = dict[str, Any]


class Refused(Exception):
    """The request cannot be met: a kind, and what there is to say of it."""


def root_of(request: Message, *, make_it: bool = False) -> str:
    """The folder of all jobs. OSError where others may write to it: what lies there is run."""
    root: str = os.path.abspath(os.path.expanduser(request["root"]))
    if make_it:
        os.makedirs(root, mode=0o700, exist_ok=True)
    if os.path.lexists(root):
        found = os.lstat(root)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise OSError(errno.EPERM, "it is no folder, belongs to another user, or others may write to it", root)
    return root


def folder_of(request: Message) -> str:
    """Where the job of this whole id lies, or would lie."""
    if not re.fullmatch(ID, request["id"]):
        raise Refused("missing", request["id"])
    return os.path.join(root_of(request), request["id"])


def list_all(request: Message) -> Message:
    """How all jobs are, the newest first."""
    root = root_of(request)
    names = [n for n in os.listdir(root) if re.fullmatch(ID, n)] if os.path.isdir(root) else []
    found = [status(os.path.join(root, name)) for name in names]
    return {"jobs": sorted(found, key=lambda job: (-job["job"].get("made_at_s", 0), job["id"]))}


def existing(request: Message) -> str:
    """The folder of the one job whose id is this, or begins so; "last" is the newest."""
    jobs = list_all(request)["jobs"]
    wanted = request["id"]
    found = jobs[:1] if wanted == "last" else [job for job in jobs if wanted and job["id"].startswith(wanted)]
    found = [job for job in found if job["id"] == wanted] or found
    if len(found) != 1:
        raise Refused("several" if found else "missing", " ".join(job["id"] for job in (found or jobs)[:8]))
    return os.path.join(root_of(request), str(found[0]["id"]))


def status(folder: str) -> Message:
    """How a job is, from its files and its lock."""
    held = is_held(folder)
    job, started, ended, progress = (
        read(os.path.join(folder, f"{name}.json")) or {} for name in ("job", "started", "exit", "progress")
    )
    state, reason = _state(held, started, ended, progress)
    return {
        "id": os.path.basename(folder),
        "folder": folder,
        "state": state,
        "reason": reason,
        "job": job,
        "started_at_s": started.get("at_s"),
        "starts": started.get("starts", 0),
        "ended_at_s": ended.get("at_s"),
        "exit_code": ended.get("code"),
        "progress": progress or None,
        "log": _last_lines(os.path.join(folder, "log")),
        "now_s": time.time(),
    }


def _state(held: bool, started: Message, ended: Message, progress: Message) -> tuple[str, str]:
    if held:
        return ("waiting", str(progress.get("why", ""))) if progress.get("stage") == WAITING else ("running", "")
    if ended:
        code = ended.get("code")
        return ("done" if code == 0 else "stopped" if code in STOPPED else "failed"), ""
    if not started:
        return "stopped", "it was never started"
    if started.get("boot") != boot():
        return "vanished", "the device was started anew"
    return "vanished", "its process was killed, or had no room to say how it ended"


def boot() -> str:
    """What names the time since the kernel started."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def take(path: str) -> int:
    """The lock, held, or -1 where another process holds it for longer than a look takes."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def taken() -> bool:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    if within(1.0, taken):
        return handle
    os.close(handle)
    return -1


def is_held(folder: str) -> bool:
    """Whether a job runs: the lock ends with its process, however that ends."""
    try:
        handle = os.open(os.path.join(folder, "lock"), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def left(folder: str) -> list[int]:
    """The processes of a job: all that it starts have its folder for temporary files."""
    wanted = b"TMPDIR=" + os.fsencode(os.path.join(folder, "tmp"))
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                if any(v == wanted or v.startswith(wanted + b"/") for v in file.read(1 << 20).split(b"\0")):
                    found.append(int(name))
    return found


def within(seconds: float, truth: Callable[[], bool]) -> bool:
    """Whether the function says yes within so many seconds."""
    deadline = time.monotonic() + seconds
    while not truth():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def read(path: str) -> Message | None:
    """The JSON object in a file; None if there is none."""
    try:
        with open(path, "rb") as file:
            found = json.loads(file.read(_MOST_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def write(path: str, text: str) -> None:
    """Whole or not at all."""
    part = path + ".part"
    with open(part, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    os.rename(part, path)


def _last_lines(path: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_BYTES))
            return file.read().decode("utf-8", "replace").splitlines()[-_LOG_LINES:]
    except OSError:
        return []


def remove_all(path: str) -> None:
    """Remove a folder with all in it, also where its folders cannot be written. OSError if something stays."""
    if not os.path.lexists(path):
        return
    for place, below, _ in os.walk(path):
        for name in below:
            with contextlib.suppress(OSError):
                if not os.path.islink(os.path.join(place, name)):
                    os.chmod(os.path.join(place, name), 0o700)
    shutil.rmtree(path)
