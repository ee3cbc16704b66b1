"""Records joined: what one lacks of another is added to it, all at once, and nothing twice.

Nothing is made comparable that was not: a campaign comes as it is, with its key, which is made of the device's
fingerprint, the versions, the model, the options and the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gnomon.core import codec
from gnomon.core.sample import Campaign, Event
from gnomon.errors import RecordError
from gnomon.formats.json_lines import MOST_LETTERS
from gnomon.store.address import PostgresAddress, RecordAddress
from gnomon.store.base import CampaignQuery, EventQuery, RunQuery, Store
from gnomon.store.lines import read_lines
from gnomon.store.opening import read_store
from gnomon.store.sql import SqlStore
from gnomon.store.sqlite import SqliteStore, is_record
from gnomon.system.files import read_at_most
from gnomon.system.process import guarded_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """How many campaigns, runs and events were not there before."""

    campaigns: int
    runs: int
    events: int


Told = Callable[[Event], Event | None]
"""How an event of another record is told in this one; None leaves it out."""


def join_records(source: Store, target: SqlStore, told: Told = lambda event: event) -> Joined:
    """Add what `target` lacks of `source`, at once: all of it or, where this raises or is killed, nothing.

    A visit that both have sampled stays as the target has it: each may have gone on with the campaign by itself. To be
    done again at any time. RecordError if a campaign is another's, or is being measured for here.
    """
    campaigns = runs = events = 0
    with target.whole():
        for campaign in reversed(list(source.query(CampaignQuery()))):
            campaigns += next(target.query(CampaignQuery(id=campaign.id)), None) is None
            target.open_campaign(campaign)
            runs += _add_runs(source, target, campaign)
            events += _add_events(source, target, campaign, told)
    return Joined(campaigns=campaigns, runs=runs, events=events)


def _add_runs(source: Store, target: Store, campaign: Campaign) -> int:
    known = list(target.query(RunQuery(campaign=campaign.id)))
    visits = {(r.candidate, r.process, r.block, r.profiled) for r in known if r.samples is not None}
    failures = {codec.dumps(run) for run in known if run.samples is None}
    count = 0
    for run in source.query(RunQuery(campaign=campaign.id)):
        if run.samples is None:
            new = codec.dumps(run) not in failures
        else:
            new = (run.candidate, run.process, run.block, run.profiled) not in visits
        if new:
            target.append(campaign.id, run)
            count += 1
    return count


def _add_events(source: Store, target: Store, campaign: Campaign, told: Told) -> int:
    known = {codec.dumps(event) for event in target.query(EventQuery(campaign=campaign.id))}
    count = 0
    for event in source.query(EventQuery(campaign=campaign.id)):
        item = told(event)
        if item is not None and codec.dumps(item) not in known:
            target.append(campaign.id, item)
            count += 1
    return count


@contextmanager
def opened(source: RecordAddress) -> Iterator[Store]:
    """A record to be joined to another: a database, or a file of JSON lines as `write_lines` writes them.

    Everything in it was read when this yields. RecordError or ProblemError, with the place, for what is damaged.
    """
    if isinstance(source, PostgresAddress) or is_record(source):
        with read_store(source) as store:
            _check(store, source)
            yield store
        return
    try:
        with source.open("rb") as file:
            text = read_at_most(file, MOST_LETTERS)
    except OSError as error:
        raise RecordError(f"{source} cannot be read: {error.strerror}", hint="Give a file of runs.") from error
    with guarded_folder("gnomon-runs-") as folder, SqliteStore.open(folder / "record.sqlite") as own:
        read_lines(text, own)
        yield own


def _check(store: Store, source: RecordAddress) -> None:
    """Read all of a record; RecordError, with the place, for what is damaged."""
    place = "the campaigns"
    try:
        for campaign in store.query(CampaignQuery()):
            for what, query in (("run", RunQuery(campaign=campaign.id)), ("event", EventQuery(campaign=campaign.id))):
                place = f"{what} 1 of the campaign {campaign.id}"
                for number, _ in enumerate(store.query(query), 2):
                    place = f"{what} {number} of the campaign {campaign.id}"
            place = f"what is before the campaign {campaign.id}"
    except RecordError as error:
        raise RecordError(f"{source}, {place}: {error.message}", hint=error.hint) from error
