"""The tracker's client: addresses, replies from anywhere, peers that are hostile or silent, and the real tracker."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.processkit import becomes
from tests.tuning.tvmkit import Tracked, needs_tvm, rpc_devices  # noqa: F401 - a fixture

import gnomon
from gnomon.devices.address import parse_address
from gnomon.devices.opening import load_factory
from gnomon.errors import DeviceError, UsageError
from gnomon.tuning.tracker import (
    MAGIC,
    MOST_REPLY_BYTES,
    Queue,
    TrackedDevice,
    TrackedServer,
    Tracker,
    TrackerSummary,
    TrackerWire,
    connected,
    read_summary,
    tracked_device,
)

PUT, UPDATE, PENDING_KEYS = 3, 5, 7
HELLO = struct.pack("<i", MAGIC)

keys = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
ports = st.integers(1, 65535)


# Addresses


@pytest.mark.parametrize(
    ("address", "environment", "expected"),
    [
        ("tvm:///k", {"TVM_TRACKER_HOST": "board", "TVM_TRACKER_PORT": "9300"}, "board:9300"),
        ("tvm:///k", {"TVM_TRACKER_HOST": "board"}, "board:9190"),
        ("tvm:///k", {"TVM_TRACKER_HOST": "::1", "TVM_TRACKER_PORT": "1"}, "[::1]:1"),
        ("tvm://desk/k", {"TVM_TRACKER_HOST": "board", "TVM_TRACKER_PORT": "9300"}, "desk:9300"),
        ("tvm://desk:9400/k", {"TVM_TRACKER_HOST": "board", "TVM_TRACKER_PORT": "x"}, "desk:9400"),
    ],
)
def test_what_is_left_out_comes_from_the_environment(
    address: str, environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TVM_TRACKER_PORT", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert tracked_device(parse_address(address)).tracker.address == expected


@pytest.mark.parametrize(
    ("host", "port", "told"),
    [("", "1", "no tracker is named"), ("board", "http", "not a number from 1"), ("-board", "1", "an invalid host")],
)
def test_variables_that_mean_no_tracker_are_refused(
    host: str, port: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TVM_TRACKER_HOST", host)
    monkeypatch.setenv("TVM_TRACKER_PORT", port)
    with pytest.raises(UsageError, match=told):
        tracked_device(parse_address("tvm:///k"))


# Replies


@given(
    st.lists(st.tuples(keys, ports, st.booleans())), st.dictionaries(keys, st.tuples(st.integers(0), st.integers(0)))
)
def test_a_summary_is_read_whole(servers: list[tuple[str, int, bool]], queues: dict[str, tuple[int, int]]) -> None:
    infos = [{"key": f"server:{key}", "addr": ["h", str(port) if cpp else port]} for key, port, cpp in servers]
    counts = {key: {"free": free, "pending": pending, "new": 1} for key, (free, pending) in queues.items()}
    found = read_summary([0, {"queue_info": counts, "server_info": infos}], "t:1")
    assert sorted((s.key, s.addr[1]) for s in found.server_info) == sorted((key, port) for key, port, _ in servers)
    assert dict(found.queue_info) == {key: Queue(free=free, pending=p) for key, (free, p) in queues.items()}
    assert set(found.keys) == {key for key, _, _ in servers}


def test_all_that_is_wrong_is_told_at_once() -> None:
    infos = [7, {"key": "server:", "addr": ["h", 1]}, {"key": "server:a", "addr": ["", 70000]}, {"key": "server:b"}]
    counts = {"a": {"free": -1, "pending": True}, "b": []}
    with pytest.raises(DeviceError) as refused:
        read_summary([0, {"server_info": infos, "queue_info": counts}], "t:1")
    for place in (
        "[0]",
        "[1].key",
        "[2].addr[0]",
        "[2].addr[1]",
        "[3].addr",
        "queue_info.a.free",
        "queue_info.a.pending",
        "queue_info.b",
    ):
        assert place in refused.value.message
    assert "t:1" in refused.value.message
    assert refused.value.hint


def test_an_unknown_key_lists_the_known_and_the_near_one() -> None:
    found = TrackerSummary(server_info=(TrackedServer(key="phone", addr=("h", 1)),))
    with pytest.raises(DeviceError, match="'phne'; its keys: 'phone'") as refused:
        found.require("phne", "t:1")
    assert refused.value.hint == "Did you mean 'phone'?"
    with pytest.raises(DeviceError, match="it has no servers"):
        TrackerSummary().require("x\x1b[2J", "t:1")


@pytest.mark.parametrize("known", [True, False])
def test_a_server_that_was_there_before_is_waited_for(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock goes on a second at each look; the server is back after eight of them."""
    seconds = iter(range(100))
    back = TrackerSummary(server_info=(TrackedServer(key="phone", addr=("h", 1)),))
    looks: list[int] = []

    def summary(tracker: Tracker) -> TrackerSummary:
        looks.append(next(seconds))
        return back if len(looks) > 8 else TrackerSummary()

    monkeypatch.setattr(Tracker, "summary", summary)
    monkeypatch.setattr("gnomon.tuning.tracker.time.monotonic", lambda: float(len(looks)))
    monkeypatch.setattr("gnomon.tuning.tracker.time.sleep", lambda seconds: None)
    device = TrackedDevice(tracker=Tracker(host="t", port=1), key="phone")
    if known:
        device.require(60.0, expected=True)
        assert len(looks) == 9
    else:
        with pytest.raises(DeviceError, match="no server of the tracker"):
            device.require(60.0)
        assert len(looks) <= 4, "what may be a typing error is told soon"


# Peers that are not a tracker


@contextlib.contextmanager
def peer(answer: Callable[[socket.socket], None]) -> Iterator[Tracker]:
    """Somebody who listens on loopback and answers each connection so, until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        ended = threading.Event()

        def serve() -> None:
            while not ended.is_set():
                with contextlib.suppress(OSError):
                    link, _ = listener.accept()
                    link.settimeout(5)
                    with link:
                        answer(link)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield Tracker(host="127.0.0.1", port=listener.getsockname()[1], reply_s=0.3)
        finally:
            ended.set()
            thread.join()


def frame(raw: bytes) -> bytes:
    return struct.pack("<i", len(raw)) + raw


def sends(raw: bytes) -> Callable[[socket.socket], None]:
    """Sends that and waits for the end of the connection."""

    def answer(link: socket.socket) -> None:
        link.sendall(raw)
        while link.recv(1024):
            pass

    return answer


def drips(link: socket.socket) -> None:
    """One byte after the other, of a reply that never ends."""
    for byte in HELLO + frame(b" " * 1000):
        link.sendall(bytes([byte]))
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (sends(b""), "not answer in time"),
        (sends(HELLO), "not answer in time"),
        (sends(HELLO[:2]), "not answer in time"),
        (sends(b"HTTP/1.1 400 Bad Request\r\n"), "a wrong magic number"),
        (sends(HELLO + frame(b"[0,")), "not JSON"),
        (sends(HELLO + frame(b"\xff\xfe")), "not UTF-8"),
        (sends(HELLO + frame(b"[" * 50_000)), "nested too deeply"),
        (sends(HELLO + frame(b"NaN")), "not a JSON number"),
        (sends(HELLO + frame(b'[0, {"a": 1, "a": 2}]')), "given twice"),
        (sends(HELLO + frame(b"[-1]")), "malformed"),
        (sends(HELLO + struct.pack("<i", 1 << 30)), "1073741824 bytes"),
        (sends(HELLO + struct.pack("<i", MOST_REPLY_BYTES + 1)), "bytes"),
        (sends(HELLO + struct.pack("<i", 0)), "0 bytes"),
        (sends(HELLO + struct.pack("<i", -5)), "-5 bytes"),
        (lambda link: None, "closed the connection|dropped the connection"),
        (lambda link: link.sendall(HELLO), "closed the connection|dropped the connection"),
        (lambda link: link.sendall(HELLO + frame(b"[0, {}]")[:6]), "closed the connection|dropped the connection"),
        (drips, "not answer in time"),
    ],
)
def test_whatever_a_peer_does_is_an_error_with_the_next_step(
    answer: Callable[[socket.socket], None], told: str
) -> None:
    with peer(answer) as tracker:
        for ask in (tracker.summary, lambda: tracker.request("a", 0.3)):
            with pytest.raises(DeviceError, match=told) as refused:
                ask()
            assert refused.value.hint
            assert tracker.address in refused.value.message


def test_an_address_where_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else can take it
        with pytest.raises(DeviceError, match="no tracker can be reached") as refused:
            Tracker(host="127.0.0.1", port=taken.getsockname()[1]).summary()
    assert refused.value.transient
    assert "tvm.exec.rpc_tracker" in refused.value.hint


SUMMARY = (
    b'[0, {"server_info": [{"key": "server:a", "addr": ["h", 1]}], "queue_info": {"a": {"free": 0, "pending": 1}}}]'
)


def test_a_server_that_was_given_in_the_last_moment_is_not_lost() -> None:
    """The time is up and the answer is under way: whoever is about to leave takes it with him."""

    def answer(link: socket.socket) -> None:
        link.sendall(HELLO + frame(SUMMARY))
        while link.recv(1024):  # until the client has said that it sends no more
            pass
        link.sendall(frame(b'[0, ["h", "7", "a:0.5"]]'))

    with peer(answer) as tracker:
        found = tracker.request("a", 0.3)
    assert (found.host, found.port, found.matchkey) == ("h", 7, "a:0.5")


def test_a_server_that_leaves_while_it_is_asked_for_is_waited_for() -> None:
    """It is listed when it is looked for, and not when it is asked for: it comes back within the time for that."""
    listed = iter([True, False, False, True, True])

    def answer(link: socket.socket) -> None:
        one = next(listed)
        link.sendall(HELLO + frame(SUMMARY if one else b'[0, {"server_info": [], "queue_info": {}}]'))
        if one:
            link.sendall(frame(b'[0, ["h", "7", "a:0.5"]]'))
        while link.recv(1024):
            pass

    with peer(answer) as tracker:
        found = tracker.request("a", 10, appear_s=10)
    assert found.matchkey == "a:0.5"


def test_a_tracker_that_does_not_hang_up_keeps_nobody() -> None:
    with peer(sends(HELLO + frame(SUMMARY))) as tracker, pytest.raises(DeviceError, match="its only server is busy"):
        tracker.request("a", 0.1)


# The real tracker. A device is played by the test: it says what a server says, and hears what the tracker thinks.


@contextlib.contextmanager
def device(tracker: Tracker, key: str) -> Iterator[TrackerWire]:
    """A device that is registered and offers nothing yet."""
    with connected(tracker.host, tracker.port, time.monotonic() + 10) as wire:
        assert said(wire, [UPDATE, {"key": f"server:{key}", "addr": [None, 4711]}]) == 0
        yield wire


def said(wire: TrackerWire, message: list[Any]) -> Any:
    wire.send(message, time.monotonic() + 10)
    return wire.receive(time.monotonic() + 10)


def offer(wire: TrackerWire, key: str, matchkey: str) -> None:
    assert said(wire, [PUT, key, [4711, matchkey], None]) == 0


@needs_tvm
def test_the_servers_of_a_real_tracker(rpc_devices: Tracked) -> None:  # noqa: F811
    found = rpc_devices.tracker.summary()
    assert {"wide", "narrow"} <= set(found.keys)
    assert [s.addr[1] for s in found.of("narrow")] == [rpc_devices.of("narrow").port]
    assert found.queue("wide") == Queue(free=1, pending=0)


@needs_tvm
def test_the_file_of_devices_may_name_one(rpc_devices: Tracked) -> None:  # noqa: F811
    row = gnomon.add_device("phone", rpc_devices.address("narrow"), target="x86-64").device
    assert row is not None and row.state == "ready"
    gnomon.add_device("lost", rpc_devices.address("narow"), check=False)
    local, phone, lost = gnomon.list_devices().devices
    assert (local.state, phone.state, lost.state) == ("ready", "ready", "failed")
    assert lost.reason is not None and "'narow'" in lost.reason
    with pytest.raises(UsageError, match="only tune, exec and overlay"):
        load_factory("tvm")


@needs_tvm
def test_an_unknown_key_leaves_no_trace(rpc_devices: Tracked) -> None:  # noqa: F811
    with pytest.raises(DeviceError, match="'widest'; its keys: 'narrow', 'wide'"):
        rpc_devices.tracker.request("widest", 5)
    assert "widest" not in rpc_devices.tracker.summary().queue_info


@needs_tvm
def test_a_device_that_comes_in_time(rpc_devices: Tracked) -> None:  # noqa: F811
    tracker = rpc_devices.tracker
    found: list[Any] = []
    asking = threading.Thread(target=lambda: found.append(tracker.request("late", 10, appear_s=10)))
    asking.start()
    with device(tracker, "late") as wire:
        assert becomes(lambda: tracker.summary().queue("late").pending == 1)
        offer(wire, "late", "late:0.1")
        asking.join()
        assert said(wire, [PENDING_KEYS]) == []
    assert (found[0].host, found[0].port, found[0].matchkey) == ("127.0.0.1", 4711, "late:0.1")


@needs_tvm
def test_a_request_that_was_given_up_takes_no_device(rpc_devices: Tracked) -> None:  # noqa: F811
    tracker = rpc_devices.tracker
    with device(tracker, "dropped") as wire:
        for _ in range(3):
            with pytest.raises(DeviceError, match=r"became free within 0\.2 s: its only server is busy"):
                tracker.request("dropped", 0.2)
        # The tracker counts them until it meets them; then it finds that nobody is there.
        assert tracker.summary().queue("dropped").pending == 3
        offer(wire, "dropped", "dropped:0.1")
        assert said(wire, [PENDING_KEYS]) == ["dropped:0.1"]
        assert tracker.summary().queue("dropped") == Queue(free=1, pending=0)
        assert tracker.request("dropped", 5).matchkey == "dropped:0.1"


@needs_tvm
def test_a_device_that_ends_is_not_listed_and_not_given(rpc_devices: Tracked) -> None:  # noqa: F811
    tracker = rpc_devices.tracker
    with device(tracker, "ending") as wire:
        offer(wire, "ending", "ending:0.1")
    assert becomes(lambda: "ending" not in tracker.summary().keys)
    assert tracker.summary().queue("ending") == Queue(free=0, pending=0)
    with pytest.raises(DeviceError, match="no server of the tracker"):
        tracker.request("ending", 5)


def test_no_process_of_gnomon_loads_tvm() -> None:
    code = "import sys, gnomon.tuning.tracker, gnomon.tuning.servers; print('tvm' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "False"
