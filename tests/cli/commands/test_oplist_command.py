"""`gnomon oplist`: its page, its JSON, its file, its errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gnomon.cli.main import cli
from gnomon.errors import GnomonError, ModelError
from gnomon.formats.pareto.oplist import read_oplist

Zoo = Callable[[str], Path]


def call(*args: str | Path) -> Result:
    return CliRunner().invoke(cli, ["oplist", *map(str, args)])


def test_the_page_tells_slots_codes_and_an_example(zoo_model: Zoo) -> None:
    done = call(zoo_model("mix.circle"))
    assert done.exit_code == 0, done.output
    assert "4 operator types, 2 backends: 16 codes." in done.stdout
    assert "0 cpu, 1 acl_cl" in done.stdout
    assert "Code 4 puts Reshape on acl_cl and all others on cpu." in done.stdout
    assert "MAX_POOL_2D" in done.stdout
    assert all(len(line) <= 100 for line in done.stdout.splitlines() if "settings" not in line)


def test_many_codes_are_told_as_a_power(zoo_model: Zoo) -> None:
    done = call(zoo_model("efficientnet-lite0.tflite"), "--by", "operator", "--backends", "cpu,ruy,xnnpack")
    assert "62 operators, 3 backends: 3^62 codes." in done.stdout
    assert "and 2 more: --json has all" in done.stdout


def test_the_json_is_one_document_and_the_file_is_an_oplist(zoo_model: Zoo, tmp_path: Path) -> None:
    out = tmp_path / "oplist.json"
    done = call(zoo_model("mix.circle"), "--by", "group", "--out", out, "--json")
    document = json.loads(done.stdout)
    assert document["file"] == str(out)
    assert document["by"] == "group"
    assert document["codes"] == str(2 ** len(document["slots"]))
    written = read_oplist(out.read_bytes())
    assert document["oplist"] == json.loads(out.read_text())
    assert max(written.opmap or ()) == len(document["slots"]) - 1
    assert str(out) in call(zoo_model("mix.circle"), "--by", "group", "--out", out).stdout


def test_an_onnx_model_has_no_oplist(zoo_model: Zoo, tmp_path: Path) -> None:
    done = call(zoo_model("efficientnet-lite0.onnx"))
    assert done.exit_code == 0
    assert "onert does not load onnx models." in done.stdout
    done = call(zoo_model("efficientnet-lite0.onnx"), "--out", tmp_path / "o.json")
    assert isinstance(done.exception, ModelError)


@pytest.mark.parametrize("args", [("absent.tflite",), (".",)])
def test_a_model_that_is_not_there(args: tuple[str, ...]) -> None:
    done = call(*args)
    assert isinstance(done.exception, GnomonError)
    assert done.exception.hint


def test_an_unknown_grouping_is_a_wrong_option(zoo_model: Zoo) -> None:
    assert call(zoo_model("mix.circle"), "--by", "layer").exit_code == 2
