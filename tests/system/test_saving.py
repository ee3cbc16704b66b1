"""A file is written whole, or stays as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnomon.errors import UsageError
from gnomon.system.files import save_text


def test_what_was_there_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    save_text("new\r\n", path)
    assert path.read_bytes() == b"new\r\n"
    assert list(tmp_path.iterdir()) == [path]


def test_what_was_there_stays_where_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "measured.csv"
    path.write_text("measured")
    write = Path.write_text

    def full(self: Path, text: str, **how: str) -> int:
        write(self, text[:3], **how)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(UsageError, match=r"the nets cannot be written to .*: No space left on device") as refused:
        save_text("measured anew", path, what="the nets", option="--nets")
    assert "--nets" in refused.value.hint
    assert path.read_text() == "measured"
    assert list(tmp_path.iterdir()) == [path]
