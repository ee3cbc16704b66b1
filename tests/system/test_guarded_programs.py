"""A program dies with the gnomon that started it, also where gnomon is killed before it could tell its guard."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.processkit import gone

from gnomon.system.process import Guard

_ENDED_AT_ONCE = """
import asyncio, os, signal, socket, subprocess, sys, tempfile, threading
from pathlib import Path
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
    "ChildProcess(program, here, own_guard(), threading.Event())",
    "a measuring process of the server": "from gnomon.serving.process import MeasuringProcess\n"
    "asyncio.run(MeasuringProcess(folder=here, guard=own_guard(), log=print)._start())",
}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("start", _STARTS)
def test_there_is_no_moment_in_which_a_program_runs_and_would_stay(
    start: str, number: signal.Signals, tmp_path: Path
) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", _ENDED_AT_ONCE + _STARTS[start], str(int(number))],
        env=environment, cwd=tmp_path, capture_output=True, check=False,
    )  # fmt: skip
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
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED_LATER], env=environment, capture_output=True, check=False
    )  # fmt: skip
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
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", _GOES_ON], env=environment, capture_output=True, check=False, timeout=300
    )  # fmt: skip
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
