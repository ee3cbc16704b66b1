"""Asks a thread that works on a device to end; the thread checks this only where it waits."""

from __future__ import annotations

import threading
import time
from contextvars import ContextVar

ANSWERS: ContextVar[bool] = ContextVar("ANSWERS", default=False)
"""Whether Ctrl-C asks for the answer so far, as on the command line; a program that calls gnomon gets the exception."""

_LOOK_UP_S = 1.0
_asked = threading.local()


class Stopped(BaseException):
    """Raised in a waiting thread that was asked to end; it cleans up as after Ctrl-C."""


def stop_at(event: threading.Event) -> None:
    """Make the calling thread end once the event is set."""
    _asked.event = event


def look_up() -> None:
    """Raise `Stopped` if this thread was asked to end, but only once, because the clean-up may wait too."""
    event: threading.Event | None = getattr(_asked, "event", None)
    if event is not None and event.is_set():
        _asked.event = None
        raise Stopped


def pause(seconds: float) -> None:
    """Sleep, but stop early if this thread is asked to end."""
    deadline = time.monotonic() + seconds
    look_up()
    while (left_s := deadline - time.monotonic()) > 0:
        time.sleep(min(left_s, _LOOK_UP_S))
        look_up()
