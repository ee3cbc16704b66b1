"""The child programs themselves: what they import, what they print, what they leave."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.toolchains.toolkit import calibration, small_net

from gnomon.system.children import CHILDREN

PROGRAMS = sorted([*(path.stem for path in CHILDREN.glob("*_child.py")), "tvm.child"])
SETTINGS = {
    "ort_int8_child": {"images": 8, "per_channel": False, "reduce_range": False, "method": "minmax"},
    "nncf_child": {"images": 8, "preset": "performance", "fast_bias_correction": True},
}


def test_they_are_these() -> None:
    assert PROGRAMS == ["evaluate_child", "nncf_child", "ort_int8_child", "quark_child", "tvm.child"]


def test_they_import_nothing_of_gnomon() -> None:
    for path in CHILDREN.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not any(name.name.partition(".")[0] == "gnomon" for name in node.names), path
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").partition(".")[0] != "gnomon" and node.level <= 1, path


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_they_speak_json_only_and_leave_nothing_in_the_home(name: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    before = sorted(home.rglob("*"))
    message = {
        "model": str(small_net(tmp_path / "m.onnx", "VGGblock_1")),
        "output": str(tmp_path / "q.onnx"),
        "calibration": str(calibration(tmp_path / "c.npz")),
        "log": str(tmp_path / "k.log"),
    }
    request = {"memory_bytes": 16 << 30, "settings": SETTINGS[name]}
    environment = {**os.environ, "HOME": str(home), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-P", str(CHILDREN), name],
        input="".join(json.dumps(line) + "\n" for line in (request, {**message, "model": "/none"}, message)),
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["state"] for one in said] == ["ready", "failed", "done"]
    assert Path(message["output"]).stat().st_size > 0
    assert "Traceback" in Path(message["log"]).read_text()
    assert sorted(home.rglob("*")) == before, "a package wrote into the home, as telemetry does"


def test_memory_is_limited(tmp_path: Path) -> None:
    request = {"memory_bytes": 64 << 20, "settings": SETTINGS["ort_int8_child"]}
    done = subprocess.run(
        [sys.executable, "-P", str(CHILDREN), "ort_int8_child"],
        input=json.dumps(request) + "\n",
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    # Either the import says so, or the interpreter itself has no room to.
    assert done.returncode != 0
    assert not done.stdout or json.loads(done.stdout)["state"] == "unusable"
