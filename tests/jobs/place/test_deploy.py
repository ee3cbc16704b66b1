"""Packages that are deployed: to this machine, and to a board that has a bare Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.bad_days.boardkit import running_board
from tests.bad_days.livekit import matmul_onnx
from tests.shortkit import SHORT_VISITS

from gnomon.api.place import deploy, place
from gnomon.cli.main import run
from gnomon.errors import DeviceError, MeasurementError, PackageError, UsageError
from gnomon.jobs.place import deploy as job
from gnomon.jobs.place.report import place_report
from gnomon.measure.effort import Effort
from gnomon.report.page import Page

HOW: dict[str, Any] = {"runtimes": ["onnxruntime"], "threads": 1, "processes": 1, "quick": True, "picture": False}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The package of a small model in ONNX Runtime."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install onnxruntime")
    folder = tmp_path_factory.mktemp("deploy")
    (folder / "m.onnx").write_bytes(matmul_onnx())
    with pytest.MonkeyPatch.context() as patched:
        for name, seconds in SHORT_VISITS.items():
            patched.setitem(Effort.__init__.__kwdefaults__ or {}, name, seconds)
        place(folder / "m.onnx", out=folder / "it's 5 %", record=folder / "r.sqlite", **HOW)
    yield folder / "it's 5 %"


def test_it_stays_with_what_starts_it_and_is_replaced_only_where_that_is_asked_for(
    package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "on" / "it's there"
    assert run(["deploy", str(package), "local", "--to", str(there), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["folder"], found["unlike"]) == (str(there), "") and found["median_s"] > 0 and found["calls"] > 0
    there = there.rename(tmp_path / "moved")
    done = subprocess.run(
        ["sh", str(there / "run.sh"), "--seconds", "0", "--output", "out.npz"], cwd=tmp_path, capture_output=True
    )
    assert json.loads(done.stdout)["samples"] == 1 and np.load(tmp_path / "out.npz").files, done.stderr
    (there / "of the user's").touch()
    with pytest.raises(DeviceError, match="exists already"):
        deploy(package, "local", to=str(there))
    assert (there / "of the user's").exists()
    deploy(package, "local", to=str(there), overwrite=True)
    assert not (there / "of the user's").exists() and [p.name for p in tmp_path.iterdir() if ".new-" in p.name] == []
    (tmp_path / "mine").mkdir()
    with pytest.raises(DeviceError, match="exists already"):
        deploy(package, "local", to=str(tmp_path / "mine"), overwrite=True)


def test_the_unit_starts_it_whatever_the_folder_is_called(package: Path, tmp_path: Path) -> None:
    there = tmp_path / 'a "b" $HOME 5%n'
    unit = Path(deploy(package, "local", to=str(there)).unit)
    (line,) = [line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
    written = str(there).replace('"', '\\"').replace("$", "$$").replace("%", "%%")
    assert line == f'ExecStart=/bin/sh "{written}/run.sh" --output "{written}/out.npz"'


def test_what_does_not_run_leaves_nothing(package: Path, tmp_path: Path) -> None:
    damaged = shutil.copytree(package, tmp_path / "damaged")
    (damaged / "m.onnx").write_bytes(b"other")
    with pytest.raises(MeasurementError, match=r"damaged was not deployed to local: .*m\.onnx.* is not the file"):
        deploy(damaged, "local", to=str(tmp_path / "there"))
    (damaged / "plan.json").write_text("{}")
    with pytest.raises(PackageError, match="is not a package"):
        deploy(damaged, "local", to=str(tmp_path / "there"))
    assert list(tmp_path.iterdir()) == [damaged]


@pytest.mark.devices
def test_a_board_is_brought_what_it_lacks(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path / "home"))
    with running_board(tmp_path / "board") as board:
        config = board.config(environment={"A": "b c"})
        found = job.deploy(package, config)
        assert Path(found.folder) == board.server.home / "deployed" / package.name
        assert (Path(found.folder) / "site" / "onnxruntime").is_dir()
        words = ["sh", "-c", f"{found.run} --seconds 0"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, env={"PATH": os.environ["PATH"]})
        assert json.loads(done.stdout)["samples"] == 1, done.stderr
        assert board.clean()


@pytest.mark.usefixtures("short_visits")
def test_a_placement_deploys_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install onnxruntime")
    (tmp_path / "m.onnx").write_bytes(matmul_onnx())
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    how: dict[str, Any] = {**HOW, "record": tmp_path / "r.sqlite", "deploy_to": "local"}
    with pytest.raises(UsageError, match="--deploy needs exactly one kept package"):
        place(tmp_path / "m.onnx", **how)
    with pytest.raises(UsageError, match="no device named"):
        place(tmp_path / "m.onnx", out=tmp_path / "out", **{**how, "deploy_to": "nowhere"})
    found = place(tmp_path / "m.onnx", out=tmp_path / "out", **how)
    assert found.deployed is not None and found.deployed.folder == str(tmp_path / "home" / "deployed" / "out")
    place_report(found, Page())
    assert f"run it   sh {tmp_path}/home/deployed/out/run.sh" in capsys.readouterr().out
