"""No measured process reports to a runtime's maker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = """
import os
from gnomon.agent.driver import driver_for
driver_for("onnxruntime").probe()
print(os.environ.get("ORT_DISABLE_TELEMETRY"))
"""


def test_onnxruntime_is_imported_with_its_telemetry_off(tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "ORT_DISABLE_TELEMETRY"}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "1"


def test_openvino_leaves_nothing_in_the_home_and_loads_no_converter(tmp_path: Path) -> None:
    script = (
        "import sys; from gnomon.agent.driver import driver_for; driver_for('openvino').probe(); "
        "print([name for name in sys.modules if name.startswith('openvino.tools.ovc.')])"
    )
    environment = {**os.environ, "HOME": str(tmp_path)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("package", ["onnxruntime", "openvino"])
def test_nothing_imports_a_runtime_around_that(package: str) -> None:
    folder = Path(__file__).parents[3] / "src" / "gnomon"
    found = [
        str(p.relative_to(folder))
        for p in folder.rglob("*.py")
        if f"import {package}\n" in p.read_text(encoding="utf-8")
    ]
    assert found == [f"agent/drivers/{package}/driver.py"]
