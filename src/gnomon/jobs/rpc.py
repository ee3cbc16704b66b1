"""A tracker with servers on this machine, from their start until a signal: what `gnomon rpc up` runs.

The file that tells of a tracker and servers in the background: which process has them, where, with what devices.

A tracker with servers in the background: started, looked at, and ended by other commands later.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from gnomon import errors
from gnomon.core.strict_json import Strict
from gnomon.devices.config import user_folder
from gnomon.errors import DeviceError, GnomonError, ProblemError, UsageError
from gnomon.system.files import save_text
from gnomon.tuning.servers import LOOPBACK, MOST_DEVICES, Arrangement, RpcServers, ServersRequest, device_settings
from gnomon.tuning.tracker import HOST_VARIABLE, Tracker, tracker_at

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TEND_S = 2.0

Document = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcRequest:
    """How many devices to make of this machine, and where the tracker listens (port 0: a free one)."""

    devices: int = 2
    port: int = 0
    bind: str = LOOPBACK


def rpc_up(request: RpcRequest, *, begun: Callable[[Document], None], tell: Callable[[str], None]) -> int:
    """Serve until SIGINT, SIGTERM or SIGHUP comes, and return its number; from the main thread. Nothing is left then.

    `begun` gets the document of what runs once all of it does, and again when a server that crashed was started anew;
    `tell` gets a line of each such event. Raises what entering `RpcServers` raises, and DeviceError if the tracker
    ends or a server cannot be started again.
    """
    if not 1 <= request.devices <= MOST_DEVICES:
        raise UsageError(f"{request.devices} devices cannot be made", hint=f"Give --devices 1 to {MOST_DEVICES}.")
    wanted = ServersRequest(devices=device_settings(request.devices), bind=request.bind, port=request.port)
    with _signals() as (stop, numbers):
        try:
            with RpcServers(wanted, stop) as servers:
                last = servers.arrangement
                begun(arrangement_document(last))
                while not stop.wait(_TEND_S):
                    servers.tend(tell)
                    if servers.arrangement != last:
                        last = servers.arrangement
                        begun(arrangement_document(last))
        except DeviceError:
            if not numbers:
                raise
        return numbers[0]


def arrangement_document(arrangement: Arrangement) -> Document:
    """What runs, for people and programs: addresses, devices, a warning to show, and the command to try."""
    return {
        "tracker": arrangement.tracker.address,
        "process": os.getpid(),
        "devices": [
            {
                "key": device.setting.key,
                "threads": device.setting.threads,
                "target": device.setting.target,
                "server": device.address,
            }
            for device in arrangement.devices
        ],
        "warning": arrangement.warning,
        "try": tune_command(arrangement),
    }


def tune_command(arrangement: Arrangement) -> str:
    """The command that tunes a model for the first device."""
    first = arrangement.devices[0].setting
    return f"gnomon tune MODEL.onnx --tracker {arrangement.tracker.address} --key {first.key} --target {first.target}"


def tracker_document(tracker: Tracker) -> Document:
    """The keys of a tracker, each with its servers and how many are free. DeviceError if it does not answer."""
    found = tracker.summary()
    return {
        "tracker": tracker.address,
        "keys": [
            {
                "key": key,
                "servers": [server.address for server in found.of(key)],
                "free": found.queue(key).free,
                "pending": found.queue(key).pending,
            }
            for key in found.keys
        ],
    }


@contextlib.contextmanager
def _signals() -> Iterator[tuple[threading.Event, list[int]]]:
    """An event that the signals set, and the numbers of those that came; the handlers are as before afterwards."""
    stop: threading.Event = threading.Event()
    numbers: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        numbers.append(number)
        stop.set()

    # One that is ignored stays so: nohup has it from whoever started this.
    before = {n: signal.getsignal(n) for n in _SIGNALS}
    for number, handler in before.items():
        if number != signal.SIGHUP or handler is not signal.SIG_IGN:
            signal.signal(number, end)
    try:
        yield stop, numbers
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_MOST_BYTES = 1 << 16
_MOST_PID = 1 << 22
_STRICT = Strict(what="file rpc.json", hint="Remove it.", most_letters=_MOST_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcState:
    """What the file says. `started` tells the process apart from a later one with the same number."""

    process: int
    started: str
    document: Mapping[str, Any] = field(default_factory=dict)

    @property
    def running(self) -> bool:
        """Whether that very process runs."""
        return bool(self.started) and start_of(self.process) == self.started

    @property
    def tracker(self) -> str:
        """The address of its tracker."""
        return str(self.document.get("tracker", ""))


def state_path() -> Path:
    """Where the file is; there need be none."""
    return user_folder() / "rpc.json"


def log_path() -> Path:
    """What the process in the background has to say."""
    return user_folder() / "rpc.log"


def read_state() -> RpcState | None:
    """What the file says, None if there is none; a file that cannot be read tells of a process that does not run."""
    try:
        with state_path().open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError:
        return RpcState(process=0, started="")
    try:
        found = _STRICT.object(_STRICT.parse(raw), "$")
        process, started = _STRICT.whole(found.get("process"), "$.process", "a process"), found.get("started")
        document = _STRICT.object(found.get("document"), "$.document")
    except ProblemError:
        return RpcState(process=0, started="")
    if not (isinstance(started, str) and 1 < process <= _MOST_PID):
        return RpcState(process=0, started="")
    return RpcState(process=process, started=started, document=document)


def write_state(state: RpcState) -> None:
    """Write the file, whole. UsageError if it cannot be written."""
    found = {"process": state.process, "started": state.started, "document": dict(state.document)}
    save_text(json.dumps(found, indent=1) + "\n", state_path(), what="the state of the servers", option="GNOMON_HOME")


def remove_state(state: RpcState) -> None:
    """Remove the file if it still tells of that process."""
    now = read_state()
    if now is not None and (now.process, now.started) == (state.process, state.started):
        with contextlib.suppress(OSError):
            state_path().unlink()


def start_of(process: int) -> str:
    """When a process started: the boot of the kernel and the clock ticks since; "" if it has ended."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        parts = Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    # Counted from the third field of proc(5), the state; the start is the 22nd.
    return "" if len(parts) < 20 or parts[0] in "ZX" else f"{boot}/{parts[19]}"


_START_S = 300.0
_END_S = 30.0
_KILLED_S = 15.0
_POLL_S = 0.05
_MOST_SAID_BYTES = 1 << 20


def start_detached(request: RpcRequest) -> Document:
    """Start it in the background and return what `rpc_up` tells, once all of it runs; with "log" and "cleaned".

    UsageError if it runs already. Raises what `rpc_up` raises where it cannot start.
    """
    cleaned = clean_stale()
    before = read_state()
    if before is not None:
        raise _running_already(before.tracker)
    try:
        user_folder().mkdir(parents=True, exist_ok=True)
        log = os.open(log_path(), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise UsageError(
            f"the log {log_path()} cannot be written: {error.strerror}", hint="GNOMON_HOME names another folder."
        ) from error
    command = [sys.executable, "-P", "-m", __name__, json.dumps(asdict(request))]
    with os.fdopen(log, "wb") as errors_to:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors_to,
            env={**os.environ, "GNOMON_HOME": str(user_folder().absolute())},
            start_new_session=True,
            bufsize=0,
        )
    assert process.stdout is not None  # noqa: S101
    with process.stdout as told:
        try:
            said = _said(told.fileno(), time.monotonic() + _START_S)
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if "error" in said:
        process.wait()
        _raise(said["error"])
    process.returncode = 0  # it outlives this process: nobody waits for it
    return {**said, "log": str(log_path()), "cleaned": cleaned}


def detached_status() -> RpcState | None:
    """What runs in the background, None if nothing does. Files of what has ended are left as they are."""
    state = read_state()
    return state if state is not None and state.running else None


def clean_stale() -> str:
    """Remove the file of what has ended without cleaning up; returns a sentence about it, "" if there was none."""
    state = read_state()
    if state is None or state.running:
        return ""
    remove_state(state)
    who = f"process {state.process}" if state.process else "a process that its file does not name"
    return f"The servers of {who} had ended without a word; their file {state_path()} was removed."


def stop_detached() -> Document:
    """End what runs in the background, whole: {"ended": its document or None, "cleaned": a sentence or ""}.

    DeviceError if it cannot be ended. A process that only has the number of one that has ended is never touched.
    """
    cleaned = clean_stale()
    state = read_state()
    if state is None:
        return {"ended": None, "cleaned": cleaned}
    try:
        if not _ended(state, signal.SIGTERM, _END_S) and not _ended(state, signal.SIGKILL, _KILLED_S):
            raise DeviceError(f"process {state.process} does not end though it was killed", hint="Restart the machine.")
    except PermissionError as error:
        raise DeviceError(
            f"process {state.process} is another user's", hint="End it as the user who started it."
        ) from error
    remove_state(state)
    return {"ended": dict(state.document), "cleaned": cleaned}


def known_tracker(text: str | None) -> Document:
    """The tracker that is meant and what it has: that of `text`, else of the environment, else in the background.

    The document of `tracker_document`, with "from", and "detached" if it runs in the background. DeviceError if none
    is known, or it does not answer.
    """
    cleaned = clean_stale()
    state = detached_status()
    source = "option" if text else "environment" if os.environ.get(HOST_VARIABLE) else "background"
    if source == "background" and state is None:
        raise DeviceError(
            f"no tracker is known here{'. ' + cleaned.removesuffix('.') if cleaned else ''}",
            hint="Start one with `gnomon rpc up --detach`, or give --tracker HOST:PORT.",
        )
    tracker = tracker_at(state.tracker if source == "background" and state else text)
    own = state is not None and state.tracker == tracker.address
    return {
        **tracker_document(tracker),
        "from": source,
        "detached": dict(state.document) if own and state else None,
        "cleaned": cleaned,
    }


def _ended(state: RpcState, number: signal.Signals, timeout_s: float) -> bool:
    """Send the signal, and whether the process then ends in time."""
    if state.running:
        with contextlib.suppress(ProcessLookupError):
            os.kill(state.process, number)
    until_s = time.monotonic() + timeout_s
    while state.running:
        if time.monotonic() > until_s:
            return False
        time.sleep(_POLL_S)
    return True


def _said(handle: int, until_s: float) -> dict[str, Any]:
    """The first line that the process in the background says, a JSON object. DeviceError if it says none."""
    raw = b""
    while not raw.endswith(b"\n"):
        left_s = until_s - time.monotonic()
        if left_s <= 0 or len(raw) > _MOST_SAID_BYTES:
            raise DeviceError(f"the servers did not start within {_START_S:g} s", hint=f"See {log_path()}")
        if select.select([handle], [], [], left_s)[0]:
            chunk = os.read(handle, 1 << 16)
            if not chunk:
                raise DeviceError("the process in the background ended without a word", hint=f"See {log_path()}")
            raw += chunk
    found: dict[str, Any] = json.loads(raw)
    return found


def _raise(told: dict[str, str]) -> NoReturn:
    kind: type[GnomonError] = getattr(errors, told["kind"], DeviceError)
    raise kind(told["message"], hint=told["hint"])


def _running_already(tracker: str) -> UsageError:
    where = f", with its tracker at {tracker}" if tracker else ""
    return UsageError(
        f"servers run in the background already{where}",
        hint="See `gnomon rpc status`; end them with `gnomon rpc down`.",
    )


@contextlib.contextmanager
def _only_one() -> Iterator[None]:
    """Held for as long as servers run in the background. UsageError if another process holds it."""
    handle = os.open(user_folder() / "rpc.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            now = read_state()
            raise _running_already("" if now is None else now.tracker) from None
        yield
    finally:
        os.close(handle)


def main(text: str) -> int:
    """The process in the background: says on its standard output one line, what runs or why nothing does."""
    request = RpcRequest(**json.loads(text))
    me = RpcState(process=os.getpid(), started=start_of(os.getpid()))
    said = False

    def say(document: Document) -> None:
        print(json.dumps(document), flush=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def begun(document: Document) -> None:
        nonlocal said
        write_state(RpcState(process=me.process, started=me.started, document=document))
        if not said:
            said = True
            say(document)

    os.chdir("/")  # so that it keeps no disk from being unmounted
    try:
        with _only_one():
            try:
                number = rpc_up(request, begun=begun, tell=lambda line: print(line, file=sys.stderr, flush=True))
            finally:
                remove_state(me)
        return 128 + number
    except GnomonError as error:
        told = {"kind": type(error).__name__, "message": error.message, "hint": error.hint}
        if not said:
            say({"error": told})
        print(f"error: {error.message}", file=sys.stderr, flush=True)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
