"""`gnomon stab` on a machine that is reached by a real SSH server: upload, profile, schedule, proof."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.devices.shell.sshkit import SshServer, server, user
from tests.formats.onert.tracing_kit import skip_without_onert

from gnomon.cli.main import cli
from gnomon.formats.onert.trace import read_trace
from gnomon.models.load import load
from gnomon.models.nnpackage import write_nnpackage

pytestmark = pytest.mark.devices

__all__ = ["server"]


@pytest.mark.usefixtures("short_visits")
def test_the_published_command_line_works_on_a_device_behind_ssh(
    server: SshServer,
    zoo_model: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    skip_without_onert()
    programs = tmp_path / "bin"
    programs.mkdir()
    ssh = (server.root / "ssh").read_text().replace("exec ssh", f"exec {shutil.which('ssh')}")
    (programs / "ssh").write_text(ssh)
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    write_nnpackage(load(zoo_model("mix.circle")), Path("net"), {})
    where = ["--ip", server.address, "--port", str(server.port), "--user", user()]
    done = CliRunner().invoke(cli, ["stab", "--nnpackage", "net", *where, "-v", "--processes", "1", "--budget", "1"])
    assert done.exception is None, f"{done.output}\n{done.exception!r}"
    steps = ["Upload the agent and net", "Profile each backend", "The traces are in traces", "Schedule a backend"]
    positions = [done.output.index(step) for step in [*steps, "The scheduled nnpackage is nnpkg_sched/net"]]
    assert positions == sorted(positions)
    assert "29 of 29 operators ran where planned, as reported by the runtime." in done.output
    for backend in ("cpu", "ruy"):
        trace = read_trace(Path(f"traces/net_{backend}_1").read_bytes())
        assert trace.origin is not None
        assert str(server.port) in trace.origin.device
    assert server.private_folders() == []
