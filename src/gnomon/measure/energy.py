"""Energy read from the counters of a device: which counters it has, and how long a measurement with them must be."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import cast

from gnomon.core.sample import Failure, Run
from gnomon.errors import AgentError, DeviceError
from gnomon.measure.effort import Effort
from gnomon.measure.link import AgentLink, conforms
from gnomon.wire import EnergyCounters

ENERGY = "energy"
"""The name of the objective, and of a run's fact that holds the energy of its block: `spent_uj` and `wall_ns`, or, as
`unknown`, the reason why it is not known.
"""

LEAVE = "Leave the objective energy out on this device."
"""The hint if nothing else helps."""

_UPDATES = 40
"""The length of a block, in rounded periods of the slowest counter; each end of a block is off by at most one update.
"""
_QUIET_S = 0.25
"""How long the calls before a block continue, so that threads of the previously measured processes have stopped
spinning.
"""
_SLOWEST_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """The energy counters of a device that are added up: their names in the kernel, and what they count (`domains`).

    `period_s` is the time between two updates of the slowest counter, `step_j` is its smallest step, and `power_w` is
    the power that the counters showed during the check. `still` are counters left out because they do not move;
    `others` are further counters of the device.
    """

    names: tuple[str, ...]
    domains: tuple[str, ...]
    period_s: float
    step_j: float
    power_w: float
    still: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def find_counters(link: AgentLink, wanted: tuple[str, ...] = ()) -> Counters:
    """The counters with these names on a link's device; without names, the counters that together cover the machine
    without counting anything twice.

    DeviceError if no counter can be read; the error names the expected files and the next step. This takes as long as
    the slowest counter needs to move eight times, but at most 2.5 s.
    """
    answer = link.ask({ENERGY: {"do": "energy", "counters": list(wanted)}})[ENERGY]
    if isinstance(answer, Failure):
        raise DeviceError(f"{link.info.name} reports no energy: {answer.message}", hint=LEAVE)
    if "refused" in answer:
        hint = str(answer.get("hint") or LEAVE)
        raise DeviceError(f"{link.info.name} reports no energy: {answer['refused']}", hint=hint)
    counters = cast(EnergyCounters, answer)
    if (
        not conforms(answer, EnergyCounters)
        or min(counters["period_ns"], counters["step_uj"], counters["power_w"]) <= 0
        or not counters["counters"]
    ):
        raise AgentError(f"the agent reported an invalid energy {str(answer)[:200]!r}", hint="Please report this.")
    return Counters(
        names=tuple(row["name"] for row in counters["counters"]),
        domains=tuple(row["domain"] for row in counters["counters"]),
        period_s=counters["period_ns"] * 1e-9,
        step_j=counters["step_uj"] * 1e-6,
        power_w=counters["power_w"],
        still=tuple(counters["still"]),
        others=tuple(counters["others"]),
    )


def metered(effort: Effort, counters: Counters) -> Effort:
    """An effort whose blocks are long enough for these counters. DeviceError for counters that are too slow."""
    power = 10.0 ** math.floor(math.log10(counters.period_s))
    # Rounded to the nearest of 1, 2, 5, 10, .. ms, so that two checks of one counter lead to equal blocks.
    period_s = min((1, 2, 5, 10), key=lambda step: abs(math.log(step * power / counters.period_s))) * power
    if period_s > _SLOWEST_S:
        raise DeviceError(
            f"the energy counter {counters.names[0]} is updated only every {counters.period_s:.3g} s, too seldom",
            hint="Leave the objective energy out, or name a faster counter with --energy-counter.",
        )
    block_s = max(effort.block_s, _UPDATES * period_s)
    return replace(
        effort,
        block_s=block_s,
        sample_s=max(effort.sample_s, 1.1 * block_s / effort.samples_most),  # otherwise the samples would run out first
        rewarm_s=max(effort.rewarm_s, _QUIET_S),
        timeout_s=max(effort.timeout_s, 3 * block_s),
        energy={
            "counters": counters.names,
            "period_ns": math.ceil(counters.period_s * 1e9),
            "step_uj": math.ceil(counters.step_j * 1e6),
        },
    )


def joules_of(run: Run) -> float | None:
    """The energy of one call of a run, in joules; None if unknown."""
    energy = run.facts.get(ENERGY)
    if run.samples is None or run.profiled or not isinstance(energy, dict):
        return None
    spent_uj = energy.get("spent_uj")
    if not isinstance(spent_uj, int) or spent_uj <= 0:
        return None
    return spent_uj * 1e-6 / (run.samples.inner * len(run.samples.wall_ns))


def untold(runs: tuple[Run, ...]) -> str:
    """The reason why the energy of these runs is unknown, from the last run that gives a reason; "" if none does."""
    for run in reversed(runs):
        energy = run.facts.get(ENERGY)
        if isinstance(energy, dict) and energy.get("unknown"):
            return str(energy["unknown"])
    return ""
