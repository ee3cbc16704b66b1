"""The link that suits a device: by the agent, or by the runtimes' own programs where there is no Python for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.devices.base import Device
from gnomon.devices.config import DeviceConfig
from gnomon.devices.program import ProgramDriver
from gnomon.measure.link import AgentLink
from gnomon.measure.program_link import ProgramLink
from gnomon.runtimes.onert_program import OnertProgram

PROGRAMS: Mapping[str, ProgramDriver] = {"onert": OnertProgram()}
"""The programs that gnomon knows, by their runtime's name."""


def link_to(device: Device, *, timeout_s: float = 60.0, machine: Mapping[str, Any] | None = None) -> AgentLink:
    """The link to an open device; the same requests are answered either way."""
    if device.describe().python:
        return AgentLink(device, timeout_s=timeout_s, machine=machine)
    return ProgramLink(device, timeout_s=timeout_s, machine=machine, programs=PROGRAMS)


def machine_of(config: DeviceConfig) -> dict[str, Any]:
    """The settings of the whole machine that hold while something is measured, where any are wished."""
    wished: dict[str, Any] = {"pin": list(config.pin), "governor": config.governor}
    return {name: value for name, value in wished.items() if value}
