"""What a worker makes of a model is made once in a visit, and few of it are kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gnomon.agent import kept
from gnomon.agent.kept import made_of

pytestmark = pytest.mark.usefixtures("folder")


class Maker:
    """Counts how often it was asked."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, folder: str) -> None:
        self.made += 1
        (Path(folder) / "part").write_text(str(self.made))


def text(model: Path, said: object, make: Maker) -> str:
    with made_of(str(model), said, make) as folder:
        return (Path(folder) / "part").read_text()


def test_it_is_made_once_of_the_same_file_and_words(tmp_path: Path, folder: Path) -> None:
    model, make = tmp_path / "m", Maker()
    model.write_text("model")
    assert [text(model, said, make) for said in ("a", "a", ["b"], ["b"], "a")] == ["1", "1", "2", "2", "1"]
    model.write_text("another")
    assert text(model, "a", make) == "3"
    assert len(list(folder.iterdir())) == 3


def test_what_failed_leaves_nothing_and_is_made_again(tmp_path: Path, folder: Path) -> None:
    model, make = tmp_path / "m", Maker()
    model.write_text("model")

    def fail(there: str) -> None:
        (Path(there) / "part").write_text("half")
        raise ValueError("half")

    with pytest.raises(ValueError, match="half"), made_of(str(model), "a", fail):
        pass
    assert list(folder.iterdir()) == []
    assert text(model, "a", make) == "1"


def test_a_folder_that_others_may_write_keeps_nothing(tmp_path: Path, folder: Path) -> None:
    folder.chmod(0o777)
    model, make = tmp_path / "m", Maker()
    model.write_text("model")
    assert [text(model, "a", make) for _ in range(2)] == ["1", "2"]
    assert list(folder.iterdir()) == []


def test_one_that_another_process_made_meanwhile_is_taken(tmp_path: Path, folder: Path) -> None:
    model, make = tmp_path / "m", Maker()
    model.write_text("model")

    def slow(there: str) -> None:
        make(there)
        assert text(model, "a", make) == "2"  # faster than this one

    with made_of(str(model), "a", slow) as found:
        assert (Path(found) / "part").read_text() == "2"
    assert len(list(folder.iterdir())) == 1


def test_few_are_kept(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_KEPT_MOST", 2)
    model, make = tmp_path / "m", Maker()
    model.write_text("model")
    for number in range(4):
        text(model, number, make)
        (newest,) = (path for path in folder.iterdir() if (path / "part").read_text() == str(number + 1))
        os.utime(newest, (number, number))
    assert sorted((path / "part").read_text() for path in folder.iterdir()) == ["3", "4"]
