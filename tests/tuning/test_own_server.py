"""TVM's server that gnomon starts on a device behind SSH: reached, lost and started again, ended with all it has."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from tests.bad_days.boardkit import Board, python_with, running_board, switch_off, switch_on
from tests.devices.shell.sshkit import becomes
from tests.tuning.conftest import TARGET, Kit
from tests.tuning.test_tuning_bench import LOOP, failed, library, outputs, timed, vectors
from tests.tuning.tvmkit import needs_tvm

from gnomon.core.overlay.records import TunedDevice
from gnomon.devices.address import parse_address
from gnomon.devices.config import DeviceConfig
from gnomon.errors import DeviceError, RuntimeMissingError, UsageError
from gnomon.tuning import servers
from gnomon.tuning.bench import Bench, once
from gnomon.tuning.servers import OwnServer

pytestmark = [pytest.mark.devices, needs_tvm]


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """A board whose Python has TVM."""
    with running_board(tmp_path_factory.mktemp("board")) as running:
        yield replace(running, python=Path(sys.executable))


def pid_there(bench: Bench, kit: Kit) -> int:
    """The process that a call runs in."""
    keep = kit.path(".npz")
    timed(bench.call(vectors(library(kit, "out[0] = getpid();"), keep=keep), once(LOOP)))
    return int(outputs(keep)[0][0])


def servers_on(board: Board) -> list[int]:
    """The processes that read their program from their standard input."""
    return [pid for pid in board.processes() if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:2] == [b"-"]]


def test_sessions_on_a_device_behind_ssh(board: Board, kit: Kit) -> None:
    config, core = board.config(), min(os.sched_getaffinity(0))
    with OwnServer(replace(config, pin=(core,)), kit.pool.guard, lambda sentence: None) as server:
        assert server.info.mtriple.startswith(os.uname().machine)
        bench = Bench(kit.pool, TunedDevice(key="board", target=TARGET, threads=1), server, wait_s=20.0)
        first = pid_there(bench, kit)
        assert first in board.processes() and pid_there(bench, kit) == first
        assert os.sched_getaffinity(first) == {core}
        assert (bench.threads, bench.server) == (1, str(config.address))
        failed(bench.call(vectors(library(kit, "*(volatile int*)8 = 1;")), LOOP), "crash")
        second = pid_there(bench, kit)
        failed(bench.call(vectors(library(kit, "for (;;) sleep(1);")), replace(LOOP, timeout_s=2.0)), "hang")
        third = pid_there(bench, kit)
        bench.fresh()
        assert len({first, second, third, pid_there(bench, kit)}) == 4
        assert not {first, second, third} & set(board.processes())
        # Whatever ends the server: it is there again for the next call.
        for pid in servers_on(board):
            os.kill(pid, signal.SIGKILL)
        assert pid_there(bench, kit) in board.processes()
        bench.fresh()
    assert board.clean()


def test_a_connection_that_is_lost_in_a_call_and_a_server_that_stands_still(
    board: Board, kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = tmp_path / "begun"
    asleep = library(kit, f'if (open("{begun}", O_CREAT | O_EXCL, 0600) >= 0) sleep(1000);')
    with OwnServer(board.config(), kit.pool.guard, lambda sentence: None) as server:
        bench = Bench(kit.pool, TunedDevice(key="board", target=TARGET, threads=1), server, wait_s=20.0)

        def lose() -> None:
            assert becomes(begun.exists)
            board.server.kill_sessions()

        with ThreadPoolExecutor(1) as pool:
            lost = pool.submit(lose)
            timed(bench.call(vectors(asleep), LOOP))
            lost.result()
        bench.fresh()
        monkeypatch.setattr("gnomon.tuning.bench._CONNECT_S", 10.0)
        stopped = servers_on(board)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        assert pid_there(bench, kit) in board.processes()
        assert stopped and not set(stopped) & set(board.processes())
        bench.fresh()
    assert board.clean()


def test_a_board_that_is_switched_off_and_one_where_tvm_hangs(
    board: Board, kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OwnServer(board.config(), kit.pool.guard, lambda sentence: None) as server:
        switch_off(board)
        assert becomes(lambda: not server._run or not server._run.thread.is_alive())
        with pytest.raises(DeviceError, match="refuses the connection") as away:
            server.free(0.0)
        assert away.value.transient
        switch_on(board)
        server.free(20.0)
    (tmp_path / "tvm").mkdir()
    (tmp_path / "tvm" / "__init__.py").write_text("import time\nprint(7, flush=True)\ntime.sleep(1000)\n")
    monkeypatch.setattr(servers, "_HELLO_S", 1.0)
    hanging = board.config(environment={"PYTHONPATH": str(tmp_path)})
    with pytest.raises(DeviceError, match="on board did not start within 1 s") as silent:
        OwnServer(hanging, kit.pool.guard, lambda sentence: None).__enter__()
    assert "import tvm" in silent.value.hint
    assert board.clean()


def test_tvm_is_brought_to_a_python_without_it(
    board: Board, kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = board.config(python=str(python_with(tmp_path / "bare")))
    told: list[str] = []
    with OwnServer(bare, kit.pool.guard, told.append) as server:
        bench = Bench(kit.pool, TunedDevice(key="board", target=TARGET, threads=1), server, wait_s=20.0)
        assert pid_there(bench, kit) in board.processes()
        bench.fresh()
    assert "apache-tvm" in " ".join(told)
    monkeypatch.setattr(servers, "extras", lambda: {"tvm": dict.fromkeys(servers._NEEDED, "no-such-package==1")})
    with pytest.raises(RuntimeMissingError, match=r"No module named 'tvm'.*gnomon cannot install it"):
        OwnServer(bare, kit.pool.guard, told.append).__enter__()
    assert board.clean()


@pytest.mark.parametrize("address", ["adb://x", "sdb:", "local"])
def test_other_devices_have_servers_of_their_owners(address: str, kit: Kit) -> None:
    config = DeviceConfig(name="phone", address=parse_address(address))
    with pytest.raises(UsageError, match="cannot start TVM's server on phone") as refused:
        OwnServer(config, kit.pool.guard, lambda sentence: None)
    assert "tvm://HOST:PORT/KEY" in refused.value.hint
