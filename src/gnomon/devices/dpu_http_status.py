"""What the statuses of a server of latencies mean: the model's failure, a wrong setting, or something that may pass."""

from __future__ import annotations

import math
import time
from email.utils import parsedate_to_datetime

from gnomon.core.sample import Failure
from gnomon.errors import DeviceError

_LOG_LETTERS = 2000
_MOST_PAUSE_S = 3600.0

_SETTINGS = {
    401: ("wants a token, or another one", "Give the token that the server was started with."),
    403: ("does not let this client in", "Ask who runs the server."),
    404: ("has nothing under this path", "Check the path, and its slash at the end: /test_latency/test_latency/"),
    405: ("takes no POST under this path", "Check the path of the address."),
    407: ("is behind a proxy that wants a password", "Reach the server without that proxy."),
}
"""Statuses that any model would meet: what is wrong, and the next step."""


class Busy(Exception):
    """Something that may pass by itself; `after_s` is when to try again by the server's own word, if it has one."""

    def __init__(self, message: str, *, after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = "Check that the server runs and can be reached, and start again: what was measured is kept."
        self.after_s = after_s


def judged(status: int, body: str, after_s: float | None, location: str | None) -> Failure:
    """The failure that a status other than 200 to 299 tells of the model.

    Raises Busy for 429, 502 and 503, and for a 504 that says when to come again; DeviceError for what no model could
    change: a wrong token or path, a redirection, which is never followed.
    """
    said = _first_line(body)
    if status in {429, 502, 503} or (status == 504 and after_s is not None):
        raise Busy(f"the server is busy or away (status {status}{said})", after_s=after_s)
    if 300 <= status < 400:
        where = ascii((location or "")[:200])
        raise DeviceError(
            f"the server sends elsewhere (status {status}, to {where})",
            hint="Redirections are not followed, as a model goes to nobody but who was named. Give that address.",
        )
    if status in _SETTINGS:
        what, hint = _SETTINGS[status]
        raise DeviceError(f"the server {what} (status {status}{said})", hint=hint)
    return Failure(
        stage="run",
        kind="hang" if status == 504 else "refused",
        transient=False,
        message=f"the server answered with status {status}{said}",
        log_tail=body[-_LOG_LETTERS:],
    )


def pause_s(retry_after: str | None) -> float | None:
    """Seconds that a Retry-After header means, from 0 to an hour; None without one or where it cannot be read."""
    if retry_after is None or len(retry_after) > 100:
        return None
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(retry_after).timestamp() - time.time()
        except (ValueError, OverflowError, OSError):
            return None
    return min(max(seconds, 0.0), _MOST_PAUSE_S) if math.isfinite(seconds) else None


def _first_line(body: str) -> str:
    lines = body.strip().splitlines()
    if not lines:
        return ""
    text = lines[0][:200]
    return ": " + "".join(c if c.isprintable() else "?" for c in text)
