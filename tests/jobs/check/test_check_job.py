"""`gnomon check` from Python and from the command line, which print and return the same."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs onnx")

from click.testing import CliRunner
from tests.models.ggufkit import LLAMA, gguf
from tests.models.modelkit import model, node, save, value

import gnomon
from gnomon.cli.main import cli
from gnomon.errors import ModelError


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


def test_a_language_model_is_described_from_its_header(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(gguf())
    text = CliRunner().invoke(cli, ["check", str(path)]).stdout
    assert text.startswith("No findings in tiny.gguf.\nllama: 2 layers of width 64, 768 parameters.\n")
    assert "Context: up to 128 tokens; each takes 0.250 KiB in f16, at most 0.0312 MiB in all." in text
    assert "--command llama-bench" in text
    printed = json.loads(CliRunner().invoke(cli, ["check", str(path), "--json"]).stdout)
    assert printed == gnomon.check(path).document()
    with pytest.raises(ModelError, match="is a GGUF file, of which gnomon reads only the header"):
        gnomon.place(path)


def test_a_head_that_quantised_types_cannot_hold_is_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "odd.gguf"
    path.write_bytes(gguf({**LLAMA, "llama.attention.key_length": 48, "split.count": 2}))
    assert [finding.kind for finding in gnomon.check(path).findings] == ["parts", "cache-types"]
