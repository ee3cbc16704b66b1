"""Writes and reads a record as JSON lines: `gnomon runs export --format jsonl`, docs/record.md.

A line is an object with "type" ("campaign", "run" or "event"), the id of its campaign, and the fields of the value.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from gnomon.core import codec
from gnomon.core.sample import Campaign, Event, Run
from gnomon.core.strict_json import Complaints, is_line, shown
from gnomon.errors import RecordError
from gnomon.formats.json_lines import LineRules, json_lines
from gnomon.store.base import EventQuery, RunQuery, Store
from gnomon.store.sqlite import SqliteStore

_KINDS: dict[str, type[Campaign | Run | Event]] = {"campaign": Campaign, "run": Run, "event": Event}
_RULES = LineRules(begun="none")
_LONGEST_ID = 200


def write_lines(store: Store, campaigns: Iterable[Campaign]) -> Iterator[str]:
    """One JSON object per line, without line ends: each campaign, followed by all its runs and then all its events."""
    for campaign in campaigns:
        yield _line("campaign", campaign.id, campaign)
        for run in store.query(RunQuery(campaign=campaign.id)):
            yield _line("run", campaign.id, run)
        for event in store.query(EventQuery(campaign=campaign.id)):
            yield _line("event", campaign.id, event)


def read_lines(text: bytes, store: SqliteStore) -> None:
    """Add the content of lines written by `write_lines` to a record that does not have it yet.

    ProblemError with all errors and their lines if anything is wrong; nothing is then added. A last line that is cut
    off, and repeated samples of a visit, are errors too.
    """
    complaints = Complaints(what="file of runs", hint="Export them again: gnomon runs export ID > FILE.")
    seen: set[Hashable] = set()
    with store.whole():
        for number, value in json_lines(text, complaints, _RULES):
            _take(f"line {number}", value, store, complaints, seen)
        complaints.raise_any()


def _take(place: str, value: Any, store: SqliteStore, complaints: Complaints, seen: set[Hashable]) -> None:
    """Add the content of a line, or a complaint about it; `seen` are the campaigns and visits of earlier lines."""
    if not isinstance(value, dict) or not isinstance(value.get("campaign"), str):
        return complaints.tell(place, f"an object with the id of a campaign expected, {shown(value)} found")
    kind = _KINDS.get(str(value.get("type")))
    if kind is None:
        message = f"one of {', '.join(_KINDS)} expected as its type, {shown(value.get('type'))} found"
        return complaints.tell(place, message)
    campaign, before = value["campaign"], len(complaints.sentences)
    own = {name: item for name, item in value.items() if name not in ("type", "campaign")}
    item = codec.decode(kind, own, complaints, f"{place}: $")
    if len(complaints.sentences) > before:
        return None
    visit = (campaign, item.candidate, item.process, item.block, item.profiled) if isinstance(item, Run) else campaign
    if isinstance(item, Campaign):
        if item.id != campaign or not is_line(campaign, _LONGEST_ID):
            return complaints.tell(place, f"the campaign has the ids {shown(campaign)} and {shown(item.id)}")
        if campaign in seen:
            return complaints.tell(place, f"the campaign {shown(campaign)} is already on an earlier line")
    elif campaign not in seen:
        return complaints.tell(place, f"the campaign {shown(campaign)} is on no earlier line")
    elif isinstance(item, Run) and item.samples is not None and visit in seen:
        return complaints.tell(place, f"samples of this visit of {shown(item.candidate)} are on an earlier line")
    if not isinstance(item, Run) or item.samples is not None:
        seen.add(visit)
    try:
        store.open_campaign(item) if isinstance(item, Campaign) else store.append(campaign, item)
    except RecordError as error:
        message = "it has a number of more than 64 bits, or a text that is not Unicode"
        complaints.tell(place, message if error.__cause__ else error.message)
    return None


def _line(kind: str, campaign: str, record: Campaign | Run | Event) -> str:
    values = {"type": kind, "campaign": campaign, **codec.to_json(record)}
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
