"""A notebook that is run by a real kernel shows results as text, HTML and a chart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.shortkit import SHORTLY

from gnomon.report.answer import SVG

MODEL = Path(__file__).resolve().parents[2] / "docs" / "examples" / "digits.onnx"


def test_a_notebook_shows_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: pip install '.[dev]'")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install '.[dev]'")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install '.[dev]'")
    pytest.importorskip("pandas", reason="pandas is not installed: pip install '.[dev]'")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnxruntime]'")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    how = f"runtimes=['onnxruntime'], processes=1, budget_s=1.0, threads=1, record={str(tmp_path / 'r.sqlite')!r}"
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell(f"{SHORTLY}import gnomon\nfound = gnomon.profile({str(MODEL)!r}, {how})\nfound"),
            nbformat.v4.new_code_cell("found.frame('runs').groupby('label')['wall_us'].count()"),
        ]
    )
    nbclient.NotebookClient(notebook, timeout=None, kernel_name="python3", resources={}).execute(cwd=str(tmp_path))
    (shown,) = outputs(notebook, 0)
    assert shown["text/plain"].startswith("ProfileDocument of digits.onnx on local\nonnxruntime is the fastest of 1: ")
    assert "<th>configuration</th>" in shown["text/html"] and "onnxruntime" in shown["text/html"]
    assert "onnxruntime</text>" in shown[SVG]
    (count,) = outputs(notebook, 1)
    assert "onnxruntime" in count["text/plain"]


def outputs(notebook: Any, cell: int) -> list[dict[str, Any]]:
    """What a cell came to, by type; not what it printed."""
    return [one["data"] for one in notebook["cells"][cell]["outputs"] if one["output_type"] == "execute_result"]
