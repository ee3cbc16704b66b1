"""A user's own primitives: by file and by package, tried at once, errors with their line."""

from __future__ import annotations

import os
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from gnomon.errors import UsageError
from gnomon.spaces.cells import space as own_blocks
from gnomon.spaces.cells.primitives import published_primitives
from gnomon.spaces.cells.space import known_primitives

HEAD = """\
from gnomon.spaces.cells.primitives import Primitive
def wide(x, channels, stride):
    y = x.conv(2 * x.channels, 1).batch_norm().relu()
    return y.conv(channels, 3, stride=stride).batch_norm()
"""
LIST = "primitives = [Primitive(family='Wide', number=k, block=wide) for k in range(2)]\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "blocks.py"


@pytest.mark.parametrize("numbering", ["ssprofile", "aw_nas"])
def test_without_files_there_are_the_published_ones(numbering: str) -> None:
    known, published = known_primitives(numbering), published_primitives(numbering)
    assert {name: one.digest for name, one in known.items()} == {name: one.digest for name, one in published.items()}


@pytest.mark.parametrize(
    "end", [LIST, LIST.replace("primitives =", "def primitives(): return")], ids=["list", "function"]
)
def test_a_file_adds_its_own(file: Path, end: str) -> None:
    file.write_text(HEAD + end)
    known = known_primitives(blocks=[file, str(file)])
    assert list(known)[-2:] == ["Wideblock_0", "Wideblock_1"] and len(known) == 33
    assert known["Wideblock_0"].digest == known["Wideblock_1"].digest


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (HEAD, "has no 'primitives'"),
        (HEAD + "primitives = wide\n", r"cannot be called: TypeError"),
        (HEAD + "def primitives():\n    return 1 / 0\n", r"cannot be called: ZeroDivisionError: .*line 6."),
        (HEAD + "primitives = []\n", "0 primitives"),
        (HEAD + "primitives = 3\n", "is not a list of primitives"),
        (HEAD + "primitives = [Primitive(family='1', number=0, block=wide)]\n", "not the name of a primitive"),
        (
            HEAD + "primitives = [Primitive(family='VGG', number=3, block=wide)]\n",
            r"two primitives are called VGGblock_3: from the published ones and from .*blocks.py",
        ),
        (
            HEAD + LIST + "primitives += [Primitive(family='Wide', number=0, block=wide)]\n",
            "two primitives are called Wideblock_0",
        ),
        (HEAD.replace("stride=stride", "") + LIST, r"Wideblock_0: Wideblock_0 turns .*; Wideblock_1: "),
        (HEAD.replace("x.channels", "x.chanels") + LIST, r"Wideblock_0: AttributeError: .*line 3."),
        (
            HEAD.replace("2 * x.channels", "next(n)") + "from itertools import count\nn = count(1)\n" + LIST,
            "each call makes different layers",
        ),
        (
            HEAD + "primitives = [Primitive(family='W', number=0, block=lambda x, c, s: None)]\n",
            "Wblock_0: Wblock_0 returns a ",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_line(file: Path, text: str, told: str) -> None:
    file.write_text(text)
    with pytest.raises(UsageError, match=told) as refused:
        known_primitives(blocks=[file])
    assert refused.value.hint


def test_two_files_with_one_name_are_both_told(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("one.py", "two.py")]
    for path in paths:
        path.write_text(HEAD + LIST)
    with pytest.raises(UsageError, match=r"two primitives are called Wideblock_0: from .*one.py and from .*two.py"):
        known_primitives(blocks=paths)
    with pytest.raises(UsageError, match="no file"):
        known_primitives(blocks=[tmp_path / "none.py"])


def test_packages_add_theirs(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    file.write_text(HEAD + LIST)
    monkeypatch.syspath_prepend(file.parent)
    entries = [EntryPoint(name="theirs", value="blocks:primitives", group=own_blocks.GROUP)]
    monkeypatch.setattr(own_blocks, "entry_points", lambda group: entries)
    assert "Wideblock_1" in known_primitives()
    with pytest.raises(UsageError, match=r"from the package entry theirs .blocks:primitives. and from .*blocks.py"):
        known_primitives(blocks=[file])
    entries.append(EntryPoint(name="broken", value="no_such_module_at_all:x", group=own_blocks.GROUP))
    with pytest.raises(UsageError, match="'broken' cannot be loaded: ModuleNotFoundError"):
        known_primitives()


def test_a_file_that_is_edited_within_a_second_is_read_anew_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    text = (
        "from gnomon.spaces.cells.primitives import Primitive\n"
        "def block(x, channels, stride):\n"
        "    return x.conv(channels, {kernel}, stride=stride)\n"
        "primitives = [Primitive(family='Own', number=0, block=block)]\n"
    )
    path, digests = tmp_path / "own.py", []
    for kernel in (3, 5):
        path.write_text(text.format(kernel=kernel))
        os.utime(path, (1e9, 1e9))
        digests.append(known_primitives("ssprofile", [path])["Ownblock_0"].digest)
    assert len(set(digests)) == 2
    assert [one.name for one in tmp_path.iterdir()] == ["own.py"]
