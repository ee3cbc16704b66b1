"""Finding search spaces by name, entry point and file."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from gnomon import plugins
from gnomon.cli.main import run
from gnomon.errors import UsageError
from gnomon.spaces import known_spaces, load_space, loading
from gnomon.spaces.fuse import rules
from gnomon.spaces.loading import SearchSpace, draw, spread
from gnomon.spaces.work import relative_size, work

SPACE = """
from dataclasses import dataclass
from gnomon.spaces import BlockSpace, Choice, skip
import beside


@dataclass(frozen=True)
class Conv:
    channels: int

    def __call__(self, x):
        return x.conv(self.channels, 3)


def make():
    return space


space = BlockSpace(name="mine", inputs=((1, 3, 8, 8),), parts=(Choice("a", {"conv": Conv(3), "skip": skip}),))
number = beside.NUMBER
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("NUMBER = 3\n")
    path = tmp_path / "mine.py"
    path.write_text(SPACE)
    return path


def test_shipped_spaces_are_found_by_name() -> None:
    cnns = ("fbnet", "mobilenetv2-cifar10", "nasbench201", "ofa-mobilenetv3", "operators")
    shipped = sorted((*cnns, "hat", "hat-step"))
    assert known_spaces()[: len(shipped)] == tuple(shipped)
    for name in known_spaces()[:4]:
        assert load_space(name).name == name


@pytest.mark.parametrize("attribute", ["space", "make"])
def test_a_users_file_is_run(file: Path, attribute: str) -> None:
    before = list(sys.path)
    assert load_space(f"{file}:{attribute}").name == "mine"
    assert sys.path == before


def test_unknown_names_tell_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"my.yaml cannot be read"):
        load_space("my.yaml")
    with pytest.raises(UsageError, match="no search space 'mobilenet'") as refused:
        load_space("mobilenet")
    assert "mobilenetv2-cifar10" in refused.value.hint and "space.py:space" in refused.value.hint


@pytest.mark.parametrize(
    ("attribute", "said", "hint"),
    [
        ("spce", "has no 'spce'", "Name one of: "),
        ("", "has no ''", "Name one of: "),
        ("number", "not a search space but a int", "BlockSpace"),
        ("Conv", "cannot be called", "without arguments"),
    ],
)
def test_wrong_attributes_are_told(file: Path, attribute: str, said: str, hint: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        load_space(f"{file}:{attribute}")
    assert hint in refused.value.hint


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("x = 1\n1 / 0\n", "ZeroDivisionError: division by zero .*line 2.", "Correct the file,"),
        ("x = (\n", "SyntaxError", "Correct the file,"),
        ("import no_such_module_at_all\n", "ModuleNotFoundError: .*line 1.", "install a module that it lacks."),
        ("raise SystemExit(3)\n", "SystemExit: 3", "Correct the file,"),
    ],
)
def test_a_file_that_fails_says_where_and_what_to_do(tmp_path: Path, text: str, said: str, hint: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text)
    with pytest.raises(UsageError, match=said) as refused:
        load_space(f"{path}:space")
    assert hint in refused.value.hint


def test_files_that_are_not_there_and_files_without_an_attribute_are_told(file: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file"):
        load_space(f"{tmp_path}/none.py:space")
    with pytest.raises(UsageError, match="does not name a space"):
        load_space(str(file))


def theirs() -> SearchSpace:
    """A package's space."""
    return load_space("fbnet")


def test_packages_add_spaces_and_broken_ones_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    added = [
        EntryPoint(name="theirs", value=f"{__name__}:theirs", group=loading.GROUP),
        EntryPoint(name="broken", value="no_such_module_at_all:x", group=loading.GROUP),
        EntryPoint(name="fbnet", value="no_such_module_at_all:x", group=loading.GROUP),
    ]
    own = plugins.entry_points(group=loading.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [*added, *own])
    assert load_space("theirs").name == "fbnet" == load_space("fbnet").name
    with pytest.raises(UsageError, match="'broken' cannot be loaded: ModuleNotFoundError"):
        load_space("broken")
    assert "theirs" in known_spaces()


def test_what_a_users_file_raises_later_is_told_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from gnomon.spaces import BlockSpace\n"
        "class Odd(BlockSpace):\n"
        "    def tables(self, rules):\n"
        "        return 1 // 0\n"
        "space = Odd(name='odd', inputs=((1, 3, 8, 8),), parts=(lambda x: x.conv(2, 1),))\n"
    )
    words = ["table", "build", f"{file}:space", "--out", str(tmp_path / "out"), "--runtime", "onnxruntime"]
    assert run(words) == UsageError.exit_code
    told = capsys.readouterr().err
    assert f"error: {file}, line 4: ZeroDivisionError" in told
    assert "a defect" not in told


@pytest.mark.parametrize("name", ["fbnet", "mobilenetv2-cifar10", "nasbench201", "ofa-mobilenetv3"])
def test_nets_are_spread_from_the_fastest_to_the_slowest(name: str) -> None:
    tables = load_space(name).tables(rules(()))
    values = np.concatenate([relative_size(work(tables.units)), np.zeros(len(tables.extras))])
    usual = draw(tables, 300, seed=1)
    found = spread(tables, usual, values, seed=2)
    sums, drawn = tables.sums(found, values), tables.sums(usual, values)
    assert sums[0] == sums.min() < drawn.min()
    assert sums[-1] == sums.max() > drawn.max()
    for end in (0, -1):  # no other choice of one slot leads further
        for slot, one in enumerate(tables.space.slots):
            near = np.repeat(found[end][None], len(one.choices), axis=0)
            near[:, slot] = np.arange(len(one.choices))
            told = tables.sums(near, values)
            assert sums[end] <= told.min() * (1 + 1e-9) if end == 0 else sums[end] >= told.max() * (1 - 1e-9)
    between = np.histogram(sums, bins=6)[0]
    assert between.min() > 0
    assert (tables.canonical(found) == found).all()
    assert (spread(tables, usual, values, seed=2) == found).all()
