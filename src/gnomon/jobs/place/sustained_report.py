"""The text of sustained and paced runs, as a part of the report of `gnomon profile`."""

from __future__ import annotations

from typing import Any

from gnomon.report import units
from gnomon.report.page import Column, Page
from gnomon.report.parts import failure_text

_SEEN = {
    "throttled": "it was throttled",
    "frequency": "its highest frequency was lowered",
    "hot": "it was hot",
    "busy": "other processes were busy",
    "steal": "other virtual machines had the cores",
    "quota": "the container's quota ran out",
}
_CHANGES_TOLD = 3
_SLOWED = 0.98
_WAITED = 0.25
"""Of what the wall clock shows, the share that the CPU time of a call may show where calls only waited."""


def sustained_text(found: list[dict[str, Any]], page: Page) -> None:
    """What the configurations did when they were called for long: levels, changes of level, misses."""
    paced = found[0]["paced"]
    pace = f", a call every {units.time(paced['every_s'])}" if paced else ""
    page.heading(f"Called for {_duration(found[0]['for_s'])}{pace}, in one fresh process each")
    heads = [
        Column(title="configuration", number=False, least=20),
        Column(title="at first"),
        Column(title="at the end"),
        Column(title="p50"),
        Column(title="p99"),
        Column(title="longest"),
        Column(title="calls"),
        *([Column(title="late"), Column(title="skipped")] if paced else []),
    ]
    rows = [_row(one) for one in found if one["first"]]
    if rows:
        page.table(heads, rows)
        sides = [max(one[side]["seconds"] for one in found if one[side]) for side in ("first", "last")]
        page.line(
            f"at first, at the end: of the first {_duration(sides[0])} and of the last {_duration(sides[1])}"
            + ("; late: still running when the next was due; skipped: slots in which none began." if paced else "."),
            indent=1,
            style="dim",
        )
    for one in found:
        _changes(one, page)
        _circumstances(one, page)


def _duration(seconds: float) -> str:
    return units.time(seconds) if seconds < 10 else units.duration(seconds)


def _row(one: dict[str, Any]) -> list[str]:
    paced = one["paced"]
    return [
        one["label"],
        units.time(one["first"]["median_s"]),
        units.time(one["last"]["median_s"]),
        units.time(one["p50_s"]),
        units.time(one["p99_s"]),
        units.time(one["max_s"]),
        str(one["calls"]),
        *([str(paced["late"]), str(paced["skipped"])] if paced else []),
    ]


def _changes(one: dict[str, Any], page: Page) -> None:
    label, changes, blocks = one["label"], one["changes"], len(one["blocks"]["block"])
    for change in changes[:_CHANGES_TOLD]:
        longer = change["after_s"] / change["before_s"] - 1
        page.item(
            f"{label}: after {_duration(change['since_s'])} calls took {_longer(longer)} "
            f"({units.time(change['before_s'])}, then {units.time(change['after_s'])}){_why(change)}."
        )
    if len(changes) > _CHANGES_TOLD:
        page.item(f"{label}: {len(changes) - _CHANGES_TOLD} more changes are in --json.")
    if blocks and not one["searched"]:
        page.line(f"{label}: {blocks} blocks are too few to detect a change of level.", indent=1)
    elif blocks and not changes:
        page.line(f"{label}: one level throughout, in {blocks} blocks.", indent=1)


def _why(change: dict[str, Any]) -> str:
    """What the device told of the time after a change to slower."""
    longer = change["after_s"] / change["before_s"] - 1
    if longer <= 0:
        return ""
    seen = [_SEEN[kind] for kind in change["seen"] if kind in _SEEN]
    ratio = change["frequency_ratio"]
    if ratio is not None and ratio < _SLOWED:
        seen.append(f"its cores ran at {units.share(ratio)} of their frequency before")
    told = f"the device reports that {' and '.join(seen)}" if seen else "the device does not report why"
    waited = change["cpu_ratio"] is not None and change["cpu_ratio"] - 1 < longer * _WAITED
    return f"; {told}" + ("; the CPU time of a call stayed, so that it waited for others" if waited else "")


def _longer(share: float) -> str:
    return f"{units.percent(abs(share)).lstrip('+')} {'longer' if share > 0 else 'less time'}"


def _circumstances(one: dict[str, Any], page: Page) -> None:
    label, cooling = one["label"], one["cooling"]
    if one["failure"]:
        page.item(f"{label} did not go on: {failure_text(one['failure'])}")
    if one["parts"] > 1:
        page.item(f"{label} was interrupted: {one['parts']} processes, between which the device may have cooled down.")
    if cooling and not cooling["reached"]:
        page.item(
            f"{label} began warm: {cooling['zone']} had {cooling['to_c']:.0f} degrees Celsius after a wait of "
            f"{units.duration(cooling['waited_s'])}, and {cooling['baseline_c']:.0f} at the start of the job.",
            "Compare the beginning of its run with care.",
        )
    with page.details("cooling down"):
        if cooling and cooling["reached"]:
            page.line(f"{label} began after {units.duration(cooling['waited_s'])} of cooling down.", indent=1)
        elif cooling is None and one["parts"]:
            page.line(f"{label} began without a wait: the device reports no temperature.", indent=1)
