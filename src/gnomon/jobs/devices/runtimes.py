"""What is installed on this machine, found by asking the agent in fresh processes."""

from __future__ import annotations

from typing import Any

from gnomon import __version__
from gnomon.core.sample import Failure
from gnomon.devices.local import LocalDevice
from gnomon.measure.link import AgentLink
from gnomon.runtimes.registry import all_runtimes
from gnomon.session.targets import pip_requirements_line, probe_commands, reason_of


def runtimes_document() -> dict[str, Any]:
    """The runtimes that gnomon knows, those that are installed first; docs/commands.md describes each key."""
    good, broken = all_runtimes()
    with LocalDevice() as device, AgentLink(device) as link:
        answers = link.ask(probe_commands(good))
        fingerprint, name, python = link.info.fingerprint, link.info.name, link.info.python
    rows: list[dict[str, Any]] = []
    for runtime in good:
        answer = answers[runtime.name]
        row: dict[str, Any] = {
            "name": runtime.name,
            "installed": not isinstance(answer, Failure),
            "version": None,
            "backends": [],
            "formats": sorted(runtime.formats),
            "details": {},
            "reason": None,
            "install": None,
        }
        if isinstance(answer, Failure):
            row["reason"] = reason_of(answer, runtime)
            row["install"] = pip_requirements_line(runtime.wheels, python or "python")
        else:
            row["version"], row["backends"] = answer["version"], list(answer["backends"])
            row["details"] = {k: v for k, v in answer.items() if k not in {"version", "backends"}}
        rows.append(row)
    return {
        "format": "gnomon-runtimes",
        "version": 1,
        "gnomon": __version__,
        "device": {"name": name, "interpreter": python, "fingerprint": dict(fingerprint)},
        "runtimes": sorted(rows, key=lambda row: (not row["installed"], row["name"])),
        "broken": [{"name": item.name, "reason": item.reason} for item in broken],
    }
