"""A deployed plan, run as its reader runs it: its environment, its inputs, its outputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnomon.agent.deployed import save_arrays
from gnomon.measure.pack import packed_agent

HERE = Path(__file__).parent


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package whose runtime is found only if PYTHONPATH was set before Python started."""
    (tmp_path / "gnomon-agent.pyz").write_bytes(packed_agent())
    write_plan(tmp_path, {"PYTHONPATH": str(HERE)})
    return tmp_path


def write_plan(folder: Path, environment: dict[str, str]) -> None:
    tensor = {"shape": [2, 2], "dtype": "float32"}
    inputs, outputs = [["x", "x"]], [["y", "y"]]
    segment = {"runtime": "rogue:Rogue", "model": "", "options": {}, "inputs": inputs, "outputs": outputs}
    job = {
        "tensors": {"x": tensor, "y": tensor},
        "feeds": {"x": {}},
        "outputs": ["y"],
        "seed": 3,
        "segments": [segment],
        "environment": environment,
    }
    (folder / "plan.json").write_text(json.dumps({"job": job}))


def run(folder: Path, *more: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "gnomon-agent.pyz", "run", "plan.json", "--seconds", "0", *more],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        env={**inherited, **environment},
    )


def test_the_environment_is_there_before_the_process_starts(package: Path) -> None:
    done = run(package, "--output", "out.npz")
    assert done.returncode == 0, done.stderr
    told = {"shape": [2, 2], "dtype": "float32", "saved_as": "y"}
    assert json.loads(done.stdout)["outputs"] == {"y": told}
    drawn = np.random.default_rng([3, 0]).standard_normal((2, 2)).astype(np.float32)
    with np.load(package / "out.npz") as saved:
        assert saved["y"] == pytest.approx(2 * drawn)


COUNTING = """
import os
with open(os.path.join(os.path.dirname(__file__), "starts"), "a") as file:
    file.write(".")
os.environ.pop("NEVER_THERE", None)
"""


def test_it_starts_again_at_most_once(package: Path) -> None:
    site = package / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(COUNTING)
    path = f"{site}{os.pathsep}{HERE}"
    write_plan(package, {"PYTHONPATH": path, "SOME_SETTING": "1"})
    assert run(package, PYTHONPATH=path, SOME_SETTING="1").returncode == 0
    assert (site / "starts").read_text() == "."  # it has all that it needs
    assert run(package, PYTHONPATH=path, SOME_SETTING="2").returncode == 0
    assert (site / "starts").read_text() == "..."
    write_plan(package, {"PYTHONPATH": path, "NEVER_THERE": "1"})
    assert run(package, PYTHONPATH=path).returncode == 0
    assert (site / "starts").read_text() == "....."


def test_no_numpy_before_the_environment() -> None:
    code = "import sys, gnomon.agent.deployed; sys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_an_input_that_does_not_fit_is_one_line(package: Path) -> None:
    np.save(package / "x.npy", np.full((2, 2), 1e300))
    for file in ("x.npy", "missing.npy"):
        done = run(package, "--input", f"x={file}")
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1].startswith(f"run: error: --input: input 'x': {file} ")
        assert "Traceback" not in done.stderr
    np.save(package / "x.npy", np.arange(4).reshape(2, 2))
    assert run(package, "--input", "x=x.npy", "--output", "out.npz").returncode == 0
    with np.load(package / "out.npz") as saved:
        assert saved["y"].tolist() == [[0, 2], [4, 6]]


def test_outputs_of_any_names_are_saved_apart(tmp_path: Path) -> None:
    names = ["a/b", "a_b", "a_b_2", "file", "self", "args", "", "../../up", "x", "x.npy", "x_npy", "é:0", "\0\n"]
    arrays: dict[str, Any] = {name: np.full(2, k) for k, name in enumerate(names)}
    saved_as = save_arrays(str(tmp_path / "out"), arrays)
    assert list(saved_as) == names
    assert saved_as["file"] == "file"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]
    with np.load(tmp_path / "out") as saved:
        assert sorted(saved.files) == sorted(saved_as.values())
        for name, array in arrays.items():
            assert "/" not in saved_as[name]
            assert saved[saved_as[name]].tolist() == array.tolist()
