"""The text about sustained and paced runs in the report of `gnomon profile`."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.core.stats import Summary
from gnomon.jobs.place.document import Change, Cooling, SustainedPart
from gnomon.report import units
from gnomon.report.page import Page, Table
from gnomon.report.parts import failure_text
from gnomon.report.plain import many

_SEEN = {
    "throttled": "it was throttled",
    "frequency": "its highest frequency was lowered",
    "hot": "it was hot",
    "busy": "other processes were busy",
    "steal": "other virtual machines used the cores",
    "quota": "the container's quota ran out",
}
_MOST_CHANGES = 3
_SLOWED = 0.98
_WAITED = 0.25
"""The largest growth of CPU time, as a share of the growth of wall time, at which calls count as only waiting."""


def sustained_text(parts: Sequence[SustainedPart], page: Page) -> None:
    """Write the sustained runs of the configurations: levels, changes of level, and missed slots."""
    paced = parts[0].paced
    pace = f", a call every {units.time(paced.every_s)}" if paced else ""
    streams, where = parts[0].streams, "one fresh process each"
    if streams > 1:
        pace, where = f", {streams} requests at once", "several fresh processes each"
    page.heading(f"Called for {_duration(parts[0].for_s)}{pace}, in {where}")
    for part in parts:
        page.draw("gnomon.jobs.place.picture:sustained_charts", part)
    table = Table(part for part in parts if part.first).text("configuration", lambda part: part.label, least=20)
    if streams > 1:
        table.text("requests/s", lambda part: _rate(part.request) if part.request else "")
    table.number("at first", lambda part: part.first.median_s if part.first else None, units.time)
    table.number("at the end", lambda part: part.last.median_s if part.last else None, units.time)
    table.number("p50", lambda part: part.p50_s, units.time).number("p90", lambda part: part.p90_s, units.time)
    table.number("p99", lambda part: part.p99_s, units.time)
    table.number("longest", lambda part: part.max_s, units.time).number("calls", lambda part: part.calls)
    if paced:
        table.number("late", lambda part: part.paced.late if part.paced else "-")
        table.number("skipped", lambda part: part.paced.skipped if part.paced else "-")
    if table.rows:
        first_s = max(part.first.seconds for part in parts if part.first)
        last_s = max(part.last.seconds for part in parts if part.last)
        table.note = f"at first, at the end: medians of the first {_duration(first_s)} and last {_duration(last_s)}"
        table.note += "; late: still running when the next call was due; skipped: due but not made." if paced else "."
        page.table(table)
    for part in parts:
        if streams == 1:  # a few seconds in each of several processes do not show a lasting level
            _changes(part, page)
        _circumstances(part, page)


def _duration(seconds: float) -> str:
    return units.time(seconds) if seconds < 10 else units.duration(seconds)


def _rate(request: Summary) -> str:
    """Requests per second with their 95 % interval, computed from the time per request."""
    low, high = (None if bound_s is None else 1 / bound_s for bound_s in (request.high_s, request.low_s))
    return f"{units.digits(1 / request.median_s)} {units.ratio_interval(low, high)}"


def _changes(part: SustainedPart, page: Page) -> None:
    label, blocks = part.label, len(part.blocks.block)
    for change in part.changes[:_MOST_CHANGES]:
        page.item(
            f"{label}: after {_duration(change.since_s)}, calls took {_longer(change.ratio - 1)} "
            f"({units.time(change.before_s)}, then {units.time(change.after_s)}){_why(change)}."
        )
    if len(part.changes) > _MOST_CHANGES:
        page.item(f"{label}: --json has {many(len(part.changes) - _MOST_CHANGES, 'more change')}.")
    if blocks and not part.searched:
        page.line(f"{label}: too few blocks ({blocks}) to detect a change of level.", indent=1)
    elif blocks and not part.changes:
        page.line(f"{label}: no change of level in {blocks} blocks.", indent=1)


def _why(change: Change) -> str:
    """What the device reports as the reasons for a change to a slower level; empty for a faster one."""
    longer = change.ratio - 1
    if longer <= 0:
        return ""
    seen = [_SEEN[kind] for kind in change.seen if kind in _SEEN]
    ratio = change.frequency_ratio
    if ratio is not None and ratio < _SLOWED:
        seen.append(f"its cores ran at {units.share(ratio)} of their earlier frequency")
    why = f"the device reports that {' and '.join(seen)}" if seen else "the device does not report why"
    waited = change.cpu_ratio is not None and change.cpu_ratio - 1 < longer * _WAITED
    return f"; {why}" + ("; the CPU time of a call hardly changed, so calls were waiting for a core" if waited else "")


def _longer(share: float) -> str:
    return f"{units.percent(abs(share)).lstrip('+')} {'longer' if share > 0 else 'less time'}"


def _circumstances(part: SustainedPart, page: Page) -> None:
    label, cooling = part.label, part.cooling
    if part.failure and part.failure.kind == "refused":
        page.item(f"{label}: {part.failure.message}.")
    elif part.failure:
        page.item(f"{label} stopped: {failure_text(part.failure)}")
    if part.parts > 1 and part.streams == 1:
        page.item(
            f"{label} ran in {part.parts} processes due to interruptions; the device may have cooled down between them."
        )
    if cooling and not cooling.reached:
        page.item(f"{label} began warm: {_warm(cooling)}.", "Treat the beginning of its run with care.")
    with page.details("cooling down"):
        if cooling and cooling.reached:
            page.line(f"{label} began after {units.duration(cooling.waited_s)} of cooling down.", indent=1)
        elif cooling is None and part.parts:
            page.line(f"{label} began without cooling down: the device reports no temperature.", indent=1)


def _warm(cooling: Cooling) -> str:
    now = "an unknown temperature" if cooling.to_c is None else f"{cooling.to_c:.0f} degrees Celsius"
    return (
        f"{cooling.zone} was at {now} after a wait of {units.duration(cooling.waited_s)}, and at "
        f"{cooling.baseline_c:.0f} at the start of the job"
    )
