"""Programs and temporary folders go with the gnomon that made them, also where it is killed before it told a guard."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.processkit import becomes, gone

from gnomon.errors import DeviceError, UsageError
from gnomon.system import process
from gnomon.system.process import Guard, guarded, guarded_folder


def ran(code: str, *words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """A Python of this machine that has run the code."""
    whole = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    return subprocess.run(
        [sys.executable, "-c", code, *words], env=whole, capture_output=True, check=False, timeout=300
    )


_ENDED_AT_ONCE = """
import asyncio, os, signal, socket, subprocess, sys, tempfile, threading
from pathlib import Path
os.chdir(sys.argv[2])
from gnomon.system.process import Conversation, Guard, own_guard, run_process

def told(guard, group):
    print(group, flush=True)
    signal.raise_signal(int(sys.argv[1]))

Guard._add = told
argv, here = ["sleep", "600"], Path.cwd()
"""

_STARTS = {
    "a command": "run_process("
    "argv, env=dict(os.environ), stdin=b'', timeout_s=600, on_line=None, cwd=here, guard=own_guard())",
    "a conversation": "Conversation(argv, env=dict(os.environ), cwd=here, guard=own_guard())",
    "a socket": "ours, theirs = socket.socketpair()\n"
    "own_guard().start(argv, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.DEVNULL)",
    "a file": "with tempfile.TemporaryFile() as file:\n"
    "    own_guard().start(argv, stdin=subprocess.DEVNULL, stdout=file.fileno(), stderr=subprocess.STDOUT)",
    "a child": "from gnomon.system.children import ChildProcess, Program\n"
    "(here / 'sleeps.py').write_text('import time; time.sleep(600)')\n"
    "program = Program(name='sleeps', settings={}, folder=here / 'sleeps.py')\n"
    "ChildProcess(program, here, own_guard())",
    "a measuring process of the server": "from gnomon.serving.server import MeasuringProcess\n"
    "asyncio.run(MeasuringProcess(folder=here, guard=own_guard(), log=print)._start())",
}


@pytest.mark.parametrize(
    ("start", "number"), [*((start, signal.SIGKILL) for start in _STARTS), ("a command", signal.SIGINT)]
)
def test_there_is_no_moment_in_which_a_program_runs_and_would_stay(
    start: str, number: signal.Signals, tmp_path: Path
) -> None:
    done = ran(_ENDED_AT_ONCE + _STARTS[start], str(int(number)), str(tmp_path))
    assert done.returncode == -number, done.stderr
    assert gone(int(done.stdout))


_INTERRUPTED_LATER = """
import os
from pathlib import Path
from gnomon.system import process

def interrupted(self, started, *more, **named):
    print(started.pid, flush=True)
    raise KeyboardInterrupt

process._Running.__init__ = interrupted
process.run_process(
    ["sleep", "600"], env={}, stdin=b"", timeout_s=600, on_line=None, cwd=Path("/"), guard=process.own_guard()
)
"""


def test_one_that_was_told_ends_also_where_nobody_took_it_over() -> None:
    done = ran(_INTERRUPTED_LATER)
    assert done.returncode == -signal.SIGINT, done.stderr
    assert gone(int(done.stdout))


_GOES_ON = """
import os
from gnomon.system.process import Guard, own_guard

def interrupted(self, group):
    global started
    started = group
    raise KeyboardInterrupt

Guard._add = interrupted
try:
    own_guard().start(["sleep", "600"])
except KeyboardInterrupt:
    print(os.waitpid(started, 0)[1])
"""


def test_one_whose_start_was_interrupted_ends_at_once() -> None:
    """gnomon may go on, as in a notebook, and what is known of its output is soon another's."""
    done = ran(_GOES_ON)
    assert done.stdout == b"9\n", done.stderr


def test_one_that_cannot_be_started_leaves_no_descriptor() -> None:
    guard = Guard()
    before = set(Path("/proc/self/fd").iterdir())
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            guard.start(["/nowhere/program"])
    assert set(Path("/proc/self/fd").iterdir()) == before
    guard.close()


def test_a_program_that_ended_is_left_alone_and_so_is_what_it_left() -> None:
    """A server that a client starts lives on: gnomon's next end is not its own."""
    guard = Guard()
    with guard.start(["sh", "-c", "setsid sleep 600 & echo $!"], stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        left = int(process.stdout.readline())
        process.wait()
        guard.drop(process.pid)
    guard.close()
    try:
        assert Path(f"/proc/{left}").exists()
    finally:
        os.kill(left, signal.SIGKILL)


ASKING = {
    "shapes": "from gnomon.models.model import Limits; from gnomon.models.onnx import graph; "
    "graph._CHILD = Path(sys.argv[1]); graph._infer(b'', Limits(max_infer_s=600))",
    "pnnx": "from gnomon.models.model import Limits; from gnomon.models.ncnn import convert; "
    "convert._run(Path(sys.argv[1]), Path(sys.argv[1]).parent, (), Limits(), 600)",
    "quark": "from gnomon.system.children import Program; from gnomon.toolchains import quark_xint8 as quark; "
    "quark._PROBE_S = 600; quark._packages_missing(Program(name='', settings={}, python=sys.argv[1]))",
}


@pytest.mark.parametrize("asking", ASKING.values(), ids=ASKING)
def test_it_dies_with_gnomon(tmp_path: Path, asking: str) -> None:
    hanging, fifo = tmp_path / "hanging", tmp_path / "pid"
    hanging.write_text(
        f"#!{sys.executable}\nimport os, time\nopen({str(fifo)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    hanging.chmod(0o755)
    os.mkfifo(fifo)
    gnomon = subprocess.Popen([sys.executable, "-c", f"import sys; from pathlib import Path; {asking}", str(hanging)])
    pid = int(fifo.read_text())
    gnomon.kill()
    gnomon.wait()
    assert gone(pid)


_HOLDING = """
import sys, time
from gnomon.system.process import guarded_folder
with guarded_folder("gnomon-one-"):
    with guarded_folder("gnomon-gone-") as gone:
        pass
    gone.mkdir()  # somebody else's from now on
    with guarded_folder("gnomon-\\n other-") as other:
        (other / "file").write_text("x")
        print("ready", flush=True)
        time.sleep(600) if sys.argv[1:] else None
"""


def held(folder: Path, *words: str) -> subprocess.Popen[str]:
    """A process with temporary folders below this one, once it has them."""
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    holding = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", _HOLDING, *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert holding.stdout is not None and holding.stdout.readline() == "ready\n"
    return holding


def prefixes(folder: Path) -> set[str]:
    return {path.name.rpartition("-")[0] for path in folder.iterdir()}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_they_go_away_with_a_process_that_is_ended(tmp_path: Path, number: signal.Signals) -> None:
    with held(tmp_path, "wait") as holding:
        assert prefixes(tmp_path) == {"gnomon-one", "gnomon-gone", "gnomon-\n other"}
        holding.send_signal(number)
        holding.communicate(timeout=60)
    assert becomes(lambda: prefixes(tmp_path) == {"gnomon-gone"})


_KILLED_AT_ONCE = """
import os, signal
from gnomon.system.process import guarded_folder
make = os.mkdir
def mkdir(*given, **named):
    make(*given, **named)
    os.kill(os.getpid(), signal.SIGKILL)
os.mkdir = mkdir
with guarded_folder("gnomon-one-"):
    pass
"""


def test_there_is_no_moment_in_which_a_folder_is_there_and_would_stay(tmp_path: Path) -> None:
    done = ran(_KILLED_AT_ONCE, TMPDIR=str(tmp_path))
    assert done.returncode == -signal.SIGKILL
    assert becomes(lambda: not prefixes(tmp_path))


def test_where_no_folder_can_be_made_the_next_step_is_told(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"no private folder can be created in .*: No such file") as told:
        guarded("gnomon-one-", within=tmp_path / "gone")
    assert "TMPDIR" in told.value.hint


@pytest.mark.parametrize("writable", [True, False])
def test_so_it_is_for_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writable: bool) -> None:
    # A TMPDIR that went away since the process began; and none of all that Python tries can be written.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone") if writable else None)
    if not writable:
        monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "gone")])
    message = rf"no private folder can be created{' in .*/gone' if writable else ''}: No "
    with pytest.raises(UsageError, match=message) as told, guarded_folder("gnomon-one-"):
        raise AssertionError
    assert "TMPDIR" in told.value.hint


def test_a_folder_goes_away_while_something_still_writes_there(tmp_path: Path) -> None:
    with held(tmp_path, "wait") as holding:
        [folder] = tmp_path.glob("gnomon-one-*")
        # As one that is being killed, or left its group, does: files come as long as there is a folder.
        writing = f"for n in $(seq 400); do mkdir -p {folder}/$n/a/b/c || exit; : > {folder}/$n/file; sleep 0.001; done"
        with subprocess.Popen(["/bin/sh", "-c", writing]) as writer:
            assert becomes(lambda: (folder / "9" / "file").exists())
            holding.kill()
            holding.communicate(timeout=60)
        assert writer.returncode is not None
    assert becomes(lambda: prefixes(tmp_path) == {"gnomon-gone"})


def test_they_go_away_at_the_end_without_a_word(tmp_path: Path) -> None:
    with held(tmp_path) as holding:
        assert holding.communicate(timeout=60) == ("", "")
    assert holding.returncode == 0
    assert prefixes(tmp_path) == {"gnomon-gone"}


def test_one_guard_is_for_all_and_another_comes_where_it_was_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Guard] = []

    class Counted(Guard):
        def __init__(self) -> None:
            super().__init__()
            started.append(self)

    monkeypatch.setattr(process, "Guard", Counted)
    monkeypatch.setattr(process, "_GUARDS", {})
    with guarded_folder("a-") as one, guarded_folder("b-") as other:
        assert one.is_dir() and other.is_dir() and len(started) == 1
        started[0]._process.kill()
        started[0]._process.wait()
        with guarded_folder("c-"):
            assert len(started) == 2
    assert not one.exists() and not other.exists()
    for guard in started:
        guard.close()
