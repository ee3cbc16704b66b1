"""Rows of the SQLite record to values and back. Samples stay a readable JSON list of integers."""

from __future__ import annotations

from typing import Any

from gnomon.core.campaign import Campaign, Event
from gnomon.core.sample import Failure, OperatorSamples, Run, Samples
from gnomon.errors import RecordError
from gnomon.store.codec import dumps, from_json, loads

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


def from_campaign(campaign: Campaign) -> dict[str, Any]:
    """Column values of a campaign."""
    context = campaign.context
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


def from_run(run: Run) -> dict[str, Any]:
    """Column values of a run. RecordError unless exactly one of samples and failure is set."""
    if (run.samples is None) == (run.failure is None):
        raise RecordError(
            f"the run of {run.candidate!r} has neither or both of samples and a failure",
            hint="A run holds what was measured or how it failed: set exactly one.",
        )
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
    candidate, process, block, started_at_s, profiled, inner, wall_ns, cpu_ns, failure, operators, facts = row
    samples = None
    if wall_ns is not None:
        times = {"wall_ns": loads(wall_ns, "$.wall_ns"), "cpu_ns": loads(cpu_ns, "$.cpu_ns"), "inner": inner}
        samples = from_json(Samples, times, "$.samples")
    listed = loads(operators, "$.operators")
    return Run(
        candidate=candidate,
        process=process,
        block=block,
        started_at_s=started_at_s,
        samples=samples,
        failure=None if failure is None else from_json(Failure, loads(failure, "$.failure"), "$.failure"),
        profiled=bool(profiled),
        operators=tuple(from_json(OperatorSamples, o, f"$.operators[{i}]") for i, o in enumerate(listed)),
        facts=loads(facts, "$.facts"),
    )


def from_event(event: Event) -> dict[str, Any]:
    """Column values of an event."""
    return {"name": event.name, "at_s": event.at_s, "data": dumps(event.data, "$.data")}


def to_event(row: tuple[Any, ...]) -> Event:
    """The event of a row of EVENT_COLUMNS."""
    name, at_s, data = row
    return Event(name=name, at_s=at_s, data=loads(data, "$.data"))
