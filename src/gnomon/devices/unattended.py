"""The jobs that run on a device by themselves: made, started, stopped and removed. Sent there and run there.

It reads one JSON request from its first argument and prints one JSON answer; a request that cannot be met is answered
by "error". How a job is, the files and the lock in its folder tell: docs/jobs/unattended.md shows what lies there.
Standard library only, Python 3.10 on.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

# It runs on devices where every import counts, so it does without pathlib:
# ruff: noqa: PTH100, PTH101, PTH102, PTH103, PTH104, PTH108, PTH111, PTH112, PTH113, PTH114, PTH118, PTH119, PTH120
# ruff: noqa: PTH123, PTH208, PTH211

WAITING = "waiting for the device"
DONE = (0, 10, 11)  # with an answer, if one that is undecided or proves nothing
STOPPED = (130, 143)
ID = r"[0-9a-f]{4,32}"
_LOG_BYTES, _LOG_LINES = 1 << 14, 20
_MOST_FILE_BYTES = 4 << 20
_STARTER = "import sys; from gnomon.cli.commands.unattended import main; sys.exit(main(sys.argv[1:]))"
_STOP_S, _END_S = 40.0, 15.0
_KINDS = {errno.ENOSPC: "full", errno.EDQUOT: "full"}
_KINDS |= dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "permission")

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
            raise OSError(errno.EPERM, "it is not a folder, belongs to another user, or others may write to it", root)
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
        return ("done" if code in DONE else "stopped" if code in STOPPED else "failed"), ""
    if not started:
        return "stopped", "it was never started"
    if started.get("boot") != boot():
        return "vanished", "the device was restarted"
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
