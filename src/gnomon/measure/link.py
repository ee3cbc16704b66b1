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
from gnomon.measure.effort import Effort
from gnomon.measure.events import Event, check_asked, event_of
from gnomon.measure.pack import packed_agent

__all__ = ["AgentLink", "Event", "failure_of"]


class AgentLink:
    """Starts the agent's supervisor on a device. The device is the caller's and stays open.

    A context manager: the packed agent lies in a temporary folder while the link is open. `timeout_s` is how long
    a process may take to answer a command of `ask`. `machine` are settings of the whole machine that hold while
    something is measured (docs/agent.md). `paths` are folders on the device whose Python packages the agent shall find
    first; they may be added to while the link is open.
    """

    def __init__(self, device: Device, *, timeout_s: float = 60.0, machine: Mapping[str, Any] | None = None) -> None:
        self.device = device
        self._timeout_s = timeout_s
        self._machine = dict(machine or {})
        self.info = device.describe()
        self.paths: list[str] = []
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
        asked = request.get("candidates")
        visits = None if asked is None else {c["key"]: frozenset(c.get("visits", ())) for c in asked}

        def on_line(line: str) -> None:
            nonlocal ended
            event = event_of(line)
            if event["event"] == "end":
                ended = True
            elif event["event"] == "failure" and event["stage"] == "settings":
                # The machine's settings could not be made as asked: nothing that follows would mean anything.
                raise DeviceError(event["message"], hint=event.get("hint", ""), transient=event["transient"])
            elif event["event"] != "alive":
                if visits is not None:
                    check_asked(event, visits)
                on_event(event)

        whole = {**request, "machine": self._machine} if self._machine and "candidates" in request else request
        done = self.device.run(
            [self.info.python, self._agent, "supervise"],
            env={"PYTHONPATH": ":".join(self.paths)} if self.paths else {},
            stdin=json.dumps(whole).encode() + b"\n",
            timeout_s=timeout_s,
            on_line=on_line,
        )
        if not ended:
            status = f"signal {done.signal}" if done.signal else f"status {done.returncode}"
            how = "did not end in time" if done.timed_out else f"ended with {status}"
            raise DeviceError(
                f"the agent on {self.info.name} {how}: {done.stderr.strip()[-500:] or 'it said nothing'}",
                hint="Start the command again: what was measured is kept. If it stays, see what `gnomon devices check` "
                "says of the device.",
                transient=True,
            )

    def hold(self) -> None:
        """Make the settings of the machine and put them back: DeviceError if they cannot be made."""
        if self._machine:
            request = {**Effort(rounds=0).request(), "seed": 0, "candidates": []}
            self.request(request, lambda event: None, timeout_s=self._timeout_s)

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


def failure_of(event: Event) -> Failure:
    """The failure that an event tells of."""
    return Failure(
        stage=event["stage"],
        kind=event["kind"],
        transient=event["transient"],
        message=event["message"],
        log_tail=event["log_tail"],
    )
