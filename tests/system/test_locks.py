"""A locked file has one holder, whatever becomes of the file meanwhile."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gnomon.system import locks
from gnomon.system.locks import changing, lock_file


def test_another_holder_is_waited_for_a_moment_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_PATIENCE_S", 0.05)
    handle = lock_file(tmp_path / "lock")
    with pytest.raises(BlockingIOError):
        lock_file(tmp_path / "lock")
    os.close(handle)
    os.close(lock_file(tmp_path / "lock"))


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    code = "import os, sys; from pathlib import Path; from gnomon.system.locks import lock_file\n"
    code += "lock_file(Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "lock")], check=False, timeout=300)
    os.close(lock_file(tmp_path / "lock"))


def test_one_that_was_removed_is_made_again(tmp_path: Path) -> None:
    """Who waits for a file whose holder removes it locks the file that has the name then."""
    path = tmp_path / "lock"
    first = lock_file(path)
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(lock_file(path)))
    waiting.start()
    path.unlink()
    os.close(first)
    waiting.join()
    assert os.path.samestat(os.fstat(found[0]), path.stat())
    os.close(found[0])


@pytest.mark.parametrize("left", [True, False])
def test_a_lock_of_another_user_is_named_only_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: bool
) -> None:
    lock = tmp_path / ".file.lock"
    if left:
        lock.touch()

    def refused(path: Path, **more: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(locks, "lock_file", refused)
    with pytest.raises(PermissionError) as told, changing(tmp_path / "file"):
        raise AssertionError
    owned = f"{lock} is another user's: remove it if nobody changes the file"
    assert told.value.strerror == (owned if left else "Permission denied")
