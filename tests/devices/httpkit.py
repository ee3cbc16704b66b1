"""Servers of the published protocol by plain sockets: a faithful one, and ones that misbehave as they are told."""

from __future__ import annotations

import contextlib
import email.policy
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.parser import BytesParser

PROFILE = "ID NodeName\n\nTotal Nodes In Avg:\n    All 2262.336 59.15 13.937 162.3 13.2% 4244.1\n"
Act = Callable[[socket.socket, bytes], None]
"""What is done on one connection, once the request is read: its bytes are given."""


@dataclass(slots=True, kw_only=True)
class Station:
    """A server that listens. `requests` are what came, in order."""

    port: int
    requests: list[bytes] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/test_latency/test_latency/"


def reply(status: int, body: str | bytes = PROFILE, **headers: str) -> Act:
    """Answer like this."""
    raw = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status} Told", f"Content-Length: {len(raw)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    whole = "\r\n".join([*lines, "Connection: close", "", ""]).encode() + raw
    return say(whole)


def say(raw: bytes) -> Act:
    """Send these bytes and close."""

    def act(link: socket.socket, request: bytes) -> None:
        link.sendall(raw)

    return act


def hang(link: socket.socket, request: bytes) -> None:
    """Say nothing until the client goes."""
    while link.recv(1 << 16):
        pass


def reset(link: socket.socket, request: bytes) -> None:
    """End the connection by a reset."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")


def flood(link: socket.socket, request: bytes) -> None:
    """A reply without end."""
    link.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
    while True:
        link.sendall(b"x" * (1 << 16))


def form_of(request: bytes) -> dict[str, tuple[str | None, bytes]]:
    """The parts of a request by the standard library's reader: file name and content by the field's name."""
    head, _, body = request.partition(b"\r\n\r\n")
    kind = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-type:"))
    message = BytesParser(policy=email.policy.HTTP).parsebytes(kind + b"\r\n\r\n" + body)
    found: dict[str, tuple[str | None, bytes]] = {}
    for part in message.iter_parts():
        assert isinstance(part, EmailMessage)
        data = part.get_payload(decode=True)
        assert isinstance(data, bytes)
        found[str(part.get_param("name", header="content-disposition"))] = (part.get_filename(), data)
    return found


def _read(link: socket.socket) -> bytes:
    """A request whole, by its Content-Length."""
    found = bytearray()
    while b"\r\n\r\n" not in found:
        if not (piece := link.recv(1 << 16)):
            return bytes(found)
        found += piece
    head = bytes(found).partition(b"\r\n\r\n")[0]
    lengths = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    wanted = len(head) + 4 + int(lengths[0].split(b":")[1])
    while len(found) < wanted and (piece := link.recv(1 << 16)):
        found += piece
    return bytes(found)


@contextlib.contextmanager
def station(*acts: Act, whole: bool = True) -> Iterator[Station]:
    """A server that does these acts, one a connection, the last again and again.

    Each is done once the request is read, or its first bytes where that is not to be whole.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        made = Station(port=listening.getsockname()[1])

        def one(link: socket.socket, act: Act) -> None:
            with link, contextlib.suppress(OSError):
                made.requests.append(_read(link) if whole else link.recv(1 << 12))
                act(link, made.requests[-1])

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    link, _ = listening.accept()
                    number = min(len(threads) - 1, len(acts) - 1)
                    threads.append(threading.Thread(target=one, args=(link, acts[number])))
                    threads[-1].start()

        threads = [threading.Thread(target=serve)]
        threads[0].start()
        try:
            yield made
        finally:
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            threads[0].join()
            for thread in threads[1:]:
                thread.join()
