"""From names to open devices: resolving, leases, kinds of others, and a Python of one's own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import pytest

from gnomon import plugins
from gnomon.devices import opening
from gnomon.devices.address import parse_address
from gnomon.devices.base import Device
from gnomon.devices.config import DeviceConfig, add_device
from gnomon.devices.lease import Waiting
from gnomon.devices.local import LocalDevice
from gnomon.devices.opening import opened, resolve
from gnomon.devices.shell.adb import ADB
from gnomon.devices.shell.bridge import bridge_settings
from gnomon.errors import DeviceError, UsageError

LOCAL = DeviceConfig(name="local", address=parse_address("local"))


def other_kind(config: DeviceConfig, on_wait: Callable[[str], None] | None) -> Device:
    """A third party's factory."""
    return LocalDevice(f"other {config.address.host}")


def add_kinds(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    own = entry_points(group=opening.GROUP)
    entries = [*(EntryPoint(name=n, value=v, group=opening.GROUP) for n, v in values.items()), *own]
    monkeypatch.setattr(plugins, "entry_points", lambda *, group: entries if group == opening.GROUP else [])


def test_an_address_names_itself() -> None:
    found = resolve("SSH://me@host:22/")
    assert found == DeviceConfig(name="ssh://me@host:22", address=parse_address("ssh://me@host:22"))


def test_local_has_the_settings_of_its_table() -> None:
    assert resolve("local") == LOCAL
    named = DeviceConfig(name="local", address=LOCAL.address, threads=3)
    add_device(named)
    assert resolve("local") == named


def test_a_name_is_looked_up_and_a_near_one_told() -> None:
    board = DeviceConfig(name="board", address=parse_address("ssh://board"), threads=3)
    add_device(board)
    assert resolve("board") == board
    with pytest.raises(UsageError, match="no device named baord") as told:
        resolve("baord")
    assert "Did you mean 'board'? Devices: local, board." in told.value.hint


def test_who_waits_is_told_and_may_refuse_to() -> None:
    told: list[str] = []

    def on_wait(sentence: str) -> None:
        told.append(sentence)
        raise DeviceError("no")

    with opened(LOCAL), pytest.raises(DeviceError, match="no"), opened(LOCAL, on_wait=on_wait):
        raise AssertionError
    assert len(told) == 1 and isinstance(told[0], Waiting), "it is worth showing"
    with pytest.raises(ZeroDivisionError), opened(LOCAL):
        raise ZeroDivisionError
    with opened(LOCAL, on_wait=on_wait):
        pass


def test_the_environment_of_the_table_holds_and_gives_way() -> None:
    config = DeviceConfig(name="x", address=LOCAL.address, environment={"A": "1", "B": "2"})
    with opened(config) as device:
        assert device.describe().name == "x"
        done = device.run(["sh", "-c", "echo $A $B"], env={"B": "3"}, timeout_s=30)
    assert done.stdout == "1 3\n"


def test_another_python_says_what_it_is(tmp_path: Path) -> None:
    with opened(DeviceConfig(name="x", address=LOCAL.address, python=sys.executable)) as device:
        info = device.describe()
    with opened(LOCAL) as device:
        plain = device.describe()
    assert info.python == sys.executable
    assert info.fingerprint == plain.fingerprint


@pytest.mark.parametrize("program", ["/nonexistent/python", "true", "false"])
def test_what_is_no_python_is_told(program: str) -> None:
    with opened(DeviceConfig(name="x", address=LOCAL.address, python=program)) as device, pytest.raises(DeviceError):
        device.describe()


def test_others_add_kinds_by_the_same_door(monkeypatch: pytest.MonkeyPatch) -> None:
    add_kinds(monkeypatch, foo=f"{__name__}:other_kind", ssh="nobody:takes_this_place")
    with opened(resolve("foo://here")) as device:
        assert device.describe().name == "other here"
    assert opening.load_factory("ssh") is opening.ssh_device


def test_unknown_and_broken_kinds_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no kind of device 'foo'") as told:
        resolve("foo://here")
    assert told.value.hint.startswith("The known kinds are: adb, ")
    assert told.value.hint.endswith("local, sdb, ssh. For SSH, give ssh://user@host[:port].")
    monkeypatch.setattr("gnomon.devices.opening.named", lambda group: {})
    with pytest.raises(UsageError, match="no kind of device 'labgrid'") as told:
        resolve("labgrid:p1")
    assert told.value.hint.endswith("-m pip install ./packages/labgrid")
    monkeypatch.undo()
    add_kinds(monkeypatch, foo="no_such_module:factory")
    with pytest.raises(UsageError, match="no_such_module"), opened(resolve("foo://here")):
        pass


def test_what_a_table_says_reaches_ssh() -> None:
    config = DeviceConfig(
        name="b",
        address=parse_address("ssh://me@host:2"),
        python="/p",
        folder="/f",
        keep=False,
        environment={"A": "b"},
        ssh_options=("X=y",),
        connect_timeout_s=3.0,
    )
    from gnomon.devices.shell import ssh

    seen: list[Any] = []

    class Fake:
        def __init__(self, settings: Any, *, on_wait: Any) -> None:
            seen.append(settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssh, "SshDevice", Fake)
        opening.ssh_device(config, None)
    names = ("name", "user", "host", "port", "python", "folder", "keep", "environment", "ssh_options")
    assert [getattr(seen[0], n) for n in names] == ["b", "me", "host", 2, "/p", "/f", False, {"A": "b"}, ("X=y",)]
    assert seen[0].connect_timeout_s == 3.0


def test_a_kind_that_others_add_has_the_key_of_its_address_for_a_serial_number_and_no_options_of_ssh() -> None:
    config = DeviceConfig(name="b", address=parse_address("board:b7"))
    assert bridge_settings(ADB, config).serial == "b7"
    with pytest.raises(UsageError, match="board does not use ssh"):
        bridge_settings(ADB, replace(config, ssh_options=("X=y",)))
