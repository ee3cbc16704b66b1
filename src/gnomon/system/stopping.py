"""How a thread that works on a device is asked to end: it looks for that wherever it waits, and nowhere else."""

from __future__ import annotations

import threading
import time
from contextvars import ContextVar

ANSWERS: ContextVar[bool] = ContextVar("ANSWERS", default=False)
"""Whether Ctrl-C asks for the answer so far, as at a prompt; a program that calls gnomon gets its exception."""

_LOOK_UP_S = 1.0
_asked = threading.local()


class Stopped(BaseException):
    """Raised in a thread that shall end, where it waits: it cleans up as after Ctrl-C."""


def stop_at(event: threading.Event) -> None:
    """Let the thread that calls this end once the event is set."""
    _asked.event = event


def look_up() -> None:
    """Raise `Stopped` if this thread shall end, but once: what cleans up after that may wait."""
    event: threading.Event | None = getattr(_asked, "event", None)
    if event is not None and event.is_set():
        _asked.event = None
        raise Stopped


def pause(seconds: float) -> None:
    """Sleep, unless this thread shall end. A thread that nobody asks sleeps as ever."""
    deadline = time.monotonic() + seconds
    look_up()
    while (left_s := deadline - time.monotonic()) > 0:
        time.sleep(min(left_s, _LOOK_UP_S))
        look_up()
