"""JSON values of the records that several documents hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gnomon.core.graph import Graph
    from gnomon.core.sample import Failure
    from gnomon.core.stats import Comparison, Summary
    from gnomon.measure.environment import Doubt
    from gnomon.session.kernels import Kernel
    from gnomon.session.targets import Missing


def summary(found: Summary | None) -> dict[str, Any] | None:
    """Median with its interval, percentiles and counts; bounds that are not known are null."""
    if found is None:
        return None
    values = dataclasses.asdict(found)
    if values["low_s"] <= 0:
        values["low_s"] = None
    return values


def comparison(found: Comparison | None) -> dict[str, Any] | None:
    """The ratio of times with its interval, and what it means; bounds that are not known are null."""
    if found is None:
        return None
    values = dataclasses.asdict(found)
    if values["low"] <= 0:
        values["low"] = None
    return values


def failure(found: Failure | None) -> dict[str, Any] | None:
    """A failure, whole."""
    return None if found is None else dataclasses.asdict(found)


def difference(found: Mapping[str, float] | None) -> dict[str, float | None] | None:
    """The largest difference of outputs from the reference, absolute and relative to its largest magnitude."""
    if found is None:
        return None
    return {"absolute": found.get("absolute"), "relative": found.get("relative")}


def kernel(found: Kernel) -> dict[str, Any]:
    """A kernel, with the indices of the operators that it computes."""
    return {
        "name": found.name,
        "operators": list(found.operators),
        "backend": found.backend,
        "time_s": found.time_s,
    }


def missing(found: Iterable[Missing]) -> list[dict[str, str]]:
    """What was left out, each reason once."""
    rows = [dataclasses.asdict(item) for item in found]
    return [row for number, row in enumerate(rows) if row not in rows[:number]]


def doubts(found: Iterable[Doubt]) -> list[dict[str, str]]:
    """Reasons for doubt, each with the next step."""
    return [dataclasses.asdict(doubt) for doubt in found]


def model(path: Any, graph: Graph) -> dict[str, Any]:
    """What the model is."""
    return {
        "path": str(path),
        "format": graph.format,
        "sha256": graph.digest,
        "operators": len(graph.operators),
        "macs": graph.macs,
    }
