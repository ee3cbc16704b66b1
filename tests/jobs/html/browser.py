"""A real Chromium without a window, driven by its own protocol over two pipes."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here (Debian: chromium)")
_SECONDS = 120


class Page:
    """A page that was opened: what it asked for, what it said, and expressions that are evaluated in it."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read, self._left, self._number = write, read, b"", 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def open(self, path: Path, *, script: bool = True) -> None:
        """Open a file, and wait until its script, if it has one, has drawn everything."""
        self.ask("Page.navigate", url=path.as_uri())
        self.wait_drawn("document.documentElement?.dataset.drawn" if script else "document.readyState === 'complete'")

    def wait_drawn(self, drawn: str = "document.documentElement?.dataset.drawn") -> None:
        """Wait until the page's script has drawn everything, or what else shall be true."""
        self.value(f"new Promise((done) => {{ (function look() {{ {drawn} ? done() : setTimeout(look, 20); }})(); }})")

    def value(self, expression: str) -> Any:
        """The JSON value of an expression, or of what it promises."""
        found = self.ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to a command of the protocol; what happened meanwhile goes to `events`."""
        self._number += 1
        order: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            order["sessionId"] = self._session
        os.write(self._write, json.dumps(order).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == self._number:
                assert "error" not in message, message
                answer: dict[str, Any] = message["result"]
                return answer
            self.events.append(message)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            ready, _, _ = select.select([self._read], [], [], _SECONDS)
            assert ready, "Chromium is silent"
            got = os.read(self._read, 1 << 20)
            assert got, "Chromium ended"
            self._left += got
        text, _, self._left = self._left.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def said(self) -> list[Any]:
        """What was written to the console, and exceptions that nothing caught."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [event["params"] for event in self.events if event["method"] in kinds]

    def asked_for(self) -> list[str]:
        """The addresses of all requests."""
        found = [event for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in found]


@contextmanager
def chromium(folder: Path, *more: str) -> Iterator[Page]:
    """A Chromium of its own, with its files below a folder; it is gone afterwards."""
    assert CHROMIUM is not None
    ends = [*os.pipe(), *os.pipe()]
    orders, write, read, answers = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in ends)
    for end in ends:
        os.close(end)

    def pipes() -> None:
        os.dup2(orders, 3)
        os.dup2(answers, 4)

    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--window-size=1280,900")
    command = [CHROMIUM, *flags, f"--user-data-dir={folder / 'chromium'}", "--remote-debugging-pipe", *more]
    environment = {**os.environ, "HOME": str(folder)}
    process = subprocess.Popen(
        command,
        pass_fds=(3, 4),
        preexec_fn=pipes,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(orders)
    os.close(answers)
    try:
        yield Page(write, read)
    finally:
        os.close(write)
        os.close(read)
        process.terminate()
        process.wait(_SECONDS)
