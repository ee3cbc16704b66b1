"""The composite action: what its shell hands to gnomon, and to GitHub; with programs that note how they were called."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: pip install '.[space]'")

ACTION = Path(__file__).parents[1] / "action.yml"
_NOTES = """#!/bin/sh
printf '%s\\n' "$@" >"$CALLED"
while [ $# -gt 0 ]; do
  [ "$1" != --markdown ] || [ "$CODE" = 2 ] || echo table >"$2"
  shift
done
exit "$CODE"
"""


def test_each_comparison_of_a_job_has_files_of_its_own(tmp_path: Path) -> None:
    (step,) = yaml.safe_load(ACTION.read_text())["runs"]["steps"]
    for name, text in (("gnomon", _NOTES), ("python", "#!/bin/sh\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    called, told, summary = (tmp_path / name for name in ("called", "told", "summary"))
    given = {"MODEL": "new.onnx", "BEFORE": "old.onnx", "FAIL_SLOWER": "3%", "UNDECIDED": "fail"}
    given |= {"RUNTIMES": "", "OPTIONS": "--budget 9\n--input x=*.npy\n"}
    given |= {"GITHUB_ACTION_PATH": "/action", "RUNNER_TEMP": str(tmp_path), "CALLED": str(called)}
    given |= {"GITHUB_OUTPUT": str(told), "GITHUB_STEP_SUMMARY": str(summary)}
    for code in (1, 2):
        path = f"{tmp_path}:{os.environ['PATH']}"
        ran = subprocess.run(["bash", "-c", step["run"]], env={**given, "PATH": path, "CODE": str(code)}, check=False)
        assert ran.returncode == code
    words = called.read_text("utf-8").split("\n")
    assert words[:11] == [
        *("compare", "old.onnx", "new.onnx", "--fail-slower", "3%", "--undecided", "fail"),
        *("--budget", "9", "--input", "x=*.npy"),
    ]
    outputs = [line.partition("=")[2] for line in told.read_text("utf-8").splitlines()]
    assert len(set(outputs)) == 4 and all(Path(path).parent.is_dir() for path in outputs)
    assert summary.read_text("utf-8") == "table\n", "what failed has no table, nor that of the one before"
