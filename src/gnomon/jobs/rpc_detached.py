"""A tracker with servers in the background: started, looked at, and ended by other commands later."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, NoReturn

from gnomon import errors
from gnomon.devices.config import user_folder
from gnomon.errors import DeviceError, GnomonError, UsageError
from gnomon.jobs.rpc_state import RpcState, log_path, read_state, remove_state, start_of, state_path, write_state
from gnomon.jobs.rpc_up import Document, RpcRequest, rpc_up, tracker_document
from gnomon.tuning.tracker import HOST_VARIABLE, tracker_at

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
