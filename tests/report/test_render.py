"""Pictures are drawn into files of three kinds, the same each time; SVG by gnomon itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.report.picture_kit import needs_drawing, words_in

from gnomon.errors import RuntimeMissingError, UsageError
from gnomon.report.chart import Axis, Chart, Group, Mark, Value
from gnomon.report.render import write_picture, write_pictures

DOT = Mark(x=Value(value=1.0), y=Value(value=1.0))
CHART = Chart(title="What it says", x=Axis(title="x"), y=Axis(title="y"), groups=(Group(name="a dot", marks=[DOT]),))


def test_each_kind_is_what_its_suffix_says_and_the_same_each_time(tmp_path: Path) -> None:
    needs_drawing()
    made = []
    for name in "ab":
        paths = [tmp_path / f"{name}{suffix}" for suffix in (".svg", ".png", ".pdf")]
        assert [write_picture([CHART], path) for path in paths] == list(map(str, paths))
        made.append([path.read_bytes() for path in paths])
    assert made[0] == made[1]
    assert {"a dot", "What it says"} <= set(words_in(tmp_path / "a.svg"))
    assert 'role="img" aria-label="What it says"' in (tmp_path / "a.svg").read_text()
    assert made[0][1].startswith(b"\x89PNG") and made[0][2].startswith(b"%PDF")


def test_a_folder_is_made_and_what_has_no_chart_is_left_out(tmp_path: Path) -> None:
    needs_drawing()
    folder = tmp_path / "a" / "b"
    made = list(write_pictures({"p": [CHART], "none": [], "q.r": [CHART]}, folder))
    assert [Path(path).name for path in made] == ["p.svg", "q.r.svg", "p.png", "q.r.png"]
    assert sorted(made) == sorted(map(str, folder.iterdir()))
    with pytest.raises(UsageError, match=r"none/p\.svg cannot be written"):
        write_picture([CHART], tmp_path / "none" / "p.svg")


def test_little_address_space_is_enough(tmp_path: Path) -> None:
    """The renderer's own V8 would want more, and end the process: it is not started."""
    needs_drawing()
    code = "\n".join(
        (
            "import resource, sys",
            "from pathlib import Path",
            "from gnomon.report.chart import Axis, Chart",
            "from gnomon.report.render import write_pictures",
            "resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))",
            "chart = Chart(title='t', x=Axis(title='x'), y=Axis(title='y'), groups=())",
            "print(*write_pictures({'p': [chart]}, Path(sys.argv[1])))",
        )
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, [str(tmp_path / "p.svg"), str(tmp_path / "p.png")])


@pytest.mark.parametrize("name", ["p.gif", "p", "p.SVG"])
def test_another_suffix_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not a picture"):
        write_picture([CHART], Path(name))


def test_without_vl_convert_there_is_svg_and_a_way_to_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    made: list[str] = []
    with pytest.raises(
        RuntimeMissingError, match=r"a \.png file needs vl-convert-python, which cannot be loaded"
    ) as caught:
        made.extend(write_pictures({"p": [CHART]}, tmp_path))
    assert caught.value.hint.startswith(sys.executable) and "vl-convert-python<2,>=1.9" in caught.value.hint
    assert made == [str(path) for path in tmp_path.iterdir()] == [str(tmp_path / "p.svg")]
