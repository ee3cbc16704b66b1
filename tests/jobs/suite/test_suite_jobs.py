"""Real cells of each job that is not measured again each time: pareto, table, tune; and that they go on."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.bad_days.livekit import matmul_onnx
from tests.jobs.table.table_kit import SPACE_FILE
from tests.tuning.tvmkit import needs_tvm

import gnomon
from gnomon.jobs.suite.document import CellPart

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnxruntime]'")

SUITE = """name = "jobs"
probe = false
[[cells]]
jobs = ["{job}"]
models = ["{model}"]
devices = ["local"]
options = {{ {options} }}
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_visits: None) -> None:
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnx").write_bytes(matmul_onnx())
    (tmp_path / "space.py").write_text(SPACE_FILE)


def cell_of(folder: Path, job: str, model: str, options: str) -> CellPart:
    """The only cell of such a suite, done."""
    path = folder / "suite.toml"
    path.write_text(SUITE.format(job=job, model=model, options=options))
    (cell,) = gnomon.run_suite(path).cells
    assert cell.error is None, cell.error
    return cell


def test_pareto_finds_a_front_and_keeps_it(tmp_path: Path) -> None:
    options = 'runtimes = ["onnxruntime"], processes = 1, budget_s = 1.0, search = "brute"'
    cell = cell_of(tmp_path, "pareto", "m.onnx", options)
    assert "on the front of latency" in str(cell.answer)
    document = gnomon.answer_of_run(str(cell.campaign))
    assert document is not None and document["format"] == "gnomon-pareto"


def test_table_measures_a_space_once(tmp_path: Path) -> None:
    options = 'runtimes = ["onnxruntime"], budget_s = 1.0, processes = 1'
    first = cell_of(tmp_path, "table", "space.py:space", options)
    assert first.model == f"{tmp_path}/space.py:space" and "Units measured" in str(first.answer)
    assert gnomon.check_table(tmp_path / "jobs.suite" / "local" / "tiny.table").space == "tiny"
    again = cell_of(tmp_path, "table", "space.py:space", options)
    assert str(again.answer).startswith("Units measured this time: 0.")
    with (tmp_path / "space.py").open("a") as file:
        file.write("other = BlockSpace(name='an/other', inputs=((1, 4, 16, 16),), parts=(conv(1),))\n")
    cell_of(tmp_path, "table", "space.py:other", options)
    assert gnomon.check_table(tmp_path / "jobs.suite" / "local" / "an_other.table").space == "an/other"


@needs_tvm
def test_tune_compiles_a_network(tmp_path: Path) -> None:
    cell = cell_of(tmp_path, "tune", "m.onnx", "trials = 2, processes = 1, repeat = 1, compare = false")
    assert " tuned" in str(cell.answer)
    assert Path(str(cell.answer).partition(": ")[2]).is_relative_to(tmp_path / "jobs.suite" / "local")
