"""Joins records: adds to one record, all at once, everything in another that it lacks; nothing is added twice.

This does not make different measurements comparable: a campaign is added unchanged with its key, which is derived from
the device's fingerprint, the versions, the model, the options and the protocol.
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
"""A function that converts an event of another record for this one; None leaves the event out."""


def join_records(source: Store, target: SqlStore, convert: Convert = lambda event: event) -> dict[str, int]:
    """Add to `target` at once everything in `source` that it lacks: all of it, or nothing if this raises or is killed.

    If both have samples of a visit, the target's are kept, because each record may have continued the campaign
    separately. The join can be repeated at any time. Returns the numbers of added `campaigns`, `runs` and `events`.
    RecordError if a campaign has the id of a different one, or is being measured here.
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
    """The identity of a run in a campaign: its visit, or the whole value of a failed run."""
    return codec.dumps(run) if run.samples is None else (run.candidate, run.process, run.block, run.profiled)


@contextmanager
def opened(source: RecordAddress) -> Iterator[Store]:
    """A record to be joined to another: a database, or a file of JSON lines written by `write_lines`.

    Everything in it has been read when this yields. Damaged content raises RecordError or ProblemError, which name the
    place.
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
    """Read all of a record; damaged content raises RecordError, which names the place."""
    place = "the campaigns"
    try:
        for campaign in store.query(CampaignQuery()):
            for what, query in (("run", RunQuery(campaign=campaign.id)), ("event", EventQuery(campaign=campaign.id))):
                place = f"{what} 1 of the campaign {campaign.id}"
                for number, _ in enumerate(store.query(query), 2):
                    place = f"{what} {number} of the campaign {campaign.id}"
            place = f"what follows the campaign {campaign.id}"
    except RecordError as error:
        raise RecordError(f"{source}, {place}: {error.message}", hint=error.hint) from error
