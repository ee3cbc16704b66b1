"""The way to the agent on a device: one request, and its events as they come."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Self

from gnomon.core.sample import Failure
from gnomon.devices.base import Device
from gnomon.devices.guard import guarded_folder
from gnomon.errors import AgentError, DeviceError
from gnomon.measure.pack import packed_agent

Event = dict[str, Any]

_FAILURE = frozenset({"candidate", "stage", "kind", "transient", "message", "log_tail"})
#: The events that the agent may write, and the fields that each must have.
_FIELDS: Mapping[str, frozenset[str]] = {
    "alive": frozenset(),
    "end": frozenset(),
    "answer": frozenset({"key", "answer"}),
    "failure": _FAILURE,
    "environment": frozenset({"data"}),
    "opened": frozenset({"candidate"}),
    "block": frozenset({"candidate", "block", "started_at_s", "wall_ns", "cpu_ns", "inner", "peak_rss_bytes"}),
}


class AgentLink:
    """Starts the agent's supervisor on a device. The device is the caller's and stays open.

    A context manager: the packed agent lies in a temporary folder while the link is open. `timeout_s` is how long
    a process may take to answer a command of `ask`.
    """

    def __init__(self, device: Device, *, timeout_s: float = 60.0) -> None:
        self.device = device
        self._timeout_s = timeout_s
        self.info = device.describe()
        with ExitStack() as stack:
            packed = stack.enter_context(guarded_folder("gnomon-agent-")) / "gnomon-agent.pyz"
            packed.write_bytes(packed_agent())
            self._agent = device.push(packed, packed.name)
            self._open = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def request(self, request: Mapping[str, Any], on_event: Callable[[Event], None], *, timeout_s: float) -> None:
        """Put one request; `on_event` is called for each event but the signs of life.

        Raises DeviceError if the device or the supervisor failed, AgentError if it said something senseless.
        Whatever came before an error was delivered.
        """
        ended = False

        def on_line(line: str) -> None:
            nonlocal ended
            event = _parsed(line)
            if event["event"] == "end":
                ended = True
            elif event["event"] != "alive":
                on_event(event)

        done = self.device.run(
            [self.info.python, self._agent, "supervise"],
            env={},
            stdin=json.dumps(request).encode() + b"\n",
            timeout_s=timeout_s,
            on_line=on_line,
        )
        if not ended:
            status = f"signal {done.signal}" if done.signal else f"status {done.returncode}"
            how = "did not end in time" if done.timed_out else f"ended with {status}"
            raise DeviceError(
                f"the agent on {self.info.name} {how}: {done.stderr.strip()[-500:] or 'it said nothing'}",
                hint="Check that Python 3.11 or later with numpy is on the device, and start the command again: "
                "what was measured is kept.",
                transient=True,
            )

    def ask(
        self, commands: Mapping[str, Mapping[str, Any]], *, timeout_s: float | None = None
    ) -> dict[str, Mapping[str, Any] | Failure]:
        """Each command in a fresh process of the agent: its answer, or how the process failed."""
        timeout_s = timeout_s or self._timeout_s
        answers: dict[str, Mapping[str, Any] | Failure] = {}

        def on_event(event: Event) -> None:
            if event["event"] == "answer":
                answers[event["key"]] = event["answer"]
            elif event["event"] == "failure":
                answers[event["candidate"]] = failure_of(event)

        wanted = [{"key": key, "command": dict(command)} for key, command in commands.items()]
        request = {"commands": wanted, "timeout_s": timeout_s}
        self.request(request, on_event, timeout_s=timeout_s * (len(wanted) + 1))
        silent = [key for key in commands if key not in answers]
        if silent:
            raise AgentError(f"the agent gave no answer for {silent[0]!r}", hint="Please report this.")
        return {key: answers[key] for key in commands}


def _parsed(line: str) -> Event:
    """The event of a line; AgentError if it is none that the protocol knows."""
    try:
        event: Event = json.loads(line)
        if _FIELDS[event["event"]] <= event.keys():
            return event
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise AgentError(
        f"the agent wrote a line that is no event: {line[:200]!r}", hint="Please report this, with the line."
    )


def failure_of(event: Event) -> Failure:
    """The failure that an event tells of."""
    return Failure(
        stage=event["stage"],
        kind=event["kind"],
        transient=event["transient"],
        message=event["message"],
        log_tail=event["log_tail"],
    )
