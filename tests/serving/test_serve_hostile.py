"""Malformed and hostile requests by the hundred: the server answers or closes, and is as it was."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.serving.hostilekit import KINDS, hostile
from tests.serving.servekit import Server, exchange, reply_of, request, served

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
