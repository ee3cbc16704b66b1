"""Temporary folders of a process go away with it, however it ends, and one guard looks after all of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.processkit import becomes

from gnomon.errors import DeviceError, UsageError
from gnomon.system import process
from gnomon.system.process import Guard, guarded, guarded_folder

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
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", _KILLED_AT_ONCE], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert becomes(lambda: not prefixes(tmp_path))


def test_where_no_folder_can_be_made_the_next_step_is_told(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"no private folder can be made in .*: No such file") as told:
        guarded("gnomon-one-", within=tmp_path / "gone")
    assert "TMPDIR" in told.value.hint


@pytest.mark.parametrize("writable", [True, False])
def test_so_it_is_for_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writable: bool) -> None:
    # A TMPDIR that went away since the process began; and none of all that Python tries can be written.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone") if writable else None)
    if not writable:
        monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "gone")])
    message = rf"no private folder can be made{' in .*/gone' if writable else ''}: No "
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
