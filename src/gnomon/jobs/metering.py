"""The objective energy: from a request that asks for it to counters of the device, and what its number is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from gnomon.errors import UsageError
from gnomon.jobs.request import Request
from gnomon.measure.effort import Effort, Energy
from gnomon.measure.energy import ENERGY, find_counters, metered
from gnomon.measure.link import AgentLink

NOTE = "energy"
"""The event of a campaign that holds its counters, as `gnomon.measure.energy.Counters` has them."""


def check_counters(objectives: Sequence[str], counters: Sequence[str]) -> None:
    """UsageError for counters that are named where energy is no objective."""
    if counters and ENERGY not in objectives:
        raise UsageError(
            f"the counter {counters[0]!r} is named, and energy is no objective", hint="Add --objective energy."
        )


def asking_energy(request: Request, objectives: Sequence[str], counters: Sequence[str]) -> Request:
    """The request, to be measured with energy counters (none: the device's usual ones) where that is an objective."""
    if ENERGY not in objectives:
        return request
    return replace(request, effort=replace(request.effort, energy=Energy(counters=tuple(counters))))


def with_counters(request: Request, link: AgentLink) -> tuple[Request, dict[str, Any] | None]:
    """The request with blocks long enough for the device's counters, and these; None where no energy is asked for.

    DeviceError where the device has no counter that serves, before anything is measured.
    """
    if request.effort.energy is None:
        return request, None
    counters = find_counters(link, request.effort.energy.counters)
    return replace(request, effort=metered(request.effort, counters)), asdict(counters)


def protocol_of(effort: Effort) -> dict[str, Any]:
    """What of the effort makes runs of another kind; how long to go on does not, nor how fast a counter looked."""
    whole = asdict(effort)
    if effort.energy is None:
        del whole["energy"]
    else:
        whole["energy"] = list(effort.energy.counters)
    return {
        k: whole[k] for k in sorted(whole) if k not in {"processes_least", "processes_most", "half_width", "budget_s"}
    }


def energy_source(counters: Mapping[str, Any] | None) -> str:
    """What the energy of a call is made of, for people."""
    if not counters:
        return "the energy of a call by counters of the device that the record does not name"
    parts = [f"{d} ({n})" if d not in n else n for d, n in zip(counters["domains"], counters["names"], strict=True)]
    told = ", ".join(parts[:8]) + (f" and {len(parts) - 8} more" if len(parts) > 8 else "")
    return (
        f"a call's share of what the counters {told} rose by over a block of calls, with all else that ran and what "
        f"idling draws; they move every {counters['period_s'] * 1e3:.3g} ms"
    )
