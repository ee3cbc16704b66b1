"""Malformed and hostile requests by the hundred: the server answers or closes, and is as it was."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.serving.hostilekit import KINDS, hostile
from tests.serving.servekit import Server, exchange, reply_of, request, served

from gnomon.serving.server import _Gate

pytest.importorskip("aiohttp", reason="aiohttp is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("onnx", reason="onnx is not installed")

EACH = 28
ALLOWED = {0, 400, 403, 404, 405, 408, 413, 415, 417, 431}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("hostile"), "--most-mb", "1", "--idle-timeout", "1") as made:
        yield made


def open_files(server: Server) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


@pytest.mark.parametrize("kind", range(len(KINDS)), ids=[kind.__name__ for kind in KINDS])
def test_it_answers_or_closes_and_goes_on(server: Server, kind: int) -> None:
    before = open_files(server)
    numbers = range(kind, kind + EACH * len(KINDS), len(KINDS))
    with ThreadPoolExecutor(EACH) as pool:
        found = pool.map(lambda number: reply_of(exchange(server.port, hostile(number)[1])).status, numbers)
    assert {number: status for number, status in zip(numbers, found, strict=True) if status not in ALLOWED} == {}
    health = server.until(lambda health: health["present"] == 0)
    assert sum(health["requests"].values()) == 0
    assert open_files(server) <= before + 2
    assert list(server.folder.glob("gnomon-serve-*/*")) == []


def test_nothing_of_it_gets_to_the_terminal_as_it_came(server: Server) -> None:
    lines = server.lines()
    assert lines
    assert all(line.isprintable() for line in lines)
    assert not any("Traceback" in line or "defect" in line for line in lines)


def test_connections_beyond_the_number_are_closed_and_then_there_is_room_again(tmp_path: Path) -> None:
    with served(tmp_path / "many", "--queue", "1", "--idle-timeout", "1") as made:
        links = [socket.create_connection(("127.0.0.1", made.port), timeout=60) for _ in range(100)]
        for link in links:
            while link.recv(100):  # all are closed: at once, or as their heads never come
                pass
            link.close()
        assert made.ask(request(method="GET", path="/health")).status == 200


def test_slow_connections_shut_nobody_out(tmp_path: Path) -> None:
    with served(tmp_path / "slow", "--queue", "200") as made:
        for source in ("127.0.0.1", "127.0.0.2"):
            links = [
                socket.create_connection(("127.0.0.1", made.port), timeout=60, source_address=(source, 0))
                for _ in range(300)
            ]
            for link in links:
                with contextlib.suppress(ConnectionError):
                    link.sendall(b"GET /health HT")
            begin = time.monotonic()
            assert [made.ask(request(method="GET", path="/health")).status for _ in range(5)] == [200] * 5
            assert time.monotonic() - begin < 5
            for link in links:
                link.close()


def test_pages_of_browsers_are_not_answered(server: Server) -> None:
    for headers in (
        {"Host": "evil.example"},
        {"Host": f"evil.example:{server.port}"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        assert server.ask(request(headers=headers, method="GET", path="/health")).status == 403, headers
    for host in ("localhost", f"127.0.0.1:{server.port}", "[::1]:80", socket.gethostname()):
        assert server.ask(request(headers={"Host": host}, method="GET", path="/health")).status == 200, host


def test_an_address_without_room_gets_a_status() -> None:
    class Taken(asyncio.Protocol):
        transport: asyncio.BaseTransport | None = None

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

    class Full:
        """A server whose requests are all under way."""

        def __init__(self) -> None:
            self.connections: list[Taken] = []

        def __call__(self) -> Taken:
            self.connections.append(Taken())
            return self.connections[-1]

        def __contains__(self, link: object) -> bool:
            return True

    async def third() -> bytes:
        full: Any = Full()
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(lambda: _Gate(full, 2, full), "127.0.0.1", 0)
        async with listener:
            ends = [await asyncio.open_connection(*listener.sockets[0].getsockname()) for _ in range(3)]
            ends[2][1].write(b"POST / HTTP/1.1\r\n\r\n")
            found = await ends[2][0].read()
            for _, writer in ends:
                writer.close()
            return found

    assert asyncio.run(third()).startswith(b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\n")
