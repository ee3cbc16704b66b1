"""Which cells of two runs of a suite are compared with each other."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from tests.jobs.compare.test_compare import document

from gnomon.jobs.suite.document import ComparedCell, ErrorPart, cell_part
from gnomon.jobs.suite.job import Outcome, SuiteRequest, compare_suites, run_suite
from gnomon.jobs.suite.plan import Cell
from gnomon.jobs.suite.report import suite_compare_report
from gnomon.report.page import Page

BLOCK = '[[cells]]\njobs = ["profile"]\nmodels = [{}]\ndevices = ["local"]\n'
A, B, C = (BLOCK.format(f'"{name}/net.onnx"') for name in "abc")
FASTER = "options = { level = 1000.0 }\n"


def measured(folder: Path, text: str, *, failed: str = "") -> None:
    """A run of that suite in that folder: what a cell takes is what its options or its model's folder say.

    The cell of the model in the folder `failed` fails.
    """
    for name in "abc":
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "net.onnx").touch()
    (folder / "suite.toml").write_text('name = "x"\n' + text)
    rng = np.random.default_rng(7)

    def answer(cell: Cell, device: str, *, suite: str, **_: object) -> Outcome:
        if Path(cell.model).parent.name == failed:
            error = ErrorPart(kind="measurement", message="it crashed", hint="")
            return cell_part(cell, "failed", device=device, error=error, seconds=0.1, host="here"), None, False
        levels_us = {"a": 2000.0, "b": 5000.0, "c": 9000.0}
        level_us = cell.options.get("level", levels_us[Path(cell.model).parent.name])
        path = folder / f"{suite}-{cell.id}.json"
        path.write_text(json.dumps(document(rng, level_us=level_us, processes=3, campaign=suite)))
        part = cell_part(cell, "done", device=device, answer="fine", seconds=0.1, host="here", campaign=str(path))
        return part, None, False

    record = folder.parent / "record.sqlite"
    assert run_suite(SuiteRequest(path=folder / "suite.toml", record=record, out=folder), answer).whole is not bool(
        failed
    )


def compared(tmp_path: Path, before: str, after: str, *, folder: str = "one") -> dict[str, ComparedCell]:
    """The comparisons of two runs by their labels; the second is in another folder where one is named."""
    measured(tmp_path / "one", before)
    measured(tmp_path / folder, after)
    found = compare_suites(record=tmp_path / "record.sqlite").cells
    by_label = {cell.label: cell for cell in found}
    assert len(by_label) == len(found)
    return by_label


def ratio(cell: ComparedCell) -> float:
    """How much longer the second run took."""
    assert cell.comparison is not None
    return cell.comparison.pairs[0].configurations[0].ratio


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path))


@pytest.mark.parametrize("folder", ["one", "another"])
def test_models_of_one_name_in_other_folders_are_other_models(tmp_path: Path, folder: str) -> None:
    found = compared(tmp_path, A + B, B + A, folder=folder)
    assert set(found) == {
        "profile a/net.onnx on local, device 1, repeat 1",
        "profile b/net.onnx on local, device 1, repeat 1",
    }
    assert [ratio(cell) for cell in found.values()] == pytest.approx([1.0, 1.0], rel=0.1)


@pytest.mark.parametrize("folder", ["one", "another"])
def test_blocks_that_differ_in_their_options_are_compared_each_with_itself(tmp_path: Path, folder: str) -> None:
    found = compared(tmp_path, A + A + FASTER, A + FASTER + A, folder=folder)
    label = "profile a/net.onnx on local, device 1, repeat 1"
    assert set(found) == {f'{label}, {{"max_time_s": null, "level": 1000.0}}', f'{label}, {{"max_time_s": null}}'}
    assert [ratio(cell) for cell in found.values()] == pytest.approx([1.0, 1.0], rel=0.1)


def test_a_cell_whose_options_changed_is_compared_with_what_it_was(tmp_path: Path) -> None:
    found = compared(tmp_path, A + B, A + FASTER + B)
    assert ratio(found["profile a/net.onnx on local, device 1, repeat 1"]) == pytest.approx(0.5, rel=0.1)
    assert ratio(found["profile b/net.onnx on local, device 1, repeat 1"]) == pytest.approx(1.0, rel=0.1)


def test_a_model_that_was_elsewhere_is_told(tmp_path: Path) -> None:
    found = compared(tmp_path, A + B, B + C)
    assert ratio(found["profile c/net.onnx on local, device 1, repeat 1; before: a/net.onnx"]) == pytest.approx(
        4.5, rel=0.1
    )
    assert ratio(found["profile b/net.onnx on local, device 1, repeat 1"]) == pytest.approx(1.0, rel=0.1)


def test_cells_of_which_it_is_not_known_are_told_and_not_compared(tmp_path: Path) -> None:
    found = compared(tmp_path, A + A + FASTER + B, A + "options = { level = 3000.0 }\n" + B)
    assert ratio(found["profile b/net.onnx on local, device 1, repeat 1"]) == pytest.approx(1.0, rel=0.1)
    unsure = found["profile a/net.onnx on local, device 1, repeat 1"]
    assert unsure.comparison is None and "too similar to tell apart" in str(unsure.why)


def test_what_was_done_before_and_is_not_after_is_missing_and_what_was_taken_out_is_told(tmp_path: Path) -> None:
    measured(tmp_path / "one", A + B + C)
    measured(tmp_path / "one", A + B, failed="a")
    found = compare_suites(record=tmp_path / "record.sqlite")
    cells = {cell.label[:9]: cell for cell in found.cells}
    assert [label for label, cell in cells.items() if cell.lost] == ["profile a"]
    assert cells["profile b"].comparison is not None
    assert cells["profile c"].comparison is None and "only last~1 has this cell" in str(cells["profile c"].why)
    assert found.missing() and found.verdicts() and "are missing" in found.headline()[1]
    file = io.StringIO()
    suite_compare_report(found, Page(file))
    assert "Done before, but not after: profile a/net.onnx on local, device 1, repeat 1." in " ".join(
        file.getvalue().split()
    )
    measured(tmp_path / "one", A + B, failed="a")
    assert not compare_suites(record=tmp_path / "record.sqlite").missing()  # it was not done before either


@pytest.mark.parametrize(("limit", "told", "shown"), [(0.03, "2 undecided", True), (0.9, "2 pass", False)])
def test_a_gate_tells_of_its_verdicts_and_shows_what_is_undecided(
    limit: float, told: str, shown: bool, tmp_path: Path
) -> None:
    for _ in range(2):
        measured(tmp_path / "one", B)
    found = compare_suites(record=tmp_path / "record.sqlite", fail_slower=limit)
    file = io.StringIO()
    suite_compare_report(found, Page(file))
    assert told in found.headline()[1] and ("[99 % for all together]" in file.getvalue()) is shown
    assert found.exit_code == (10 if shown else 0)
