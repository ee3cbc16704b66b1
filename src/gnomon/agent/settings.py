"""Settings of the whole machine that apply during measurements: the cores to use and the frequency governor.

Pinning applies to this process and its workers, and ends with them. A governor outlives the process that set it.
Therefore a warden, a process in its own session, reads from a pipe that only this process holds open for writing. When
this process ends, for whatever reason, the pipe closes too, and the warden writes the old values back.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from .driver import undoing
from .snapshot import read

if TYPE_CHECKING:
    from gnomon.wire import FailureEvent, FailureFacts, Machine, MachineSettings

#: How long to wait for another supervisor to release a governor: long enough for its warden, but not for a whole
#: campaign.
_WAIT_S = 5.0

# A governor is restored only if it still has the value set here: someone else's later choice stays.
_WARDEN = r"""
import json, os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
os.write(1, b"ready\n")
while os.read(0, 4096):
    pass
for path, wanted, old, speed in json.loads(sys.argv[1]):
    try:
        with open(path) as file:
            now = file.read().strip()
        if now == wanted:
            with open(path, "w") as file:
                file.write(old)
            if speed:
                with open(os.path.join(os.path.dirname(path), "scaling_setspeed"), "w") as file:
                    file.write(speed)
    except OSError:
        pass
"""


class SettingsRefused(Exception):
    """The machine does not accept a setting; `hint` is the next step, and `facts` say whether waiting may help."""

    def __init__(self, message: str, hint: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.hint = hint
        self.facts: FailureFacts = {"kind": "refused", "message": message, "log_tail": "", "transient": transient}

    def event(self) -> FailureEvent:
        """The failure event for the refusal, which belongs to no candidate."""
        return {"event": "failure", "candidate": "", "stage": "settings", "hint": self.hint, **self.facts}


class Settings:
    """The settings in a request's `machine`: ``{"pin": [cores], "governor": name}``, where both are optional.

    The constructor applies the settings, or raises SettingsRefused and leaves the machine unchanged. `applied` are the
    settings that took effect, for the record. `waiting` is called repeatedly during the wait for another supervisor's
    governor. `undo` restores the machine.
    """

    def __init__(self, wanted: Machine, waiting: Callable[[], None]) -> None:
        self.applied: MachineSettings = {}
        self._changes: list[list[str]] = []
        self._locks: list[int] = []
        self._warden: subprocess.Popen[bytes] | None = None
        self._allowed: set[int] = set()
        cores = self._pin(wanted["pin"]) if "pin" in wanted else None
        if "governor" in wanted:
            with undoing(self.undo):
                self._govern(wanted["governor"], _online() if cores is None else cores, waiting)

    def _pin(self, pin: list[int]) -> list[int]:
        """Restrict this process and its workers to these cores."""
        if not hasattr(os, "sched_setaffinity"):
            raise SettingsRefused(f"{sys.platform} cannot restrict a process to given cores", "Leave out 'pin'.")
        cores, allowed = sorted(set(pin)), os.sched_getaffinity(0)
        if missing := [core for core in cores if core not in allowed]:
            some = [core for core in missing if os.path.isdir(os.path.join(_cpu_folder(), f"cpu{core}"))]
            why = "offline, or not allowed for this process" if some == missing else "the machine lacks some of them"
            raise SettingsRefused(
                f"cannot pin to cores: {_listed(missing)} ({why})", f"Choose from the cores {_listed(sorted(allowed))}."
            )
        self._allowed = allowed
        os.sched_setaffinity(0, cores)
        if os.sched_getaffinity(0) != set(cores):  # a control group may have been narrowed meanwhile
            raise SettingsRefused(
                f"the kernel lets this process use only these cores: {_listed(sorted(os.sched_getaffinity(0)))}",
                "Choose from these cores.",
            )
        self.applied["pin"] = cores
        return cores

    def _govern(self, governor: str, cores: list[int], waiting: Callable[[], None]) -> None:
        """Set the governor of these cores, and of all cores that share their clock."""
        paths = {
            core: os.path.realpath(os.path.join(_cpu_folder(), f"cpu{core}/cpufreq/scaling_governor")) for core in cores
        }
        for core, path in paths.items():
            _check(core, path, governor)
        for path in sorted(set(paths.values())):
            self._locks.append(_locked(path, waiting))
        before = {path: read(path) for path in paths.values()}
        for path, old in before.items():
            if old != governor:
                # The governor "userspace" loses its frequency when another governor is set.
                speed = read(os.path.join(os.path.dirname(path), "scaling_setspeed")) if old == "userspace" else ""
                self._changes.append([path, governor, old, speed])
        if self._changes:
            self._start_warden()
        for path, *_ in self._changes:
            try:
                with open(path, "w", encoding="ascii") as file:
                    file.write(governor)
            except OSError as error:
                raise _unwritable(path, error.strerror or str(error)) from error
            if read(path) != governor:
                raise SettingsRefused(
                    f"the kernel kept the governor {read(path)!r} although {governor!r} was written ({path})",
                    "Leave out 'governor', or find the program that changes it.",
                )
        self.applied["governor"] = governor
        self.applied["governors_before"] = {f"cpu{c}": before[path] for c, path in paths.items()}

    def _start_warden(self) -> None:
        """Start the warden and wait until it is ready; it also holds the locks until the old values are restored."""
        self._warden = _warden(self._changes, subprocess.PIPE, self._locks)
        assert self._warden.stdout is not None
        if self._warden.stdout.readline() != b"ready\n":
            raise SettingsRefused(
                "the process that restores the governor could not be started", "Leave out 'governor'."
            )
        self._warden.stdout.close()

    def undo(self) -> None:
        """Restore the governors and wait until this is done; SettingsRefused if one cannot be restored. May be called
        twice.

        Afterwards this process may use all its cores again.
        """
        if self._allowed:
            with contextlib.suppress(OSError):  # a control group may have been narrowed meanwhile
                os.sched_setaffinity(0, self._allowed)
            self._allowed = set()
        warden, self._warden = self._warden, None
        changes, self._changes = self._changes, []
        if warden is not None:
            assert warden.stdin is not None
            warden.stdin.close()
            warden.wait()
            if any(read(path) == wanted for path, wanted, *_ in changes):  # the warden was killed
                _warden(changes, subprocess.DEVNULL, []).communicate()
        for lock in self._locks:
            os.close(lock)
        self._locks = []
        for path, wanted, old, _ in changes:
            if read(path) == wanted:
                raise SettingsRefused(f"the governor in {path} is still {wanted!r}", f"As root: echo {old} > {path}")


def _cpu_folder() -> str:
    """The kernel's folder of cores; GNOMON_SYSFS names a replacement for /sys, for tests."""
    return os.path.join(os.environ.get("GNOMON_SYSFS", "/sys"), "devices/system/cpu")


def _online() -> list[int]:
    """The cores that are online."""
    cores: list[int] = []
    for part in filter(None, read(os.path.join(_cpu_folder(), "online")).split(",")):
        first, _, last = part.partition("-")
        cores += range(int(first), int(last or first) + 1)
    return cores or sorted(os.sched_getaffinity(0))


def _listed(cores: list[int]) -> str:
    return ", ".join(map(str, cores[:64]))


def _check(core: int, path: str, governor: str) -> None:
    """Raise SettingsRefused if the governor of a core cannot be set, as far as this can be known before trying."""
    if not os.path.exists(path):
        raise SettingsRefused(
            f"core {core} has no frequency governor: {path} does not exist, as is usual in virtual machines",
            "Leave out 'governor' on this device.",
        )
    available = read(os.path.join(os.path.dirname(path), "scaling_available_governors")).split()
    if available and governor not in available:
        raise SettingsRefused(
            f"core {core} has no governor {governor!r}", f"Choose from {', '.join(available)}, or set no governor."
        )
    if read(path) != governor and not os.access(path, os.W_OK):
        raise _unwritable(path, "no permission")


def _unwritable(path: str, why: str) -> SettingsRefused:
    return SettingsRefused(
        f"the governor cannot be set: {why} ({path})",
        "Measure as root, let an administrator make that file writable, or leave out 'governor' and set it by hand "
        "(cpupower frequency-set -g NAME).",
    )


def _locked(path: str, waiting: Callable[[], None]) -> int:
    """A descriptor that holds the lock on a governor. The process that sets a governor holds the lock until the old
    value is restored.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except OSError as error:
            if not isinstance(error, BlockingIOError) or time.monotonic() > deadline:
                os.close(descriptor)
                raise SettingsRefused(
                    f"another measurement on this device holds the governor in {path}",
                    "Wait until it ends, then start again.",
                    transient=True,
                ) from error
        waiting()
        time.sleep(0.1)


def _warden(changes: list[list[str]], stdin: int, locks: list[int]) -> subprocess.Popen[bytes]:
    """Start the process that restores the old values as soon as `stdin` ends.

    It runs outside the private folder, and in its own session, so that killing this process's group does not reach it.
    """
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _WARDEN, json.dumps(changes)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=locks,
        cwd="/",
    )
