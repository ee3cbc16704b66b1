"""Injects faults into the connection, the board and its processes, and checks how commands react.

Each row disturbs one command, and then runs the same command again. It reports whether the disturbed command ended in
time, whether its answer is that of the undisturbed run (candidates and winner) or the reason that it gives is true,
what it left on the board, and whether the repeated command has the undisturbed run's candidates and winner.

A board is a real OpenSSH server in its own network, PID and mount namespaces, with its own home, /tmp (tmpfs) and
Python. It shares the root file system, processor and kernel of this machine, so no other operating system or clock is
tested. Needs root, OpenSSH and iproute2. `--rows NAME ..` runs only these rows, `--list` prints all.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import parser, publish
from gnomon.devices.address import parse_address
from gnomon.devices.config import DeviceConfig, add_device

MODEL = Path(__file__).parents[2] / "docs" / "examples" / "digits.onnx"
LIMIT_S = 240.0
RUNTIMES = ("onnxruntime", "openvino")
PROFILE = ("profile", "{model}", *(w for r in RUNTIMES for w in ("--runtime", r)), "--processes", "2", "--threads", "1")
COMMANDS = {
    "profile": PROFILE,
    "place": ("place", *PROFILE[1:], "--overwrite", "--out", "{folder}/package"),
    "pareto": ("pareto", *PROFILE[1:], "--search", "brute"),
    "table": ("table", "build", "--from", "{model}", "--runtime", "onnxruntime", "--out", "{folder}/table"),
}


def sh(*words: str) -> str:
    """Run a program and return its output. CalledProcessError if it fails."""
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


class Board:
    """A board that can be disconnected, restarted, and filled up."""

    def __init__(self, folder: Path, number: int, *, lines: Sequence[str] = (), python: str, path: str | None) -> None:
        from tests.bad_days.boardkit import Board as Kit
        from tests.devices.shell.sshkit import ssh_server

        self.near, self.space = f"gf{os.getpid()}x{number}", f"gnomon-fault-{os.getpid()}-{number}"
        net = f"10.{150 + os.getpid() % 100}.{number % 250}"
        self.address = f"{net}.2"
        self._stack = contextlib.ExitStack()
        for step in (
            f"ip netns add {self.space}",
            f"ip link add {self.near} type veth peer name far netns {self.space}",
            f"ip addr add {net}.1/30 dev {self.near}",
            f"ip link set {self.near} up",
            f"ip -n {self.space} addr add {self.address}/30 dev far",
            f"ip -n {self.space} link set far up",
            f"ip -n {self.space} link set lo up",
        ):
            sh(*step.split())
        self._stack.callback(subprocess.run, ["ip", "netns", "del", self.space], check=False)
        self._stack.callback(subprocess.run, ["ip", "link", "del", self.near], capture_output=True, check=False)
        root = folder / "board"
        inside = ("ip", "netns", "exec", self.space, "unshare", "-mpf", "--mount-proc", "--kill-child")
        environment = {"PATH": path} if path else None
        self.server = self._stack.enter_context(
            ssh_server(root, inside=inside, address=self.address, lines=tuple(lines), environment=environment)
        )
        self.server.stop()
        for where, size in ((self.server.home, "1g"), (self.server.tmp, "256m")):
            sh("mount", "-t", "tmpfs", "-o", f"mode=700,size={size}", "none", str(where))
            self._stack.callback(subprocess.run, ["umount", "-l", str(where)], capture_output=True, check=False)
        self.kit = Kit(server=self.server, python=Path(python))
        self.server.start()

    def link(self, state: str) -> None:
        """Take the network "down", or "up" again."""
        sh("ip", "link", "set", self.near, state)

    def off(self) -> None:
        """Simulate a loss of power: all processes end at once, and the contents of /tmp are lost."""
        self.server.process.kill()
        self.server.process.wait()
        for left in self.server.tmp.iterdir():
            shutil.rmtree(left, ignore_errors=True)

    def reboot(self, away_s: float = 3.0) -> None:
        """Switch the board off, and on again after a while."""
        self.off()
        time.sleep(away_s)
        self.server.start()

    def close(self) -> None:
        """Remove the board completely."""
        self._stack.close()


def processes(temporary: Path, *, working: bool = False) -> list[int]:
    """The processes whose temporary files are below a folder; with `working`, those that measure."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environment = (entry / "environ").read_bytes().split(b"\0")
            if any(
                v == b"TMPDIR=" + os.fsencode(temporary) or v.startswith(b"TMPDIR=%b/" % os.fsencode(temporary))
                for v in environment
            ):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if words != [b""] and (not working or b"work" in words):
                    found.append(int(entry.name))
    return found


class Run:
    """A running command of gnomon."""

    def __init__(self, case: Case, words: Sequence[str], prefix: Sequence[str], variables: dict[str, str]) -> None:
        self._progress = case.folder / f"progress-{time.monotonic_ns()}.json"
        self._began_s = time.monotonic()
        environment = {**os.environ, **case.environment, "GNOMON_PROGRESS": str(self._progress), **variables}
        self.process = subprocess.Popen(
            [*prefix, str(Path(sys.executable).with_name("gnomon")), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def reached(self, done: int = 4, stage: str = "") -> None:
        """Wait until this many steps of a stage with more steps are done, or the command has ended."""
        while self.process.poll() is None and time.monotonic() < self._began_s + LIMIT_S:
            with contextlib.suppress(OSError, ValueError):
                told = json.loads(self._progress.read_text())
                if stage in told["stage"] and told["total"] > 1 and told["done"] >= done:
                    return
            time.sleep(0.02)

    def interrupt(self) -> None:
        """Send the signal of Ctrl-C."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)

    def end(self) -> dict[str, Any]:
        """How the command ended: its exit code (None if it did not end and was killed), seconds, document, and last
        words.
        """
        try:
            out, error = self.process.communicate(timeout=max(1.0, LIMIT_S - (time.monotonic() - self._began_s)))
            code: int | None = self.process.returncode
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, error = self.process.communicate()
            code = None
        try:
            document = json.loads(out)
        except ValueError:
            document = {}
        said = [line for line in error.splitlines() if line.strip()][-6:]
        return {"code": code, "seconds": time.monotonic() - self._began_s, "document": document, "said": said}


def answer(document: dict[str, Any]) -> dict[str, Any]:
    """The measured candidates and the winner, from a document of any kind."""
    kind = document.get("format", "")
    if kind == "gnomon-profile":
        return {"candidates": sorted(c["label"] for c in document["columns"]), "winner": document["fastest"]}
    if kind == "gnomon-place":
        singles = sorted(c["label"] for c in document["contenders"] if c["kind"] == "single" and c["measured"])
        return {"candidates": singles, "winner": document["decision"]["chosen"]}
    if kind == "gnomon-pareto":
        points = [point["label"] for point in document["points"]]
        return {"candidates": sorted(s["label"] for s in document["samples"]), "winner": (points or [None])[0]}
    if kind == "gnomon-table":
        return {"candidates": sorted(u["id"] for u in document["units"] if u["status"] == "ok"), "winner": None}
    return {"candidates": [], "winner": None}


@dataclass
class Case:
    """A running row: its folder, its command, and its board if it has one."""

    folder: Path
    kind: str
    board: Board | None
    environment: dict[str, str]
    python: Path
    more: tuple[str, ...] = ()
    model: Path = MODEL
    judged: bool = True
    undo: list[Callable[[], object]] = field(default_factory=list)

    @property
    def tmp(self) -> Path:
        """The folder for temporary files of measuring processes."""
        return self.board.server.tmp if self.board else self.folder / "tmp"

    def words(self) -> list[str]:
        """The words of the command."""
        given = [w.format(model=self.model, folder=self.folder) for w in COMMANDS[self.kind]]
        where = ["--device", "board"] if self.board else []
        record = ["--record", str(self.folder / "record.db"), "--json"]
        return [*given, *where, *record, *self.more]

    def start(self, *more: str, prefix: Sequence[str] = (), **variables: str) -> Run:
        """Start the command, with further words and variables, and with another program's words in front."""
        return Run(self, [*self.words(), *more], prefix, variables)

    def workers(self, least: int = 1) -> list[int]:
        """The measuring processes, after waiting for this many."""
        for _ in range(500):
            if len(found := processes(self.tmp, working=True)) >= least:
                return found
            time.sleep(0.01)
        return found

    def kill(self, number: int, pids: Sequence[int] | None = None) -> None:
        """Send a signal to the measuring processes."""
        for pid in self.workers() if pids is None else pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def fill(self, folder: Path) -> None:
        """Fill up a folder until the row ends."""
        with contextlib.suppress(OSError), (folder / "filler").open("wb") as file:
            while True:
                file.write(bytes(1 << 20))
                file.flush()
        self.undo.append(lambda: (folder / "filler").unlink(missing_ok=True))

    def group(self, controller: str, **limits: str) -> None:
        """Put the board into a control group (version 1) with limits."""
        place = Path("/sys/fs/cgroup") / controller / f"gnomon-fault-{os.getpid()}-{self.folder.name}"
        place.mkdir()
        for name, value in limits.items():
            (place / name.replace("__", ".")).write_text(value)
        assert self.board is not None
        for pid in self.board_processes():
            with contextlib.suppress(OSError):
                (place / "cgroup.procs").write_text(str(pid))

        def free() -> None:
            for pid in (place / "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError):
                    (place.parent / "cgroup.procs").write_text(pid)
            with contextlib.suppress(OSError):
                place.rmdir()

        self.undo.append(free)

    def board_processes(self) -> list[int]:
        """All processes of the board, beginning with its server."""
        from tests.devices.shell.sshkit import below

        assert self.board is not None
        return [self.board.server.process.pid, *below(self.board.server.process.pid)]

    def left(self) -> list[str]:
        """The processes and private folders that still exist after a while."""
        for _ in range(400):
            folders = [str(path) for path in self.tmp.glob("gnomon-*") if path.name != "gnomon-leases"]
            if not (found := [*folders, *map(str, processes(self.tmp))]):
                return []
            time.sleep(0.1)
        return found


Deed = Callable[[Case], "dict[str, Any]"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A fault. `cause` is the reason that the error must give (if empty, there must be an answer); without `board`, the
    row runs on this machine.
    """

    name: str
    what: str
    deed: Deed
    kind: str = "profile"
    board: bool = True
    cause: str = ""
    more: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    again: bool = True
    python: bool = True
    bare: bool = False
    """Whether the board's Python has no packages, so that they must be pushed."""


ROWS: dict[str, Row] = {}


def row(name: str, what: str, **given: Any) -> Callable[[Deed], Deed]:
    """Add a row."""

    def add(deed: Deed) -> Deed:
        ROWS[name] = Row(name=name, what=what, deed=deed, **given)
        return deed

    return add


def there(case: Case) -> Board:
    """The board of a row that has one."""
    assert case.board is not None
    return case.board


# The way to the board


@row("cut", "the network is away for 20 s")
def _cut(case: Case) -> dict[str, Any]:
    run = case.start()
    run.reached()
    there(case).link("down")
    time.sleep(20)
    there(case).link("up")
    return run.end()


@row("cut-for-ever", "the network stays away; --reconnect-timeout 10", cause="did not come back within 10 s")
def _cut_for_ever(case: Case) -> dict[str, Any]:
    run = case.start("--reconnect-timeout", "10")
    run.reached()
    there(case).link("down")
    case.undo.append(lambda: there(case).link("up"))
    return run.end()


def _push(case: Case) -> Run:
    """Wait for the middle of the command's first push."""
    run = case.start()
    for _ in range(6000):
        if any((there(case).server.home / ".cache").rglob(".new-*")) or run.process.poll() is not None:
            break
        time.sleep(0.005)
    return run


@row("cut-while-pushing", "the network is away for 20 s while files are pushed for the first time", bare=True)
def _cut_while_pushing(case: Case) -> dict[str, Any]:
    run = _push(case)
    there(case).link("down")
    time.sleep(20)
    there(case).link("up")
    return run.end()


@row("reboot-while-pushing", "the board starts again while files are pushed for the first time", bare=True)
def _reboot_while_pushing(case: Case) -> dict[str, Any]:
    run = _push(case)
    there(case).reboot()
    return run.end()


@row("reboot", "the board starts again; its /tmp is empty then")
def _reboot(case: Case) -> dict[str, Any]:
    run = case.start()
    run.reached()
    there(case).reboot()
    return run.end()


@row("reboot-place", "the board starts again in the middle of place", kind="place")
def _reboot_place(case: Case) -> dict[str, Any]:
    return _reboot(case)


@row("shutdown", "SIGTERM to all of the board, which is back after 3 s")
def _shutdown(case: Case) -> dict[str, Any]:
    run = case.start()
    run.reached()
    for pid in case.board_processes()[2:]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    there(case).reboot()
    return run.end()


@row("sshd-sessions-killed", "the server's processes of the connection are killed")
def _sessions(case: Case) -> dict[str, Any]:
    run = case.start()
    run.reached()
    for pid in case.board_processes()[2:]:
        with contextlib.suppress(ProcessLookupError, OSError):
            if b"sshd" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
    return run.end()


@row("slow", "2 Mbit/s (a token bucket on the interface)")
def _slow(case: Case) -> dict[str, Any]:
    words = f"tc qdisc add dev {there(case).near} root tbf rate 2mbit burst 32kb latency 400ms"
    made = subprocess.run(words.split(), capture_output=True, text=True, check=False)
    assert made.returncode == 0, f"not possible here: {made.stderr.strip()}"
    return case.start().end()


@row(
    "max-startups",
    "others hold all that MaxStartups lets in, for 3 s",
    lines=("MaxStartups 2:100:2", "LoginGraceTime 60"),
)
def _max_startups(case: Case) -> dict[str, Any]:
    import socket

    board = there(case)
    held = [socket.create_connection((board.address, board.server.port)) for _ in range(2)]
    run = case.start()
    time.sleep(3)
    for each in held:
        each.close()
    return run.end()


@row("max-sessions-1", "MaxSessions 1", lines=("MaxSessions 1",), cause="too few sessions", again=False)
@row("max-sessions-2", "MaxSessions 2", lines=("MaxSessions 2",))
def _plain(case: Case) -> dict[str, Any]:
    return case.start().end()


@row("two-hosts", "a second host measures on the board at the same time")
def _two_hosts(case: Case) -> dict[str, Any]:
    run = case.start()
    other = Run(case, [*case.words(), "--record", str(case.folder / "other.db")], (), {})
    found = [run.end(), other.end()]
    return found[0] if found[0]["code"] else found[1]


@row("off", "nothing listens on the board", cause="refuses the connection|cannot be reached|did not come back")
def _off(case: Case) -> dict[str, Any]:
    there(case).server.stop()
    case.undo.append(there(case).server.start)
    return case.start("--reconnect-timeout", "5").end()


@row("wrong-key", "the board does not know the key", cause="accepts none of the available keys")
def _wrong_key(case: Case) -> dict[str, Any]:
    return _moved(case, there(case).server.root / "authorized_keys")


@row("unknown-host-key", "the board's key is not known here", cause="host key of .* is not known")
def _unknown_host_key(case: Case) -> dict[str, Any]:
    return _moved(case, there(case).server.root / "known_hosts")


def _moved(case: Case, path: Path) -> dict[str, Any]:
    away = path.with_name(path.name + ".away")
    path.rename(away)
    path.write_text("")
    case.undo.append(lambda: away.replace(path))
    return case.start().end()


# The board as a whole


@row("home-removed", "the home folder's content is removed")
def _home_removed(case: Case) -> dict[str, Any]:
    run = case.start()
    run.reached()
    for path in there(case).server.home.iterdir():
        shutil.rmtree(path, ignore_errors=True)
    return run.end()


@row("home-full", "no room in the home folder at the start", cause="disk is full: .*home")
def _home_full(case: Case) -> dict[str, Any]:
    case.fill(there(case).server.home)
    return case.start().end()


@row("home-read-only", "the home folder is read-only", cause="ead-only.*keep = false|keep = false.*ead-only")
def _home_read_only(case: Case) -> dict[str, Any]:
    home = str(there(case).server.home)
    enter = ("nsenter", "-t", str(case.board_processes()[1]), "-m")
    sh(*enter, "mount", "-o", "remount,ro", home)
    case.undo.append(lambda: sh(*enter, "mount", "-o", "remount,rw", home))
    return case.start().end()


@row("tmp-full", "no room in /tmp at the start", cause="disk is full: .*tmp")
def _tmp_full(case: Case) -> dict[str, Any]:
    case.fill(case.tmp)
    return case.start().end()


@row("tmp-full-later", "no room in /tmp from the middle on", cause="disk is full: .*tmp")
def _tmp_full_later(case: Case) -> dict[str, Any]:
    run = case.start()
    run.reached()
    case.fill(case.tmp)
    return run.end()


@row("pushed-unreadable", "nobody may read what was pushed", cause="ermission denied|cannot be|cannot open")
def _unreadable(case: Case) -> dict[str, Any]:
    run = case.start()
    run.reached()
    for path in (there(case).server.home / ".cache").rglob("*"):
        if path.is_file():
            path.chmod(0)
    return run.end()


@row(
    "private-folder-removed",
    "the private folder of the visit is removed",
    cause="private folder .* was removed",
)
def _private_removed(case: Case) -> dict[str, Any]:
    run = case.start()
    run.reached()
    for path in there(case).server.private_folders():
        shutil.rmtree(path, ignore_errors=True)
    return run.end()


@row("few-processes", "at most 12 processes (a control group) from the middle on")
def _few_processes(case: Case) -> dict[str, Any]:
    run = case.start()
    run.reached()
    case.group("pids", pids__max="12")
    time.sleep(3)
    while case.undo:
        case.undo.pop()()
    return run.end()


@row("little-memory", "160 MB of memory in all (a control group)", cause="memory|killed by SIGKILL")
def _little_memory(case: Case) -> dict[str, Any]:
    case.group("memory", memory__limit_in_bytes="160M")
    return case.start().end()


@row("one-core", "the board has one core, two threads are asked for", more=("--threads", "1,2"))
def _one_core(case: Case) -> dict[str, Any]:
    for pid in case.board_processes():
        os.sched_setaffinity(pid, {0})
    return case.start().end()


@row(
    "no-governor",
    "--governor where there is no cpufreq",
    more=("--governor", "performance"),
    cause="governor",
    again=False,
)
@row("no-core", "--pin of a core that is not there", more=("--pin", "99"), cause="core", again=False)
def _option(case: Case) -> dict[str, Any]:
    return case.start().end()


@row("no-python", "the board has no Python", python=False, cause="[Pp]ython", again=False)
def _no_python(case: Case) -> dict[str, Any]:
    return case.start().end()


@row("old-python", "the board's Python is 3.9", cause="too old", again=False)
def _old_python(case: Case) -> dict[str, Any]:
    python = there(case).kit.python
    python.unlink()
    python.write_text("#!/bin/sh\necho 3.9.2\nexit 1\n")
    python.chmod(0o755)
    return case.start().end()


@row("names", "blanks, quotes and Cyrillic in all names, LC_ALL=C here")
def _names(case: Case) -> dict[str, Any]:
    case.model = case.folder / 'it\'s a "модель" $(x).onnx'
    shutil.copy(MODEL, case.model)
    return case.start(LC_ALL="C").end()


# Single measuring processes, on the board and here

PLACES = (("", True), ("-local", False))


def _both(name: str, what: str, deed: Deed, **given: Any) -> None:
    for suffix, board in PLACES:
        row(name + suffix, what, board=board, **given)(deed)


def _term(case: Case) -> dict[str, Any]:
    run = case.start()
    run.reached()
    case.kill(signal.SIGTERM)
    return run.end()


_both("term-all", "SIGTERM to every process that measures, once", _term)


def _term_one(case: Case) -> dict[str, Any]:
    run = case.start()
    run.reached()
    case.kill(signal.SIGTERM, case.workers()[:1])
    return run.end()


_both("term-one", "SIGTERM to one process that measures", _term_one)


@row("term-one-then-reboot", "SIGTERM to one process, the board starts again 0.3 s later", kind="place")
def _term_one_reboot(case: Case) -> dict[str, Any]:
    run = case.start()
    run.reached()
    case.kill(signal.SIGTERM, case.workers()[:1])
    time.sleep(0.3)
    there(case).reboot()
    return run.end()


@row("term-all-then-reboot", "SIGTERM to every process that measures, the board starts again 1 s later")
def _term_all_reboot(case: Case) -> dict[str, Any]:
    run = case.start()
    run.reached()
    case.kill(signal.SIGTERM)
    time.sleep(1)
    there(case).reboot()
    return run.end()


def _kill_twice(case: Case) -> dict[str, Any]:
    run = case.start()
    run.reached()
    first = case.workers()
    case.kill(signal.SIGKILL, first)
    for _ in range(1000):
        if (found := set(case.workers()) - set(first)) or run.process.poll() is not None:
            case.kill(signal.SIGKILL, sorted(found))
            break
        time.sleep(0.01)
    return run.end()


_both("kill-twice", "SIGKILL to every process that measures, and to those that take their place", _kill_twice)


def _library(case: Case) -> Path:
    return next(case.python.parents[1].glob("lib/python3*/site-packages/onnxruntime"))


def _library_away(case: Case) -> dict[str, Any]:
    library = _library(case)
    away = library.with_name("away")
    run = case.start()
    run.reached()
    library.rename(away)
    case.kill(signal.SIGKILL)  # the replacement needs the library
    time.sleep(3)
    away.rename(library)
    return run.end()


_both("library-away", "onnxruntime is away for 3 s, while new processes are started", _library_away)


def _library_away_interrupted(case: Case) -> dict[str, Any]:
    library = _library(case)
    away = library.with_name("away")
    run = case.start()
    run.reached()
    library.rename(away)
    case.kill(signal.SIGKILL)
    time.sleep(3)
    run.interrupt()
    found = run.end()
    away.rename(library)
    case.judged = False
    return found


_both("library-away-interrupted", "onnxruntime is away for 3 s, then Ctrl-C", _library_away_interrupted)


def _paused(case: Case) -> dict[str, Any]:
    run = case.start("--timeout", "6")
    run.reached()
    stopped = case.workers()
    case.kill(signal.SIGSTOP, stopped)
    time.sleep(14)
    case.kill(signal.SIGCONT, stopped)
    return run.end()


_both("paused", "every process that measures is stopped for 14 s; --timeout 6", _paused)


def _kill_9(case: Case) -> dict[str, Any]:
    run = case.start()
    run.reached()
    run.process.kill()
    case.judged = False
    return run.end()


_both("kill-9", "kill -9 of gnomon", _kill_9)


def _ctrl_c(case: Case) -> dict[str, Any]:
    run = case.start()
    run.reached()
    run.interrupt()
    case.judged = False
    return run.end()


_both("ctrl-c", "Ctrl-C", _ctrl_c)


# This machine alone


@row("tmpdir-full-local", "no room in TMPDIR at the start", board=False, cause="disk is full|No space left")
def _tmpdir_full(case: Case) -> dict[str, Any]:
    case.fill(case.tmp)
    return case.start().end()


@row("tmpdir-full-later-local", "no room in TMPDIR from the middle on", board=False, cause="disk is full|No space left")
def _tmpdir_full_later(case: Case) -> dict[str, Any]:
    return _tmp_full_later(case)


def _limited(*limits: str) -> Deed:
    def deed(case: Case) -> dict[str, Any]:
        return case.start(prefix=("prlimit", *limits)).end()

    return deed


for _name, _what, _limits, _cause in (
    ("file-size", "files of 20 kB at most", "--fsize=20000", "File too large|ulimit -f"),
    ("descriptors", "24 descriptors at most", "--nofile=24", "descriptors|open files|Too many open"),
    ("address-space", "1.2 GB of addresses at most", "--as=1200000000", "memory|address"),
    ("cpu-seconds", "2 s of the processor for each process", "--cpu=2", "SIGXCPU|SIGKILL|limit"),
):
    row(f"{_name}-local", _what, board=False, cause=_cause)(_limited(_limits))


@row("pareto-term-all-local", "SIGTERM to every process of pareto's proof", kind="pareto", board=False)
def _pareto_all(case: Case) -> dict[str, Any]:
    run = case.start()
    run.reached(4, "front again")
    case.kill(signal.SIGTERM)
    return run.end()


@row("pareto-term-one-local", "SIGTERM to one process of pareto's proof", kind="pareto", board=False)
def _pareto_one(case: Case) -> dict[str, Any]:
    run = case.start()
    run.reached(4, "front again")
    case.kill(signal.SIGTERM, case.workers()[:1])
    return run.end()


@row("table-term-no-op-local", "SIGTERM to the process of the no-op model", kind="table", board=False)
def _table_no_op(case: Case) -> dict[str, Any]:
    run = case.start()
    run.reached(2, "gauge")
    case.kill(signal.SIGTERM)
    return run.end()


@row("table-term-units-local", "SIGTERM while the units are measured", kind="table", board=False)
def _table_units(case: Case) -> dict[str, Any]:
    run = case.start()
    run.reached(2, "units")
    case.kill(signal.SIGTERM)
    return run.end()


@contextlib.contextmanager
def prepared(found: Row, folder: Path, number: int, python: Path) -> Iterator[Case]:
    """The prepared case of a row, with its board running."""
    from tests.devices.shell import plainkit

    board = None
    with contextlib.ExitStack() as stack:
        for name in ("home", "host", "leases", "tmp"):
            (folder / name).mkdir(parents=True, mode=0o700)
        shutil.copytree(python.parents[1], folder / "python", symlinks=True)
        own = folder / "python" / "bin" / "python"
        if found.board:
            path = None if found.python else str(plainkit.programs(folder / "bin"))
            board = Board(folder, number, lines=found.lines, python=str(own), path=path)
            stack.callback(board.close)
            config = board.kit.config() if found.python else board.kit.config(python=None)
        else:
            sh("mount", "-t", "tmpfs", "-o", "mode=700,size=256m", "none", str(folder / "tmp"))
            stack.callback(subprocess.run, ["umount", "-l", str(folder / "tmp")], check=False)
            config = DeviceConfig(name="local", address=parse_address("local"), python=str(own))
        add_device(config, folder / "home" / "devices.toml")
        environment = {
            "GNOMON_HOME": str(folder / "home"),
            "GNOMON_LEASES": str(folder / "leases"),
            "TMPDIR": str(folder / ("host" if board else "tmp")),
        }
        case = Case(folder=folder, kind=found.kind, board=board, environment=environment, python=own, more=found.more)
        try:
            yield case
        finally:
            for undo in reversed(case.undo):
                undo()


def tried(found: Row, folder: Path, number: int, python: Path, usual: dict[str, Any]) -> dict[str, Any]:
    """Run a row: disturb the command, judge the result, and run the same command again."""
    told: dict[str, Any] = {"fault": found.name, "what": found.what, "where": "board" if found.board else "here"}
    with prepared(found, folder, number, python) as case:
        try:
            disturbed = found.deed(case)
        except AssertionError as error:
            return {**told, "skipped": str(error)}
        seen = answer(disturbed["document"])
        said = " ".join([str(disturbed["document"].get("error", "")), *disturbed["said"]])
        right = _same(seen, usual) if disturbed["code"] == 0 else bool(found.cause and re.search(found.cause, said))
        told |= {
            "ended": disturbed["code"] is not None,
            "seconds": round(disturbed["seconds"], 1),
            "code": disturbed["code"],
            "answer": seen,
            "said": said[-600:],
            "right": right if case.judged else None,
            "left": case.left(),
        }
        for undo in reversed(case.undo):
            undo()
        case.undo.clear()
        if found.again:
            again = case.start().end()
            seen = answer(again["document"])
            told["again"] = {
                "code": again["code"],
                "seconds": round(again["seconds"], 1),
                "answer": seen,
                "right": again["code"] == 0 and _same(seen, usual),
                "said": " ".join(again["said"])[-300:] if again["code"] else "",
            }
    return told


def _same(seen: dict[str, Any], usual: dict[str, Any]) -> bool:
    """Whether the candidates and the winner are those of the undisturbed run, whatever their numbers of threads."""
    labels = {_plain_label(label) for label in seen["candidates"]}
    return labels >= set(usual["candidates"]) and _plain_label(seen["winner"]) == usual["winner"]


def _plain_label(label: str | None) -> str | None:
    return label and re.sub(r"\[threads=[0-9]+\]", "", label)


def main() -> None:
    """Run all rows, or the named ones."""
    from tests.bad_days.boardkit import python_with

    made = parser(__doc__)
    made.add_argument("--rows", nargs="*", default=[], help="names or patterns of rows; all unless given")
    made.add_argument("--jobs", type=int, default=2, help="rows at the same time: they wait more than they measure")
    made.add_argument("--list", action="store_true", help="print the rows")
    given = made.parse_args()
    if given.list:
        print("\n".join(f"{name}: {found.what}" for name, found in ROWS.items()))
        return
    chosen = [r for n, r in ROWS.items() if not given.rows or any(re.fullmatch(p, n) for p in given.rows)]
    if os.geteuid() != 0:
        raise SystemExit("namespaces and mounts are made by root only")
    began_s = time.monotonic()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # who is started beside others ignores it, as do children
    # Not below /tmp: that of a board is its own.
    with tempfile.TemporaryDirectory(prefix="gnomon-faults-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        pythons = {False: python_with(folder / "python", ("numpy", *RUNTIMES)), True: python_with(folder / "bare")}
        usual: dict[str, dict[str, Any]] = {}
        for kind in dict.fromkeys(found.kind for found in chosen):
            plain = Row(name="undisturbed", what="", deed=_plain, kind=kind, board=False)
            with prepared(plain, folder / f"usual-{kind}", 0, pythons[False]) as case:
                usual[kind] = answer(case.start().end()["document"])
                print(f"undisturbed {kind}: {usual[kind]}", file=sys.stderr, flush=True)

        def one(numbered: tuple[int, Row]) -> dict[str, Any]:
            number, found = numbered
            place = folder / f"row-{number}"
            told = tried(found, place, number, pythons[found.bare], usual[found.kind])
            shutil.rmtree(place, ignore_errors=True)
            again = told.get("again", {}).get("right", "-")
            line = f"{found.name}: ended {told.get('ended')}, right {told.get('right')}, again {again}"
            print(f"{line} ({told.get('seconds')} s, code {told.get('code')})", file=sys.stderr, flush=True)
            return told

        with ThreadPoolExecutor(given.jobs) as pool:
            rows = list(pool.map(one, enumerate(chosen, 1)))
    judged = [r for r in rows if "skipped" not in r]
    publish(
        {
            "benchmark": "faults",
            "boards": "namespaces (network, PID, mount) of this machine with its root, own home and /tmp",
            "undisturbed": usual,
            "rows": rows,
            "tried": len(judged),
            "ended": sum(r["ended"] for r in judged),
            "right": [sum(r["right"] is True for r in judged), sum(r["right"] is not None for r in judged)],
            "again": [sum(r["again"]["right"] for r in judged if "again" in r), sum("again" in r for r in judged)],
            "nothing_left": sum(not r["left"] for r in judged),
            "seconds": time.monotonic() - began_s,
        },
        given,
    )


if __name__ == "__main__":
    main()
