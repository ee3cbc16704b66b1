"""`pareto` on devices: behind a real SSH server, and by onert's program alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.bad_days.boardkit import python_with
from tests.bad_days.livekit import add_circle
from tests.devices.shell.sshkit import SshServer, becomes, server, user
from tests.formats.onert.tracing_kit import skip_without_onert
from tests.jobs.pareto.pareto_kit import campaigns
from tests.standins.programkit import board as programs

from gnomon.devices.address import Address, parse_address
from gnomon.devices.config import DeviceConfig
from gnomon.jobs.pareto.document import ParetoDocument
from gnomon.jobs.pareto.job import pareto
from gnomon.jobs.pareto.search import ParetoRequest, Plan
from gnomon.measure.effort import Effort
from gnomon.session.request import ModelRequest

pytestmark = pytest.mark.devices

__all__ = ["server"]


@pytest.fixture(scope="module")
def onert_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has numpy and onert, and nothing else."""
    skip_without_onert()
    return python_with(tmp_path_factory.mktemp("device") / "python", ("numpy", "onert"))


def searched(folder: Path, device: DeviceConfig, effort: Effort) -> ParetoDocument:
    """The front of a small model there, with the planner to choose, and its fastest point deployed."""
    (folder / "add.circle").write_bytes(add_circle())
    request = ModelRequest(
        model=folder / "add.circle",
        device=device,
        runtimes=("onert",),
        effort=replace(effort, together=4),
        record=folder / "record.sqlite",
    )
    asked = ParetoRequest(
        request=request,
        options={"planner": ("WIC", "Bump")},
        plan=Plan(name="hlps", iterations=2),
        under={"peak-memory": 1e12},
        out=folder / "package",
    )
    found = pareto(asked)
    assert found.device == device.name
    assert [sample.cost is None for sample in found.samples] == [False, False], found.failures
    assert found.proved
    assert found.front
    assert found.chosen is not None
    assert found.verified is not None
    assert found.verified.ok, found.verified
    assert json.loads((folder / "package" / "plan.json").read_text())["operators"]
    (row,) = campaigns(folder / "record.sqlite")
    assert row.finished
    again = pareto(replace(asked, request=replace(request, measure=False), under={}, out=None))
    assert [p.estimates for p in again.front] == [p.estimates for p in found.front]
    return found


def test_over_ssh(server: SshServer, onert_python: Path, small: Effort, tmp_path: Path) -> None:
    device = DeviceConfig(
        name="board",
        address=Address(kind="ssh", user=user(), host=server.address, port=server.port),
        python=str(onert_python),
        ssh_options=(
            f"IdentityFile={server.root}/user_key",
            "IdentitiesOnly=yes",
            "IdentityAgent=none",
            f"UserKnownHostsFile={server.root}/known_hosts",
        ),
    )
    searched(tmp_path, device, small)
    assert becomes(lambda: not server.private_folders())


@pytest.mark.slow
def test_by_onert_s_program_alone(small: Effort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with programs(tmp_path / "board") as running:
        client = tmp_path / "client"
        client.mkdir()
        (client / "ssh").write_text((running.root / "ssh").read_text().replace("exec ssh ", "exec /usr/bin/ssh "))
        (client / "ssh").chmod(0o755)
        monkeypatch.setenv("PATH", f"{client}:/usr/local/bin:/usr/bin:/bin")
        address = parse_address(f"ssh://{user()}@{running.address}:{running.port}")
        found = searched(tmp_path, DeviceConfig(name="plain", address=address), small)
        assert becomes(lambda: not running.private_folders())
    assert found.clock == "wall"  # the program tells no other
