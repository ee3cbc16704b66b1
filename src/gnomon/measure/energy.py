"""Energy as the agent's counters tell it: which counters a device has, and what a measurement by them takes."""

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
"""The objective, and the fact of a run that holds what its block took: `spent_uj` and `wall_ns`, or `unknown`, why."""

LEAVE = "Leave the objective energy out on this device."
"""The hint where nothing else helps."""

_UPDATES = 40
"""Updates of the slowest counter that a block lasts, as its period is rounded; each end is off by one at most."""
_QUIET_S = 0.25
"""Calls before a block go on that long, until the threads of processes that were measured before no longer spin."""
_SLOWEST_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """The energy counters of a device that are added up, as its kernel calls them, and what they count (`domains`).

    `period_s` is the time between two updates of the slowest, `step_j` by how much it moves at least, `power_w` what
    they told while they were looked at. `still` are left out, as they do not move; `others` there are beside.
    """

    names: tuple[str, ...]
    domains: tuple[str, ...]
    period_s: float
    step_j: float
    power_w: float
    still: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def find_counters(link: AgentLink, wanted: tuple[str, ...] = ()) -> Counters:
    """The counters of these names on a link's device; without names, those that count the machine, nothing twice.

    DeviceError, which names the files that were looked for and the next step, if no counter can be read. It takes as
    long as the slowest counter needs to move eight times, 2.5 s at most.
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
    # The nearest of 1, 2, 5, 10, .. ms and the like: two looks at one counter make the same blocks.
    period_s = min((1, 2, 5, 10), key=lambda step: abs(math.log(step * power / counters.period_s))) * power
    if period_s > _SLOWEST_S:
        raise DeviceError(
            f"the energy counter {counters.names[0]} moves once in {counters.period_s:.3g} s, too seldom to measure by",
            hint="Leave the objective energy out, or name a faster counter with --energy-counter.",
        )
    block_s = max(effort.block_s, _UPDATES * period_s)
    return replace(
        effort,
        block_s=block_s,
        sample_s=max(effort.sample_s, 1.1 * block_s / effort.samples_most),  # else the samples run out first
        rewarm_s=max(effort.rewarm_s, _QUIET_S),
        timeout_s=max(effort.timeout_s, 3 * block_s),
        energy={
            "counters": counters.names,
            "period_ns": math.ceil(counters.period_s * 1e9),
            "step_uj": math.ceil(counters.step_j * 1e6),
        },
    )


def joules_of(run: Run) -> float | None:
    """Joules of one call of a run, None where they are not known."""
    energy = run.facts.get(ENERGY)
    if run.samples is None or run.profiled or not isinstance(energy, dict):
        return None
    spent_uj = energy.get("spent_uj")
    if not isinstance(spent_uj, int) or spent_uj <= 0:
        return None
    return spent_uj * 1e-6 / (run.samples.inner * len(run.samples.wall_ns))


def untold(runs: tuple[Run, ...]) -> str:
    """Why the last of some runs that does not tell its energy does not; "" where none says so."""
    for run in reversed(runs):
        energy = run.facts.get(ENERGY)
        if isinstance(energy, dict) and energy.get("unknown"):
            return str(energy["unknown"])
    return ""
