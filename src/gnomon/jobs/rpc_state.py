"""The file that tells of a tracker and servers in the background: which process has them, where, with what devices."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnomon.core.strict_json import Strict
from gnomon.devices.config import user_folder
from gnomon.errors import ProblemError
from gnomon.jobs.saving import save_text

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
