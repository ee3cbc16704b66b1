"""The file of a suite, and what cells come of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnomon.devices.address import Address
from gnomon.devices.config import DeviceConfig
from gnomon.errors import UsageError
from gnomon.jobs.suite.plan import Cell, cells_of, read_suite


def board(name: str, *tags: str) -> DeviceConfig:
    return DeviceConfig(name=name, address=Address(kind="ssh", host=name), tags=tags)


BOARDS = {b.name: b for b in (board("p1", "pi5"), board("p2", "pi5", "big"), board("p3", "pi5"), board("r", "rk3588"))}


def cells(folder: Path, text: str) -> tuple[Cell, ...]:
    for name in ("a.onnx", "b.onnx", "c.tflite"):
        (folder / name).touch()
    path = folder / "suite.toml"
    path.write_text(text)
    return cells_of(read_suite(path), folder, BOARDS)


def test_each_job_of_each_model_on_each_device_so_often(tmp_path: Path) -> None:
    made = cells(
        tmp_path,
        'name = "x"\n[[cells]]\njobs = ["place", "profile"]\nmodels = ["*.onnx", "c.tflite"]\n'
        'devices = ["@pi5", "r"]\nrepeats = 2\nmax_time_s = 60\n',
    )
    assert len(made) == 2 * 3 * 4 * 2 and len({cell.id for cell in made}) == len(made)
    assert [cell.repeat for cell in made] == [1] * 24 + [2] * 24
    assert {cell.devices for cell in made} == {("p1",), ("p2",), ("p3",), ("r",)}
    again = cells(tmp_path, (tmp_path / "suite.toml").read_text())
    assert again == made


@pytest.mark.parametrize("selector", ["two of any @pi5", "2 of @pi5"])
def test_some_of_a_tag_are_slots_of_all_that_have_it(tmp_path: Path, selector: str) -> None:
    made = cells(tmp_path, f'name = "x"\n[[cells]]\njobs = ["place"]\nmodels = ["a.onnx"]\ndevices = ["{selector}"]\n')
    assert [(cell.slot, cell.devices) for cell in made] == [(1, ("p1", "p2", "p3")), (2, ("p1", "p2", "p3"))]
    assert made[0].group == made[1].group and made[0].id != made[1].id


def test_models_are_found_as_people_name_them(tmp_path: Path) -> None:
    (tmp_path / "copy [1].onnx").touch()
    text = '\ufeffname = "x"\r\n[[cells]]\r\njobs = ["place"]\r\nmodels = ["copy [1].onnx", "FOLDER/?.onnx"]\r\n'
    text = text.replace("FOLDER", str(tmp_path)) + 'devices = ["r"]\r\n'
    assert [Path(cell.model).name for cell in cells(tmp_path, text)] == ["copy [1].onnx", "a.onnx", "b.onnx"]


BLOCK = '[[cells]]\njobs = ["place"]\nmodels = ["a.onnx"]\ndevices = ["r"]\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('name = "x"\ncells = []\n', "at least one table"),
        ('name = "x"\n' + BLOCK.replace("place", "plaice"), "'place', 'profile', .* expected, 'plaice' found"),
        ('name = "x"\n' + BLOCK + "repeats = 0\n", "from 1 to 1000"),
        ('name = "x"\n' + BLOCK + "max_time_s = -1\n", "above 0"),
        ('name = "x"\n' + BLOCK.replace("place", "pareto") + "repeats = 2\n", "pareto cannot be repeated"),
        ('name = "x"\n' + BLOCK.replace("place", "tune") + "max_time_s = 2\n", "no max_time_s"),
        ('name = "x"\n' + BLOCK.replace('"r"', '"@none"'), "no device has the tag"),
        ('name = "x"\n' + BLOCK.replace('"r"', '"4 of @pi5"'), "but the tag has 3"),
        ('name = "x"\n' + BLOCK.replace("a.onnx", "z.onnx"), "there is no model"),
        ('name = "x"\n' + BLOCK.replace("a.onnx", "z*.onnx"), "no model in"),
        ('name = "x"\n' + BLOCK.replace("a.onnx", "**a/*.onnx"), "is not a valid path pattern|no model in"),
        (
            'name = "x"\n' + BLOCK.replace("a.onnx", "a" * 300 + "*"),
            "the path of the model 'a{50,60}.* is unusable: File name too",
        ),
        ('name = "x"\n' + BLOCK + "options = { day = 2026-01-01 }\n", r"\$\.cells\[0\]: options\.day is a date"),
        ("name =", "is not TOML"),
        ("[" * 5000, "is not TOML"),
        (".".join(["a"] * 20_000) + " = 1", "is not TOML: line 1 has more than 32 dots"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_suite(tmp_path / "suite.toml")
    with pytest.raises(UsageError, match=told) as raised:
        cells(tmp_path, text)
    assert raised.value.hint


PLAN = (
    'name = "x"\n[[cells]]\njobs = ["place", "profile"]\nmodels = ["*.onnx"]\n'
    'devices = ["r", "2 of @pi5"]\nrepeats = 2\n'
)


def ids(made: tuple[Cell, ...]) -> set[str]:
    return {cell.id for cell in made}


@pytest.mark.parametrize("setting", ["max_time_s = 60\n", "options = { threads = 4 }\n"])
def test_a_cell_with_another_option_or_limit_is_another_cell(tmp_path: Path, setting: str) -> None:
    assert not ids(cells(tmp_path, PLAN)) & ids(cells(tmp_path, PLAN + setting))


def test_what_else_is_edited_leaves_the_other_cells_as_they_are(tmp_path: Path) -> None:
    before = cells(tmp_path, PLAN)
    other = "[[cells]]\njobs = ['pareto']\nmodels = ['c.tflite']\ndevices = ['p1']\n"
    first = PLAN.replace("[[cells]]", other + "[[cells]]")
    for text, more in (
        (first, 1),
        (PLAN.replace('"2 of', '"three of any'), 8),
        (PLAN.replace('["r"', '["p3", "r"'), 8),
    ):
        after = cells(tmp_path, text)
        assert ids(before) < ids(after) and len(after) == len(before) + more
    (tmp_path / "d.onnx").touch()
    assert ids(before) < ids(cells(tmp_path, PLAN))


def test_what_two_blocks_ask_for_alike_is_one_cell_and_other_options_are_another(tmp_path: Path) -> None:
    block = PLAN.partition("\n")[2]
    assert cells(tmp_path, PLAN + block) == cells(tmp_path, PLAN)
    assert len(cells(tmp_path, PLAN + block + "options = { threads = 2 }\n")) == 2 * len(cells(tmp_path, PLAN))


def test_the_order_of_options_and_how_a_number_is_written_make_no_other_cell(tmp_path: Path) -> None:
    text = PLAN + "max_time_s = {}\noptions = {{ {} }}\n"
    assert ids(cells(tmp_path, text.format(60, "a = 1, b = 2"))) == ids(
        cells(tmp_path, text.format(60.0, "b = 2, a = 1"))
    )


def test_too_many_cells_are_counted_and_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**values: object) -> Cell:
        raise AssertionError("a cell is made")

    monkeypatch.setattr("gnomon.jobs.suite.plan.Cell", refused)
    text = (
        'name = "x"\n[[cells]]\njobs = ["place", "profile"]\nmodels = ["*.onnx"]\ndevices = [DEVICES]\nrepeats = 1000\n'
    )
    for devices in (
        '"2 of @pi5", ' + ", ".join(f'"d{n}"' for n in range(49)),
        ", ".join(f'"d{n}"' for n in range(101)),
    ):
        with pytest.raises(UsageError, match="more than 100000 cells"):
            cells(tmp_path, text.replace("DEVICES", devices))


def test_names_that_are_given_again_and_again_are_looked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def slots(selector: str, devices: object) -> list[tuple[str, int, tuple[str, ...]]]:
        asked.append(selector)
        return [(selector, 1, (selector,))]

    monkeypatch.setattr("gnomon.jobs.suite.plan._slots", slots)
    text = BLOCK.replace('"r"', ", ".join(['"r"'] * 500)).replace('"a.onnx"', ", ".join(['"a.onnx"'] * 500))
    assert len(cells(tmp_path, 'name = "x"\n' + text + "repeats = 1000\n")) == 1000 and asked == ["r"]
