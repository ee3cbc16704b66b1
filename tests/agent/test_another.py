"""A function of the agent runs in another process, which may end as it likes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gnomon.agent.another import how_it_ended, run_function

MODULE = """
import os, signal, sys, time


def tell(first, second):
    print(first, second, sys.stdin.read(), os.getcwd())


def crash():
    os.kill(os.getpid(), signal.SIGABRT)


def hang():
    time.sleep(600)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "made_for_a_test.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "made_for_a_test"


def test_it_has_arguments_input_and_a_folder(module: str, tmp_path: Path) -> None:
    done = run_function(module, "tell", "a", "b c", given="d", folder=str(tmp_path))
    assert (done.stdout, how_it_ended(done)) == (f"a b c d {tmp_path}\n", "ended with status 0")
    assert run_function(module, "tell", "a", "b").stdout == f"a b  {Path.cwd()}\n"


def test_a_crash_and_a_hang_end_nothing_else(module: str) -> None:
    assert how_it_ended(run_function(module, "crash")) == "was killed by signal 6"
    done = run_function(module, "missing")
    assert (how_it_ended(done), "missing" in done.stderr) == ("ended with status 1", True)
    with pytest.raises(subprocess.TimeoutExpired):
        run_function(module, "hang", timeout_s=0.2)
