"""A Tizen device over the stand-in for `sdb` (tests/standins/sdb): the contract, sdb's habits, and the ways to end."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.devices.shell.sdbkit import SERIAL, Board, boards
from tests.devices.shell.shellkit import (
    FAMILY,
    ShellContract,
    ShellOutputs,
    WithoutPython,
    killed_in_the_middle,
    the_second_waits,
)
from tests.devices.shell.sshkit import becomes

from gnomon.devices.address import Address
from gnomon.devices.config import DeviceConfig
from gnomon.devices.shell.bridge import BridgeDevice as SdbDevice
from gnomon.devices.shell.bridge_link import Unterminal, devices
from gnomon.devices.shell.sdb import sdb_device
from gnomon.errors import DeviceError


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    yield from boards(tmp_path_factory.mktemp("rich"), poor=False)


@pytest.fixture
def poor(tmp_path: Path) -> Iterator[Board]:
    yield from boards(tmp_path / "poor", poor=True)


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    yield from boards(tmp_path / "own", poor=False)


@pytest.fixture(params=["board", "poor"])
def either(request: pytest.FixtureRequest) -> Board:
    found: Board = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def device(rich: Board) -> Iterator[SdbDevice]:
    with SdbDevice(rich.settings()) as opened:
        yield opened


class TestSdbDevice(ShellContract, ShellOutputs):
    """With Python, setsid and flock there."""


class TestPoorSdbDevice(WithoutPython):
    """Without Python, setsid, flock, mkfifo and sha256sum there."""

    @pytest.fixture(scope="class")
    @classmethod
    def device(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SdbDevice]:
        for board in boards(tmp_path_factory.mktemp("poor"), poor=True):
            with SdbDevice(board.settings()) as opened:
                yield opened


@given(st.binary(max_size=60).map(lambda b: b.replace(b"a", b"\r").replace(b"b", b"\n")), st.integers(1, 7))
def test_what_the_terminal_does_is_taken_back(printed: bytes, size: int) -> None:
    seen = printed.replace(b"\n", b"\r\n")
    clean = Unterminal()
    got = b"".join(clean.add(seen[at : at + size]) for at in range(0, len(seen), size))
    assert got + clean._held == printed


def test_carriage_returns_of_the_command_stay(device: SdbDevice) -> None:
    script = "printf 'a\\r\\nb\\rc\\r\\r\\n\\n\\t\\033[0m'; printf 'e\\r\\n' >&2"
    completed = device.run(["sh", "-c", script], env={}, timeout_s=60)
    assert completed.stdout == "a\r\nb\rc\r\r\n\n\t\x1b[0m"
    assert completed.stderr == "e\r\n"


def test_the_configured_environment_is_there_and_gives_way(board: Board) -> None:
    config = dataclasses.replace(board.settings(), environment={"ONE": "1", "TWO": "it's\n2"})
    with SdbDevice(config) as device:
        printed = device.run(["sh", "-c", 'echo "$ONE$TWO"'], env={"ONE": "3"}, timeout_s=60).stdout
    assert printed == "3it's\n2\n"


def test_the_device_is_clean_afterwards(either: Board) -> None:
    with SdbDevice(either.settings()) as device:
        assert len(either.private_folders()) == 1
        assert device.run(["ls", "-a"], env={}, timeout_s=60).stdout.split() == [".", ".."]
    assert not either.private_folders()
    assert becomes(lambda: not either.processes())


def test_what_was_pushed_is_not_sent_again(board: Board, tmp_path: Path) -> None:
    local = tmp_path / "m"
    local.write_bytes(b"x" * 100_000)
    with SdbDevice(board.settings()) as device:
        remote = Path(device.push(local, "m"))
    before = remote.stat().st_ino
    board.say("loses", "50000")  # sent again it would not arrive
    with SdbDevice(board.settings()) as device:
        assert Path(device.push(local, "m")).stat().st_ino == before
    assert board.folder / "home" in remote.parents


def test_nothing_stays_where_nothing_may_be_kept(board: Board, tmp_path: Path) -> None:
    (tmp_path / "m").write_text("m")
    with SdbDevice(board.settings(keep=False)) as device:
        remote = Path(device.push(tmp_path / "m", "m"))
        assert remote.read_text() == "m"
    assert not remote.exists()


@pytest.mark.parametrize("kind", ["board", "poor"])
def test_a_file_that_comes_half_is_told_though_sdb_says_nothing(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    board: Board = request.getfixturevalue(kind)
    (tmp_path / "m").write_bytes(b"x" * 100_000)
    (tmp_path / "kept").write_text("kept")
    with SdbDevice(board.settings()) as device:
        assert device.run(["sh", "-c", "seq 20000 >f"], env={}, timeout_s=60).ok
        board.say("loses", "50000")
        with pytest.raises(DeviceError, match="as it was sent") as pushed:
            device.push(tmp_path / "m", "m")
        with pytest.raises(DeviceError, match="as it is there"):
            device.pull("f", tmp_path / "kept")
        (board.folder / "loses").unlink()
        assert Path(device.push(tmp_path / "m", "m")).read_bytes() == b"x" * 100_000
    assert pushed.value.transient
    assert (tmp_path / "kept").read_text() == "kept"


_VICTIM = """
import sys
from gnomon.devices.shell.bridge import BridgeDevice
from gnomon.devices.shell.sdb import SdbSettings
with BridgeDevice(SdbSettings(**eval(sys.argv[1]))) as device:
    device.run(["sh", "-c", sys.argv[2]], env={}, timeout_s=600, on_line=lambda line: print(line, flush=True))
"""


def test_kill_9_of_gnomon_leaves_the_device_clean(either: Board) -> None:
    shown = repr(dataclasses.asdict(either.settings(silence_s=2.0)))
    killed_in_the_middle(_VICTIM, shown, FAMILY)
    assert becomes(lambda: not either.private_folders())
    assert becomes(lambda: not either.processes())
    with SdbDevice(either.settings()):
        pass


@pytest.mark.parametrize("least", ["1000", "1"])
def test_a_script_that_comes_half_is_told(board: Board, least: str) -> None:
    board.say("loses", least)
    with pytest.raises(DeviceError, match="whole") as told:
        SdbDevice(board.settings()).__enter__()
    assert told.value.transient
    (board.folder / "loses").unlink()
    with pytest.raises(DeviceError, match=r"whole|lost") as told, SdbDevice(board.settings()) as device:
        board.say("loses", least)
        device.run(["true"], env={}, stdin=b"input", timeout_s=60)
    assert told.value.transient
    assert becomes(lambda: not board.private_folders())


def test_a_silent_device_is_lost(board: Board) -> None:
    with pytest.raises(DeviceError, match="silent") as told, SdbDevice(board.settings(silence_s=3.0)) as device:
        device.run(
            ["sh", "-c", "echo go; sleep 600"], env={}, timeout_s=600, on_line=lambda _: board.say("slow", "600")
        )
    assert told.value.transient
    assert becomes(lambda: not board.private_folders())


def test_a_device_that_goes_away_is_lost(board: Board) -> None:
    with pytest.raises(DeviceError) as told, SdbDevice(board.settings()) as device:
        board.say("state", "offline")
        device.run(["true"], env={}, timeout_s=60)
    assert told.value.transient
    assert told.value.hint


def test_the_second_waits_for_the_first(either: Board) -> None:
    the_second_waits(lambda on_wait: SdbDevice(either.settings(), on_wait=on_wait))


def test_of_several_devices_one_must_be_named(board: Board) -> None:
    other = Board(board.root, "192.168.0.7:26101")
    with pytest.raises(DeviceError, match=f"several devices are connected: 192.168.0.7:26101, {SERIAL}"):
        SdbDevice(board.settings()).__enter__()
    with SdbDevice(board.settings(serial="192.168.0.7:26101")) as device:
        assert device.folder.startswith(str(other.folder))
    with SdbDevice(board.settings(serial=SERIAL)) as device:
        assert device.folder.startswith(str(board.folder))


@pytest.mark.parametrize(
    ("serial", "state", "told"),
    [
        ("emulator-1", "device", f"sdb knows no device emulator-1; connected: {SERIAL}"),
        ("10.0.0.1:26101", "device", "sdb knows no device 10.0.0.1:26101"),
        ("", "offline", f"{SERIAL} is offline"),
        ("", "locked", f"{SERIAL} is locked"),
    ],
)
def test_a_device_that_is_not_ready_is_told(board: Board, serial: str, state: str, told: str) -> None:
    board.say("state", state)
    with pytest.raises(DeviceError, match=told) as error:
        SdbDevice(board.settings(serial=serial)).__enter__()
    assert error.value.hint


def test_no_device_and_no_sdb_are_told(tmp_path: Path, board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / ".server").write_text("")
    monkeypatch.setenv("SDB_STANDIN", str(tmp_path / "none"))
    with pytest.raises(DeviceError, match="sdb knows no device"):
        SdbDevice(board.settings()).__enter__()
    with pytest.raises(DeviceError, match="'/no/sdb' cannot be started") as told:
        SdbDevice(dataclasses.replace(board.settings(), program="/no/sdb")).__enter__()
    assert "Tizen Studio" in told.value.hint
    with pytest.raises(DeviceError, match="does not list devices"):
        devices(dataclasses.replace(board.settings(), program="true"))


def test_a_python_that_was_named_and_is_not_there_is_an_error(board: Board) -> None:
    with pytest.raises(DeviceError, match=r"no Python of 3\.10 or newer at /no/python"):
        SdbDevice(dataclasses.replace(board.settings(), python="/no/python")).__enter__()
    assert not board.private_folders()


def test_an_address_s_host_is_the_serial_number(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{board.program.parent}:{os.environ['PATH']}")
    address = Address(kind="sdb", host=SERIAL)
    with sdb_device(DeviceConfig(name="tv", address=address), None) as device:
        assert device.describe().name == "tv"
    with pytest.raises(DeviceError, match=r"no device 192\.168\.0\.7:26101"):
        sdb_device(
            DeviceConfig(name="tv", address=Address(kind="sdb", host="192.168.0.7", port=26101)), None
        ).__enter__()


def test_outside_of_the_block_nothing_runs(board: Board) -> None:
    device = SdbDevice(board.settings())
    with pytest.raises(DeviceError, match="not open"):
        device.run(["true"], env={}, timeout_s=1)
