"""The real server as a process on a free port of loopback, and requests to it by sockets."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

PATH = "/test_latency/test_latency/"
LIMIT_S = 60.0
BOUNDARY = "b0undary"
Seen = TypeVar("Seen")


def form(model: bytes | None, name: str | None, *, more: bytes = b"") -> bytes:
    """The body that the published client sends, or one that lacks something."""
    made = b""
    if name is not None:
        made += f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="kernel_name"\r\n\r\n{name}\r\n'.encode()
    if model is not None:
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="dpu.elf"\r\n\r\n'
        made += head.encode() + model + b"\r\n"
    return made + more + f"--{BOUNDARY}--\r\n".encode()


def request(
    body: bytes = b"", headers: Mapping[str, str] | None = None, *, method: str = "POST", path: str = PATH
) -> bytes:
    """A request as it goes over the wire."""
    given = {
        "Host": "127.0.0.1",
        "Content-Type": f"multipart/form-data; boundary={BOUNDARY}",
        "Content-Length": str(len(body)),
        **(headers or {}),
    }
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back: status 0 where the connection was closed without a word."""

    status: int
    headers: Mapping[str, str]
    body: str

    def json(self) -> Any:
        return json.loads(self.body)


def reply_of(raw: bytes) -> Reply:
    """The reply in these bytes, past any `100 Continue`."""
    while raw.startswith(b"HTTP/1.1 100"):
        raw = raw.partition(b"\r\n\r\n")[2]
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    status = int(words[1]) if len(words) > 1 and words[0].startswith("HTTP/") else 0
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Reply(status=status, headers=headers, body=body.decode("utf-8", "replace"))


def exchange(port: int, sent: bytes, *, limit_s: float = LIMIT_S) -> bytes:
    """Send these bytes and read until the server closes. TimeoutError where it never does."""
    with socket.create_connection(("127.0.0.1", port), timeout=limit_s) as link:
        with contextlib.suppress(ConnectionError):  # it may have answered and closed before all was sent
            link.sendall(sent)
        found = bytearray()
        with contextlib.suppress(ConnectionError):
            while piece := link.recv(1 << 16):
                found += piece
    return bytes(found)


@dataclass(slots=True, kw_only=True)
class Server:
    """A server that runs. `folder` is its TMPDIR: what it leaves behind is there."""

    process: subprocess.Popen[bytes]
    folder: Path
    errors: Path
    document: Mapping[str, Any] = field(default_factory=dict)

    @property
    def port(self) -> int:
        return int(self.document["port"])

    @property
    def url(self) -> str:
        return str(self.document["url"])

    def ask(self, sent: bytes) -> Reply:
        return reply_of(exchange(self.port, sent))

    def post(self, model: bytes | None, name: str | None = "netSSPROFILE", **headers: str) -> Reply:
        given = {header.replace("_", "-"): value for header, value in headers.items()}
        return self.ask(request(form(model, name), given))

    def health(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask(request(method="GET", path="/health")).json()
        return found

    def until(self, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """What /health tells once this is true of it."""
        return waited(self.health, true)

    def lines(self) -> list[str]:
        return self.errors.read_text(encoding="utf-8").splitlines()

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(LIMIT_S)

    def left(self) -> list[str]:
        """What is left of it: files in its folder, and processes that know that folder."""
        return [*sorted(path.name for path in self.folder.iterdir()), *self._commands().values()]

    def processes(self, word: str) -> list[int]:
        """The processes of its own that have this word in their command."""
        return [process for process, command in self._commands().items() if word in command]

    def _commands(self) -> dict[int, str]:
        mark = f"TMPDIR={self.folder}".encode()
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    found[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found


def waited(look: Callable[[], Seen], true: Callable[[Seen], bool]) -> Seen:
    """What a look shows once this is true of it; AssertionError where it does not become so."""
    deadline = time.monotonic() + LIMIT_S
    while not true(found := look()):
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found


@contextlib.contextmanager
def served(
    folder: Path,
    *options: str,
    what: Sequence[str] = ("--runtime", "onnxruntime"),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """A server with a record of its own, which has begun to listen; ended at the end of the block.

    `what` measures: ONNX Runtime, in a process that is kept, unless it is said otherwise.
    """
    scratch = folder / "tmp"
    scratch.mkdir(parents=True)
    errors, out = folder / "errors.txt", folder / "out.json"
    command = [sys.executable, "-c", "from gnomon.cli.main import main; main()"]
    command += ["serve", *what, "--port", "0", "--json", *options]
    known = {**os.environ, "GNOMON_HOME": str(folder / "home"), "GNOMON_LEASES": str(folder / "leases")}
    with errors.open("wb") as err, out.open("wb") as written:
        process = subprocess.Popen(
            command, stdout=written, stderr=err, env={**known, "TMPDIR": str(scratch), **(environment or {})}
        )
    server = Server(process=process, folder=scratch, errors=errors)
    try:
        waited(lambda: out.read_text(encoding="utf-8"), lambda text: text.endswith("}\n") or process.poll() is not None)
        assert process.poll() is None, errors.read_text(encoding="utf-8")
        server.document = json.loads(out.read_text(encoding="utf-8"))
        yield server
    finally:
        process.kill()
        process.wait()
