"""A connection to a tracker of the TVM RPC protocol: frames with a clock and a limit, whatever the other side does.

After connecting both sides send a magic number of four bytes. Then the client sends a message and the tracker answers
it: the length in bytes, four bytes, little-endian, then so many bytes of JSON. Source: the descriptions in Apache
TVM 0.27, tvm/rpc/tracker.py and tvm/rpc/base.py.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any, NoReturn

from gnomon.core.strict_json import Strict
from gnomon.errors import DeviceError, ProblemError

MAGIC = 0x2F271
MOST_REPLY_BYTES = 1 << 20
_LENGTH = struct.Struct("<i")
_CHUNK_BYTES = 1 << 16
_LEAST_WAIT_S, _MOST_WAIT_S = 0.001, 1e6


class TrackerWire:
    """One connection; `address` is how errors name the tracker. Made by `connected`."""

    def __init__(self, link: socket.socket, address: str) -> None:
        self._link, self._address = link, address
        self._buffer = bytearray()

    def greet(self, until_s: float) -> None:
        """Exchange the magic numbers. DeviceError where the other side is no tracker."""
        self._send(_LENGTH.pack(MAGIC), until_s)
        if _LENGTH.unpack(self._take(_LENGTH.size, until_s))[0] != MAGIC:
            self._fail("is no tracker of the TVM RPC protocol: it answers with another magic number")

    def ask(self, message: list[Any], until_s: float) -> Any:
        """The answer to a message, any JSON value. DeviceError for what is none, too long or too late."""
        self.send(message, until_s)
        return self.receive(until_s)

    def send(self, message: list[Any], until_s: float) -> None:
        """Send a message."""
        text = json.dumps(message).encode()
        self._send(_LENGTH.pack(len(text)) + text, until_s)

    def receive(self, until_s: float) -> Any:
        """The next answer. What came of one that is late stays, so that a later call can go on with it."""
        self._fill(_LENGTH.size, until_s)
        length = _LENGTH.unpack(self._buffer[: _LENGTH.size])[0]
        if not 0 < length <= MOST_REPLY_BYTES:
            self._fail(f"announces a reply of {length} bytes, and 1 to {MOST_REPLY_BYTES} are read")
        self._fill(_LENGTH.size + length, until_s)
        self._take(_LENGTH.size, until_s)
        return self._parsed(self._take(length, until_s))

    def receive_last(self, until_s: float) -> Any | None:
        """Say that nothing more is wanted; the answer that was under way already, None if there was none.

        The tracker gives a server to whoever is still connected. It closes the connection when it has read that its
        client will send no more: what it sent before is here, and nothing can be sent after.
        """
        try:
            self._link.shutdown(socket.SHUT_WR)
            return self.receive(until_s)
        except (DeviceError, OSError):
            return None

    def _parsed(self, raw: bytes) -> Any:
        strict = Strict(what="reply", hint="", most_letters=MOST_REPLY_BYTES)
        try:
            return strict.parse(raw)
        except ProblemError as error:
            self._fail(f"sent what is no reply: {error.message}")

    def _take(self, count: int, until_s: float) -> bytes:
        self._fill(count, until_s)
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def _fill(self, count: int, until_s: float) -> None:
        """Read until so many bytes are here. The clock is for all of them: one byte a second is no sign of life."""
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
            self._fail(f"broke the connection: {error.strerror or error}")

    def _fail(self, what: str) -> NoReturn:
        raise DeviceError(
            f"{self._address} {what}",
            hint="See whether a TVM RPC tracker listens there, and no other program.",
        )


class LateError(DeviceError):
    """The tracker did not answer in time."""

    def __init__(self, address: str) -> None:
        super().__init__(
            f"the tracker at {address} does not answer in time",
            hint="See whether it runs and can be reached; it may hang, or another program may listen there.",
            transient=True,
        )


@contextlib.contextmanager
def connected(host: str, port: int, until_s: float) -> Iterator[TrackerWire]:
    """A connection to the tracker, which has said that it is one; closed after the block. DeviceError otherwise.

    `until_s` is a time of `time.monotonic()`.
    """
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    with _linked(host, port, address, until_s) as link:
        wire = TrackerWire(link, address)
        wire.greet(until_s)
        yield wire


def _linked(host: str, port: int, address: str, until_s: float) -> socket.socket:
    hint = "Start one with `gnomon rpc up`, or name the one that runs: --tracker HOST:PORT"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise DeviceError(
            f"the tracker {address} has no address: {getattr(error, 'strerror', None) or error}", hint=hint
        ) from error
    last: OSError | None = None
    for family, kind, protocol, _, place in found:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            raise LateError(address)
        link = socket.socket(family, kind, protocol)
        try:
            link.settimeout(left_s)
            link.connect(place)
            return link
        except TimeoutError:
            link.close()
            raise LateError(address) from None
        except OSError as error:
            link.close()
            last = error
        except BaseException:
            link.close()
            raise
    told = "there is no address" if last is None else last.strerror or str(last)
    raise DeviceError(f"no tracker can be reached at {address}: {told}", hint=hint, transient=True) from last
