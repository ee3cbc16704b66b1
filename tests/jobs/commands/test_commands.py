"""`gnomon commands`, and commands as configurations of place, profile, pareto and compare, on a real model."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs onnxruntime")

from click.testing import CliRunner
from tests.models.modelkit import model, node, save, value

import gnomon
from gnomon.cli.main import cli
from gnomon.errors import ModelError, UsageError

TIMED = "took (?P<ms>[0-9.]+) ms"
PRINTS = "import sys\nfor _ in range(int(sys.argv[2])): print('took', sys.argv[3], 'ms')\n"
COMPUTES = """
import sys, numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
(y,) = session.run(None, dict(numpy.load(sys.argv[3])))
numpy.savez("out.npz", y=y + float(sys.argv[4]))
for _ in range(int(sys.argv[2])): print("took 0.5 ms")
"""


@pytest.fixture
def net(tmp_path: Path) -> Path:
    weights = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
    made = model([node("MatMul", ["x", "w"], ["y"])], [value("x", [1, 16])], [value("y", [1, 16])], {"w": weights})
    return save(made, tmp_path / "net.onnx")


def prints(folder: Path, name: str, ms: str) -> str:
    """A command line whose program says that each call took so long."""
    script = folder / f"{name}.py"
    script.write_text(PRINTS)
    return shlex.join([sys.executable, str(script), "{model}", "{runs}", ms])


def computes(folder: Path, off: float) -> Path:
    """A file that declares a command which runs the model, and is `off` in its outputs."""
    (folder / "computes.py").write_text(COMPUTES)
    words = [sys.executable, str(folder / "computes.py"), "{model}", "{runs}", "{inputs_npz}", str(off)]
    config = folder / "commands.toml"
    config.write_text(f"[commands.mine]\nrun = {json.dumps(words)}\nread = '{TIMED}'\noutputs = 'out.npz'\n")
    return config


def short(record: Path) -> dict[str, object]:
    return {"runtimes": ["onnxruntime"], "processes": 1, "budget_s": 1.0, "threads": 1, "record": record}


def test_what_nobody_checked_is_measured_and_not_chosen(net: Path, tmp_path: Path) -> None:
    line = prints(tmp_path, "quick", "0.000001")
    placed = gnomon.place(net, out=tmp_path / "p", commands=[line], read=[TIMED], **short(tmp_path / "r"))  # type: ignore[arg-type]
    rows = {row.label: row for row in placed.contenders}
    assert placed.decision.chosen.startswith("onnxruntime")
    wall = rows["quick"].summary("wall")
    assert wall is not None and wall.median_s == pytest.approx(1e-9, rel=0.5)
    assert any(doubt.kind == "unchecked-command" and "quick" in doubt.message for doubt in placed.doubts)


@pytest.mark.parametrize("off", [0.0, 3.0])
def test_outputs_are_checked_where_they_are_declared(net: Path, tmp_path: Path, off: float) -> None:
    config = computes(tmp_path, off)
    profiled = gnomon.profile(net, commands=["mine"], commands_file=config, **short(tmp_path / "r"))  # type: ignore[arg-type]
    assert ("mine" in {row.label for row in profiled.columns}) is (off == 0.0)
    assert not any(doubt.kind == "unchecked-command" for doubt in profiled.doubts)
    if off:
        (doubt,) = [doubt for doubt in profiled.doubts if doubt.kind == "command-failed"]
        assert "outputs differ from the reference" in doubt.message


def test_a_file_that_is_not_read_is_left_to_commands(tmp_path: Path) -> None:
    net = tmp_path / "net.hef"
    net.write_bytes(b"nobody reads this")
    command = prints(tmp_path, "quick", "2.5")
    record = tmp_path / "r"
    document = gnomon.profile(net, commands=[command], read=[TIMED], processes=1, budget_s=1.0, record=record)
    (row,) = document.columns
    assert row.label == "quick" and row.wall.median_s == pytest.approx(2.5e-3)
    assert document.conditions is not None
    assert (document.conditions.precisions, document.conditions.threads) == ((), ())


def test_what_a_command_cannot_be_asked_is_refused(tmp_path: Path) -> None:
    """Its calls are its own: gnomon can neither begin each at a moment, nor read counters around it."""
    net = tmp_path / "net.hef"
    net.write_bytes(b"nobody reads this")
    own: Any = {"commands": [prints(tmp_path, "quick", "2.5")], "read": [TIMED], "record": tmp_path / "r"}
    with pytest.raises(UsageError, match="--for and --every cannot be combined with --command"):
        gnomon.profile(net, for_s=1.0, **own)
    with pytest.raises(UsageError, match="the energy of a command cannot be measured"):
        gnomon.pareto(net, objectives=["latency", "energy"], **own)
    with pytest.raises(ModelError) as unread:
        gnomon.profile(net, record=tmp_path / "r")
    assert "--command" in unread.value.hint


def test_a_front_has_commands_by_wall_time(net: Path, tmp_path: Path) -> None:
    line = prints(tmp_path, "quick", "0.000001")
    found = gnomon.pareto(net, commands=[line], read=[TIMED], **short(tmp_path / "r"))  # type: ignore[arg-type]
    assert "quick" in json.dumps(found.document())


def test_two_commands_are_compared_by_turns(tmp_path: Path) -> None:
    lines = [prints(tmp_path, "old", "2.0"), prints(tmp_path, "new", "2.5")]
    compared = gnomon.compare(commands=lines, read=[TIMED], processes=4, record=tmp_path / "r")
    (row,) = compared.pairs[0].configurations
    assert row.verdict == "slower" and row.ratio == pytest.approx(1.25)
    assert row.sessions is not None and row.sessions.known_by == "turns"
    assert [shlex.split(side.name)[-1] for side in compared.sides] == ["2.0", "2.5"]
    with pytest.raises(UsageError, match="two commands"):
        gnomon.compare(commands=lines[:1], read=[TIMED], record=tmp_path / "r")


def test_all_are_listed_with_what_they_rest_on(tmp_path: Path) -> None:
    config = computes(tmp_path, 0.0)
    rows = {row.name: row for row in gnomon.list_commands(commands_file=config).commands}
    assert rows["mine"].found and rows["mine"].checked and rows["mine"].origin == str(config)
    assert rows["benchmark_app"].ran and rows["benchmark_app"].hint
    text = CliRunner().invoke(cli, ["commands"]).stdout
    assert "tried with the program" in text
