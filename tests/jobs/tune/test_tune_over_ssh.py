"""`gnomon tune` and `exec` on a device behind SSH: killed in the middle, and the same command again."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.bad_days.boardkit import Board, running_board
from tests.bad_days.livekit import interrupt, nothing_left
from tests.jobs.tune.tunekit import children, counts, one_core, pooled, tiny_net, trials_of  # noqa: F401
from tests.tuning.tvmkit import needs_tvm

from gnomon.cli.main import run
from gnomon.devices.config import add_device

pytestmark = [pytest.mark.devices, needs_tvm]

CARE = ("--processes", "1", "--repeat", "2", "--min-repeat-ms", "1", "--json", "--quiet")


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """A board whose Python has TVM."""
    with running_board(tmp_path_factory.mktemp("board")) as running:
        yield replace(running, python=Path(sys.executable))


def started(words: tuple[str, ...], folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from gnomon.cli.main import main; main()", *words, *CARE]
    environment = {**os.environ, "TMPDIR": str(folder / "tmp")}
    return subprocess.Popen(
        command, text=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=one_core
    )


def said(*words: str) -> dict[str, Any]:
    """The JSON document of a command that must succeed, asked in this process."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        code = run([*words, *CARE])
    assert code == 0, errors.getvalue()
    document: dict[str, Any] = json.loads(out.getvalue())
    return document


@pytest.mark.usefixtures("pooled")
def test_killed_and_begun_again(board: Board, tmp_path: Path) -> None:
    add_device(board.config(threads=1))
    (tmp_path / "tmp").mkdir()
    model, out = tmp_path / "tiny.onnx", tmp_path / "out"
    model.write_bytes(tiny_net())
    records = out / "records" / "board.tiny.float32.json"
    on = ("--device", "board", "--out", str(out))
    tune = ("tune", str(model), "--no-compare", "--search", "replay-trace", "--per-round", "2", *on)
    with started((*tune, "--trials", "4"), tmp_path) as gnomon:
        while not trials_of(records):
            assert gnomon.poll() is None, gnomon.communicate()
            time.sleep(0.005)
        assert board.processes()
        interrupt(gnomon, signal.SIGKILL)
    assert nothing_left(tmp_path) and board.clean()
    before = trials_of(records)
    found = said(*tune, "--trials", "4")
    assert trials_of(records)[: len(before)] == before
    assert found["trials"].pop("before") in (len(before), len(before) + 1)  # killed before the file was written
    assert counts(found) == {"asked": 4, "measured": 4, "failed": 0}
    assert {line["server"] for line in trials_of(records)} == {str(board.config().address)}
    assert found["network"]["failure"] is None and found["network"]["max_error"] <= 1e-3
    # Compiled for the processor that is there, with the threads of its table.
    assert found["device"]["target"]["mcpu"] and found["device"]["target"]["num-cores"] == 1
    assert (found["device"]["name"], found["device"]["threads"]) == ("board", 1)
    ran = said("exec", found["library"], *on)
    assert ran["failure"] is None and all(layer["time"] for layer in ran["layers"])
    assert board.clean()
