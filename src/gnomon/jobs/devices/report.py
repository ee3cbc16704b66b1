"""The reports of `gnomon devices` and `gnomon runtimes`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import Any

from gnomon.jobs.devices.document import (
    CloseLook,
    DeviceAddedDocument,
    DeviceCleanedDocument,
    DeviceHealthDocument,
    DeviceRemovedDocument,
    DeviceRow,
    DevicesDocument,
    EnergyRow,
    RuntimesDocument,
)
from gnomon.report import units
from gnomon.report.page import Page, Table
from gnomon.report.plain import many

_STATES = {"ready": "ready", "in use": "in use", "failed": "cannot be used"}


def devices_report(document: DevicesDocument, page: Page) -> None:
    """Write a description of each device, or the reason why it cannot be used."""
    rows = document.devices
    ready = sum(_state(row) == "ready" for row in rows)
    if len(rows) == 1:
        page.headline(f"{rows[0].name} is {'ready' if ready else 'not ready'}.")
    else:
        page.headline(f"{ready} of {len(rows)} devices {'is' if ready == 1 else 'are'} ready.")
    if page.brief and not document.named:
        table = Table(rows).text("device", lambda row: row.name).text("address", lambda row: row.address)
        page.table(table.text("what it is", lambda row: _machine(row)[0]).text("state", _state, least=32))
        page.omitted.append("their runtimes and settings")
        for row in rows:
            _problem(row, page, f"{row.name}: ")
    else:
        for row in rows:
            _device(row, page)
    if len(rows) == 1 and rows[0].name == "local" and not document.named:
        page.line("")
        page.line("To add another machine: gnomon devices add NAME ssh://user@host")
    page.line("")
    page.path("file", document.file + ("" if document.file_exists else " (does not exist yet)"))


def _state(row: DeviceRow) -> str:
    """The displayed state of a device.

    A device behind a tracker is ready without runtimes, because it is not asked about them.
    """
    nothing = row.runtimes and not any(r.version or r.brought for r in row.runtimes)
    if row.state == "ready" and nothing and not row.settings["fetch"]:
        return "reachable, but has no runtime"
    return _STATES[row.state]


def _device(row: DeviceRow, page: Page) -> None:
    where = f" ({row.address})" if row.name != row.address else ""
    page.heading(f"{row.name}{where}: {_state(row)}")
    _problem(row, page)
    if row.state != "ready":
        return
    for line in _machine(row):
        page.line(line, indent=3)
    if settings := _settings(row.settings):
        page.line(f"Settings: {settings}", indent=3)
    if row.check:
        page.line(_check(row.check), indent=3)
        _energy(row.check.energy, page)
    here = [r for r in row.runtimes if r.version]
    brought = [r for r in row.runtimes if not r.version and r.brought]
    gone = [r for r in row.runtimes if not r.version and not r.brought]
    for runtime in here:
        page.item(f"{runtime.name} {runtime.version}: {', '.join(runtime.backends)}")
    for runtime in brought:
        first, *others = runtime.brought
        more = f" and {many(len(others), 'package')} that it needs" if others else ""
        page.item(f"{runtime.name}: gnomon installs it when needed ({first}{more})")
    for reason, hint in dict.fromkeys((r.reason, r.hint) for r in gone):
        names = [r.name for r in gone if (r.reason, r.hint) == (reason, hint)]
        page.item(f"{', '.join(names)}: {reason}", hint)


def _problem(row: DeviceRow, page: Page, name: str = "") -> None:
    """Write the problem of a device."""
    if quarantine := row.health.quarantine:
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(quarantine.since_s))
        page.item(
            f"{name}in quarantine since {since}: {quarantine.reason}",
            f"To probe it: gnomon devices probe {row.name}. To end the quarantine: gnomon devices release {row.name}",
        )
    if row.state != "ready":
        page.item(f"{name}{row.reason or ''}", row.hint or "")


def _machine(row: DeviceRow) -> list[str]:
    if not row.fingerprint:
        return ["Registered at its tracker, for gnomon tune, exec and overlay." if row.state == "ready" else ""]
    facts = row.fingerprint
    memory = facts.get("memory_bytes")
    first = [
        str(facts.get("cpu_model") or facts.get("machine") or "unknown processor"),
        *([many(cores, "core")] if isinstance(cores := facts.get("cores"), int) else []),
        *([f"{units.digits(memory / 2**30)} GiB"] if isinstance(memory, int) else []),
        *([f"governor {facts['governor']}"] if facts.get("governor") else []),
    ]
    second = [str(facts[key]) for key in ("os", "machine", "libc") if facts.get(key)]
    return [", ".join(first), ", ".join([*second, f"Python {facts['python']}" if facts.get("python") else "no Python"])]


def _settings(settings: Mapping[str, Any]) -> str:
    parts = []
    for key in ("python", "folder", "threads", "governor", "target", "linker"):
        if settings[key] is not None:
            parts.append(f"{key} {settings[key]}")
    if settings["pin"]:
        parts.append(f"pinned to cores {', '.join(map(str, settings['pin']))}")
    if settings["runtimes"]:
        parts.append(f"runtimes {', '.join(settings['runtimes'])}")
    if settings["environment"]:
        parts.append(", ".join(f"{key}={value}" for key, value in settings["environment"].items()))
    if not settings["keep"]:
        parts.append("no files kept on the device")
    if settings["fetch"]:
        parts.append("missing packages are fetched")
    return "; ".join(parts)


def _check(look: CloseLook) -> str:
    return (
        f"Overhead of a command: {units.time(look.overhead_s)}. Free in {look.temporary}: "
        f"{units.digits(look.temporary_free_bytes / 2**30)} GiB; a file was written there and read back."
    )


def _energy(energy: EnergyRow, page: Page) -> None:
    if not energy.counters:
        page.line(f"Energy is not reported: {energy.reason}.", indent=3)
        if energy.hint:
            page.line(energy.hint, indent=3)
        return
    names = ", ".join(f"{domain} ({name})" for name, domain in energy.counters.items())
    others = f" Other counters: {', '.join(energy.others)}." if energy.others else ""
    every = units.time(energy.period_s)
    page.line(f"Energy: {names}, updated every {every}; power now {units.digits(energy.power_w)} W.{others}", indent=3)


def added_report(document: DeviceAddedDocument, page: Page) -> None:
    """Write the name of the added device, and the result of its examination."""
    page.headline(f"Added {document.added}. To measure there: gnomon place MODEL --device {document.added}")
    if document.device is not None:
        _device(document.device, page)
    page.line("")
    page.path("file", document.file)


def removed_report(document: DeviceRemovedDocument, page: Page) -> None:
    """Write the name that was removed from the file."""
    page.headline(f"Removed {document.removed}.")
    page.path("file", document.file)


def cleaned_report(document: DeviceCleanedDocument, page: Page) -> None:
    """Write the files that were removed from a device."""
    if document.folder is None:
        page.headline(f"gnomon keeps no files on {document.name}.")
        return
    what = many(document.entries, "uploaded file or folder", "uploaded files or folders")
    page.headline(f"Removed {what} ({units.mebibytes(document.size_bytes)}) from {document.name}.")
    page.path("folder", document.folder)


def health_report(document: DeviceHealthDocument, page: Page) -> None:
    """Write the health of a device, or that its quarantine has ended."""
    if document.was:
        page.headline(f"{document.name} is no longer in quarantine. The reason was: {document.was.reason}.")
        if document.was.kind != "transport":
            page.line("The time of the next probe becomes the new baseline.")
        return
    baseline = document.health.baseline
    if baseline is None:  # nothing was probed
        return
    now, then = (units.time(took) for took in (document.health.call_s, statistics.median(baseline.calls_s)))
    page.headline(f"{document.name} is healthy.")
    page.line(f"The probe took {now}; the baseline of {units.day(baseline.at_s)} is {then}, with {baseline.runtime}.")


def runtimes_report(document: RuntimesDocument, page: Page) -> None:
    """Write the installed runtimes, then the others."""
    here = [row for row in document.runtimes if row.installed]
    page.headline(f"{len(here)} of {len(document.runtimes)} known runtimes are installed here.")
    for row in here:
        page.item(f"{row.name} {row.version} ({', '.join(row.formats)} models): {', '.join(row.backends)}")
    gone = [row for row in document.runtimes if not row.installed]
    if gone or document.broken:
        page.heading("Missing")
    for row in gone:
        page.item(f"{row.name} ({', '.join(row.formats)} models): {row.reason}", row.install or "")
    for adapter in document.broken:
        page.item(f"{adapter.name}: the adapter cannot be loaded: {adapter.reason}")
    facts = document.device.fingerprint
    machine = facts.get("cpu_model") or facts.get("machine")
    page.line(f"Probed with {document.device.interpreter} on {machine}, {facts.get('cores')} cores.")
