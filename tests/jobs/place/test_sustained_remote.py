"""A sustained run behind a real SSH server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.bad_days.boardkit import python_with
from tests.bad_days.livekit import matmul_onnx
from tests.devices.shell.sshkit import SshServer, becomes, server, user

from gnomon.devices.address import Address
from gnomon.devices.config import DeviceConfig
from gnomon.jobs.place.job import profile
from gnomon.jobs.place.sustained import Sustain
from gnomon.measure.effort import Effort
from gnomon.session.request import ModelRequest

pytestmark = pytest.mark.devices

__all__ = ["server"]


def test_a_paced_run_over_ssh(server: SshServer, small: Effort, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(matmul_onnx())
    device = DeviceConfig(
        name="board",
        address=Address(kind="ssh", user=user(), host=server.address, port=server.port),
        python=str(python_with(tmp_path / "python", ("numpy", "onnxruntime"))),
        ssh_options=(
            f"IdentityFile={server.root}/user_key",
            "IdentitiesOnly=yes",
            "IdentityAgent=none",
            f"UserKnownHostsFile={server.root}/known_hosts",
        ),
    )
    request = ModelRequest(
        model=tmp_path / "m.onnx",
        device=device,
        runtimes=("onnxruntime",),
        effort=replace(small, together=4),
        record=tmp_path / "record.sqlite",
    )
    (one,) = profile(request, asked=Sustain(for_s=1.0, every_s=0.01)).sustained
    assert one.failure is None and len(one.blocks.block) >= 20 and one.paced is not None
    assert all(load is not None for load in one.blocks.load_average_1m), "the device's state beside each block"
    assert becomes(lambda: not server.private_folders())
