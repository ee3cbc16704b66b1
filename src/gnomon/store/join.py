"""Records joined: what one lacks of another is added to it, all at once, and nothing twice.

Nothing is made comparable that was not: a campaign comes as it is, with its key, which is made of the device's
fingerprint, the versions, the model, the options and the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from gnomon.core import codec
from gnomon.core.sample import Event, Run
from gnomon.errors import RecordError, system_errors
from gnomon.formats.json_lines import MOST_LETTERS
from gnomon.store.address import DatabaseAddress, RecordAddress
from gnomon.store.base import CampaignQuery, EventQuery, RunQuery, Store
from gnomon.store.lines import read_lines
from gnomon.store.opening import read_store
from gnomon.store.sql import SqlStore
from gnomon.store.sqlite import SqliteStore, is_record
from gnomon.system.files import read_regular
from gnomon.system.process import guarded_folder

Convert = Callable[[Event], Event | None]
"""Converts an event of another record for this one; None leaves it out."""


def join_records(source: Store, target: SqlStore, convert: Convert = lambda event: event) -> dict[str, int]:
    """Add what `target` lacks of `source`, at once: all of it or, where this raises or is killed, nothing.

    A visit that both have sampled stays as the target has it: each may have gone on with the campaign by itself. To be
    done again at any time. Returns how many `campaigns`, `runs` and `events` were not there before. RecordError if a
    campaign is another's, or is being measured for here.
    """
    added = {"campaigns": 0, "runs": 0, "events": 0}
    with target.whole():
        for campaign in reversed(list(source.query(CampaignQuery()))):
            added["campaigns"] += next(target.query(CampaignQuery(id=campaign.id)), None) is None
            target.open_campaign(campaign)
            runs, events = RunQuery(campaign=campaign.id), EventQuery(campaign=campaign.id)
            visits = set(map(_visit, target.query(runs)))
            for run in source.query(runs):
                if _visit(run) not in visits:
                    target.append(campaign.id, run)
                    added["runs"] += 1
            there = set(map(codec.dumps, target.query(events)))
            for event in filter(None, map(convert, source.query(events))):
                if codec.dumps(event) not in there:
                    target.append(campaign.id, event)
                    added["events"] += 1
    return added


def _visit(run: Run) -> Hashable:
    """The identity of a run in a campaign: its visit, or all of a failed run."""
    return codec.dumps(run) if run.samples is None else (run.candidate, run.process, run.block, run.profiled)


@contextmanager
def opened(source: RecordAddress) -> Iterator[Store]:
    """A record to be joined to another: a database, or a file of JSON lines as `write_lines` writes them.

    Everything in it was read when this yields. RecordError or ProblemError, with the place, for what is damaged.
    """
    if isinstance(source, DatabaseAddress) or is_record(source):
        with read_store(source) as store:
            _check(store, source)
            yield store
        return
    with system_errors(RecordError, f"{source} cannot be read", hint="Give a file of runs."):
        text = read_regular(source, MOST_LETTERS)
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
