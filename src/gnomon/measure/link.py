"""The link to the agent on a device: it sends requests and reads events as they arrive.

The agent is packed into one file, which is pushed to the device and shipped in packages. Its events (docs/agent.md) are
checked, because a device may belong to someone else. The link also computes the reference outputs, with which all
measured outputs of a device are compared.
"""

from __future__ import annotations

import functools
import io
import json
import os
import platform
import py_compile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, Self, cast

from gnomon import wire
from gnomon.core.codec import parts
from gnomon.core.sample import OWN_SIGNALS, Failure
from gnomon.devices.base import Conversing, Device, inherited
from gnomon.errors import AgentError, DeviceError
from gnomon.measure.effort import Effort
from gnomon.measure.environment import judge
from gnomon.system.process import Completed, Conversation, guarded_folder

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator

_MOST_NS = 1 << 62
_STRICT: Any = {"strict": True, "allow_inf_nan": False}


@functools.cache
def _validator(kind: Any) -> SchemaValidator:
    """The validator for a value of a type of `gnomon.wire`, wrapped in a tuple."""
    from pydantic import TypeAdapter
    from pydantic_core import SchemaValidator

    schema = TypeAdapter(cast(Any, tuple)[kind], config=_STRICT).core_schema
    for part in parts(schema, "int"):
        part |= {"ge": 0, "le": _MOST_NS}
    return SchemaValidator(schema, _STRICT)


def conforms(value: Any, kind: Any) -> bool:
    """Return True if a JSON value conforms to a type of `gnomon.wire`; keys that a TypedDict does not name are allowed.

    Integers are counts and must not be negative; other numbers must be finite.
    """
    from pydantic_core import ValidationError

    try:
        _validator(kind).validate_python((value,))
    except ValidationError:
        return False
    return True


def event_of(line: str) -> wire.Event:
    """The event that a line contains. AgentError for any other text."""
    try:
        event: wire.Event = json.loads(line)
        if conforms(event, wire.Event) and _sensible(event):
            return event
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, ArithmeticError, RecursionError):
        pass
    message = f"the agent wrote a line that is not an event: {line[:200]!r}"
    raise AgentError(message, hint="Please report this, with the line.")


def _sensible(event: wire.Event) -> bool:
    """Return True if all numbers used as divisors are above 0. Snapshots are judged here too, because every report
    judges them later and must not fail then.
    """
    if event["event"] == "environment":
        judge(event["data"]["before"], event["data"]["after"])
    if event["event"] != "block":
        return True
    if "state" in event:
        judge(event["state"], event["state"])
    valid = True
    if (energy := event.get("energy")) is not None:
        valid = "unknown" in energy or min(energy.get("spent_uj", 0), energy.get("wall_ns", 0)) > 0
    return len(event["wall_ns"]) > 0 and event["inner"] > 0 and valid


def check_asked(event: wire.Event, visits: Mapping[str, frozenset[int]]) -> None:
    """Raise AgentError for an event about a candidate or a visit that the request does not name.

    `visits` are the requested visits, by the candidates' keys.
    """
    if event["event"] != "opened" and event["event"] != "block" and event["event"] != "failure":
        return
    key, block = event["candidate"], event["block"] if event["event"] == "block" else 0
    if key not in visits or (event["event"] == "block" and block not in visits[key]):
        raise AgentError(
            f"the agent reported block {block} of {key[:80]!r}, which was not requested", hint="Please report this."
        )


_MAIN = b"import sys\nfrom gnomon_agent.__main__ import main\nsys.exit(main(sys.argv[1:]))\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)


@functools.cache
def packed_agent(*, compiled: bool = False) -> bytes:
    """The agent as a zip application for any Python 3.10 or later with numpy. The bytes are the same every time.

    With `compiled`, it also holds modules compiled by this Python. A Python of the same version then does not have to
    compile them in each process; other versions read the sources.
    """
    folder, buffer = Path(str(resources.files("gnomon.agent"))), io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py", _EPOCH), _MAIN)
        for path in sorted(folder.rglob("*.py")):
            name = f"gnomon_agent/{path.relative_to(folder).as_posix()}"
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), path.read_bytes())
            if compiled:
                archive.writestr(zipfile.ZipInfo(f"{name}c", _EPOCH), _compiled(path, name))
    return buffer.getvalue()


def _compiled(path: Path, name: str) -> bytes:
    """A compiled module of the agent, as a file that Python uses without checking the source."""
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    with guarded_folder("gnomon-compiled-") as folder:
        target = folder / "module.pyc"
        py_compile.compile(str(path), str(target), name, doraise=True, invalidation_mode=unchecked)
        return target.read_bytes()


class AgentLink:
    """Starts the agent's supervisor on a device. The device belongs to the caller and stays open.

    The link is a context manager: while it is open, the packed agent is kept in a temporary folder. On this machine,
    the supervisor keeps running between requests, but each request still starts fresh processes. `timeout_s` is how
    long a process may take to answer a command sent by `ask`. `machine` has settings for the whole machine that apply
    during measurements (docs/agent.md). `paths` are folders on the device in which the agent looks for Python packages
    first; folders may be added while the link is open.

    A link that is `kept` leaves the processes that candidates share running from one request to the next, because
    starting a process takes longer than measuring a small model. Later requests then do not measure in a fresh process,
    and code that measures this way must report it. Each failure of a candidate ends its process.
    """

    def __init__(
        self, device: Device, *, timeout_s: float = 60.0, machine: wire.Machine | None = None, kept: bool = False
    ) -> None:
        self.device, self.kept = device, kept
        self._timeout_s = timeout_s
        self._machine: wire.Machine = machine or {}
        self.info = device.describe()
        self.paths: list[str] = []
        self._agent_here: Conversation | None = None
        self._started_as: object = None
        with ExitStack() as stack:
            self._start_here(stack)
            self._open = stack.pop_all()

    def _start_here(self, stack: ExitStack) -> None:
        """Set up everything that exists while the link is open."""
        packed = stack.enter_context(guarded_folder("gnomon-agent-")) / "gnomon-agent.pyz"
        alike = str(self.info.fingerprint.get("python")).split(".")[:2] == list(platform.python_version_tuple()[:2])
        packed.write_bytes(packed_agent(compiled=alike))
        self._agent = self.device.push(packed, packed.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()
        self._open.close()

    def request(self, request: wire.Request, on_event: Callable[[wire.Event], None], *, timeout_s: float) -> None:
        """Send one request; `on_event` is called for each event except signs of life.

        Raises DeviceError if the device or the supervisor failed, AgentError if an invalid line arrived. Events that
        arrived before an error have been delivered.
        """
        visits = None
        if "candidates" in request:
            visits = {c["key"]: frozenset(c.get("visits", ())) for c in request["candidates"]}
            if self._machine:
                request = {**request, "machine": self._machine}
            if self.kept:
                request = {**request, "keep": True}

        def on_line(line: str) -> bool:
            event = event_of(line)
            if event["event"] == "end":
                return True
            if event["event"] == "failure" and event["stage"] == "settings":
                # The machine's settings could not be applied, so any measurement that follows would be meaningless.
                raise DeviceError(event["message"], hint=event.get("hint", ""), transient=event["transient"])
            if event["event"] != "alive":
                if visits is not None:
                    check_asked(event, visits)
                on_event(event)
            return False

        done = self._served(json.dumps(request).encode() + b"\n", on_line, timeout_s)
        if done is not None:
            status = f"signal {done.signal}" if done.signal else f"status {done.returncode}"
            how = "did not end in time" if done.timed_out else f"ended with {status}"
            raise DeviceError(
                f"the agent on {self.info.name} {how}: {done.stderr.strip()[-500:] or 'it printed nothing'}",
                hint="Start the command again: what was measured is kept. If the error remains, check the device: "
                "gnomon devices check",
                transient=True,
            )

    @property
    def _command(self) -> tuple[list[str], dict[str, str]]:
        """The command that serves requests, and its environment."""
        environment = {"PYTHONPATH": ":".join(self.paths)} if self.paths else {}
        return [self.info.python, self._agent, "supervise"], environment

    def _served(self, request: bytes, on_line: Callable[[str], bool], timeout_s: float) -> Completed | None:
        """Send a request to the agent; `on_line` returns True for the last line. Returns how the agent ended if that
        line never came.
        """
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
        """Send a request to an agent that keeps running. A new agent is started if the last one has ended or the
        environment has changed.
        """
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
        """End the agent that keeps running here, if there is one."""
        if self._agent_here is not None:
            self._agent_here.close()
            self._agent_here = None

    def hold(self) -> None:
        """Check the settings of the machine: apply them, then restore the old ones. DeviceError if they cannot be
        applied.
        """
        if self._machine:
            self.state()

    def state(self) -> wire.Snapshot:
        """The current state of the device. Raises DeviceError or AgentError."""
        snapshot: wire.Snapshot = {}

        def on_event(event: wire.Event) -> None:
            if event["event"] == "environment":
                snapshot.update(event["data"]["after"])

        request: wire.MeasuringRequest = {**Effort(rounds=0).request(), "seed": 0, "candidates": []}
        self.request(request, on_event, timeout_s=self._timeout_s)
        return snapshot

    def ask(
        self, commands: Mapping[str, wire.FreshCommand], *, timeout_s: float | None = None
    ) -> dict[str, wire.Answer | Failure]:
        """Run each command in a fresh process of the agent; return its answer, or how the process failed.

        A command whose process was ended from outside is run once more.
        """
        timeout_s = timeout_s or self._timeout_s
        answers: dict[str, wire.Answer | Failure] = {}

        def on_event(event: wire.Event) -> None:
            if event["event"] == "answer":
                answers[event["key"]] = event["answer"]
            elif event["event"] == "failure":
                answers[event["candidate"]] = failure_of(event)

        wanted: list[wire.KeyedCommand] = [{"key": key, "command": command} for key, command in commands.items()]
        for _ in range(2):
            request: wire.CommandRequest = {"commands": wanted, "timeout_s": timeout_s}
            self.request(request, on_event, timeout_s=timeout_s * (len(wanted) + 1))
            wanted = [item for item in wanted if _was_ended(answers.get(item["key"]))]
            if not wanted:
                break
        silent = [key for key in commands if key not in answers]
        if silent:
            raise AgentError(f"the agent gave no answer for {silent[0]!r}", hint="Please report this.")
        return {key: answers[key] for key in commands}


def _was_ended(answer: wire.Answer | Failure | None) -> bool:
    return isinstance(answer, Failure) and answer.transient and answer.kind in ("crash", "memory")


def failure_of(event: wire.FailureEvent) -> Failure:
    """The failure that an event describes. It also counts as transient if a signal from outside ended the process."""
    return Failure(
        stage=event["stage"],
        kind=event["kind"],
        transient=event["transient"] or event.get("signal", "SIGSEGV") not in OWN_SIGNALS,
        message=event["message"],
        log_tail=event["log_tail"],
    )


REFERENCE = "reference.npz"
"""The file of reference outputs in the device's private folder, where the agent's processes run."""


class Reference(wire.Sensitivity):
    """The sensitivity of reference outputs to the inputs.

    `difference` is the difference from the outputs in another file. `checked_by` names the second runtime that computed
    the same outputs, and `agreement` is how much that runtime's outputs differ; `slack` is how much outputs of the same
    runtime differ. `left_open` means that the model's dimensions are not fixed in advance, and `open_outputs` means
    that outputs have other shapes than the file declares.
    """

    difference: NotRequired[wire.Difference]
    checked_by: NotRequired[str]
    agreement: NotRequired[float]
    slack: NotRequired[float]
    left_open: NotRequired[bool]
    open_outputs: NotRequired[bool]


def compute_reference(
    link: AgentLink, job: wire.Job, seeds: Sequence[int], *, timeout_s: float, name: str = REFERENCE, check: str = ""
) -> tuple[Reference | None, Failure | None]:
    """Write a job's outputs for each seed to a file on the link's device; return their sensitivity, or the failure.

    If `check` names such a file, "difference" is the difference from its outputs.
    """
    opened: list[Reference] = []
    failed: list[Failure] = []

    def on_event(event: wire.Event) -> None:
        if event["event"] == "opened":
            opened.append(cast(Reference, event["sensitivity"]))
            if check:
                opened[0]["difference"] = event["difference"]
        elif event["event"] == "failure":
            failed.append(failure_of(event))

    opening: wire.Opening = {"job": job, "save": name, "seeds": list(seeds)}
    if check:
        opening["check"] = check
    request: wire.MeasuringRequest = {
        **Effort(rounds=0, timeout_s=timeout_s).request(),
        "seed": 0,
        "candidates": [{"key": "reference", "open": opening}],
    }
    link.request(request, on_event, timeout_s=timeout_s * 3)
    return (None, failed[0]) if failed else (opened[0], None)
