"""A board that is away when its cell begins is waited for where no other can take the cell."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pytest
from tests.bad_days.livekit import matmul_onnx
from tests.devices.labgridkit import options
from tests.devices.shell import sshkit
from tests.jobs.suite.suitekit import REAL

import gnomon


@pytest.mark.devices
@pytest.mark.usefixtures("short_visits")
def test_a_board_that_comes_late_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if what := sshkit.missing():
        pytest.skip(what)
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path))
    (tmp_path / "m.onnx").write_bytes(matmul_onnx())
    (tmp_path / "suite.toml").write_text(REAL.replace('"local"', '"board"').replace("= 2", "= 1"))
    with sshkit.ssh_server(tmp_path / "board") as server:
        where = f"ssh://{sshkit.user()}@{server.address}:{server.port}"
        (tmp_path / "devices.toml").write_text(
            f'[devices.board]\naddress = "{where}"\npython = "{sys.executable}"\n'
            f"ssh_options = {json.dumps(options(server))}\n"
        )
        server.stop()
        late = threading.Timer(1.5, server.start)
        late.start()
        found = gnomon.run_suite(tmp_path / "suite.toml")
        late.join()
    assert found.whole, found.cells
