"""A command loads what it needs: a whole tree of imports costs every start, and hides who needs whom."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from tests.jobs.estimator.estimator_kit import conv, kit, last, measured, save, small_space
from tests.jobs.space.kits.studykit import LAYERS, accuracy, latency, study, synthetic
from tests.shortkit import SHORTLY

from gnomon.cli.main import run
from gnomon.models.units import write_net
from gnomon.spaces.unit import Trace

COUNT = """
import subprocess, sys
from gnomon.cli.main import run

def loaded():
    return sorted(m for m in sys.modules if m.partition(".")[0] == "gnomon")

def begin(*arguments, **options):
    first.extend(() if first else loaded())
    start(*arguments, **options)

first, start = [], subprocess.Popen.__init__
subprocess.Popen.__init__ = begin
code = run(sys.argv[1:])
print(" ".join(first), " ".join(loaded()), sep="\\n", file=sys.stderr)
sys.exit(code)
"""


def loaded(*command: str, folder: Path, before: str = "") -> tuple[list[str], list[str]]:
    """The modules of gnomon that a command loads until it starts its first process, and in all.

    The command runs in a process of its own, which runs the Python of `before` first.
    """
    done = subprocess.run(
        [sys.executable, "-c", f"{before}{COUNT}", *command], capture_output=True, text=True, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr
    first, every = done.stderr.splitlines()[-2:]
    return first.split(), every.split()


def test_help_loads_the_command_line_and_its_declarations_alone(tmp_path: Path) -> None:
    _, modules = loaded("place", "--help", folder=tmp_path)
    light = ("gnomon.api", "gnomon.cli", "gnomon.errors", "gnomon.report")
    known = {"gnomon", "gnomon.builtin", "gnomon.plugins", "gnomon.options", "gnomon.values"}
    known |= {"gnomon.store", "gnomon.store.address"}
    assert not [m for m in modules if m not in known and not m.startswith(light)]
    assert len(modules) <= 18, " ".join(modules)


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
    _, modules = loaded("estimator", "predict", made, str(nets), "--space", name, folder=tmp_path)
    assert len(modules) <= 62, " ".join(modules)
    assert not [m for m in modules if m.startswith(("gnomon.devices", "gnomon.measure", "gnomon.session"))]


def test_a_placement_loads_what_placing_needs(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install '.[onnxruntime]'")
    model = Path(__file__).parents[2] / "docs" / "examples" / "digits.onnx"
    command = ("place", str(model), "--runtime", "onnxruntime", "-n", "1", "--processes", "1", "--quiet", "--json")
    first, modules = loaded(*command, "--record", "r.sqlite", "--out", "out", folder=tmp_path, before=SHORTLY)
    assert len(first) <= 70 and len(modules) <= 120, " ".join(first)
    late = (
        "gnomon.core.solver",
        "gnomon.session.prove",
        "gnomon.session.package",
        "gnomon.store.sqlite",
        "gnomon.report.chart",
    )
    assert not [m for m in first if m.startswith(late)]


@pytest.mark.parametrize(("how", "most"), [((), 70), (("--json",), 64)])
def test_a_choice_of_primitives_loads_what_choosing_needs(how: tuple[str, ...], most: int, tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="PyYAML is not installed: pip install '.[space]'")
    synthetic(tmp_path / "p", study(LAYERS), accuracy, latency)
    _, modules = loaded("space", "select", "p", "--max-fraction", "0.5", *how, folder=tmp_path)
    assert len(modules) <= most, " ".join(modules)
    assert not [m for m in modules if m.startswith(("gnomon.devices", "gnomon.measure", "gnomon.training"))]


def test_what_reads_a_users_space_has_not_begun_to_measure(tmp_path: Path) -> None:
    """Whoever is interrupted then is not told that anything measured is kept."""
    pytest.importorskip("onnx", reason="onnx is not installed")
    trace = Trace(((1, 3, 8, 8),))
    write_net(trace.net(trace.input().relu()), tmp_path / "a.b.onnx", seed=0)
    (tmp_path / "space.py").write_text("import gnomon.spaces as s\nspace = s.from_onnx('.', input=(1, 3, 8, 8))\n")
    _, modules = loaded("estimator", "suggest", "--space", "space.py:space", folder=tmp_path)
    assert "gnomon.session.nets" in modules
    assert "gnomon.measure.campaign" not in modules
