"""How a runtime's program is started on a device, and how its end is told."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Any

from gnomon.devices.base import Completed

_LOG_TAIL = 2000
# The program's lines go to a file while it runs: handing them on to this machine would take the device's time.
_WRAPPER = (
    'o=$1 t=$2; shift 2; [ -z "$t" ] || mkdir -p "$t"; "$@" >"$o" </dev/null; s=$?; cat "$o"; rm -f "$o"; exit "$s"'
)


class ProgramFailed(Exception):
    """A program crashed, hung, or was refused: the fields of a failure."""

    def __init__(self, kind: str, message: str, log_tail: str = "", *, transient: bool = False) -> None:
        super().__init__(message)
        self.kind, self.message, self.log_tail, self.transient = kind, message, log_tail[-_LOG_TAIL:], transient


def wrapped(argv: Sequence[str], number: int, trace: str | None, pin: Sequence[int]) -> list[str]:
    """The command whose output is kept back until the program has ended."""
    pinned = ["taskset", "-c", ",".join(map(str, pin))] if pin else []
    return ["sh", "-c", _WRAPPER, "sh", f"printed-{number}", trace or "", *pinned, *argv]


def how_it_failed(done: Completed, timeout_s: float) -> ProgramFailed | None:
    """What the end of a program means; None if it ended well."""
    number = done.signal
    if number is None and done.returncode is not None and 129 <= done.returncode <= 192:
        number = done.returncode - 128  # as the wrapper's shell tells it
    if done.timed_out:
        return ProgramFailed("hang", f"no end within {timeout_s:.0f} s; the program was killed", done.stderr)
    if number == signal.SIGKILL:
        told = "killed by SIGKILL, most likely for want of memory"
        return ProgramFailed("memory", told, done.stderr, transient=True)
    if number is not None:
        names = {int(s): s.name for s in signal.Signals}
        return ProgramFailed("crash", f"crashed with {names.get(number, f'signal {number}')}", done.stderr)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or done.stdout.strip().splitlines() or ["it printed nothing"]
        return ProgramFailed("refused", f"the program ended with status {done.returncode}: {lines[-1][-300:]}")
    return None


def failed_event(key: str, stage: str, failure: ProgramFailed, block: int = 0) -> dict[str, Any]:
    """A failure as the event that the agent would write."""
    return {
        "event": "failure",
        "candidate": key,
        "stage": stage,
        "block": block,
        "kind": failure.kind,
        "message": failure.message,
        "log_tail": failure.log_tail,
        "transient": failure.transient,
    }
