"""A file is written whole, or stays as it was."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gnomon.errors import UsageError
from gnomon.system.files import in_place_of, replace_folder, save_text, staged, write_whole


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
