"""A program that is asked once on this machine ends with gnomon, also where that is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.processkit import gone

ASKING = {
    "shapes": "from gnomon.models.model import Limits; from gnomon.models.onnx import graph; "
    "graph._CHILD = Path(sys.argv[1]); graph._infer(b'', Limits(max_infer_s=600))",
    "pnnx": "from gnomon.models.model import Limits; from gnomon.models.ncnn import convert; "
    "convert._run(Path(sys.argv[1]), Path(sys.argv[1]).parent, (), Limits(), 600)",
    "quark": "from gnomon.system.children import Program; from gnomon.toolchains import quark_xint8 as quark; "
    "quark._PROBE_S = 600; quark._packages_missing(Program(name='', settings={}, python=sys.argv[1]))",
}


@pytest.mark.parametrize("asking", ASKING.values(), ids=ASKING)
def test_it_dies_with_gnomon(tmp_path: Path, asking: str) -> None:
    hanging, fifo = tmp_path / "hanging", tmp_path / "pid"
    hanging.write_text(
        f"#!{sys.executable}\nimport os, time\nopen({str(fifo)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    hanging.chmod(0o755)
    os.mkfifo(fifo)
    gnomon = subprocess.Popen([sys.executable, "-c", f"import sys; from pathlib import Path; {asking}", str(hanging)])
    pid = int(fifo.read_text())
    gnomon.kill()
    gnomon.wait()
    assert gone(pid)
