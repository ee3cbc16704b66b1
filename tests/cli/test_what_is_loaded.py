"""A command loads what it needs: a whole tree of imports costs every start, and hides who needs whom."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from tests.jobs.estimator.estimator_kit import conv, kit, last, measured, save, small_space

from gnomon.cli.main import run

COUNT = """
import sys
from gnomon.cli.main import run
code = run(sys.argv[1:])
print(*sorted(m for m in sys.modules if m.partition(".")[0] == "gnomon"), file=sys.stderr)
sys.exit(code)
"""


def loaded(*command: str, folder: Path) -> list[str]:
    """The modules of gnomon that a command loads, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", COUNT, *command], capture_output=True, text=True, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()[-1].split()


def test_help_loads_the_command_line_and_its_declarations_alone(tmp_path: Path) -> None:
    modules = loaded("place", "--help", folder=tmp_path)
    light = ("gnomon.api", "gnomon.cli", "gnomon.errors", "gnomon.core", "gnomon.report")
    known = {"gnomon", "gnomon.builtin", "gnomon.plugins", "gnomon.options", "gnomon.values"}
    known |= {"gnomon.store", "gnomon.store.address"}
    assert not [m for m in modules if m not in known and not m.startswith(light)]
    assert len(modules) <= 25, " ".join(modules)


def test_a_prediction_loads_what_prediction_needs(tmp_path: Path) -> None:
    found, table, name = kit(tmp_path)
    rows = measured(found, 12)
    nets = save(rows, found, tmp_path / "nets.csv")
    made = str(tmp_path / "e.json")
    fitted = run(["estimator", "fit", "--table", str(table), "--space", name, "--samples", str(nets), "-o", made])
    assert fitted == 0
    parts = (conv, last, small_space)
    # The space by itself: what the tests import is not what the command loads.
    (tmp_path / "space.py").write_text(
        "from gnomon.spaces import Block, BlockSpace, Choice, Stage, Symbol, skip\n"
        + "\n\n".join(inspect.getsource(part) for part in parts)
        + "\nspace = small_space\n"
    )
    modules = loaded("estimator", "predict", made, str(nets), "--space", name, folder=tmp_path)
    assert len(modules) <= 62, " ".join(modules)
    assert not [m for m in modules if m.startswith(("gnomon.devices", "gnomon.measure", "gnomon.session"))]


def test_a_placement_loads_what_placing_needs(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnxruntime]'")
    model = Path(__file__).parents[2] / "docs" / "examples" / "digits.onnx"
    command = ("place", str(model), "--runtime", "onnxruntime", "-n", "1", "--processes", "1", "--quiet", "--json")
    modules = loaded(*command, "--record", "r.sqlite", "--out", "out", folder=tmp_path)
    assert len(modules) <= 120, " ".join(modules)
