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

import gnomon

SUITE = """name = "x"
[[cells]]
jobs = ["profile"]
models = ["m.onnx"]
devices = ["board"]
options = { runtimes = ["onnxruntime"], processes = 1 }
"""


@pytest.mark.devices
def test_a_board_that_comes_late_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if what := sshkit.missing():
        pytest.skip(what)
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path))
    (tmp_path / "m.onnx").write_bytes(matmul_onnx())
    (tmp_path / "suite.toml").write_text(SUITE)
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
