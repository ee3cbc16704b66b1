"""The health of devices: their failures, their quarantines, and the times that the probe took on each.

It is stored in one file in the user's folder, next to the file of devices, because health includes whether this machine
can reach a device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from gnomon.core import codec
from gnomon.core.sample import Moment
from gnomon.core.strict_json import Strict
from gnomon.devices.config import usable
from gnomon.errors import DeviceError, ProblemError, UsageError
from gnomon.system.files import read_regular, user_folder, write_whole
from gnomon.system.locks import changing

MOST_FAILURES = 3
"""The number of failures in a row that put a device into quarantine."""

_MOST_BYTES = 16 << 20
_HINT = "Move the file aside: the devices are then probed as new ones."
_WHAT = "file of health"
_STRICT = Strict(what=_WHAT, hint=_HINT, most_letters=_MOST_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The probe's results on a device that was in order: seconds per call, by process, and the facts about the board.

    It is compared only with times of the same `runtime`, version and configuration.
    """

    at_s: Moment
    fingerprint: Mapping[str, object]
    runtime: str
    calls_s: tuple[float, ...]
    campaign: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """The reason why a device gets no work: it failed repeatedly, it is another board, or its speed has changed."""

    since_s: Moment
    kind: Literal["transport", "board", "speed"]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The health of a device: failures since its last success, and its last successful probe with the time per call."""

    failures: int = 0
    probed_at_s: Moment | None = None
    call_s: float | None = None
    baseline: Baseline | None = None
    quarantine: Quarantine | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    format: Literal["gnomon-health"]
    version: Literal[1]
    devices: Mapping[str, Health] = field(default_factory=dict)


def health_path() -> Path:
    """The user's file of health; it need not exist."""
    return user_folder() / "health.json"


def health_of(name: str) -> Health:
    """The health of the device with this name or address. UsageError if the file cannot be read."""
    return _read().get(name, Health())


def went_well(name: str) -> None:
    """Note that a device worked."""
    if health_of(name).failures:
        _change(name, lambda before: replace(before, failures=0))


def failed(name: str, message: str) -> Health:
    """Note that a device or the connection to it failed; after `MOST_FAILURES` in a row, it is put into quarantine.

    Failures of a device in quarantine no longer count.
    """

    def after(before: Health) -> Health:
        if before.quarantine is not None:
            return before
        count, quarantine = before.failures + 1, None
        if count >= MOST_FAILURES:
            reason = f"it failed {count} times in a row, most recently with: {message[:500]}"
            quarantine = Quarantine(since_s=time.time(), kind="transport", reason=reason)
        return replace(before, failures=count, quarantine=quarantine)

    return _change(name, after)


def put_into_quarantine(name: str, kind: Literal["board", "speed"], reason: str) -> Health:
    """Note that the probe found a changed device."""
    quarantine = Quarantine(since_s=time.time(), kind=kind, reason=reason)
    return _change(name, lambda before: replace(before, quarantine=quarantine))


def passed(name: str, baseline: Baseline | None, call_s: float | None) -> Health:
    """Note that a device passed the probe, which ends a quarantine. `baseline` is a new baseline, or None to keep the
    old one; `call_s` is the time per call, or None if no runtime could probe the device.
    """
    now_s = time.time()
    return _change(name, lambda before: Health(probed_at_s=now_s, call_s=call_s, baseline=baseline or before.baseline))


def release(name: str) -> Quarantine | None:
    """End the quarantine of a device and return it. If the probe was the reason, the next probe sets a new baseline."""
    was = health_of(name).quarantine
    if was is not None:
        _change(name, lambda before: Health(baseline=before.baseline if was.kind == "transport" else None))
    return was


def refusal(name: str, quarantine: Quarantine) -> DeviceError:
    """The error for a device that is in quarantine."""
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(quarantine.since_s))
    return DeviceError(
        f"{name} has been in quarantine since {since}: {quarantine.reason}",
        hint=f"Repair the device. `gnomon devices probe {name}` then checks it again; `gnomon devices release {name}` "
        "ends the quarantine.",
    )


def _change(name: str, change: Callable[[Health], Health]) -> Health:
    path = health_path()
    with usable(_WHAT, path, "written"), changing(path):
        devices = dict(_read())
        devices[name] = change(devices.get(name, Health()))
        file = _File(format="gnomon-health", version=1, devices=devices)
        write_whole(codec.dumps(file).encode(), path)
    return devices[name]


def _read() -> Mapping[str, Health]:
    path = health_path()
    content = None
    with usable(_WHAT, path, "read"), suppress(FileNotFoundError):
        content = read_regular(path, _MOST_BYTES)
    if content is None:
        return {}
    try:
        return codec.read_json(_File, content, replace(_STRICT, what=f"{_WHAT} {path}")).devices
    except ProblemError as error:
        raise UsageError(error.message, hint=error.hint) from error
