# It runs on devices where every import counts, so it does without pathlib:
# ruff: noqa: PTH100, PTH102, PTH103, PTH104, PTH108, PTH112, PTH113, PTH118, PTH119, PTH120, PTH208, PTH211
"""The jobs that run on a device by themselves: made, started, stopped and removed. Sent there and run there.

It reads one JSON request from its first argument and prints one JSON answer; a request that cannot be met is answered
by "error". Standard library only, Python 3.10 on. docs/unattended.md shows what lies in the folder of a job.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time

from .unattended_state import (
    ID,
    Message,
    Refused,
    boot,
    existing,
    folder_of,
    is_held,
    left,
    list_all,
    read,
    remove_all,
    root_of,
    status,
    take,
    within,
    write,
)

_STARTER = "import sys; from gnomon.cli.unattended_run import main; sys.exit(main(sys.argv[1:]))"
_STOP_S, _END_S = 40.0, 15.0
_KINDS = {errno.ENOSPC: "full", errno.EDQUOT: "full"}
_KINDS |= dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "permission")


def make(request: Message) -> Message:
    """The folder of a new job, from what was pushed: hard links, so that cleaning what was pushed takes nothing away.

    "parts" are names in the folder with what they come from, "devices" the text of the job's own file of devices,
    "job" what is known of it. Its record begins with that of the newest job of the same "subject", unless "fresh".
    """
    root, folder = root_of(request, make_it=True), folder_of(request)
    part = os.path.join(root, ".part-" + os.path.basename(folder))
    for name in os.listdir(root):
        if name.startswith((".part-", ".gone-")):  # of one that was killed; the device's lease keeps others out
            remove_all(os.path.join(root, name))
    try:
        os.mkdir(part, 0o700)
        for name, source in request["parts"].items():
            _link(source, os.path.join(part, name))
        for name in ("tmp", "home", "out", "out/dump", "out/package"):
            os.mkdir(os.path.join(part, name), 0o700)
        write(os.path.join(part, "home", "devices.toml"), request["devices"])
        _lay_python(os.path.join(part, "python"), folder)
        if not request["job"]["fresh"]:
            _inherit(root, request["job"]["subject"], os.path.join(part, "home"))
        write(os.path.join(part, "job.json"), json.dumps({**request["job"], "made_at_s": time.time()}))
        os.rename(part, folder)
    except BaseException:
        remove_all(part)
        raise
    return {"folder": folder, "python": os.path.join(folder, "python", "bin", "python3")}


def start(request: Message) -> Message:
    """Start a job in a session of its own, unless it runs. It holds the lock of its folder from here to its end."""
    folder = existing(request)
    handle = take(os.path.join(folder, "lock"))
    if handle < 0:
        return {"job": status(folder), "started": False}
    for name in ("exit.json", "progress.json"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, name))
    remove_all(os.path.join(folder, "tmp"))
    os.mkdir(os.path.join(folder, "tmp"), 0o700)
    starts = 1 + int((read(os.path.join(folder, "started.json")) or {}).get("starts", 0))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _begin(folder, handle, starts, writing)
    os.close(writing)
    os.close(handle)
    os.waitpid(child, 0)
    with os.fdopen(reading, encoding="utf-8", errors="replace") as told:
        reason = told.read(1000)
    if reason:
        raise Refused("start", reason)
    return {"job": status(folder), "started": True}


def show(request: Message) -> Message:
    """How one job is."""
    return {"job": status(existing(request))}


def stop(request: Message) -> Message:
    """End a job, and see that no process of it is left."""
    folder = existing(request)
    if is_held(folder):
        pid = int((read(os.path.join(folder, "started.json")) or {"pid": 0})["pid"])
        if pid > 1:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            if not within(_STOP_S, lambda: not is_held(folder)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                within(_END_S, lambda: not is_held(folder))
    # What it had started ends by itself, and puts back what was set while measuring.
    if not within(_END_S, lambda: not left(folder)):
        for pid in left(folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        within(_END_S, lambda: not left(folder))
    return {"job": status(folder), "left": len(left(folder))}


def remove(request: Message) -> Message:
    """Remove the folder of a job that does not run, with all in it."""
    folder = existing(request)
    before = status(folder)
    if is_held(folder):
        raise Refused("running", before["id"])
    gone = os.path.join(os.path.dirname(folder), ".gone-" + before["id"])
    os.rename(folder, gone)
    remove_all(gone)
    return {"job": before}


def collect(request: Message) -> Message:
    """What a job has written so far: its files, and a copy of its record as it is in this moment, made right here."""
    folder = existing(request)
    before = status(folder)  # before the files: one that has ended by then has written all of them
    files = []
    out = os.path.join(folder, "out")
    for place, below, names in os.walk(out):
        below[:] = [name for name in below if not name.startswith(".")]
        for name in names:
            path = os.path.join(place, name)
            found = os.lstat(path)
            if stat.S_ISREG(found.st_mode) and not name.startswith(".") and not name.endswith(".part"):
                files.append([os.path.relpath(path, out), found.st_size])
    return {"job": before, "out": out, "files": sorted(files), "record": _backed_up(folder, "record.sqlite")}


def _link(source: str, target: str) -> None:
    """The same tree by hard links; copies where that cannot be."""
    if not os.path.isdir(source):
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)
        return
    os.mkdir(target, 0o700)
    with os.scandir(source) as entries:
        for entry in entries:
            _link(entry.path, os.path.join(target, entry.name))


def _lay_python(target: str, folder: str) -> None:
    """A virtual environment, without the module that makes them: this Python with the job's packages, then its own."""
    base = getattr(sys, "_base_executable", None) or sys.executable
    paths = [
        json.loads(
            subprocess.check_output([sys.executable, *how, "-c", "import json, sys; print(json.dumps(sys.path))"])
        )
        for how in ([], ["-I", "-S"])
    ]
    own = [path for path in paths[0] if path and path not in paths[1]]
    version = "{}.{}".format(*sys.version_info[:2])
    packages = os.path.join(target, "lib", f"python{version}", "site-packages")
    os.makedirs(packages, mode=0o700)
    os.mkdir(os.path.join(target, "bin"), 0o700)
    os.symlink(base, os.path.join(target, "bin", "python3"))
    home = os.path.dirname(base)
    write(os.path.join(target, "pyvenv.cfg"), f"home = {home}\ninclude-system-site-packages = false\n")
    lines = [os.path.join(folder, "gnomon"), os.path.join(folder, "packages"), *own]
    write(os.path.join(packages, "gnomon-job.pth"), "".join(f"{line}\n" for line in lines if "\n" not in line))


def _inherit(root: str, subject: str, home: str) -> None:
    """A copy of the record of the newest job of that subject, so that what it has run is not run again."""
    jobs = [status(os.path.join(root, name)) for name in os.listdir(root) if re.fullmatch(ID, name)]
    alike = [job for job in jobs if job["job"].get("subject") == subject]
    if alike:
        newest = max(alike, key=lambda job: float(job["job"]["made_at_s"]))
        _backed_up(os.path.join(root, newest["id"]), os.path.join(home, "record.sqlite"))


def _backed_up(folder: str, to: str) -> str | None:
    """A copy of a job's record, whole as of one moment also while it is written; None where it has none yet."""
    import sqlite3

    source = os.path.join(folder, "home", "record.sqlite")
    if not os.path.isfile(source):
        return None
    try:
        with (
            contextlib.closing(sqlite3.connect(source, timeout=30)) as one,
            contextlib.closing(sqlite3.connect(to)) as other,
        ):
            one.backup(other)
    except sqlite3.Error as error:
        raise Refused("record", f"{source}: {error}") from error
    return os.path.abspath(to)


def _begin(folder: str, handle: int, starts: int, writing: int) -> None:
    """In a child: become the job's process, in a session of its own. Never returns."""
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        log = os.open(os.path.join(folder, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, stream in enumerate((nothing, log, log)):
            os.dup2(stream, number)
        started = {"pid": os.getpid(), "boot": boot(), "at_s": time.time(), "starts": starts}
        write(os.path.join(folder, "started.json"), json.dumps(started))
        os.umask(0o077)
        os.chdir(folder)
        own = {"TMPDIR": "tmp", "GNOMON_HOME": "home", "GNOMON_PROGRESS": "progress.json"}
        environment = {**os.environ, **{name: os.path.join(folder, place) for name, place in own.items()}}
        python = os.path.join(folder, "python", "bin", "python3")
        os.set_inheritable(handle, True)
        # -E: what the device's settings put into PYTHONPATH is for what is measured, not for gnomon.
        argv = [python, "-E", "-s", "-P", "-X", "utf8", "-c", _STARTER, folder, str(handle)]
        os.execve(python, argv, environment)  # noqa: S606 - no shell is wanted
    except BaseException as error:
        os.write(writing, str(error).encode("utf-8", "replace")[:900])
    finally:
        os._exit(1)


def main() -> None:
    """Answer the request in the first argument."""
    request = json.loads(sys.argv[1])
    known = {f.__name__: f for f in (make, start, show, list_all, stop, remove, collect)}
    try:
        answer = known[request["op"]](request)
    except Refused as refused:
        answer = {"error": refused.args[0], "reason": refused.args[1], "what": ""}
    except OSError as error:
        kind = _KINDS.get(error.errno or 0, "system")
        answer = {"error": kind, "what": str(error.filename or ""), "reason": error.strerror or str(error)}
    print(json.dumps(answer))
