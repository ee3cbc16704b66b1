"""A file is written whole, or stays as it was; a locked file has one holder; and how many files may be open."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnomon.errors import UsageError
from gnomon.system import locks
from gnomon.system.files import in_place_of, read_file, replace_folder, save_text, staged, write_whole
from gnomon.system.limits import allow_files, open_files
from gnomon.system.locks import changing, lock_file


def test_what_was_there_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    save_text("new\r\n", path)
    assert path.read_bytes() == b"new\r\n"
    assert list(tmp_path.iterdir()) == [path]


def test_what_was_there_stays_where_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "measured.csv"
    path.write_text("measured")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match=r"the nets cannot be written to .*: No space left on device") as refused:
        save_text("measured again", path, what="the nets", option="--nets")
    assert "--nets" in refused.value.hint
    assert path.read_text() == "measured"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_one_and_a_file_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(0o640)
    (tmp_path / "link").symlink_to("file")
    write_whole(b"new", tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert ((tmp_path / "file").read_bytes(), (tmp_path / "file").stat().st_mode & 0o777) == (b"new", 0o640)


def test_what_is_no_regular_file_is_written_to() -> None:
    code = "from pathlib import Path; from gnomon.system.files import save_text; save_text('x', Path('/dev/stdout'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=300)
    assert done.stdout == b"x"
    assert Path("/dev/stdout").is_symlink()


def test_only_regular_files_within_a_limit_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(8 << 30)
    (tmp_path / "good").write_bytes(b"x" * 100)
    for name, reason in (
        ("/dev/zero", "it is not a regular file"),
        ("pipe", "it is not a regular file"),
        (".", "it is not a regular file"),
        ("sparse", "it holds 8589934592 bytes, more than the limit of 268435456"),
        ("none", "No such file"),
        ("a\0b", "null byte"),
    ):
        with pytest.raises(UsageError, match=reason) as refused:
            read_file(tmp_path / name, hint="Give another.")
        assert refused.value.hint == "Give another."
    assert read_file(tmp_path / "good", hint="", most_bytes=100) == b"x" * 100

    def none_left(file: object, most: int) -> bytes:
        raise MemoryError

    monkeypatch.setattr("gnomon.system.files.read_at_most", none_left)
    with pytest.raises(UsageError, match="its 100 bytes do not fit into the free memory"):
        read_file(tmp_path / "good", hint="")


def test_a_folder_that_cannot_be_replaced_stays(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "old").touch()
    with pytest.raises(FileNotFoundError):
        replace_folder(tmp_path / "made", tmp_path / "there", tmp_path / "aside")
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["old"]
    (tmp_path / "made").mkdir()
    replace_folder(tmp_path / "made", tmp_path / "there", tmp_path / "aside")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["aside", "there"]
    assert not list((tmp_path / "there").iterdir())


@pytest.mark.parametrize("failing", [1, 2])
def test_an_interruption_takes_no_folder_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "old").touch()
    calls: list[Path] = []
    real = Path.rename

    def rename(self: Path, target: Path) -> Path:
        calls.append(real(self, target))
        if len(calls) == failing:
            raise KeyboardInterrupt
        return target

    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(Path, "rename", rename)
        with staged(tmp_path / "there") as made:
            made.mkdir()
            (made / "new").touch()
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["old" if failing == 1 else "new"]
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


@pytest.mark.parametrize("name", ["made", "before", "n" * 250, "名" * 83])
def test_what_is_staged_takes_its_place_as_a_whole_or_not_at_all(tmp_path: Path, name: str) -> None:
    there = tmp_path / "above" / name
    for content in ("old", "new"):
        with staged(there) as made:
            made.mkdir()
            (made / content).touch()
    with pytest.raises(ZeroDivisionError), staged(there) as made:
        made.mkdir()
        raise ZeroDivisionError
    assert [path.name for path in there.iterdir()] == ["new"]
    assert list(there.parent.iterdir()) == [there]


def test_a_link_that_leads_nowhere_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").symlink_to("nowhere")
    with staged(tmp_path / "there") as made:
        made.mkdir()
    assert not (tmp_path / "there").is_symlink() and (tmp_path / "there").is_dir()


def test_a_file_with_a_long_name_is_written(tmp_path: Path) -> None:
    write_whole(b"new", tmp_path / ("名" * 83))
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"new"]


def test_what_ends_badly_leaves_the_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250)
    with in_place_of(path) as partial:
        partial.write_text("old")
    with pytest.raises(KeyboardInterrupt), in_place_of(path) as partial:
        partial.write_text("half")
        assert path.read_text() == "old" and partial.name.startswith(".") and partial.suffix == ".part"
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


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
    owned = f"{lock} belongs to another user: remove it if nobody is changing the file"
    assert told.value.strerror == (owned if left else "Permission denied")


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_soft_limit_goes_up_as_far_as_wanted_and_never_down(limits: tuple[int, int]) -> None:
    low, hard = open_files() + 50, limits[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
    assert allow_files(low + 20) == low + 20
    assert allow_files(10) == low + 20
    if hard >= 0:
        assert allow_files(hard + 1) == hard


def test_open_files_are_counted() -> None:
    before = open_files()
    descriptor = os.open(os.devnull, os.O_RDONLY)
    assert open_files() == before + 1
    os.close(descriptor)
