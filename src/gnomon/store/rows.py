"""Converts rows of the SQLite record to values and back. Samples stay a readable JSON list of integers."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from gnomon.core.codec import dumps, from_json, loads, not_that, to_json
from gnomon.core.sample import LAST_S, Campaign, Context, Event, Run, Samples
from gnomon.core.strict_json import shown
from gnomon.errors import RecordError

Row = dict[str, object]
"""Values by column name."""


def _fields(record: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(record))


CAMPAIGN_COLUMNS = tuple(name for name in (*_fields(Campaign), *_fields(Context)) if name != "context")
RUN_COLUMNS = tuple(name for name in (*_fields(Run), *_fields(Samples)) if name != "samples")
EVENT_COLUMNS = _fields(Event)


_TEXTS = frozenset(("device", "versions", "options", "wall_ns", "cpu_ns", "failure", "operators", "facts", "data"))
"""The columns that hold JSON."""


def _row(values: Row) -> Row:
    """Values converted for their columns."""
    return {
        name: dumps(value, f"$.{name}") if name in _TEXTS and value is not None else value
        for name, value in values.items()
    }


def _values(columns: tuple[str, ...], row: tuple[Any, ...]) -> dict[str, Any]:
    """The values of a row by column name."""
    return {
        name: loads(value, f"$.{name}") if name in _TEXTS and value is not None else value
        for name, value in zip(columns, row, strict=True)
    }


def from_campaign(campaign: Campaign) -> Row:
    """The column values of a campaign."""
    _check_clock(campaign.started_at_s, "$.started_at_s")
    values = to_json(campaign)
    return _row(values.pop("context") | values)


def to_campaign(row: tuple[Any, ...]) -> Campaign:
    """The campaign in a row of CAMPAIGN_COLUMNS."""
    context = _values(CAMPAIGN_COLUMNS, row)
    own = {name: context.pop(name) for name in ("id", "kind", "key", "started_at_s")}
    return from_json(Campaign, {**own, "context": context})


def from_run(run: Run) -> Row:
    """The column values of a run. RecordError unless exactly one of samples and failure is set."""
    if (run.samples is None) == (run.failure is None):
        raise RecordError(
            f"the run of {run.candidate!r} has both samples and a failure, or neither",
            hint="A run holds what was measured or how it failed: set exactly one.",
        )
    _check_clock(run.started_at_s, "$.started_at_s")
    values = to_json(run)
    samples = values.pop("samples")
    if samples is None:
        samples = dict.fromkeys(("wall_ns", "cpu_ns", "inner"))
    else:
        from_json(Samples, samples, "$.samples")
    return _row(values | samples | {"profiled": int(run.profiled)})


def to_run(row: tuple[Any, ...]) -> Run:
    """The run in a row of RUN_COLUMNS."""
    values = _values(RUN_COLUMNS, row)
    samples = {name: values.pop(name) for name in ("wall_ns", "cpu_ns", "inner")}
    if (samples["wall_ns"] is None) == (values["failure"] is None):
        raise not_that("$", "a run with either wall_ns or a failure", values["candidate"])
    profiled = {0: False, 1: True}.get(values["profiled"], values["profiled"])
    measured = None if samples["wall_ns"] is None else samples
    return from_json(Run, {**values, "profiled": profiled, "samples": measured})


def _check_clock(time_s: float, path: str) -> None:
    """RecordError for an impossible time that a clock reported."""
    if not 0 <= time_s <= LAST_S:
        raise RecordError(
            f"{path} is {shown(time_s)}, which is not between 1970 and 9999: the clock that reported it is wrong",
            hint="Set the clock of this machine and of the device, then start again.",
        )


def from_event(event: Event) -> Row:
    """The column values of an event."""
    _check_clock(event.at_s, "$.at_s")
    return _row(to_json(event))


def to_event(row: tuple[Any, ...]) -> Event:
    """The event in a row of EVENT_COLUMNS."""
    return from_json(Event, _values(EVENT_COLUMNS, row))
