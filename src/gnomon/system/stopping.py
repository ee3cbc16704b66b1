"""Asks a thread that works on a device to end; the thread checks this only while it waits."""

from __future__ import annotations

import threading
from contextvars import ContextVar

ANSWERS: ContextVar[bool] = ContextVar("ANSWERS", default=False)
"""Whether Ctrl-C asks for the answer so far, as it does on the command line; programs that call gnomon get the
exception.
"""


class _Asked(threading.local):
    event: threading.Event | None = None


_asked = _Asked()


class Stopped(BaseException):
    """Raised in a waiting thread that has been asked to end; the thread cleans up as after Ctrl-C."""


def stop_at(event: threading.Event) -> None:
    """Make the calling thread end once the event is set."""
    _asked.event = event


def look_up() -> None:
    """Raise `Stopped` if this thread has been asked to end, but only once, because the clean-up may wait too."""
    if _asked.event is not None and _asked.event.is_set():
        _asked.event = None
        raise Stopped


def pause(seconds: float) -> None:
    """Sleep, but raise `Stopped` as soon as this thread is asked to end."""
    (_asked.event or threading.Event()).wait(seconds)
    look_up()
