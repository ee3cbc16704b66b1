"""A tracker and servers as child programs: two real devices of one machine, crashes, and nothing left at any end."""

from __future__ import annotations

import os
import platform
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.tuning import tvmkit
from tests.tuning.tvmkit import needs_tvm, rpc_servers  # noqa: F401 - a fixture

from gnomon.core.installing import install_line
from gnomon.errors import DeviceError, RuntimeMissingError, UsageError
from gnomon.system.process import Guard
from gnomon.tuning import servers as tvm_program
from gnomon.tuning.servers import (
    Place,
    RpcServers,
    ServersRequest,
    TvmProgram,
    checked_bind,
    device_settings,
    free_port,
    living,
    require_tvm,
)
from gnomon.tuning.tracker import FreeServer

RPC_MAGIC = 0xFF271


def eventually(truth: Callable[[], bool], timeout_s: float = 20.0) -> None:
    until_s = time.monotonic() + timeout_s
    while not truth():
        assert time.monotonic() < until_s
        time.sleep(0.02)


# Settings and addresses


def test_two_devices_really_differ_and_more_alternate() -> None:
    wide, narrow = device_settings(2)
    assert (wide.key, narrow.key, narrow.threads, wide.target) == ("wide", "narrow", 1, "native")
    assert wide.threads == len(os.sched_getaffinity(0))
    assert narrow.target == {"x86_64": "x86-64"}.get(platform.machine(), "generic")
    many = device_settings(5)
    assert [d.key for d in many] == ["wide", "narrow", "wide-2", "narrow-2", "wide-3"]
    assert [(d.threads, d.target) for d in many[2:4]] == [(d.threads, d.target) for d in many[:2]]


@pytest.mark.parametrize("bind", ["127.0.0.1", "localhost", "127.0.0.2"])
def test_loopback_needs_no_warning(bind: str) -> None:
    assert checked_bind(bind)[1] == ""


def test_an_address_that_others_reach_has_a_warning() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("203.0.113.7", 9))  # sends nothing: it asks which address would be used
        except OSError:
            pytest.skip("this machine has no address but loopback")
        own = probe.getsockname()[0]
    address, warning = checked_bind(own)
    assert address == own
    assert own in warning and "no authentication" in warning


@pytest.mark.parametrize(
    ("bind", "told"),
    [
        ("0.0.0.0", "every address"),  # noqa: S104 - it is refused
        ("::", "every address"),
        ("203.0.113.7", "cannot be listened on"),
        ("board", "is no address"),
        ("", "is no address"),
    ],
)
def test_addresses_that_cannot_be_served(bind: str, told: str) -> None:
    with pytest.raises(UsageError, match=told) as refused:
        checked_bind(bind)
    assert "--bind" in refused.value.hint


def test_a_port_that_is_anothers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match="another's"):
            free_port("127.0.0.1", port)
        request = ServersRequest(devices=device_settings(1), port=port)
        with pytest.raises(UsageError, match="another's"), RpcServers(request):
            pass


def test_a_machine_without_tvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tvm_program, "_PACKAGES", ("json", "no_such_package_of_tvm"))
    with pytest.raises(RuntimeMissingError, match="no no_such_package_of_tvm") as missing:
        require_tvm()
    assert missing.value.hint == install_line("tvm", python=sys.executable)


@needs_tvm
def test_a_program_that_does_not_start_tells_why(tmp_path: Path) -> None:
    guard = Guard(tmp_path / "gone")
    program = TvmProgram("rpc_tracker", ["--nonsense"], {}, Place(tmp_path, guard))
    eventually(lambda: not program.alive)
    assert "--nonsense" in program.error("has ended").message
    program.end()
    program.end()
    guard.close()


# Real servers


@needs_tvm
def test_servers_have_their_threads_and_listen_on_loopback_alone(rpc_servers: RpcServers) -> None:  # noqa: F811
    threads = []
    for group in rpc_servers.groups[1:]:
        for process in living(group):
            environment = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
            threads += [entry for entry in environment if entry.startswith(b"TVM_NUM_THREADS=")]
    cores = len(os.sched_getaffinity(0))
    assert set(threads) == {f"TVM_NUM_THREADS={cores}".encode(), b"TVM_NUM_THREADS=1"}
    ports = [rpc_servers.arrangement.tracker.port, *(d.port for d in rpc_servers.arrangement.devices)]
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    heard = {line[1] for line in lines if line[3] == "0A" and int(line[1].split(":")[1], 16) in ports}
    assert len(heard) == 3
    assert all(socket.inet_ntoa(struct.pack("=I", int(where.split(":")[0], 16))) == "127.0.0.1" for where in heard)


def session(server: FreeServer) -> socket.socket:
    """A session with a server, as a tuner begins one."""
    link = socket.create_connection((server.host, server.port), timeout=10)
    name = f"client:{server.matchkey}".encode()
    link.sendall(struct.pack("<ii", RPC_MAGIC, len(name)) + name)
    welcomed(link)
    return link


def welcomed(link: socket.socket) -> None:
    """Take all that a server says first: what is left unread when a connection is closed breaks it for the server."""
    with link.makefile("rb") as said:
        magic, length = struct.unpack("<ii", said.read(8))
        assert magic == RPC_MAGIC
        assert said.read(length).startswith(b"server:")


@needs_tvm
def test_a_server_that_hangs_stays_registered_and_is_given(rpc_servers: RpcServers) -> None:  # noqa: F811
    """The tracker cannot tell: whoever connects to what it gives needs a clock of its own."""
    tracker, group = rpc_servers.arrangement.tracker, rpc_servers.groups[2]
    os.killpg(group, signal.SIGSTOP)
    try:
        assert tracker.summary().queue("narrow").free == 1
        server = tracker.request("narrow", 5)
        link = socket.create_connection((server.host, server.port), timeout=0.3)
        name = f"client:{server.matchkey}".encode()
        link.sendall(struct.pack("<ii", RPC_MAGIC, len(name)) + name)
        with pytest.raises(TimeoutError):
            link.recv(1)
    finally:
        os.killpg(group, signal.SIGCONT)
    link.settimeout(10)
    with link:
        welcomed(link)


@needs_tvm
def test_a_session_that_crashes_costs_the_server_which_is_started_anew(rpc_servers: RpcServers) -> None:  # noqa: F811
    tracker, group = rpc_servers.arrangement.tracker, rpc_servers.groups[2]
    server = tracker.request("narrow", 30)
    before = set(living(group))
    with session(server):
        eventually(lambda: bool(set(living(group)) - before))
        (at_work,) = set(living(group)) - before
        assert "narrow" in tracker.summary().keys  # one that is busy is listed
        os.kill(at_work, signal.SIGKILL)  # as a kernel that reads where it must not
        eventually(lambda: "narrow" not in tracker.summary().keys)
    assert before == set(living(group)), "the server's processes go on, and serve nobody"
    with pytest.raises(DeviceError, match="its keys: 'wide'"):
        tracker.request("narrow", 5)
    told: list[str] = []
    while not told:
        rpc_servers.tend(told.append)
        time.sleep(0.1)
    assert told[0] == "narrow: what it ran has crashed: it is started anew"
    assert "narrow: ready at " in told[-1]
    assert living(group) == []
    with session(tracker.request("narrow", 5)):
        assert tracker.summary().queue("wide").free == 1


@needs_tvm
def test_a_start_that_is_given_up_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    stop = threading.Event()
    servers = RpcServers(ServersRequest(devices=device_settings(2)), stop)
    threading.Timer(0.3, stop.set).start()
    with pytest.raises(DeviceError, match="ended before all servers were ready"), servers:
        pass
    assert [living(group) for group in servers.groups] == [[]]
    assert list(tmp_path.iterdir()) == []


@needs_tvm
def test_a_server_that_is_half_ended_serves_on_and_is_ended_whole() -> None:
    with tvmkit.servers(1) as running:
        groups, tracker = running.groups, running.arrangement.tracker
        folder = running._place.folder if running._place else Path("/")
        os.kill(groups[1], signal.SIGTERM)  # the first process alone
        eventually(lambda: groups[1] not in living(groups[1]))
        assert len(living(groups[1])) == 1
        assert tracker.summary().keys == ("wide",)
        with session(tracker.request("wide", 20)) as link:
            # A client that is killed in the middle of a message ends the server's only thread, as a crash does.
            link.sendall(struct.pack("<q", 1000) + b"the rest never comes")
        eventually(lambda: tracker.summary().keys == ())
        assert len(living(groups[1])) == 1
        told: list[str] = []
        running.stop.set()
        with pytest.raises(DeviceError, match="ended before all servers were ready"):
            running.tend(told.append)
        assert told == ["wide: its program has ended: it is started anew"]
        assert living(groups[1]) == []
        groups += running.groups
    assert not any(living(group) for group in groups)
    assert not folder.exists()
    running.end()
