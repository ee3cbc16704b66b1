"""Looking at devices: rows for what is reachable and what is not, lanes, deadlines, and cleaning over a real SSH."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.devices.shell.sshkit import SshServer, server, user

from gnomon import plugins
from gnomon.devices import opening
from gnomon.devices.address import parse_address
from gnomon.devices.base import Device
from gnomon.devices.config import DeviceConfig, add_device, load_devices
from gnomon.devices.lease import lease, lease_folder
from gnomon.errors import DeviceError, UsageError
from gnomon.jobs.devices import job as devices_job
from gnomon.jobs.devices.document import DeviceRow
from gnomon.jobs.devices.job import add_and_check, check_devices, clean_device, examine, list_devices
from gnomon.runtimes.registry import all_runtimes

__all__ = ["server"]

LOCAL = parse_address("local")
GONE = DeviceConfig(name="gone", address=LOCAL, python="/nonexistent/python")
RELEASE = threading.Event()


def hanging(config: DeviceConfig, on_wait: Callable[[str], None] | None) -> Device:
    RELEASE.wait(60)
    raise DeviceError("too late")


def broken(config: DeviceConfig, on_wait: Callable[[str], None] | None) -> NoReturn:
    raise ZeroDivisionError


@pytest.fixture(autouse=True)
def other_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [
        EntryPoint(name=f.__name__, value=f"{__name__}:{f.__name__}", group=opening.GROUP) for f in (hanging, broken)
    ]
    found = plugins.entry_points
    added = {opening.GROUP: entries}
    monkeypatch.setattr(plugins, "entry_points", lambda *, group: [*added.get(group, ()), *found(group=group)])


def over_ssh(server: SshServer, **more: Any) -> DeviceConfig:
    """The server as a user would write it into the file of devices."""
    options = (
        f"IdentityFile={server.root}/user_key",
        "IdentitiesOnly=yes",
        f"UserKnownHostsFile={server.root}/known_hosts",
    )
    address = parse_address(f"ssh://{user()}@{server.address}:{server.port}")
    return DeviceConfig(name="board", address=address, ssh_options=options, **more)


def test_this_machine_is_always_listed() -> None:
    (row,) = list_devices()
    assert (row.name, row.state, row.check) == ("local", "ready", None)
    assert row.fingerprint is not None and row.fingerprint["machine"]
    assert row.interpreter == sys.executable
    assert {r.name for r in row.runtimes} == {r.name for r in all_runtimes()[0]}
    assert all(bool(r.version) != bool(r.reason) for r in row.runtimes)


@pytest.mark.usefixtures("few_runtimes")
def test_a_device_that_hangs_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    late = DeviceConfig(name="late", address=parse_address("hanging://x"))
    look, seen = devices_job._look, list[str]()

    def noted(config: DeviceConfig, *, deep: bool) -> DeviceRow:
        row = look(config, deep=deep)
        seen.append(config.name)
        if len(seen) == 2:
            RELEASE.set()
        return row

    RELEASE.clear()
    monkeypatch.setattr(devices_job, "_look", noted)
    rows = examine([late, GONE, DeviceConfig(name="local", address=LOCAL)], deadline_s=120)
    assert seen == ["gone", "local", "late"]
    assert [row.name for row in rows] == ["late", "gone", "local"]
    assert [row.state for row in rows] == ["failed", "failed", "ready"]
    assert "/nonexistent/python" in str(rows[1].reason)
    assert rows[1].hint


def test_a_device_that_does_not_answer_is_left_alone() -> None:
    RELEASE.clear()
    (row,) = examine([DeviceConfig(name="late", address=parse_address("hanging://x"))], deadline_s=0.2)
    RELEASE.set()
    assert (row.state, row.reason) == ("failed", "the device did not answer within 0.2 s")


def test_a_device_in_use_is_not_waited_for() -> None:
    with lease(lease_folder(), "local"):
        (row,) = list_devices()
    assert row.state == "in use"
    assert "another gnomon" in str(row.reason)


@pytest.mark.usefixtures("few_runtimes")
def test_two_names_of_one_machine_do_not_wait_for_each_other() -> None:
    add_device(DeviceConfig(name="again", address=LOCAL, runtimes=("onnxruntime",)))
    rows = list_devices()
    assert [row.state for row in rows] == ["ready", "ready"]
    assert [r.name for r in rows[1].runtimes] == ["onnxruntime"]


def test_a_defect_is_not_a_row() -> None:
    with pytest.raises(ZeroDivisionError):
        examine([DeviceConfig(name="x", address=parse_address("broken://x"))], deadline_s=60)


@pytest.mark.usefixtures("few_runtimes")
def test_a_close_look() -> None:
    (row,) = check_devices()
    assert row.check is not None
    assert 0 < row.check.overhead_s < 60
    assert row.check.temporary_free_bytes > 0
    assert Path(row.check.temporary).is_dir()


def test_a_bare_python_is_brought_what_is_installed_here(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True, timeout=120)
    python = str(tmp_path / "bare" / "bin" / "python")
    add_device(DeviceConfig(name="bare", address=LOCAL, python=python, runtimes=("onnxruntime",)))
    (row,) = check_devices(["bare"])
    (runtime,) = row.runtimes
    assert runtime.version is None
    assert runtime.reason == "not installed"
    assert runtime.brought[0].startswith("onnxruntime ")


def test_adding_looks_first() -> None:
    with pytest.raises(DeviceError, match="gone was not added") as told:
        add_and_check(GONE)
    assert "--no-check" in told.value.hint
    assert load_devices() == {}
    assert add_and_check(GONE, check=False) is None
    assert load_devices() == {"gone": GONE}
    with pytest.raises(UsageError, match="already"):
        add_and_check(GONE, check=False)
    with pytest.raises(UsageError, match="no kind"):
        add_and_check(DeviceConfig(name="x", address=parse_address("nokind://x")), check=False)


def test_over_ssh_it_is_checked_and_cleaned(server: SshServer, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    row = add_and_check(over_ssh(server, folder=str(folder), runtimes=("onnxruntime",)))
    assert row is not None
    assert row.state == "ready"
    assert row.check is not None
    pushed = folder / "pushed"
    assert list(pushed.rglob("gnomon-agent.pyz"))
    (pushed / "thesis").mkdir()
    (pushed / "notes.json").write_text("of somebody", encoding="utf-8")
    found = clean_device("board")
    assert found.folder == str(pushed)
    assert found.entries >= 1
    assert found.size_bytes > 1000
    assert not list(pushed.rglob("gnomon-agent.pyz"))
    assert {entry.name for entry in pushed.iterdir()} == {"thesis", "notes.json"}
    assert server.private_folders() == []
    assert check_devices(["board"])[0].state == "ready"


def test_an_address_that_refuses_is_told(server: SshServer) -> None:
    (row,) = check_devices([f"ssh://{server.address}:1"])
    assert row.state == "failed"
    assert row.hint


def test_nothing_is_kept_here() -> None:
    assert clean_device("local").folder is None
