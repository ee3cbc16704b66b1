"""Reference outputs on a device: what the outputs of everything measured there are checked against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.core.sample import Failure
from gnomon.measure.effort import Effort
from gnomon.measure.link import AgentLink, Event, failure_of

REFERENCE = "reference.npz"
"""Where reference outputs are, in the device's private folder, in which the agent's processes run."""


def compute_reference(
    link: AgentLink, job: Mapping[str, Any], seeds: Sequence[int], *, timeout_s: float
) -> tuple[dict[str, Any] | None, Failure | None]:
    """Write a job's outputs for each seed to `REFERENCE` on the link's device: their sensitivity, or the failure."""
    found: dict[str, Any] = {}
    failed: list[Failure] = []

    def on_event(event: Event) -> None:
        if event["event"] == "opened":
            found.update(event["sensitivity"])
        elif event["event"] == "failure":
            failed.append(failure_of(event))

    opening = {"job": job, "save": REFERENCE, "seeds": list(seeds)}
    request = {
        **Effort(rounds=0, timeout_s=timeout_s).request(),
        "seed": 0,
        "candidates": [{"key": "reference", "open": opening}],
    }
    link.request(request, on_event, timeout_s=timeout_s * 3)
    return (None, failed[0]) if failed else (found, None)
