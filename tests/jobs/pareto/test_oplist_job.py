"""The oplist of real models: what is written is read back, means what the model is, and is the same every time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gnomon.core.graph import By
from gnomon.core.strict_json import Strict
from gnomon.errors import ModelError, UsageError
from gnomon.formats.onert.operators import ir_opcode
from gnomon.formats.pareto.config import read_config
from gnomon.formats.pareto.oplist import read_oplist
from gnomon.jobs.pareto.oplist import oplist
from gnomon.models.load import load

Zoo = Callable[[str], Path]
FILE = Strict(what="config", hint="", most_letters=1 << 20)


@pytest.mark.parametrize("name", ["mix.circle", "efficientnet-lite0.tflite"])
@pytest.mark.parametrize("by", ["type", "group", "operator"])
def test_what_is_written_is_what_the_model_is(zoo_model: Zoo, tmp_path: Path, name: str, by: By) -> None:
    model = zoo_model(name)
    out = tmp_path / "oplist.json"
    found = oplist(model, by, out=out)
    assert found.file == str(out)
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".part"] == []
    written = read_oplist(out.read_bytes())
    assert json.loads(out.read_bytes()) == found.oplist
    operators = load(model).graph.operators
    opcodes = [ir_opcode(op.type) for op in operators]
    assert list(written.oplist) == list(dict.fromkeys(opcodes))
    if by == "type":
        assert written.opmap is None
        assert len(written.slots) == len(found.slots)
    else:
        assert written.opmap is not None
        assert dict(enumerate(written.opmap)) == {index: s.digit for s in found.slots for index in s.operators}
        assert list(written.opname_by_indx or ()) == opcodes
    if by == "operator":
        assert written.opmap == tuple(range(len(operators)))


@pytest.mark.parametrize("by", ["type", "group"])
def test_the_example_means_what_it_says(zoo_model: Zoo, by: By) -> None:
    found = oplist(zoo_model("mix.circle"), by, backends=("cpu", "acl_cl", "acl_neon"))
    example = found.example
    assert found.codes == str(3 ** len(found.slots))
    assert (example.code, example.backend, example.others) == ("9", "acl_cl", "cpu")
    assert found.oplist is not None and example.config is not None
    form = read_oplist(json.dumps(found.oplist).encode())
    loaded, chosen = read_config(example.config, form.slots, form.opmap, "$", FILE)
    assert chosen == tuple("acl_cl" if digit == 2 else "cpu" for digit in range(len(found.slots)))
    assert loaded == ("acl_cl", "acl_neon", "cpu")
    assert found.slots[2].name == example.slot


def test_the_order_does_not_hang_on_the_hash_seed(zoo_model: Zoo) -> None:
    script = (
        "import sys; from gnomon.jobs.pareto.oplist import oplist; "
        "print([oplist(sys.argv[1], by).to_json() for by in ('type', 'group')])"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", script, str(zoo_model("mix.circle"))],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


def test_a_model_that_onert_does_not_load_has_slots_and_no_oplist(zoo_model: Zoo, tmp_path: Path) -> None:
    model = zoo_model("efficientnet-lite0.onnx")
    found = oplist(model)
    assert found.oplist is None
    assert found.example.config is None
    assert found.slots[0].name == "Conv"
    assert set(found.opcodes.values()) == {None}
    with pytest.raises(ModelError, match="onert does not load onnx models"):
        oplist(model, out=tmp_path / "oplist.json")
    assert not (tmp_path / "oplist.json").exists()


@pytest.mark.parametrize(
    "backends", [(), ("cpu", "cpu"), ("cpu", ""), ("c;pu",), ("c pu",), tuple("abcdefghijk"), ("ü",)]
)
def test_backends_that_cannot_be_meant(zoo_model: Zoo, backends: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="is not a list of backends"):
        oplist(zoo_model("mix.circle"), backends=backends)


def test_what_cannot_be_read_or_written(zoo_model: Zoo, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        oplist(zoo_model("mix.circle"), out=tmp_path / "no" / "oplist.json")
    (tmp_path / "m.tflite").write_bytes(b"\0\0\0\0TFL3")
    with pytest.raises(ModelError):
        oplist(tmp_path / "m.tflite")
