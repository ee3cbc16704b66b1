"""The client of DPU latency servers: the published protocol letter by letter, and servers that misbehave."""

from __future__ import annotations

import contextlib
import email.policy
import gzip
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.parser import BytesParser
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from tests.devices.shell.sshkit import free_port

from gnomon.core.sample import Failure
from gnomon.devices.http import DpuReply, DpuServer, check_server, kernel_name_of, measure_by_http, pause_s
from gnomon.errors import DeviceError, UsageError
from gnomon.formats.dpu_profile import read_dpu_profile

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


pytest.importorskip("aiohttp", reason="aiohttp is not installed")

NAME = kernel_name_of("Res_0_0_0_1_0")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A compiled model of some pieces, with whatever bytes."""
    path = tmp_path / 'dpu_"Res"\n☃.elf'
    path.write_bytes(b"\x7fELF\r\n--" + bytes(range(256)) * 1000)
    return path


def send(url: str, model: Path, **settings: Any) -> DpuReply | Failure:
    return measure_by_http(DpuServer(url=url, **{"pause_s": 0.01, "retries": 2, **settings}), model, NAME)


def body_of(found: DpuReply | Failure) -> str:
    assert isinstance(found, DpuReply), found
    return found.body


def test_exactly_the_published_request(model: Path) -> None:
    with station(reply(200)) as made:
        found = send(made.url, model)
    assert isinstance(found, DpuReply)
    assert (found.body, found.is_json) == (PROFILE, False)
    assert read_dpu_profile(found.body) == 13.937
    (request,) = made.requests
    assert request.startswith(b"POST /test_latency/test_latency/ HTTP/1.1\r\n")
    parts = form_of(request)
    assert list(parts) == ["kernel_name", "file"]
    assert parts["kernel_name"] == (None, b"Res_0_0_0_1_0SSPROFILE")
    filename, data = parts["file"]
    assert data == model.read_bytes()
    assert filename == "dpu__Res___.elf"  # a file has a name, and nothing of it can break a header
    head = request.partition(b"\r\n\r\n")[0].lower()
    assert b"authorization" not in head
    assert b"cookie" not in head
    assert b"transfer-encoding" not in head


@pytest.mark.parametrize(
    ("status", "sent", "body"),
    [
        (299, PROFILE, PROFILE),
        (204, "", ""),
        (200, b"\xff\xfe All 1 2 3 4", "\ufffd\ufffd All 1 2 3 4"),
    ],
)
def test_any_good_status_is_good_and_any_bytes_are_text(status: int, sent: str | bytes, body: str, model: Path) -> None:
    with station(reply(status, sent)) as made:
        assert body_of(send(made.url, model)) == body


def test_a_token_and_json_where_they_are_asked_for(model: Path) -> None:
    with station(reply(200, "{}", Content_Type="application/json; charset=utf-8"), reply(200)) as made:
        first = send(made.url, model, token="secret", accept_json=True)  # noqa: S106 - of the test
        second = send(made.url, model, accept_json=True)
    assert isinstance(first, DpuReply)
    assert first.is_json
    assert isinstance(second, DpuReply)
    assert not second.is_json  # a server that knows the text alone
    assert b"\r\nAuthorization: Bearer secret\r\n" in made.requests[0]
    assert b"\r\nAccept: application/json" in made.requests[1]
    assert "secret" not in repr(DpuServer(url=made.url, token="secret"))  # noqa: S106 - of the test


@pytest.mark.parametrize(
    "act",
    [
        reply(503),
        reply(503, Retry_After="0"),
        reply(504, Retry_After="0"),
        reset,
        say(b""),
        say(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nAll 1 2 3"),
    ],
    ids=["503", "503-after", "504-after", "reset", "closed", "half"],
)
def test_what_may_pass_is_tried_again(act: Act, model: Path) -> None:
    with station(act, act, reply(200)) as made:
        found = send(made.url, model)
    assert isinstance(found, DpuReply)
    assert len(made.requests) == 3
    with station(act) as made, pytest.raises(DeviceError) as caught:
        send(made.url, model, retries=1)
    assert (caught.value.transient, len(made.requests)) == (True, 2)
    assert caught.value.hint


def test_a_server_that_hangs_and_one_that_is_away(model: Path) -> None:
    with station(hang, reply(200)) as made:
        assert body_of(send(made.url, model, timeout_s=0.5)) == PROFILE
    with station(hang) as made, pytest.raises(DeviceError, match=r"did not answer within 0.2 s") as caught:
        send(made.url, model, timeout_s=0.2, retries=1)
    assert caught.value.transient
    with station(say(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nA")) as made, pytest.raises(DeviceError):
        send(made.url, model, retries=0)
    with pytest.raises(DeviceError, match="cannot be reached") as caught:
        send(f"http://127.0.0.1:{free_port()}/", model, retries=1)
    assert caught.value.transient


@pytest.mark.parametrize("status", [400, 500, 504, 599])
def test_what_is_said_of_the_model_is_its_failure_and_final(status: int, model: Path) -> None:
    with station(reply(status, "error: no\x1b[2J model\nhint: none\n")) as made:
        found = send(made.url, model)
    assert isinstance(found, Failure)
    assert len(made.requests) == 1
    assert (found.kind, found.transient) == ("hang" if status == 504 else "refused", False)
    assert found.message == f"the server answered with status {status}: error: no?[2J model"


@pytest.mark.parametrize("status", [302, 401, 404, 407])
def test_what_any_model_would_meet_is_the_ways_error(status: int, model: Path) -> None:
    with (
        station(reply(200)) as elsewhere,
        station(reply(status, Location=elsewhere.url)) as made,
        pytest.raises(DeviceError) as caught,
    ):
        send(made.url, model)
    assert not caught.value.transient
    assert caught.value.hint
    assert (len(made.requests), elsewhere.requests) == (1, [])


@pytest.mark.parametrize(
    ("act", "told"),
    [
        (say(b"SSH-2.0-OpenSSH_9.2\r\n"), "does not answer in HTTP"),
        (say(b"\x00\x01\x02" * 100), "does not answer in HTTP"),
        (say(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n"), "does not answer in HTTP"),
        (flood, "longer than 100000 bytes"),
        (reply(200, "x" * 100_001), "longer than 100000 bytes"),
        (reply(200, gzip.compress(bytes(1 << 20)), Content_Encoding="gzip"), "compressed"),
    ],
    ids=["ssh", "binary", "headers", "flood", "long", "gzip"],
)
def test_what_is_no_such_server(act: Act, told: str, model: Path) -> None:
    with station(act) as made, pytest.raises(DeviceError, match=told) as caught:
        send(made.url, model, most_reply_bytes=100_000)
    assert not caught.value.transient
    assert caught.value.message.isprintable()


def test_a_server_that_answers_before_it_has_read_the_model(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(8 << 20))

    def refuse(link: socket.socket, request: bytes) -> None:
        link.sendall(b"HTTP/1.1 413 Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")
        hang(link, request)

    with station(refuse, whole=False) as made:
        found = send(made.url, path)
    assert isinstance(found, Failure)
    assert "413: big" in found.message


def test_a_file_that_becomes_shorter_while_it_is_sent_is_no_fault_of_the_server(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.touch()
    os.truncate(path, 64 << 20)  # more than the kernel takes before the server reads

    def shorten(link: socket.socket, request: bytes) -> None:
        os.truncate(path, 100)
        hang(link, request)

    with station(shorten, whole=False) as made, pytest.raises(UsageError, match="became shorter while it was sent"):
        send(made.url, path)


def test_a_file_that_is_removed_is_sent_to_its_end_and_again(model: Path) -> None:
    content = model.read_bytes()

    def away(link: socket.socket, request: bytes) -> None:
        model.unlink(missing_ok=True)
        reply(503)(link, request)

    with station(away, reply(200)) as made:
        assert body_of(send(made.url, model)) == PROFILE
    assert [form_of(request)["file"][1] for request in made.requests] == [content, content]


@pytest.mark.parametrize(
    "url",
    [
        *("", "192.168.6.144:8055", "file:///etc/passwd", "ftp://host/", "http://", "http://user:sesame@host/"),
        *("http://user@host/", "http://host/#x", "http://host:99999/", "http://[::1/", "http://ho st/"),
        *("http://host/\r\nX: y", "http://hõst/"),
    ],
)
def test_addresses_that_are_refused(url: str, model: Path) -> None:
    with pytest.raises(UsageError) as caught:
        send(url, model)
    assert "sesame" not in caught.value.message


def test_all_that_is_wrong_with_the_settings_is_told_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        check_server(DpuServer(url="x", timeout_s=float("nan"), connect_s=0, retries=-1, token="a\nb"))  # noqa: S106
    for word in ("address", "timeout_s", "connect_s", "retries", "token"):
        assert word in caught.value.message
    assert check_server(DpuServer(url="https://[::1]:8055/a/")).port == 8055


def test_files_and_names_that_are_not_sent(model: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for path in (tmp_path / "none", tmp_path, tmp_path / "empty"):
        with pytest.raises(UsageError, match="cannot be sent"):
            send("http://127.0.0.1:1/", path)
    with pytest.raises(UsageError, match="more than 10"):
        send("http://127.0.0.1:1/", model, most_upload_bytes=10)
    for name in ("", "x" * 513, "a\r\n--b", "\ud800"):
        with pytest.raises(UsageError, match="kernel name"):
            measure_by_http(DpuServer(url="http://127.0.0.1:1/"), model, name)


def test_when_to_come_again() -> None:
    assert pause_s(None) is None
    assert [pause_s(text) for text in ("3", "-3", "1e9", "inf", "nan")] == [3.0, 0.0, 3600.0, None, None]
    later = pause_s(formatdate(time.time() + 100, usegmt=True))
    assert later is not None
    assert 0 < later <= 100
    assert pause_s(formatdate(0, usegmt=True)) == 0
