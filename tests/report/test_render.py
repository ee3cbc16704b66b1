"""Pictures are drawn into files of three kinds, the same each time, without asking for anything elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.report.picture_kit import needs_drawing, words_in

from gnomon.errors import RuntimeMissingError, UsageError
from gnomon.report.render import suffixed, write, write_pictures
from gnomon.report.vega import legend, picture, point_key


def spec(text: str = "a dot") -> dict[str, Any]:
    return picture([legend([point_key(text, "circle", "red")], columns=1)], ["What it says"])


def test_each_kind_is_what_its_suffix_says_and_the_same_each_time(tmp_path: Path) -> None:
    needs_drawing()
    made = []
    for name in "ab":
        paths = [tmp_path / f"{name}{suffix}" for suffix in (".svg", ".png", ".pdf")]
        write(spec(), paths)
        made.append([path.read_bytes() for path in paths])
    assert made[0] == made[1]
    assert words_in(tmp_path / "a.svg") == ["a dot", "What it says"]
    assert 'role="img" aria-label="What it says"' in (tmp_path / "a.svg").read_text()
    assert made[0][1].startswith(b"\x89PNG") and made[0][2].startswith(b"%PDF")


def test_texts_of_foreign_origin_stay_texts(tmp_path: Path) -> None:
    needs_drawing()
    for text in ("<b>&amp;\"'", "datum.x + 1", "{signal: 1}", "\u6a21\u578b $x_1$"):
        write(spec(text), [tmp_path / "a.svg"])
        assert text in words_in(tmp_path / "a.svg")


def test_nothing_is_fetched(tmp_path: Path) -> None:
    needs_drawing()
    asks = {**spec(), "vconcat": [{"data": {"url": "http://127.0.0.1:9/rows.json"}, "mark": "point"}]}
    with pytest.raises(ValueError, match="External data url not allowed"):
        write(asks, [tmp_path / "a.svg"])
    assert not list(tmp_path.iterdir())


def test_a_folder_is_made_where_it_is_told(tmp_path: Path) -> None:
    needs_drawing()
    folder = tmp_path / "a" / "b"
    assert write_pictures([(spec(), [folder / "p.svg"])], folder) == [str(folder / "p.svg")]
    with pytest.raises(UsageError, match=r"none/p\.svg cannot be written"):
        write_pictures([(spec(), [tmp_path / "none" / "p.svg"])])


@pytest.mark.parametrize("name", ["p.gif", "p", "p.SVG"])
def test_another_suffix_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not a picture"):
        suffixed(Path(name))


def test_without_vl_convert_it_is_told_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(RuntimeMissingError, match="vl-convert-python is not installed") as caught:
        write(spec(), [tmp_path / "a.svg"])
    assert caught.value.hint.startswith(sys.executable) and "vl-convert-python>=1.9,<2" in caught.value.hint
