"""The options of the Pareto rule, those that are left out as they usually are."""

from __future__ import annotations

from typing import Any

from gnomon.errors import UsageError
from gnomon.spaces.selection_pareto import ParetoOptions


def pareto_options(families: str | None, most_share: float | None, threshold: float | None, seed: int) -> ParetoOptions:
    """The options by what was given. UsageError for a share and a threshold together."""
    if most_share is not None and threshold is not None:
        raise UsageError("a share and a threshold contradict each other", hint="Give --most-share or --threshold.")
    given: dict[str, Any] = {"seed": seed}
    if families is not None:
        given["families"] = families
    if threshold is not None:
        given |= {"threshold": threshold, "most_share": None}
    elif most_share is not None:
        given["most_share"] = most_share
    return ParetoOptions(**given)
