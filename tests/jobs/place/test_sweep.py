"""Several sizes of a dimension, or several inputs: an answer each, each kept by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs onnx")
pytest.importorskip("onnxruntime", reason="needs onnxruntime")

from onnx import TensorProto
from tests.models.modelkit import model, node, save, value

import gnomon
from gnomon.api.options import parts_of
from gnomon.cli.main import run
from gnomon.errors import UsageError
from gnomon.jobs.place.document import SweepDocument

pytestmark = pytest.mark.usefixtures("short_visits", "few_runtimes")

I64 = TensorProto.INT64
LITTLE = ("-n", "1", "--runtime", "onnxruntime", "--processes", "1", "--budget", "1", "--quiet")


@pytest.fixture
def bert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table that token ids look up, times a mask: two inputs of the same two dimensions, which the file names."""
    monkeypatch.chdir(tmp_path)
    nodes = [
        node("Gather", ["table", "ids"], ["g"]),
        node("Cast", ["mask"], ["m"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["m", "last"], ["wide"]),
        node("Mul", ["g", "wide"], ["y"]),
    ]
    inputs = [value(name, ["batch_size", "sequence"], I64) for name in ("ids", "mask")]
    held = {"table": np.ones((50, 8), np.float32), "last": np.array([2])}
    return save(model(nodes, inputs, [value("y", ["batch_size", "sequence", 8])], held), tmp_path / "bert.onnx")


def printed(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert run([*words, *LITTLE]) == code
    return capsys.readouterr().out


def test_each_size_has_its_answer_and_its_package(bert: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("place", str(bert), "--dim", "sequence=4,16", "--out", "made")
    document = json.loads(printed(capsys, *words, "--json"))
    read = gnomon.read_document(document)
    assert [part.values for part in read.parts] == [{"sequence": "4"}, {"sequence": "16"}]
    answers = read.answers
    assert [answer.package for answer in answers] == ["made-sequence4", "made-sequence16"]
    assert all(Path(answer.package, "plan.json").is_file() for answer in answers)
    assert len({answer.campaign for answer in answers}) == 2
    assert [one.fed for one in answers[0].conditions.inputs] == ["whole numbers from 0 to 49, seed 0", "all 1"]
    again = printed(capsys, *words)
    lines = again.splitlines()
    assert lines[0] == "onnxruntime for all 2 cases."
    assert [line.split()[:2] for line in lines if line.startswith((" 4 ", " 16 "))] == [
        ["4", "onnxruntime"],
        ["16", "onnxruntime"],
    ]
    assert "batch_size' open; its size was assumed to be 1" in again
    shown = {row.campaign.id for row in gnomon.runs().campaigns}
    assert shown == {answer.campaign for answer in answers}, "what was found before was measured again"


def test_python_asks_the_same_and_files_give_shapes(bert: Path) -> None:
    for name, length in (("a", 3), ("b", 5)):
        np.save(f"{name}.npy", np.ones((2, length), np.int64))
    how: dict[str, Any] = {"runtimes": ["onnxruntime"], "processes": 1, "budget_s": 1.0, "threads": 1}
    found: Any = gnomon.profile(bert, inputs={"ids": ["a.npy", "b.npy"]}, **how)
    assert isinstance(found, SweepDocument)
    shapes = [dict(zip(one.graph.tensors.name, one.graph.tensors.shape, strict=True)) for one in found.answers]
    assert [(each["ids"], each["mask"]) for each in shapes] == [((2, 3),) * 2, ((2, 5),) * 2]
    assert [part.values for part in found.parts] == [{"ids": "a.npy"}, {"ids": "b.npy"}]
    conditions = found.answers[0].conditions
    assert conditions and (conditions.inputs[0].fed, len(conditions.inputs[0].sha256 or "")) == ("a.npy", 64)


def test_a_part_that_fails_is_an_error_among_answers(bert: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its exit code is the command's."""
    Path("in").mkdir()
    np.save("in/1.npy", np.ones((1, 4), np.int64))
    np.save("in/2.npy", np.full((1, 4), 99, np.int64))  # not in the table
    told = printed(capsys, "profile", str(bert), "--input", "ids=in", code=7)
    assert told.startswith("onnxruntime for ids=1.npy.")
    assert " 2.npy  no answer" in told


def test_what_does_not_fit_is_refused_before_anything_runs(bert: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("a.npy", np.ones((1, 4), np.int64))
    for words, told in (
        (("place", "--input", "ids=a.npy", "--dim", "sequence=4,8"), "'sequence' cannot be both 8 (--dim sequence=8)"),
        (("pareto", "--dim", "sequence=4,8"), "only place and profile on one device take several sizes"),
        (("place",), f"for example: gnomon place {bert} {' '.join(LITTLE)} --dim sequence=64"),
    ):
        assert run([words[0], str(bert), *words[1:], *LITTLE]) == 2
        assert told in capsys.readouterr().err
    assert gnomon.runs().campaigns == ()


def test_what_decides_how_much_work_there_is_stands_in_the_first_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    nodes = [node("NonZero", ["past state"], ["n"]), node("Cast", ["n"], ["y"], to=TensorProto.FLOAT)]
    path = str(save(model(nodes, [value("past state", [4, 8])], [value("y", [2, "k"])]), tmp_path / "m.onnx"))
    told = printed(capsys, "profile", path).splitlines()
    assert told[3:6] == [
        " - Warning: the input 'past state' (standard normal, seed 0) decides the output size of NonZero:",
        "   with real values, the times and the choice may differ.",
        "   -> Save real values with numpy.save, and give their files: --input 'past state=past_state.npy'",
    ]
    np.save("past_state.npy", np.zeros((4, 8), np.float32))
    assert "decides" not in printed(capsys, "profile", path, "--input", "past state=past_state.npy")


def test_combinations_and_files_that_belong_together(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.npy").touch()
    parts = parts_of({"dims": {"n": (1, 2), "m": 3}, "inputs": {"x": tmp_path, "y": ["c.npy", "d.npy"], "z": "e.npy"}})
    assert [values for values, _ in parts] == [
        {"n": n, "x": x, "y": y} for n in ("1", "2") for x, y in (("a.npy", "c.npy"), ("b.npy", "d.npy"))
    ]
    assert parts[-1][1]["inputs"] == {"x": tmp_path / "b.npy", "y": Path("d.npy"), "z": Path("e.npy")}
    with pytest.raises(UsageError, match="different numbers of files: x 2, y 3"):
        parts_of({"inputs": {"x": tmp_path, "y": ["c", "d", "e"]}})
    with pytest.raises(UsageError, match="the dimension 'n' cannot be"):
        parts_of({"dims": {"n": -1}})
