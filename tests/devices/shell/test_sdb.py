"""A Tizen device over the stand-in for `sdb` (tests/standins/sdb): the contract, sdb's habits, and the ways to end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.devices.shell.sdbkit import SERIAL, Board, boards
from tests.devices.shell.shellkit import Commands, Extremes, Visits
from tests.processkit import becomes

from gnomon.devices.address import Address
from gnomon.devices.config import DeviceConfig
from gnomon.devices.shell.bridge import BridgeDevice
from gnomon.devices.shell.bridge_link import Unterminal, devices
from gnomon.devices.shell.sdb import sdb_device
from gnomon.errors import DeviceError
from gnomon.testing.device import DeviceContract


@pytest.fixture
def poor(tmp_path: Path) -> Iterator[Board]:
    yield from boards(tmp_path / "poor", poor=True)


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    yield from boards(tmp_path / "own", poor=False)


class TestSdbDevice(DeviceContract, Commands, Extremes):
    """With Python, setsid and flock there."""

    @pytest.fixture(scope="class")
    @classmethod
    def device(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeDevice]:
        for board in boards(tmp_path_factory.mktemp("rich"), poor=False):
            with board.device() as opened:
                yield opened


class TestVisits(Visits):
    silence_s = 2.0

    @pytest.fixture
    def reached(self, board: Board) -> Board:
        return board


@given(st.binary(max_size=60).map(lambda b: b.replace(b"a", b"\r").replace(b"b", b"\n")), st.integers(1, 7))
def test_what_the_terminal_does_is_taken_back(printed: bytes, size: int) -> None:
    seen = printed.replace(b"\n", b"\r\n")
    clean = Unterminal()
    got = b"".join(clean.add(seen[at : at + size]) for at in range(0, len(seen), size))
    assert got + clean._held == printed


@pytest.mark.parametrize("kind", ["board", "poor"])
def test_a_file_that_comes_half_is_told_though_sdb_says_nothing(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    board: Board = request.getfixturevalue(kind)
    (tmp_path / "m").write_bytes(b"x" * 100_000)
    (tmp_path / "kept").write_text("kept")
    with board.device() as device:
        assert device.run(["sh", "-c", "seq 20000 >f"], env={}, timeout_s=60).ok
        board.say("loses", "50000")
        with pytest.raises(DeviceError, match="did not arrive unchanged") as pushed:
            device.push(tmp_path / "m", "m")
        with pytest.raises(DeviceError, match="did not arrive unchanged"):
            device.pull("f", tmp_path / "kept")
        (board.folder / "loses").unlink()
        assert Path(device.push(tmp_path / "m", "m")).read_bytes() == b"x" * 100_000
    assert pushed.value.transient
    assert (tmp_path / "kept").read_text() == "kept"


@pytest.mark.parametrize("least", ["1000", "1"])
def test_a_script_that_comes_half_is_told(board: Board, least: str) -> None:
    board.say("loses", least)
    with pytest.raises(DeviceError, match="complete") as told:
        board.device().__enter__()
    assert told.value.transient
    (board.folder / "loses").unlink()
    with pytest.raises(DeviceError, match=r"complete|lost") as told, board.device() as device:
        board.say("loses", least)
        device.run(["true"], env={}, stdin=b"input", timeout_s=60)
    assert told.value.transient
    assert becomes(lambda: not board.private_folders())


def test_a_silent_device_is_lost(board: Board) -> None:
    with pytest.raises(DeviceError, match="silent") as told, board.device(silence_s=2.0) as device:
        device.run(
            ["sh", "-c", "echo go; sleep 600"], env={}, timeout_s=600, on_line=lambda _: board.say("slow", "600")
        )
    assert told.value.transient
    assert becomes(lambda: not board.private_folders())


@pytest.mark.parametrize(
    ("serial", "state", "told"),
    [
        ("emulator-1", "device", f"sdb finds no device emulator-1; connected: {SERIAL}"),
        ("10.0.0.1:26101", "device", "sdb finds no device 10.0.0.1:26101"),
        ("", "offline", f"{SERIAL} is offline"),
        ("", "locked", f"{SERIAL} is locked"),
    ],
)
def test_a_device_that_is_not_ready_is_told(board: Board, serial: str, state: str, told: str) -> None:
    board.say("state", state)
    with pytest.raises(DeviceError, match=told) as error:
        board.device(serial=serial).__enter__()
    assert error.value.hint and error.value.transient


def test_no_device_and_no_sdb_are_told(tmp_path: Path, board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / ".server").write_text("")
    monkeypatch.setenv("SDB_STANDIN", str(tmp_path / "none"))
    with pytest.raises(DeviceError, match="sdb finds no device"):
        board.device().__enter__()
    with pytest.raises(DeviceError, match="'/no/sdb' cannot be started") as told:
        board.device(program="/no/sdb").__enter__()
    assert "Tizen Studio" in told.value.hint
    with pytest.raises(DeviceError, match="does not list devices"):
        devices(board.settings(program="true"))


def test_a_python_that_was_named_and_is_not_there_is_an_error(board: Board) -> None:
    with pytest.raises(DeviceError, match=r"no Python 3\.10 or newer at /no/python"):
        board.device(python="/no/python").__enter__()
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
