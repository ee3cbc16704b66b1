"""The first answer of docs/jobs/tune.md on two devices: its commands one after the other, as they stand there."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.documents import ROOT, blocks
from tests.jobs.tune.tunekit import children, one_core, pooled  # noqa: F401
from tests.tuning.tvmkit import needs_tvm

from gnomon.cli.main import run

LITTLE_EFFORT = {
    "--trials 32": "--trials 4 --no-compare --processes 1 --repeat 2 --min-repeat-ms 1",
    "overlay collect": "overlay collect --best 2 --processes 1 --repeat 2 --min-repeat-ms 1",
    "overlay analyze": "overlay analyze --processes 1",
    "gnomon exec": "gnomon exec --processes 1 --repeat 2 --min-repeat-ms 1",
}
"""What is changed so that it ends soon, beside the one core that it has; other runtimes are measured beside it in
test_tune_job.
"""

FLOW = next(
    b for b in blocks(ROOT / "docs" / "jobs" / "tune.md") if b.language == "console" and "gnomon overlay" in b.text
)


def said(command: str, folder: Path) -> str:
    """What a command prints that must succeed. It runs here, as its children can be shared so."""
    words = [word for w in shlex.split(command) for word in (sorted(map(str, folder.glob(w))) if "*" in w else [w])]
    assert words[0] == "gnomon"
    words = [str(ROOT / word) if word.startswith("docs/") else word for word in words]
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        code = run(words[1:])
    assert code == 0, f"{command}\n{out.getvalue()}\n{errors.getvalue()}"
    return out.getvalue()


@pytest.fixture
def on_one_core() -> Iterator[None]:
    """For this process, and what it starts, meanwhile."""
    before = os.sched_getaffinity(0)
    one_core()
    yield
    os.sched_setaffinity(0, before)


@needs_tvm
@pytest.mark.usefixtures("pooled", "on_one_core")
def test_the_flow_on_two_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vl_convert", reason="vl-convert-python is not installed: no pictures to test")
    monkeypatch.chdir(tmp_path)
    commands = [line for line in FLOW.commands() if line.startswith("gnomon ")]
    told: dict[str, str] = {}
    for command in commands:
        for words, fewer in LITTLE_EFFORT.items():
            command = command.replace(words, fewer)
        told[command] = said(command, tmp_path)
    analyzed = next(text for command, text in told.items() if "overlay analyze" in command)
    assert "One configuration per layer for 2 devices" in analyzed
    assert "The whole network, compared by" in analyzed
    assert (tmp_path / "demo" / "pictures" / "network.svg").is_file()
    assert any("outputs equal" in " ".join(text.split()) for command, text in told.items() if "gnomon exec" in command)
