"""`gnomon check` from Python and from the command line, which print and return the same."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs onnx")

from click.testing import CliRunner
from tests.models.modelkit import model, node, save, value

import gnomon
from gnomon.cli.main import cli


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    weights = np.full((64, 64), 1e-40, np.float32)
    made = model([node("MatMul", ["x", "w"], ["y"])], [value("x", ["n", 64])], [value("y", ["n", 64])], {"w": weights})
    return save(made, tmp_path / "my net.onnx")


def test_the_command_prints_what_the_function_returns(slow: Path) -> None:
    document = gnomon.check(slow)
    assert [finding.kind for finding in document.findings] == ["subnormal"]
    assert document.runtimes and "onnxruntime" in document.runtimes
    printed = json.loads(CliRunner().invoke(cli, ["check", str(slow), "--json"]).stdout)
    assert printed == document.document()


def test_each_finding_has_its_next_step(slow: Path) -> None:
    text = CliRunner().invoke(cli, ["check", str(slow)]).stdout
    assert text.startswith("1 finding in my net.onnx.")
    assert "--option onnxruntime:session.set_denormal_as_zero=1" in " ".join(text.split())
    assert f"gnomon place '{slow}'" in text
    assert len(text.splitlines()) <= 10
