"""What a search takes along: the model with its files, the settings, gnomon and what it requires."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, external_data_helper, helper, numpy_helper
from tests.bad_days.livekit import add_circle

import gnomon
from gnomon.devices.address import parse_address
from gnomon.devices.config import DeviceConfig
from gnomon.devices.opening import resolve
from gnomon.devices.pushed import Digests
from gnomon.errors import UsageError
from gnomon.jobs.pareto.records import ParetoRequest
from gnomon.jobs.pareto.search import Plan
from gnomon.jobs.unattended.job import Load, lay_gnomon, load_of, requirements_of
from gnomon.models.load import load
from gnomon.runtimes.registry import all_runtimes
from gnomon.session.replay import settings_of
from gnomon.session.request import Request

BOARD = DeviceConfig(
    name="board",
    address=parse_address("ssh://board"),
    python="/opt/python3",
    folder="/data",
    environment={"LD_LIBRARY_PATH": 'a "b" \\c', "PYTHONPATH": "/own"},
    pin=(0, 1),
    governor="performance",
    threads=2,
    runtimes=("onert",),
    ssh_options=("IdentityFile=/k",),
)


def asked_of(path: Path, **changes: Any) -> ParetoRequest:
    return replace(ParetoRequest(request=Request(model=path, device=BOARD)), **changes)


def loaded(asked: ParetoRequest, folder: Path) -> Load:
    assert asked.request is not None
    folder.mkdir()
    return load_of(asked, load(asked.request.model), folder)


def carried(found: Load) -> dict[str, bytes]:
    """What would be pushed, by path."""
    parts = Digests().manifest(found.carried).parts
    return {part.path: part.source.read_bytes() for part in parts if part.kind != "d"}


@pytest.fixture
def circle(tmp_path: Path) -> Path:
    path = tmp_path / "it's m.circle"
    path.write_bytes(add_circle())
    return path


def test_a_model_with_external_data_and_a_fed_input(tmp_path: Path) -> None:
    weights = numpy_helper.from_array(np.ones((8, 8), np.float32), "w")
    shapes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", shapes[:1], shapes[1:], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    external_data_helper.convert_model_to_external_data(model, location="w.bin", size_threshold=0)
    onnx.save_model(model, tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.zeros((1, 8), np.float32))
    asked = asked_of(tmp_path / "m.onnx")
    assert asked.request is not None
    asked = replace(asked, request=replace(asked.request, feeds={"x": tmp_path / "x.npy"}))
    found = loaded(asked, tmp_path / "one")
    assert carried(found) == {
        "model/m.onnx": (tmp_path / "m.onnx").read_bytes(),
        "model/w.bin": np.ones((8, 8), np.float32).tobytes(),
        "feeds/0.npy": (tmp_path / "x.npy").read_bytes(),
    }
    assert "x=carried/feeds/0.npy" in found.command
    assert found.command[-1] == "carried/model/m.onnx"
    np.save(tmp_path / "x.npy", np.ones((1, 8), np.float32))
    other = loaded(asked, tmp_path / "two")
    assert other.digest != found.digest
    assert other.subject == found.subject


def test_a_package_is_carried_whole(tmp_path: Path, circle: Path) -> None:
    package = tmp_path / "p.nnpackage"
    (package / "metadata").mkdir(parents=True)
    (package / "metadata" / "MANIFEST").write_text(
        '{"major-version": "1", "minor-version": "0", "patch-version": "0", "models": ["m.circle"], '
        '"model-types": ["circle"]}'
    )
    (package / "m.circle").write_bytes(circle.read_bytes())
    found = loaded(asked_of(package), tmp_path / "one")
    assert set(carried(found)) == {"model/p.nnpackage/m.circle", "model/p.nnpackage/metadata/MANIFEST"}


def test_the_settings_are_the_same_there(tmp_path: Path, circle: Path) -> None:
    path = tmp_path / "devices.toml"
    path.write_text(loaded(asked_of(circle), tmp_path / "one").devices)
    there = resolve("local", path)
    assert settings_of(there) == settings_of(BOARD)
    assert (there.pin, there.governor, there.environment) == (BOARD.pin, BOARD.governor, BOARD.environment)
    assert (there.python, there.runtimes, there.fetch) == (None, (), False)


def test_what_makes_searches_the_same(tmp_path: Path, circle: Path) -> None:
    asked = asked_of(circle)
    first = loaded(asked, tmp_path / "0")
    more = replace(asked, plan=Plan(iterations=7))
    others = [more, replace(asked, pick=1), replace(asked, dumpfile=Path("d.json"))]
    assert asked.request is not None
    moved = replace(asked, request=replace(asked.request, device=replace(BOARD, folder="/other", fetch=True)))
    set_otherwise = replace(asked, request=replace(asked.request, device=replace(BOARD, pin=(0,))))
    found = [loaded(other, tmp_path / f"{k + 1}") for k, other in enumerate([*others, moved, set_otherwise])]
    assert [other.digest == first.digest for other in found] == [False, False, False, True, False]
    assert [other.subject == first.subject for other in found] == [True, True, True, True, False]


@pytest.mark.parametrize("name", [".hidden", "x.part"])
def test_names_of_half_written_files(tmp_path: Path, circle: Path, name: str) -> None:
    with pytest.raises(UsageError, match="half written"):
        loaded(asked_of(circle, dumpfile=Path(name)), tmp_path / "one")


def test_what_gnomon_requires_for_a_search(circle: Path) -> None:
    onert = [runtime for runtime in all_runtimes()[0] if runtime.name == "onert"]
    plain = {text.partition(">")[0] for text in requirements_of(asked_of(circle), onert)}
    assert {"click", "highspy", "numpy", "packaging", "rich", "tomlkit"} <= plain
    assert not plain & {"onert", "onnx", "pymoo", "pytest", "vl-convert-python"}
    evolutionary = asked_of(circle, others=(Plan(name="nsga2"),))
    assert {text.partition(">")[0] for text in requirements_of(evolutionary, onert)} == plain | {"pymoo"}


def test_the_gnomon_that_is_laid_is_this_one(tmp_path: Path) -> None:
    folder = lay_gnomon(tmp_path)
    home = Path(gnomon.__file__).parent
    sources = {path.relative_to(home) for path in home.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert {p.relative_to(folder / "gnomon") for p in (folder / "gnomon").rglob("*") if p.is_file()} == sources
    line = (
        "import sys; sys.path.insert(0, sys.argv[1]); import gnomon; from importlib.metadata import entry_points; "
        "print(gnomon.__file__, sorted(e.name for e in entry_points(group='gnomon.runtimes')))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", line, str(folder)], capture_output=True, text=True)
    assert done.stdout.startswith(f"{folder}/gnomon/__init__.py ["), done.stderr
    assert "'onert'" in done.stdout
