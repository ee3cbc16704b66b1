"""Android devices over the real adb, which speaks to a stand-in for adbd (tests/standins/adbd)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.devices.shell import adbkit
from tests.devices.shell.adbkit import Phone, adb_server, phone
from tests.devices.shell.shellkit import FAMILY, Commands, Extremes, Visits, WithoutPython
from tests.processkit import becomes, gone

from gnomon.devices.address import parse_address
from gnomon.devices.config import DeviceConfig
from gnomon.devices.opening import opened, resolve
from gnomon.devices.shell.adb import ADB, adb_device
from gnomon.devices.shell.bridge import BridgeDevice
from gnomon.devices.shell.bridge_link import BridgeSettings, devices
from gnomon.errors import DeviceError
from gnomon.testing.device import DeviceContract


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    with adb_server():
        yield


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Phone]:
    """Before Android 7: a terminal and no status; without Python, setsid, flock, mkfifo and sha256sum too."""
    with phone(tmp_path_factory.mktemp("old") / "phone", poor=True, features="") as found:
        yield found


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Phone]:
    with phone(tmp_path / "phone") as found:
        yield found


class TestAdbDevice(DeviceContract, Commands, Extremes):
    """With shell v2 (outputs apart, no terminal), Python, setsid and flock there."""

    @pytest.fixture(scope="class")
    @classmethod
    def device(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeDevice]:
        with phone(tmp_path_factory.mktemp("modern") / "phone") as modern, modern.device() as opened:
            yield opened


class TestOldAdbDevice(WithoutPython):
    """With the shell of old and small programs alone."""

    @pytest.fixture(scope="class")
    @classmethod
    def device(cls, old: Phone) -> Iterator[BridgeDevice]:
        with old.device() as opened:
            yield opened  # the phone is held as long as this class is tested


@pytest.fixture(params=["own", "old"])
def either(request: pytest.FixtureRequest) -> Phone:
    found: Phone = request.getfixturevalue(request.param)
    return found


class TestVisits(Visits):
    silence_s = 2.0

    @pytest.fixture
    def reached(self, either: Phone) -> Phone:
        return either

    def test_what_is_pushed_stays_where_the_user_of_adb_may_write(self, own: Phone, tmp_path: Path) -> None:
        (tmp_path / "m").write_text("m")
        with own.device() as device:
            assert Path(device.push(tmp_path / "m", "m")).is_relative_to(own.folder / "tmp" / "gnomon")


def test_the_carriage_returns_of_a_command_stay(either: Phone) -> None:
    with either.device() as device:
        script = "printf 'a\\r\\nb\\rc\\r\\r\\n\\n\\t\\033[0m'; printf 'e\\r\\n' >&2"
        completed = device.run(["sh", "-c", script], env={}, timeout_s=60)
    assert (completed.stdout, completed.stderr) == ("a\r\nb\rc\r\r\n\n\t\x1b[0m", "e\r\n")


def test_a_phone_that_leaves_is_lost_and_can_be_opened_when_it_is_back(own: Phone) -> None:
    pids: list[int] = []

    def listen(line: str) -> None:
        pids.append(int(line))
        if len(pids) == 3:
            own.leave()

    with pytest.raises(DeviceError) as lost, own.device(silence_s=2.0) as device:
        device.run(["sh", "-c", FAMILY], env={}, timeout_s=60, on_line=listen)
    assert lost.value.transient
    assert "adb devices" in lost.value.hint or "cable" in lost.value.hint
    # The phone cleans up by itself.
    assert becomes(lambda: all(gone(pid) for pid in pids))
    assert becomes(lambda: not own.private_folders())
    with (
        pytest.raises(DeviceError) as away,
        own.device(connect_timeout_s=1.0),
    ):
        pass
    assert away.value.transient
    own.start()
    with own.device() as device:
        assert device.run(["echo", "back"], env={}, timeout_s=60).stdout == "back\n"
    assert becomes(lambda: not own.processes())


def test_a_killed_adb_server_is_a_lost_connection_and_comes_back(own: Phone) -> None:
    def end_it(_: str) -> None:
        adbkit.adb("kill-server")

    with pytest.raises(DeviceError) as lost, own.device(silence_s=2.0) as device:
        device.run(["sh", "-c", "echo go; sleep 600"], env={}, timeout_s=60, on_line=end_it)
    assert lost.value.transient
    with own.device(silence_s=2.0) as device:  # once the phone has noticed, which holds its lease
        assert device.run(["true"], env={}, timeout_s=60).ok


class TestChoosing:
    """Which phone is meant, and what is told where none can be used."""

    @pytest.fixture(autouse=True)
    def alone(self) -> None:
        adbkit.adb("disconnect")

    def test_of_several_phones_one_must_be_named(self, own: Phone, tmp_path: Path) -> None:
        with phone(tmp_path / "other") as other:
            other.say("state", "unauthorized")
            for one in (own, other):
                adbkit.adb("connect", one.serial)
            assert becomes(lambda: devices(own.settings()).get(other.serial) == "unauthorized")
            with pytest.raises(DeviceError) as told:
                own.device(serial="").__enter__()
            assert own.serial in told.value.message
            assert f"{other.serial} (unauthorized)" in told.value.message
            assert "adb://127.0.0.1:" in told.value.hint
            with pytest.raises(DeviceError, match=f"{other.serial} is unauthorized") as told:
                own.device(serial=other.serial).__enter__()
            assert "allow USB debugging" in told.value.hint
            assert told.value.transient
            with own.device() as device:
                assert device.folder.startswith(str(own.folder))

    def test_the_only_phone_needs_no_name(self, own: Phone, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(DeviceError, match="adb finds no device") as told:
            own.device(serial="").__enter__()
        assert "USB debugging" in told.value.hint
        adbkit.adb("connect", own.serial)
        with opened(resolve("adb:")) as device:
            assert device.describe().fingerprint["machine"]
        with adb_device(DeviceConfig(name="mine", address=parse_address(f"adb://{own.serial}")), None) as device:
            assert device.describe().name == "mine"


@pytest.mark.parametrize(
    ("row", "state", "hint"),
    [
        ("QV7\tdevice\n", "device", ""),
        ("QV7\tunauthorized\n", "unauthorized", "allow USB debugging"),
        ("QV7\toffline\n", "offline", "reconnect"),
        ("QV7\tbootloader\n", "bootloader", "Start Android"),
        (
            "QV7\tno permissions (missing udev rules? user is in the plugdev group); see [http://x]\n",
            "no permissions (missing udev rules? user is in the plugdev group); see [http://x]",
            "udev",
        ),
    ],
)
def test_every_state_that_adb_lists_is_read(tmp_path: Path, row: str, state: str, hint: str) -> None:
    program = tmp_path / "adb"
    program.write_text(
        f"#!/bin/sh\necho '* daemon started successfully' >&2\nprintf 'List of devices attached\\n{row}\\n'\n"
    )
    program.chmod(0o755)
    settings = BridgeSettings(bridge=ADB, name="phone", program=str(program))
    assert devices(settings) == {"QV7": state}
    if hint:
        with pytest.raises(DeviceError, match="QV7 is ") as told:
            BridgeDevice(settings).__enter__()
        assert hint in told.value.hint
