"""A client for the tracker of TVM's RPC servers: it lists the servers and waits for a free one.

After connecting, both sides send a magic number of four bytes. Then the client sends a message and the tracker answers.
A message is a JSON text, preceded by its length in four bytes, little-endian. The summary is ``[0, {"queue_info": {key:
{"free": 1, "pending": 0}}, "server_info": [{"key": "server:KEY", "addr": [host, port]}]}]``, and a free server is ``[0,
[host, port, matchkey]]``. Servers in Python report their port as a number, servers in C++ and Java as text. Every
reply is checked, and has a time limit and a size limit. Source: tvm/rpc/tracker.py and tvm/rpc/base.py of Apache TVM
0.27.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, NoReturn

from gnomon.core.codec import OTHERS_TOO, Must, ReadBy, Whole, decode
from gnomon.core.strict_json import Complaints, Strict, complaint, is_text, shown
from gnomon.devices.address import Address, parse_address
from gnomon.errors import DeviceError, ProblemError, UsageError, did_you_mean

_PREFIX = "server:"
_MOST_LETTERS = 512
_MOST_KEYS_TOLD = 20
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)
MAGIC = 0x2F271
MOST_REPLY_BYTES = 1 << 20
_LENGTH = struct.Struct("<i")
_CHUNK_BYTES = 1 << 16
_LEAST_WAIT_S, _MOST_WAIT_S = 0.001, 1e6
HOST_VARIABLE, PORT_VARIABLE = "TVM_TRACKER_HOST", "TVM_TRACKER_PORT"
PUBLISHED_PORT = 9190
_REQUEST, _SUMMARY = 4, 6
_PRIORITY = 1
_LAST_S = 2.0
_POLL_S = 0.2
#: The time within which a crashed server is started again.
_APPEAR_S = 30.0
_SOON_S = 2.0
#: How long a server whose client has disconnected may be missing from the list before it registers again.
_BLINK_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A key's numbers of free servers and of waiting requests (including those of clients that have disconnected)."""

    __pydantic_config__: ClassVar[Any] = OTHERS_TOO
    free: Whole
    pending: Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeServer:
    """A server that accepts only a connection with this `matchkey`.

    If nobody connects to a server that a tracker has assigned, it becomes free again after about 8 seconds, with a
    different matchkey. `name` is the server's name in records.
    """

    host: str
    port: int
    matchkey: str
    name: str


def address_of(host: str, port: int) -> str:
    """HOST:PORT, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reply_port(value: Any) -> int:
    if isinstance(value, str) and _PORT.fullmatch(value):
        value = int(value)
    if type(value) is int and 0 < value < 1 << 16:
        return value
    raise ProblemError(f"a port from 1 to 65535 expected, {shown(value)} found")


def _is_text(text: str) -> bool:
    return 0 < len(text) <= _MOST_LETTERS and is_text(text)


def _server_key(value: Any) -> str:
    key = value.removeprefix(_PREFIX) if isinstance(value, str) and _is_text(value) else ""
    if not key:
        raise ProblemError(f"a server's name of 1 to {_MOST_LETTERS} characters expected, {shown(value)} found")
    return key


Text = Annotated[str, Must(be=f"a text of 1 to {_MOST_LETTERS} characters", fits=_is_text)]
Port = Annotated[int, ReadBy(read=_reply_port)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedServer:
    """A registered server with its key, host and port; it may be free, busy, or lost without notice."""

    __pydantic_config__: ClassVar[Any] = OTHERS_TOO
    key: Annotated[str, ReadBy(read=_server_key)]
    addr: tuple[Text, Port]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerSummary:
    """All servers of a tracker, and the queues of all keys that were ever requested or offered."""

    __pydantic_config__: ClassVar[Any] = OTHERS_TOO
    server_info: tuple[TrackedServer, ...] = ()
    queue_info: Mapping[str, Queue] = field(default_factory=dict)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that have a server, in alphabetical order."""
        return tuple(sorted({server.key for server in self.server_info}))

    def of(self, key: str) -> tuple[TrackedServer, ...]:
        """The servers of a key."""
        return tuple(server for server in self.server_info if server.key == key)

    def queue(self, key: str) -> Queue:
        """The queue of a key."""
        return self.queue_info.get(key, Queue(free=0, pending=0))

    def require(self, key: str, address: str) -> None:
        """Raise DeviceError, with the known keys, if no server has this key."""
        if self.of(key):
            return
        keys = ", ".join(shown(name) for name in self.keys[:_MOST_KEYS_TOLD])
        more = len(self.keys) - _MOST_KEYS_TOLD
        words = f"its keys: {keys}{f' and {more} more' if more > 0 else ''}" if keys else "it has no servers"
        raise DeviceError(
            f"no server of the tracker at {address} has the key {shown(key)}; {words}",
            hint=did_you_mean(key, self.keys)
            or "Give an existing key, or start a server: "
            f"python -m tvm.exec.rpc_server --tracker {address} --key {shlex.quote(key)}",
            transient=True,
        )


def read_summary(reply: Any, address: str) -> TrackerSummary:
    """The summary in a reply of the tracker at `address`. DeviceError lists all errors in it."""
    summary: TrackerSummary = _read(tuple[Literal[0], TrackerSummary], reply, address)[1]
    return summary


def read_free(reply: Any, address: str) -> FreeServer:
    """The free server in a reply of the tracker at `address`. DeviceError lists all errors in it."""
    _, (host, port, matchkey) = _read(tuple[Literal[0], tuple[Text, Port, Text]], reply, address)
    return FreeServer(host=host, port=port, matchkey=matchkey, name=f"{host}:{port}")


def _read(kind: Any, reply: Any, address: str) -> Any:
    complaints = Complaints(what=f"reply of the tracker at {address}", hint="")
    value = decode(kind, reply, complaints)
    if complaints.sentences:
        raise DeviceError(
            complaint(complaints.what, complaints.sentences),
            hint="Check whether a TVM RPC tracker listens there; gnomon expects the replies of TVM 0.27.",
        )
    return value


class TrackerWire:
    """One connection to a tracker, opened by `connected`; `address` names the tracker in errors."""

    def __init__(self, link: socket.socket, address: str) -> None:
        self._link, self._address = link, address
        self._buffer = bytearray()

    def greet(self, until_s: float) -> None:
        """Exchange the magic numbers. DeviceError if the other side is not a tracker."""
        self._send(_LENGTH.pack(MAGIC), until_s)
        if _LENGTH.unpack(self._take(_LENGTH.size, until_s))[0] != MAGIC:
            self._fail("is not a TVM RPC tracker: it answers with a wrong magic number")

    def send(self, message: list[Any], until_s: float) -> None:
        """Send a message."""
        text = json.dumps(message).encode()
        self._send(_LENGTH.pack(len(text)) + text, until_s)

    def receive(self, until_s: float) -> Any:
        """The next answer, any JSON value. DeviceError for an answer that is malformed, too long or too late.

        The part of a late answer that has arrived is kept, so that a later call can complete the answer.
        """
        self._fill(_LENGTH.size, until_s)
        length = _LENGTH.unpack(self._buffer[: _LENGTH.size])[0]
        if not 0 < length <= MOST_REPLY_BYTES:
            self._fail(f"announces a reply of {length} bytes instead of 1 to {MOST_REPLY_BYTES}")
        self._fill(_LENGTH.size + length, until_s)
        self._take(_LENGTH.size, until_s)
        try:
            return Strict(what="reply", hint="", most_letters=MOST_REPLY_BYTES).parse(self._take(length, until_s))
        except ProblemError as error:
            self._fail(f"sent an invalid reply: {error.message}")

    def receive_last(self, until_s: float) -> Any | None:
        """End the requests; return the answer that was already on its way, or None if there was none.

        The tracker assigns servers only to connected clients. It closes the connection when it sees the end of the
        requests, and by then it has sent all its answers.
        """
        try:
            self._link.shutdown(socket.SHUT_WR)
            return self.receive(until_s)
        except (DeviceError, OSError):
            return None

    def _take(self, count: int, until_s: float) -> bytes:
        self._fill(count, until_s)
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def _fill(self, count: int, until_s: float) -> None:
        """Read until `count` bytes have arrived, or until the deadline, which bytes that trickle in do not extend."""
        while len(self._buffer) < count:
            with self._clocked(until_s):
                chunk = self._link.recv(min(_CHUNK_BYTES, count - len(self._buffer)))
                if not chunk:
                    self._fail("closed the connection without an answer")
                self._buffer += chunk

    def _send(self, raw: bytes, until_s: float) -> None:
        with self._clocked(until_s):
            self._link.sendall(raw)

    @contextlib.contextmanager
    def _clocked(self, until_s: float) -> Iterator[None]:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            raise LateError(self._address)
        self._link.settimeout(min(max(left_s, _LEAST_WAIT_S), _MOST_WAIT_S))
        try:
            yield
        except TimeoutError as error:
            raise LateError(self._address) from error
        except OSError as error:
            self._fail(f"dropped the connection: {error.strerror or error}")

    def _fail(self, what: str) -> NoReturn:
        raise DeviceError(f"{self._address} {what}", hint="Check whether a TVM RPC tracker listens there.")


class LateError(DeviceError):
    """The tracker did not answer in time."""

    def __init__(self, address: str) -> None:
        super().__init__(
            f"the tracker at {address} does not answer in time",
            hint="Check whether the tracker runs and can be reached; it may hang, or another program may listen there.",
            transient=True,
        )


@contextlib.contextmanager
def connected(host: str, port: int, until_s: float) -> Iterator[TrackerWire]:
    """A connection to a tracker that has identified itself; closed after the block. DeviceError if that fails.

    `until_s` is a reading of `time.monotonic()`.
    """
    address = address_of(host, port)
    with _linked(host, port, address, until_s) as link:
        wire = TrackerWire(link, address)
        wire.greet(until_s)
        yield wire


def _linked(host: str, port: int, address: str, until_s: float) -> socket.socket:
    hint = "Start a tracker (python -m tvm.exec.rpc_tracker), or name a running one: --device tvm://HOST:PORT/KEY"
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise LateError(address)
    try:
        return socket.create_connection((host, port), timeout=left_s)
    except (socket.gaierror, UnicodeError) as error:
        raise DeviceError(
            f"the host of the tracker {address} is unknown: {getattr(error, 'strerror', None) or error}", hint=hint
        ) from error
    except TimeoutError:
        raise LateError(address) from None
    except OSError as error:
        message = f"no tracker can be reached at {address}: {error.strerror or error}"
        raise DeviceError(message, hint=hint, transient=True) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracker:
    """A tracker by its address. `reply_s` is the time that connecting and one answer may take together.

    The protocol has neither encryption nor authentication: anybody who can reach a tracker can reach its servers, which
    run any code that they receive.
    """

    host: str
    port: int
    reply_s: float = 10.0

    @property
    def address(self) -> str:
        """The address as HOST:PORT."""
        return address_of(self.host, self.port)

    def summary(self) -> TrackerSummary:
        """The servers and queues at this moment. DeviceError if the tracker cannot be reached or its answer is invalid.

        A server that was lost without notice (no network or power) is listed as long as the tracker's connection to it
        lasts; a server whose program has ended is not listed.
        """
        until_s = time.monotonic() + self.reply_s
        with connected(self.host, self.port, until_s) as wire:
            return self._summary(wire, until_s)

    def request(self, key: str, timeout_s: float, *, appear_s: float = _BLINK_S) -> FreeServer:
        """A free server of a key, reserved for the caller for a few seconds: see `FreeServer`.

        Waits up to `timeout_s` for a server to become free, and up to `appear_s` for the first server with the key,
        because a crashed server may be starting again. DeviceError lists the known keys, or says that all servers of
        the key are busy. The request is withdrawn in any case, so that no server is assigned to a call that has ended.
        """
        until_s = time.monotonic() + timeout_s
        appear_by_s = min(until_s, time.monotonic() + appear_s)
        while True:
            self._wait_for(key, appear_by_s)
            with connected(self.host, self.port, time.monotonic() + self.reply_s) as wire:
                # A request for an unknown key would wait, and the tracker would list the key forever, so the key is
                # checked first. A server that was listed a moment ago may have ended: wait for it as well.
                summary = self._summary(wire, time.monotonic() + self.reply_s)
                if not summary.of(key) and time.monotonic() < appear_by_s:
                    continue
                summary.require(key, self.address)
                wire.send([_REQUEST, key, "", _PRIORITY], time.monotonic() + self.reply_s)
                try:
                    reply = wire.receive(max(until_s, time.monotonic() + _POLL_S))
                except LateError:
                    reply = wire.receive_last(time.monotonic() + _LAST_S)
            break
        if reply is None:
            raise self._busy(key, timeout_s)
        return read_free(reply, self.address)

    def _summary(self, wire: TrackerWire, until_s: float) -> TrackerSummary:
        wire.send([_SUMMARY], until_s)
        return read_summary(wire.receive(until_s), self.address)

    def _wait_for(self, key: str, until_s: float) -> None:
        """Wait until a server has the key, or the time is up."""
        while time.monotonic() < until_s and not self.summary().of(key):
            time.sleep(_POLL_S)

    def _busy(self, key: str, timeout_s: float) -> DeviceError:
        summary = self.summary()
        summary.require(key, self.address)
        count, waiting = len(summary.of(key)), summary.queue(key).pending
        who = "its only server is" if count == 1 else f"all its {count} servers are"
        return DeviceError(
            f"no server with the key {shown(key)} became free within {timeout_s:g} s: {who} busy, lost or reserved "
            f"({waiting} waiting request{'' if waiting == 1 else 's'})",
            hint="Wait for other measurements to end, or start the server again; then repeat the command to continue.",
            transient=True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedDevice:
    """The servers of a tracker that have one key."""

    tracker: Tracker
    key: str

    def free(self, wait_s: float, *, again: bool = False) -> FreeServer:
        """A free server; `again` has no effect, because gnomon does not start these servers.

        DeviceError as in `Tracker.request`.
        """
        return self.tracker.request(self.key, wait_s, appear_s=_APPEAR_S)

    def require(self, wait_s: float, *, expected: bool = False) -> None:
        """Raise DeviceError, with the existing keys, if no server has this key.

        A server that existed before (`expected`) may be starting again, so this waits for it. A new key may be
        misspelt, which is reported soon.
        """
        until_s = time.monotonic() + (wait_s if expected else min(wait_s, _SOON_S))
        while not (summary := self.tracker.summary()).of(self.key):
            if time.monotonic() > until_s:
                summary.require(self.key, self.tracker.address)
            time.sleep(_POLL_S)


def tracked_device(address: Address) -> TrackedDevice:
    """The device at an address of the kind "tvm".

    A missing host or port comes from TVM_TRACKER_HOST and TVM_TRACKER_PORT; the default port is 9190. UsageError if no
    tracker is named, or the variables are invalid.
    """
    host = address.host or os.environ.get(HOST_VARIABLE, "").strip()
    port = address.port or os.environ.get(PORT_VARIABLE, "").strip() or PUBLISHED_PORT
    if not host:
        raise UsageError(
            "no tracker is named", hint=f"Give tvm://HOST:PORT/KEY, or set {HOST_VARIABLE} and {PORT_VARIABLE}."
        )
    whole = parse_address(f"tvm://{f'[{host}]' if ':' in host else host}:{port}/{address.key}")
    assert whole.port is not None  # noqa: S101
    return TrackedDevice(tracker=Tracker(host=whole.host, port=whole.port), key=whole.key)
