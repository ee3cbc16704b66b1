"""A record as JSON lines, written and read back: `gnomon runs export --format jsonl`, docs/record.md.

A line is an object with "type" ("campaign", "run" or "event"), the id of its campaign, and the fields of the value.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
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
    """A JSON object a line, without line ends: each campaign, then its runs, then its events, in full."""
    for campaign in campaigns:
        yield _line("campaign", campaign.id, campaign)
        for run in store.query(RunQuery(campaign=campaign.id)):
            yield _line("run", campaign.id, run)
        for event in store.query(EventQuery(campaign=campaign.id)):
            yield _line("event", campaign.id, event)


def read_lines(text: bytes, store: SqliteStore) -> None:
    """Add what such lines hold to a record that has none of it.

    ProblemError with all that is wrong, each with its line, and nothing is added: also for a last line that ends too
    early, and for samples of a visit that a line before has.
    """
    complaints = Complaints(what="file of runs", hint="Export them once more: gnomon runs export ID > FILE.")
    with store.whole():
        reader = _Reader(store=store, complaints=complaints)
        for number, value in json_lines(text, complaints, _RULES):
            reader.take(f"line {number}", value)
        complaints.raise_any()


@dataclass(slots=True, kw_only=True)
class _Reader:
    """Adds line after line; tells what is wrong with one."""

    store: SqliteStore
    complaints: Complaints
    campaigns: set[str] = field(default_factory=set)
    visits: set[tuple[Any, ...]] = field(default_factory=set)

    def take(self, place: str, value: Any) -> None:
        """Add what a line holds."""
        if not isinstance(value, dict) or not isinstance(value.get("campaign"), str):
            return self.complaints.tell(place, f"an object with the id of a campaign expected, {shown(value)} found")
        kind = _KINDS.get(str(value.get("type")))
        if kind is None:
            told = f"one of {', '.join(_KINDS)} expected as its type, {shown(value.get('type'))} found"
            return self.complaints.tell(place, told)
        campaign, before = value["campaign"], len(self.complaints.told)
        own = {name: item for name, item in value.items() if name not in ("type", "campaign")}
        item = codec.decode(kind, own, self.complaints, f"{place}: $")
        if len(self.complaints.told) > before:
            return None
        wrong = self._wrong(campaign, item)
        if wrong:
            return self.complaints.tell(place, wrong)
        try:
            self.store.open_campaign(item) if isinstance(item, Campaign) else self.store.append(campaign, item)
        except RecordError as error:
            told = "it has a number of more than 64 bits, or a text that is not Unicode"
            self.complaints.tell(place, told if error.__cause__ else error.message)
        return None

    def _wrong(self, campaign: str, item: Campaign | Run | Event) -> str:
        """What is wrong with an item beside of the other lines."""
        if isinstance(item, Campaign):
            if item.id != campaign or not is_line(campaign, _LONGEST_ID):
                return f"the id of the campaign is {shown(campaign)} and {shown(item.id)}"
            if campaign in self.campaigns:
                return f"the campaign {shown(campaign)} is on a line before"
            self.campaigns.add(campaign)
        elif campaign not in self.campaigns:
            return f"the campaign {shown(campaign)} is on no line before"
        elif isinstance(item, Run) and item.samples is not None:
            visit = (campaign, item.candidate, item.process, item.block, item.profiled)
            if visit in self.visits:
                return f"samples of this visit of {shown(item.candidate)} are on a line before"
            self.visits.add(visit)
        return ""


def _line(kind: str, campaign: str, record: Campaign | Run | Event) -> str:
    values = {"type": kind, "campaign": campaign, **codec.to_json(record)}
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
