"""The way to the agent on a device: one request, and its events as they come.

The events that the agent may write (docs/agent.md), read without trusting them: a device may be somebody else's.

Reference outputs on a device: what the outputs of everything measured there are checked against.

Packs the agent into the one file that is pushed to a device and shipped in deployable packages.
"""

from __future__ import annotations

import functools
import io
import json
import math
import os
import platform
import py_compile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Self

from gnomon.core.sample import OWN_SIGNALS, Failure
from gnomon.devices.base import Conversing, Device, inherited
from gnomon.errors import AgentError, DeviceError
from gnomon.measure.effort import Effort
from gnomon.measure.environment import judge
from gnomon.system.process import Completed, Conversation, guarded_folder

Event = dict[str, Any]
_Check = Callable[[Any], bool]

_MOST_NS = 1 << 62


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _truth(value: Any) -> bool:
    return isinstance(value, bool)


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST_NS


def _times(value: Any) -> bool:
    return isinstance(value, list) and all(map(_count, value))


def _kernels(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(row, dict)
        and _text(row.get("name"))
        and _text(row.get("backend"))
        and _times(row.get("wall_ns"))
        and isinstance(row.get("sources"), list)
        and all(_text(source) or _count(source) for source in row["sources"])
        for row in value
    )


def _energy(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    numbers = (value.get("spent_uj", 0), value.get("wall_ns", 0))
    return _text(value.get("unknown")) or all(_count(number) and number > 0 for number in numbers)


def _snapshots(value: Any) -> bool:
    """Whether it can be judged, as every report does later."""
    try:
        judge(value["before"], value["after"])
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError):
        return False
    return True


def _state(value: Any) -> bool:
    """Whether a snapshot can be judged beside others, and what is computed from two of them are numbers."""
    if not _snapshots({"before": value, "after": value}):
        return False
    told = [value[name] for name in ("monotonic_s", "cpu_busy_s", "cpu_total_s", "load_average_1m") if name in value]
    frequencies, temperatures = value.get("frequencies_khz", {}), value.get("temperatures_c", {})
    return (
        isinstance(frequencies, dict)
        and all(isinstance(row, list) and row and (row[0] is None or _count(row[0])) for row in frequencies.values())
        and all(map(_seconds, [*told, *temperatures.values()]))
    )


def _pace(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and _times(value.get("delay_ns"))
        and all(_count(value.get(name)) for name in ("late", "skipped"))
    )


def _or_nothing(check: _Check) -> _Check:
    return lambda value: value is None or check(value)


#: The fields that each event must have.
_FIELDS: Mapping[str, Mapping[str, _Check]] = {
    "alive": {},
    "end": {},
    "answer": {"key": _text, "answer": _object},
    "failure": {
        "candidate": _text,
        "stage": _text,
        "kind": _text,
        "transient": _truth,
        "message": _text,
        "log_tail": _text,
    },
    "environment": {"data": _snapshots},
    "opened": {"candidate": _text},
    "block": {
        "candidate": _text,
        "block": _count,
        "started_at_s": _seconds,
        "wall_ns": lambda value: _times(value) and len(value) > 0,
        "cpu_ns": _times,
        "inner": lambda value: _count(value) and value > 0,
        "peak_rss_bytes": _or_nothing(_count),
    },
}
#: And those that they may have.
_MORE: Mapping[str, Mapping[str, _Check]] = {
    "failure": {"block": _count, "hint": _text, "signal": _text},
    "opened": {"where": lambda value: isinstance(value, list), "sensitivity": _object, "difference": _object},
    "block": {"operators": _kernels, "waits": _or_nothing(_count), "energy": _energy, "pace": _pace, "state": _state},
}


def event_of(line: str) -> Event:
    """The event of a line. AgentError if it is none that the protocol knows."""
    try:
        event: Event = json.loads(line)
        kind = event["event"]
        needed, more = _FIELDS[kind], _MORE.get(kind, {})
        if all(name in event and check(event[name]) for name, check in needed.items()) and all(
            check(event[name]) for name, check in more.items() if name in event
        ):
            return event
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        pass
    raise senseless(line)


def senseless(line: str) -> AgentError:
    """The error for an invalid line."""
    return AgentError(
        f"the agent wrote a line that is not an event: {line[:200]!r}", hint="Please report this, with the line."
    )


def check_asked(event: Event, visits: Mapping[str, frozenset[int]]) -> None:
    """AgentError for what was measured of a candidate, or in a visit, that the request does not name.

    `visits` are those that were asked for, by the candidates' keys.
    """
    if event["event"] not in ("opened", "block", "failure"):
        return
    key, block = event["candidate"], event.get("block", 0)
    if key not in visits or (event["event"] == "block" and block not in visits[key]):
        raise AgentError(
            f"the agent reported block {block} of {key[:80]!r}, which was not asked for", hint="Please report this."
        )


_MAIN = b"import sys\nfrom gnomon_agent.__main__ import main\nsys.exit(main(sys.argv[1:]))\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)


@functools.cache
def packed_agent(*, compiled: bool = False) -> bytes:
    """The agent as a zip application for any Python 3.10 or later with numpy; the same bytes every time.

    With `compiled` it also holds its modules as this Python compiles them, for those of the same version, which would
    compile them in each process; others read the sources.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py", _EPOCH), _MAIN)
        for path, source in sorted(_modules(resources.files("gnomon.agent"))):
            archive.writestr(zipfile.ZipInfo(f"gnomon_agent/{path}", _EPOCH), source)
            if compiled:
                archive.writestr(zipfile.ZipInfo(f"gnomon_agent/{path}c", _EPOCH), _compiled(source, path))
    return buffer.getvalue()


def _modules(folder: Traversable, under: str = "") -> Iterator[tuple[str, bytes]]:
    """The paths and sources of the modules in a folder, and of those in the folders below it."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _modules(entry, f"{under}{entry.name}/")
        elif entry.name.endswith(".py"):
            yield f"{under}{entry.name}", entry.read_bytes()


def _compiled(source: bytes, path: str) -> bytes:
    """A module of the agent as the file of its compiled form that is used without a look at the source."""
    with guarded_folder("gnomon-compiled-") as folder:
        written = folder / "module.py"
        written.write_bytes(source)
        made = py_compile.compile(
            str(written),
            cfile=f"{written}c",
            dfile=f"gnomon_agent/{path}",
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        return Path(str(made)).read_bytes()


class AgentLink:
    """Starts the agent's supervisor on a device. The device is the caller's and stays open.

    A context manager: the packed agent lies in a temporary folder while the link is open, and on this machine its
    supervisor stays between two requests, which start fresh processes all the same. `timeout_s` is how long
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
        self._agent_here: Conversation | None = None
        self._started_as: object = None
        with ExitStack() as stack:
            self._start_here(stack)
            self._open = stack.pop_all()

    def _start_here(self, stack: ExitStack) -> None:
        """Make what lasts as long as the link is open."""
        packed = stack.enter_context(guarded_folder("gnomon-agent-")) / "gnomon-agent.pyz"
        alike = str(self.info.fingerprint.get("python")).split(".")[:2] == list(platform.python_version_tuple()[:2])
        packed.write_bytes(packed_agent(compiled=alike))
        self._agent = self.device.push(packed, packed.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()
        self._open.close()

    def request(self, request: Mapping[str, Any], on_event: Callable[[Event], None], *, timeout_s: float) -> None:
        """Put one request; `on_event` is called for each event but the signs of life.

        Raises DeviceError if the device or the supervisor failed, AgentError if it said something senseless.
        Whatever came before an error was delivered.
        """
        asked = request.get("candidates")
        visits = None if asked is None else {c["key"]: frozenset(c.get("visits", ())) for c in asked}

        def on_line(line: str) -> bool:
            event = event_of(line)
            if event["event"] == "end":
                return True
            if event["event"] == "failure" and event["stage"] == "settings":
                # The machine's settings could not be made as asked: nothing that follows would mean anything.
                raise DeviceError(event["message"], hint=event.get("hint", ""), transient=event["transient"])
            if event["event"] != "alive":
                if visits is not None:
                    check_asked(event, visits)
                on_event(event)
            return False

        whole = {**request, "machine": self._machine} if self._machine and "candidates" in request else request
        done = self._served(json.dumps(whole).encode() + b"\n", on_line, timeout_s)
        if done is not None:
            status = f"signal {done.signal}" if done.signal else f"status {done.returncode}"
            how = "did not end in time" if done.timed_out else f"ended with {status}"
            raise DeviceError(
                f"the agent on {self.info.name} {how}: {done.stderr.strip()[-500:] or 'it said nothing'}",
                hint="Start the command again: what was measured is kept. If it stays, see what `gnomon devices check` "
                "says of the device.",
                transient=True,
            )

    @property
    def _command(self) -> tuple[list[str], dict[str, str]]:
        """What serves requests, and its environment."""
        environment = {"PYTHONPATH": ":".join(self.paths)} if self.paths else {}
        return [self.info.python, self._agent, "supervise"], environment

    def _served(self, request: bytes, on_line: Callable[[str], bool], timeout_s: float) -> Completed | None:
        """Have a request served, by lines of which `on_line` knows the last; how it ended where that did not come."""
        if isinstance(self.device, Conversing):
            return self._asked_here(self.device, request, on_line, timeout_s)
        ended = False

        def listen(line: str) -> None:
            nonlocal ended
            ended = on_line(line) or ended

        argv, environment = self._command
        done = self.device.run(argv, env=environment, stdin=request, timeout_s=timeout_s, on_line=listen)
        return None if ended else done

    def _asked_here(
        self, device: Conversing, request: bytes, on_line: Callable[[str], bool], timeout_s: float
    ) -> Completed | None:
        """The same by an agent that stays; another is started where it has ended, or would see another environment."""
        argv, environment = self._command
        start_as = argv, environment, inherited(os.environ)
        if self._agent_here is not None and not (self._agent_here.alive and self._started_as == start_as):
            self._end()
        if self._agent_here is None:
            self._agent_here, self._started_as = device.converse(argv, env=environment), start_as
        done: Completed | None = None
        whole = False
        try:
            done = self._agent_here.ask(request, on_line, timeout_s=timeout_s)
            whole = done is None
        finally:
            if not whole:
                self._agent_here = None
        return done

    def _end(self) -> None:
        """End the agent that stays here, if there is one."""
        if self._agent_here is not None:
            self._agent_here.close()
            self._agent_here = None

    def hold(self) -> None:
        """Make the settings of the machine and put them back: DeviceError if they cannot be made."""
        if self._machine:
            request = {**Effort(rounds=0).request(), "seed": 0, "candidates": []}
            self.request(request, lambda event: None, timeout_s=self._timeout_s)

    def state(self) -> Mapping[str, Any]:
        """The device's state now, as `gnomon.agent.snapshot` tells it. DeviceError, AgentError."""
        found: dict[str, Any] = {}

        def on_event(event: Event) -> None:
            if event["event"] == "environment":
                found.update(event["data"]["after"])

        request = {**Effort(rounds=0).request(), "seed": 0, "candidates": []}
        self.request(request, on_event, timeout_s=self._timeout_s)
        return found

    def ask(
        self, commands: Mapping[str, Mapping[str, Any]], *, timeout_s: float | None = None
    ) -> dict[str, Mapping[str, Any] | Failure]:
        """Each command in a fresh process of the agent: its answer, or how the process failed.

        One whose process was ended from outside is put once more.
        """
        timeout_s = timeout_s or self._timeout_s
        answers: dict[str, Mapping[str, Any] | Failure] = {}

        def on_event(event: Event) -> None:
            if event["event"] == "answer":
                answers[event["key"]] = event["answer"]
            elif event["event"] == "failure":
                answers[event["candidate"]] = failure_of(event)

        wanted = [{"key": key, "command": dict(command)} for key, command in commands.items()]
        for _ in range(2):
            request = {"commands": wanted, "timeout_s": timeout_s}
            self.request(request, on_event, timeout_s=timeout_s * (len(wanted) + 1))
            wanted = [item for item in wanted if _was_ended(answers.get(str(item["key"])))]
            if not wanted:
                break
        silent = [key for key in commands if key not in answers]
        if silent:
            raise AgentError(f"the agent gave no answer for {silent[0]!r}", hint="Please report this.")
        return {key: answers[key] for key in commands}


def _was_ended(answer: Mapping[str, Any] | Failure | None) -> bool:
    return isinstance(answer, Failure) and answer.transient and answer.kind in ("crash", "memory")


class KeptLink(AgentLink):
    """A link to the agent on this machine that keeps processes which can be shared from one request to the next.

    Starting them takes longer than measuring a small model. What comes after is not of a fresh process: who measures so
    says it. Each failure of a candidate costs its process; an agent that fails is started again for the next request.
    """

    def __init__(self, device: Conversing, *, timeout_s: float, machine: Mapping[str, Any] | None = None) -> None:
        super().__init__(device, timeout_s=timeout_s, machine=machine)

    def request(self, request: Mapping[str, Any], on_event: Callable[[Event], None], *, timeout_s: float) -> None:
        """Put one request; see `AgentLink.request`."""
        super().request({**request, "keep": True}, on_event, timeout_s=timeout_s)


def failure_of(event: Event) -> Failure:
    """The failure that an event tells of: a signal that processes do not send themselves came from outside."""
    return Failure(
        stage=event["stage"],
        kind=event["kind"],
        transient=event["transient"] or event.get("signal", "SIGSEGV") not in OWN_SIGNALS,
        message=event["message"],
        log_tail=event["log_tail"],
    )


REFERENCE = "reference.npz"
"""Where reference outputs are, in the device's private folder, in which the agent's processes run."""


def compute_reference(
    link: AgentLink,
    job: Mapping[str, Any],
    seeds: Sequence[int],
    *,
    timeout_s: float,
    name: str = REFERENCE,
    check: str = "",
) -> tuple[dict[str, Any] | None, Failure | None]:
    """Write a job's outputs for each seed to a file on the link's device: their sensitivity, or the failure.

    Where `check` is such a file, "difference" is how far they are off what it holds.
    """
    found: dict[str, Any] = {}
    failed: list[Failure] = []

    def on_event(event: Event) -> None:
        if event["event"] == "opened":
            found.update(event["sensitivity"])
            found.update({"difference": event["difference"]} if check else {})
        elif event["event"] == "failure":
            failed.append(failure_of(event))

    opening = {"job": job, "save": name, "seeds": list(seeds), **({"check": check} if check else {})}
    request = {
        **Effort(rounds=0, timeout_s=timeout_s).request(),
        "seed": 0,
        "candidates": [{"key": "reference", "open": opening}],
    }
    link.request(request, on_event, timeout_s=timeout_s * 3)
    return (None, failed[0]) if failed else (found, None)
