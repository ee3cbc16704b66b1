"""The job `devices`: what each device is, whether gnomon can measure on it, and which runtimes it has."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from gnomon.devices.address import LOCAL, TVM
from gnomon.devices.base import Device
from gnomon.devices.config import DeviceConfig, add_device, check_new, load_devices
from gnomon.devices.health import health_of, release
from gnomon.devices.lease import Waiting
from gnomon.devices.opening import load_factory, opened, resolve
from gnomon.errors import DeviceError, GnomonError, UsageError
from gnomon.jobs.devices.document import DeviceCleanedDocument, DeviceHealthDocument, DeviceRow, RuntimeRow
from gnomon.jobs.devices.visit import clean_cache, cleaned, look_closely, look_for_energy
from gnomon.jobs.place.fleet import run_lanes
from gnomon.measure.progress import Tell
from gnomon.runtimes.base import Probe, Runtime
from gnomon.runtimes.registry import all_runtimes
from gnomon.session.bench.probe import probe_now
from gnomon.session.request import link_to, machine_of
from gnomon.session.targets import NOT_INSTALLED, Missing, probe_runtimes
from gnomon.store.address import RecordAddress
from gnomon.system.files import user_folder
from gnomon.tuning.tracker import tracked_device

DEADLINE_S = 60.0


class _InUse(DeviceError):
    """Another process is measuring on the device; an examination does not wait for that process."""


def list_devices() -> tuple[DeviceRow, ...]:
    """This machine and every device in the file of devices, in their present state.

    The row of a device that cannot be reached has the reason. UsageError if the file is invalid.
    """
    return examine([resolve(name) for name in dict.fromkeys([LOCAL, *load_devices()])])


def check_devices(names: Sequence[str] = (), path: Path | None = None) -> tuple[DeviceRow, ...]:
    """Look closely at devices, given by name or address (none: all in the file of devices, or else this machine).

    The rows also have the overhead of a command, the free space and the energy counters. A device on which files cannot
    be written counts as failed. UsageError if a name is not known or the file is invalid.
    """
    chosen = dict.fromkeys(names or load_devices(path) or (LOCAL,))
    return examine([resolve(name, path) for name in chosen], deep=True, deadline_s=2 * DEADLINE_S)


def add_and_check(config: DeviceConfig, *, check: bool = True) -> DeviceRow | None:
    """Add a device to the file of devices after a close look at it; without `check`, add it unseen and return None.

    UsageError if its name is taken or its configuration is invalid, DeviceError if the device cannot be used. After
    either error the file is unchanged.
    """
    check_new(config.name, load_devices())
    if config.address.kind != TVM:
        load_factory(config.address.kind)(config, None)
    names = {runtime.name for runtime in all_runtimes()[0]}
    for name in config.runtimes:
        if name not in names:
            raise UsageError(f"there is no runtime {name!r}", hint=f"Runtimes: {', '.join(sorted(names))}.")
    row = examine([config], deep=True, deadline_s=2 * DEADLINE_S)[0] if check else None
    if row is not None and row.state == "failed":
        raise DeviceError(
            f"{config.name} was not added: {row.reason}",
            hint=" ".join(filter(None, [row.hint, "To add the device without a check: --no-check"])),
        )
    add_device(config)
    return row


def clean_device(name: str, *, on_wait: Tell | None = None) -> DeviceCleanedDocument:
    """Remove the files that gnomon keeps on a device; gnomon sends them again when needed.

    UsageError if the name is not known; DeviceError if the device cannot be reached.
    """
    config = resolve(name)
    if config.address.kind == LOCAL:
        return cleaned(config.name)
    # With `keep`, the cache is found even if the user has switched it off since.
    with opened(replace(config, keep=True), on_wait=on_wait) as device:
        return clean_cache(device, config.name)


def probe_device(name: str, record: RecordAddress | None, *, tell: Tell | None = None) -> DeviceHealthDocument:
    """Probe a device, and end its quarantine if it passes.

    UsageError if the name is not known; DeviceError if the probe fails, or if the device has changed and is therefore
    put into quarantine.
    """
    health = probe_now(resolve(name), record, tell=tell)
    return DeviceHealthDocument(name=name, health=health, was=None)


def release_device(name: str) -> DeviceHealthDocument:
    """End the quarantine of a device. UsageError if the name is not known or the device is not in quarantine."""
    config = resolve(name)
    was = release(config.name)
    if was is None:
        raise UsageError(f"{name} is not in quarantine", hint="To list the devices and their state: gnomon devices")
    health = health_of(config.name)
    return DeviceHealthDocument(name=name, health=health, was=was)


def examine(
    configs: Sequence[DeviceConfig], *, deep: bool = False, deadline_s: float = DEADLINE_S
) -> tuple[DeviceRow, ...]:
    """Examine devices, different machines in parallel; the rows are in the order of the configurations.

    A device that has not answered after `deadline_s` counts as failed.
    """
    healths = [health_of(config.name) for config in configs]
    numbered = {str(number): config for number, config in enumerate(configs)}
    looked = run_lanes(numbered, lambda number: _look(numbered[number], deep=deep), patience_s=0.0, within_s=deadline_s)
    rows = {number: row for number, row in looked.items() if isinstance(row, DeviceRow)}
    hint = "Check whether the device is overloaded, then try again."
    late = {"reason": f"the device did not answer within {deadline_s:g} s", "hint": hint}
    ordered = [rows.get(number) or _row(config, "failed", **late) for number, config in numbered.items()]
    return tuple(replace(row, health=health) for row, health in zip(ordered, healths, strict=True))


def _row(config: DeviceConfig, state: Literal["ready", "in use", "failed"], **facts: Any) -> DeviceRow:
    """The row of a device in the given state, with its settings from the file of devices."""
    settings = {key: value for key, value in asdict(config).items() if key not in {"name", "address"}}
    nothing: dict[str, Any] = dict.fromkeys(("reason", "hint", "fingerprint", "interpreter", "check"))
    nothing |= {"runtimes": (), "seconds": 0.0}
    return DeviceRow(**nothing | facts, name=config.name, address=str(config.address), state=state, settings=settings)


def _look(config: DeviceConfig, *, deep: bool) -> DeviceRow:
    def in_use(sentence: str) -> None:
        if isinstance(sentence, Waiting):
            raise _InUse(sentence.removesuffix(": waiting for it to end"), hint="Try again when the process has ended.")

    begin = time.monotonic()
    try:
        if config.address.kind == TVM:
            tracked_device(config.address).require(0.0)
            row = _row(config, "ready")
        else:
            with opened(config, on_wait=in_use) as device:
                row = _seen(config, device, deep=deep)
    except _InUse as error:
        row = _row(config, "in use", reason=error.message, hint=error.hint or None)
    except GnomonError as error:
        row = _row(config, "failed", reason=error.message, hint=error.hint or None)
    return replace(row, seconds=time.monotonic() - begin)


def _seen(config: DeviceConfig, device: Device, *, deep: bool) -> DeviceRow:
    good, _ = all_runtimes()
    wanted = tuple(r for r in good if not config.runtimes or r.name in config.runtimes)
    with link_to(device, machine=machine_of(config)) as link:
        if deep:
            link.hold()
        probes, missing = probe_runtimes(link, wanted)
        info = link.info
        closely = replace(look_closely(device), energy=look_for_energy(link)) if deep else None
    lacking = {m.name: m for m in missing}
    rows = [_runtime(r, probes.get(r.name), lacking.get(r.name), config, info.fingerprint) for r in wanted]
    identity = {"fingerprint": dict(info.fingerprint) or None, "interpreter": info.python}
    return _row(config, "ready", **identity, runtimes=tuple(rows), check=closely)


def _runtime(
    runtime: Runtime, probe: Probe | None, missing: Missing | None, config: DeviceConfig, fingerprint: object
) -> RuntimeRow:
    """The runtime on the device, or how to install it."""
    if probe is not None:
        return RuntimeRow(name=runtime.name, version=probe.version, backends=probe.backends)
    assert missing is not None  # noqa: S101 - a runtime without an answer is missing
    row = RuntimeRow(name=runtime.name, reason=missing.reason, hint=missing.hint)
    own = config.address.kind == LOCAL and config.python is None
    if own or not missing.reason.startswith(NOT_INSTALLED) or not isinstance(fingerprint, dict):
        return row
    from gnomon.devices.packages.provide import available

    try:
        brought = available(["numpy", *runtime.wheels], fingerprint, home=user_folder())
    except GnomonError as error:
        if config.fetch:
            return replace(row, hint="gnomon fetches it from the package index when needed, if it has a wheel.")
        return replace(row, reason=f"{missing.reason}; {error.message}", hint=error.hint)
    own_name = re.split(r"[^A-Za-z0-9_.-]", runtime.wheels[0])[0].lower().replace("_", "-") if runtime.wheels else ""
    return replace(row, brought=tuple(sorted(brought, key=lambda b: (b.split()[0] != own_name, b))), hint="")
