"""Going on when a device comes back: a job is started again, and takes up its own campaign from the record."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from gnomon.devices.opening import opened
from gnomon.devices.stopping import pause
from gnomon.errors import DeviceError
from gnomon.jobs.request import Request

Found = TypeVar("Found")

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_MOST_TIMES = 20
"""How often a device may vanish in one job before it is too shaky to measure on."""


def patiently(job: Callable[[Request], Found], request: Request, tell: Callable[[str], None] | None) -> Found:
    """Do a job; if its device vanishes in the middle of it, wait up to `request.wait_s` for it and go on.

    What was measured is in the record, so that at most the visit under way is measured again. DeviceError if the device
    stays away, and at once if it was never reached.
    """
    say = tell or (lambda sentence: None)
    met = False
    for _ in range(_MOST_TIMES):
        try:
            return job(request)
        except DeviceError as error:
            met = met or error.met  # it may vanish again before the job has found it in order again
            if not (error.transient and met) or request.wait_s <= 0:
                raise
            say(f"{error.message}; waiting up to {request.wait_s:.0f} s for it to come back")
            began_s = time.monotonic()
            _wait_for(request, error, say)
            if request.time is not None:
                request.time.waited_s += time.monotonic() - began_s
            say(f"{request.device.name} is back: going on from the record")
            request = replace(request, fresh=False)
    return job(request)


def _wait_for(request: Request, lost: DeviceError, say: Callable[[str], None]) -> None:
    """Try to open the device until it answers; DeviceError if it does not in time.

    It was in order before, so that whatever is wrong may pass: the name of a board that starts anew is unknown for a
    while, and so may its users be. What will not pass by itself is told, for who can help.
    """
    deadline = time.monotonic() + request.wait_s
    pause_s = _FIRST_PAUSE_S
    told = ""
    while True:
        pause(min(pause_s, max(0.0, deadline - time.monotonic())))
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        try:
            with opened(request.device, on_wait=say):
                return
        except DeviceError as error:
            if time.monotonic() >= deadline:
                raise (_stayed_away(request, lost) if error.transient else error) from lost
            if not error.transient and error.message != told:
                told = error.message
                say(f"{error.message}. {error.hint}")


def _stayed_away(request: Request, lost: DeviceError) -> DeviceError:
    """The error for a device that did not come back in time."""
    return DeviceError(
        f"{lost.message}, and {request.device.name} did not come back within {request.wait_s:.0f} s",
        hint="Start the command again when it is back: what was measured is kept. --wait SECONDS waits longer.",
        transient=True,
    )
