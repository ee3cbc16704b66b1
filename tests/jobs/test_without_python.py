"""`place` on a device that has a shell and a runtime's program, but no Python: a stand-in for onert_run, by real SSH.

The stand-in (tests/standins/onert_run.c) runs the model by the real onert. The original program is not at hand.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.devices.shell.sshkit import SshServer, becomes
from tests.standins.programkit import board

from gnomon.devices.address import parse_address
from gnomon.devices.config import DeviceConfig
from gnomon.devices.opening import opened
from gnomon.errors import RuntimeMissingError
from gnomon.jobs.devices.job import examine
from gnomon.jobs.devices.visit import clean_cache
from gnomon.jobs.place.job import place
from gnomon.jobs.where.job import where
from gnomon.measure.effort import Effort
from gnomon.runtimes.base import RunSettings
from gnomon.session.request import ModelRequest

pytestmark = pytest.mark.devices

Zoo = Callable[[str], Path]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with board(tmp_path_factory.mktemp("board")) as running:
        yield running


def reached(server: SshServer, monkeypatch: pytest.MonkeyPatch, **more: object) -> DeviceConfig:
    """The board as a table of the file of devices would describe it; `ssh` is the test's own client."""
    client = server.root / "client"
    client.mkdir(exist_ok=True)
    if not (client / "ssh").exists():
        (client / "ssh").symlink_to(server.root / "ssh")
    path = ":".join((str(client), "/usr/local/bin", "/usr/bin", "/bin"))
    script = server.root / "ssh"
    if "/usr/bin/ssh" not in script.read_text():
        script.write_text(script.read_text().replace("exec ssh ", "exec /usr/bin/ssh "))
    monkeypatch.setenv("PATH", path)
    settings = server.settings()
    address = parse_address(f"ssh://{settings.user}@{settings.host}:{settings.port}")
    return DeviceConfig(name="board", address=address, **more)  # type: ignore[arg-type]


def test_a_model_is_placed_proved_and_packed(
    server: SshServer, zoo_model: Zoo, small: Effort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = reached(server, monkeypatch)
    told: list[str] = []
    request = ModelRequest(model=zoo_model("mix.circle"), device=config, runtimes=("onert",), effort=small)
    found = place(request, tmp_path / "package", tell=told.append)

    assert "board has no Python: its runtimes' own programs measure there" in told
    assert found.verified.ok, found.verified
    assert found.clock == "wall"
    assert [row.index for row in found.operators] == list(range(29))
    assert all(row.ran_on == row.planned for row in found.operators)  # by the trace of the package as it lies there
    for contender in found.contenders:
        assert contender.failure is None
        assert contender.difference and contender.difference.relative == pytest.approx(0, abs=1e-3)
    assert "onert:cpu" in {contender.label for contender in found.contenders if contender.kind == "single"}
    assert becomes(lambda: not server.private_folders())

    package = Path(found.package or "")
    assert (package / "nnpackage").is_dir()
    assert "onert_run nnpackage" in (package / "README.txt").read_text()
    ran = run_as_the_readme_says(server, package)
    assert ran.returncode == 0, ran.stderr
    assert "EXECUTE" in ran.stdout
    planned = [op["backend"] for op in json.loads((package / "plan.json").read_text())["operators"]]
    assert set(planned) <= {"cpu", "ruy"}


def run_as_the_readme_says(server: SshServer, package: Path) -> subprocess.CompletedProcess[str]:
    """Without gnomon, in the shell of the device."""
    from tests.standins.programkit import native

    path = server.root.parent / "bin"
    return subprocess.run(
        [str(path / "sh"), "-c", ". ./environment.sh && onert_run nnpackage"],
        cwd=package,
        env={"PATH": str(path), "LD_LIBRARY_PATH": str(native())},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_where_a_model_runs_is_told_by_the_programs_trace(
    server: SshServer, zoo_model: Zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = reached(server, monkeypatch)
    request = ModelRequest(
        model=zoo_model("mix.circle"), device=config, runtimes=("onert",), settings=RunSettings(backends=("ruy",))
    )
    (part,) = where(request).loaded
    assert {backend: len(nodes) for backend, nodes in part.backends.items()} == {"ruy": 27, "cpu": 2}
    assert {node.type for node in part.nodes if node.backend == "cpu"} == {"MAX_POOL_2D", "RESHAPE"}


def test_a_runtime_without_a_program_is_said_to_be_missing(
    server: SshServer, zoo_model: Zoo, small: Effort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = reached(server, monkeypatch)
    request = ModelRequest(model=zoo_model("mix.circle"), device=config, runtimes=("onert",), effort=small)
    (server.root.parent / "bin" / "onert_run").rename(server.root.parent / "onert_run")
    try:
        with pytest.raises(RuntimeMissingError, match="there is no onert_run on the device's PATH"):
            place(request, tmp_path / "package")
    finally:
        (server.root.parent / "onert_run").rename(server.root.parent / "bin" / "onert_run")
    assert becomes(lambda: not server.private_folders())


def test_the_device_is_looked_at_and_cleaned_by_its_shell(
    server: SshServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = reached(server, monkeypatch)
    (row,) = examine([config], deadline_s=60, deep=True)
    assert (row.state, row.interpreter) == ("ready", "")
    found = {runtime.name: runtime for runtime in row.runtimes}
    assert "cpu" in found["onert"].backends
    assert "can use only the programs of" in found["onnxruntime"].reason
    assert "pip" not in found["onnxruntime"].hint
    assert row.check is not None
    assert row.check.temporary == str(server.tmp)
    assert row.check.temporary_free_bytes > 0
    (tmp_path / "model").write_bytes(b"x" * 100_000)
    with opened(config) as device:
        remote = Path(device.push(tmp_path / "model", "model"))
        assert remote.is_file()
        cleaned = clean_cache(device, "board")
    assert not remote.exists()
    assert cleaned.folder == str(remote.parent.parent)
    assert cleaned.entries >= 1
    assert cleaned.size_bytes >= 100_000
