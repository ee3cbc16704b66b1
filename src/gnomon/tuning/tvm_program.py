"""One of TVM's own server programs: started in a group of its own, its port read from its log, ended as a whole group.

`python -m tvm.exec.rpc_server` starts a second process that does the work and goes on after the first was ended, so
one is never ended without the other.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gnomon.core.installing import install_line
from gnomon.devices.child_process import Program, child_environment, tail
from gnomon.devices.guard import Guard
from gnomon.errors import DeviceError, RuntimeMissingError

_INSTALL = install_line("tvm", python=sys.executable)
_PACKAGES = ("tvm", "tvm_ffi", "tornado", "psutil", "cloudpickle")
_BOUND = re.compile(rb"bind to \S+:([0-9]{1,5})\s*$", re.ASCII | re.MULTILINE)
_LOG_HEAD_BYTES = 1 << 16
_TOLD_LINES = 4
_STUCK_S = 10.0
_POLL_S = 0.01


def require_tvm() -> None:
    """RuntimeMissingError that names the missing packages if the server programs cannot run here."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeMissingError(f"TVM's servers are not installed here: no {', '.join(missing)}", hint=_INSTALL)


@dataclass(frozen=True, slots=True)
class Place:
    """Where programs run: a private folder for their files and logs, and the guard that ends them if gnomon dies."""

    folder: Path
    guard: Guard


class TvmProgram:
    """A started program of `tvm.exec`. Belongs to one thread. Ends with `end`, also what it has started itself."""

    def __init__(self, module: str, arguments: Sequence[str], environment: Mapping[str, str], place: Place) -> None:
        self._guard = place.guard
        self._module = module
        self._log = place.folder / f"{module}-{time.monotonic_ns()}.log"
        # Without the second variable, loading TVM beside an old PyTorch compiles a library first: the home is new.
        more = {"PYTHONSAFEPATH": "1", "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1", **environment}
        command = (sys.executable, "-m", f"tvm.exec.{module}", *arguments)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=child_environment(Program(name=module, settings={}, environment=more), place.folder),
                cwd=place.folder,
                start_new_session=True,
            )
        place.guard.add(self._process.pid)

    @property
    def group(self) -> int:
        """The number of its process group, which is that of its first process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether its first process runs."""
        # Not reaped here: the number of its group, by which it is ended, must stay its own.
        if self._process.returncode is not None:
            return False
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None

    def port(self) -> int | None:
        """The port that it says it listens on; None as long as it has not said it."""
        with self._log.open("rb") as log:
            found = _BOUND.search(log.read(_LOG_HEAD_BYTES))
        return int(found[1]) if found else None

    def error(self, what: str) -> DeviceError | RuntimeMissingError:
        """An error that `what` happened to it, with the last that it said."""
        said = [line.strip() for line in tail(self._log).splitlines() if line.strip()]
        text = "; ".join(said[-_TOLD_LINES:])
        if "ModuleNotFoundError" in text or "ImportError" in text:
            return RuntimeMissingError(f"TVM cannot be loaded: {text}", hint=_INSTALL)
        return DeviceError(
            f"TVM's {self._module} {what}{': ' + text if text else ''}",
            hint=f"Try it by itself: {sys.executable} -m tvm.exec.{self._module} --help; TVM is installed anew with "
            + _INSTALL,
            transient=True,
        )

    def end(self) -> None:
        """End it with all that it started, and see that nothing of it is left. Does nothing the second time.

        DeviceError if something does not end though it was killed.
        """
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STUCK_S)
            until_s = time.monotonic() + _STUCK_S
            while left := living(self._process.pid):
                if time.monotonic() > until_s:
                    raise DeviceError(
                        f"{self._module} does not end though it was killed: process {left[0]} hangs in a driver",
                        hint="Restart the machine.",
                    )
                time.sleep(_POLL_S)
            self._guard.drop(self._process.pid)


def living(group: int) -> list[int]:
    """The processes of a group that run; one that has ended and waits to be asked how is none."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                state, _, owner = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:3]
                if int(owner) == group and state not in "ZX":
                    found.append(int(folder.name))
    return found
