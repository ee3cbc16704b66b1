"""Rows of the SQLite record to values and back. Samples stay a readable JSON list of integers."""

from __future__ import annotations

from typing import Any

from gnomon.core.codec import dumps, from_json, loads, not_that, to_json
from gnomon.core.sample import LAST_S, Campaign, Event, Run, Samples
from gnomon.core.strict_json import shown
from gnomon.errors import RecordError

Row = dict[str, object]
"""Values by the names of columns."""

CAMPAIGN_COLUMNS = (
    "id",
    "kind",
    "key",
    "started_at_s",
    "gnomon_version",
    "model_name",
    "model_digest",
    "seed",
    "device",
    "versions",
    "options",
)
RUN_COLUMNS = (
    "candidate",
    "process",
    "block",
    "started_at_s",
    "profiled",
    "inner",
    "wall_ns",
    "cpu_ns",
    "failure",
    "operators",
    "facts",
)
EVENT_COLUMNS = ("name", "at_s", "data")


def from_campaign(campaign: Campaign) -> Row:
    """Column values of a campaign."""
    context = campaign.context
    _check_clock(campaign.started_at_s, "$.started_at_s")
    return {
        "id": campaign.id,
        "kind": campaign.kind,
        "key": campaign.key,
        "started_at_s": campaign.started_at_s,
        "gnomon_version": context.gnomon_version,
        "model_name": context.model_name,
        "model_digest": context.model_digest,
        "seed": context.seed,
        "device": dumps(context.device, "$.device"),
        "versions": dumps(context.versions, "$.versions"),
        "options": dumps(context.options, "$.options"),
    }


def to_campaign(row: tuple[Any, ...]) -> Campaign:
    """The campaign of a row of CAMPAIGN_COLUMNS."""
    flat = dict(zip(CAMPAIGN_COLUMNS, row, strict=True))
    for name in ("device", "versions", "options"):
        flat[name] = loads(flat[name], f"$.{name}")
    own = {name: flat.pop(name) for name in ("id", "kind", "key", "started_at_s")}
    return from_json(Campaign, {**own, "context": flat})


def from_run(run: Run) -> Row:
    """Column values of a run. RecordError unless exactly one of samples and failure is set."""
    if (run.samples is None) == (run.failure is None):
        raise RecordError(
            f"the run of {run.candidate!r} has neither or both of samples and a failure",
            hint="A run holds what was measured or how it failed: set exactly one.",
        )
    _check_clock(run.started_at_s, "$.started_at_s")
    if run.samples is not None:
        from_json(Samples, to_json(run.samples), "$.samples")
    return {
        "candidate": run.candidate,
        "process": run.process,
        "block": run.block,
        "started_at_s": run.started_at_s,
        "profiled": int(run.profiled),
        "inner": run.samples.inner if run.samples else None,
        "wall_ns": dumps(run.samples.wall_ns, "$.samples.wall_ns") if run.samples else None,
        "cpu_ns": dumps(run.samples.cpu_ns, "$.samples.cpu_ns") if run.samples else None,
        "failure": dumps(run.failure, "$.failure") if run.failure else None,
        "operators": dumps(run.operators, "$.operators"),
        "facts": dumps(run.facts, "$.facts"),
    }


def to_run(row: tuple[Any, ...]) -> Run:
    """The run of a row of RUN_COLUMNS."""
    flat = dict(zip(RUN_COLUMNS, row, strict=True))
    inner = flat.pop("inner")
    for name in ("wall_ns", "cpu_ns", "failure", "operators", "facts"):
        flat[name] = None if flat[name] is None else loads(flat[name], f"$.{name}")
    wall_ns, cpu_ns = flat.pop("wall_ns"), flat.pop("cpu_ns")
    if (wall_ns is None) == (flat["failure"] is None):
        raise not_that("$", "a run with either wall_ns or a failure", flat["candidate"])
    samples = None if wall_ns is None else {"wall_ns": wall_ns, "cpu_ns": cpu_ns, "inner": inner}
    profiled = {0: False, 1: True}.get(flat["profiled"], flat["profiled"])
    return from_json(Run, {**flat, "profiled": profiled, "samples": samples})


def _check_clock(time_s: float, path: str) -> None:
    """RecordError for a time that a clock reported just now, and that none can have."""
    if not 0 <= time_s <= LAST_S:
        raise RecordError(
            f"{path} is {shown(time_s)}, which is not between 1970 and 9999: the clock that reported it is wrong",
            hint="Set the clock of this machine and of the device, then start again.",
        )


def from_event(event: Event) -> Row:
    """Column values of an event."""
    _check_clock(event.at_s, "$.at_s")
    return {"name": event.name, "at_s": event.at_s, "data": dumps(event.data, "$.data")}


def to_event(row: tuple[Any, ...]) -> Event:
    """The event of a row of EVENT_COLUMNS."""
    name, at_s, data = row
    return from_json(Event, {"name": name, "at_s": at_s, "data": loads(data, "$.data")})
