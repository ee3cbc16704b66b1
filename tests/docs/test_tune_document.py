"""The first answer of docs/jobs/tune.md on two devices: its commands one after the other, as they stand there."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.documents import ROOT, blocks
from tests.jobs.tune.tunekit import one_core
from tests.tuning.tvmkit import needs_tvm

LITTLE_EFFORT = {
    "--trials 32": "--trials 4 --no-compare --processes 1 --repeat 2 --min-repeat-ms 1",
    "overlay collect": "overlay collect --best 2 --processes 1 --repeat 2 --min-repeat-ms 1",
    "overlay analyze": "overlay analyze --processes 1",
    "gnomon exec": "gnomon exec --processes 1 --repeat 2 --min-repeat-ms 1",
}
"""What is changed so that it ends soon, beside the one core that it has; other runtimes are measured beside it in
test_tune_job.
"""

GNOMON = str(Path(sys.executable).with_name("gnomon"))
FLOW = next(
    b for b in blocks(ROOT / "docs" / "jobs" / "tune.md") if b.language == "console" and "gnomon overlay" in b.text
)


def run(command: str, environment: dict[str, str], folder: Path) -> str:
    words = [word for w in shlex.split(command) for word in (sorted(map(str, folder.glob(w))) if "*" in w else [w])]
    assert words[0] == "gnomon"
    words = [str(ROOT / word) if word.startswith("docs/") else word for word in words]
    done = subprocess.run(
        [GNOMON, *words[1:]],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
        preexec_fn=one_core,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@needs_tvm
def test_the_flow_on_two_devices(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="vl-convert-python is not installed: no pictures to test")
    environment = {**os.environ, "GNOMON_HOME": str(tmp_path / "home")}
    commands = [line for line in FLOW.commands() if line.startswith("gnomon ")]
    told: dict[str, str] = {}
    for command in commands:
        for words, fewer in LITTLE_EFFORT.items():
            command = command.replace(words, fewer)
        told[command] = run(command, environment, tmp_path)
    analyzed = next(text for command, text in told.items() if "overlay analyze" in command)
    assert "One configuration a layer for 2 devices" in analyzed
    assert "The whole network, measured" in analyzed
    assert (tmp_path / "demo" / "pictures" / "network.svg").is_file()
    assert any("outputs equal" in " ".join(text.split()) for command, text in told.items() if "gnomon exec" in command)
