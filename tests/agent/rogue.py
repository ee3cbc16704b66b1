"""A runtime that misbehaves as its segment's options say; it doubles its input when it behaves."""

from __future__ import annotations

import errno
import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Rogue:
    """A driver of the agent."""

    def probe(self) -> dict[str, Any]:
        return {"version": "0", "backends": ["rogue"]}

    def supports(self, segment: dict[str, Any]) -> dict[str, Any]:
        deeds[segment["options"].get("how", "")]()
        if segment["options"].get("child"):
            return {"child": subprocess.Popen(["sleep", "1000"]).pid}
        return {"whole": True, "pid": os.getpid(), "parent": os.getppid(), "cores": sorted(os.sched_getaffinity(0))}

    def load(self, segment: dict[str, Any], buffers: dict[str, Any], *, profiled: bool) -> Loaded:
        return Loaded(segment, buffers)


class Loaded:
    """A loaded model of one input and one output."""

    def __init__(self, segment: dict[str, Any], buffers: dict[str, Any]) -> None:
        options = segment["options"]
        self.how, self.when = options.get("how", ""), options.get("when", "run")
        self.after, self.counter, self.calls = options.get("after", 0), options.get("counter"), 0
        self.factor, self.stale = options.get("factor", 2.0), options.get("stale", False)
        self.x, self.y = buffers[segment["inputs"][0][1]], buffers[segment["outputs"][0][1]]
        self.last = self.x * self.factor
        self.call: Callable[[], object] = self._call
        if self.when == "load":
            self._misbehave()

    def _call(self) -> None:
        self.calls += 1
        if self.when == "run" and self.calls > self.after:
            self._misbehave()
        if self.stale:  # a device that was not waited for: what it hands out is of the call before
            self.y[...], self.last = self.last, self.x * self.factor
        else:
            self.y[...] = self.x * self.factor
        time.sleep(1e-4)

    def _misbehave(self) -> None:
        if self.counter:  # only the first process of all misbehaves
            try:
                Path(self.counter).touch(exist_ok=False)
            except FileExistsError:
                return
        deeds[self.how]()

    def where(self) -> list[dict[str, Any]]:
        return [{"operators": ["double"], "backend": "rogue", "pid": os.getpid()}]

    def operators(self, skip: int) -> list[dict[str, Any]]:
        return [{"name": "double", "sources": ["double"], "backend": "rogue", "wall_ns": [5] * (self.calls - skip)}]

    def close(self) -> None:
        return None


def _signal(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def _hang() -> None:
    while True:
        time.sleep(60)


def _print() -> None:
    print('{"event": "end"}', flush=True)
    os.write(1, b'{"ok": {}}\n')
    os.write(2, b"\377\376 garbage\n")


def _raise(error: type[BaseException]) -> Callable[[], None]:
    def deed() -> None:
        raise error("on purpose")

    return deed


def _no_room() -> None:
    try:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        raise RuntimeError(f"the engine was not written: {error}") from error


def _module_gone() -> None:
    importlib.import_module("there_is_no_such_module")


def _chatter() -> None:
    for _ in range(200):
        sys.stderr.write("x" * 1000 + "\n")
    sys.stderr.write("last words\n")
    sys.stderr.flush()
    os.abort()


deeds: dict[str, Callable[[], None]] = {
    "": lambda: None,
    "segv": _signal(signal.SIGSEGV),
    "kill": _signal(signal.SIGKILL),
    "term": _signal(signal.SIGTERM),
    "stop": _signal(signal.SIGSTOP),
    "real-time signal": _signal(signal.SIGRTMIN + 3),
    "hang": _hang,
    "exit": lambda: os._exit(7),
    "print": _print,
    "chatter": _chatter,
    "value error": _raise(ValueError),
    "memory error": _raise(MemoryError),
    "no room": _no_room,
    "module gone": _module_gone,
    "unexpected error": _raise(ZeroDivisionError),
}
