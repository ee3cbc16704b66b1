"""The store: an append-only record of every measurement, with queries."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Protocol, TypeVar

from gnomon.core import codec
from gnomon.core.sample import Campaign, Event, Run
from gnomon.errors import RecordError, system_errors

COMMAND, FILES, FAILED = "command", "files", "failed"
"""The names of the events in which a job notes its command, the files that it writes, and the error that ended it: the
error's message and hint, or nothing once the job continues.
"""

CLOSED = "closed"
"""The key in the data of `FAILED` that marks a campaign that is not resumed, because nothing in it was left to decide
on.
"""


_Path = Annotated[str, codec.Must(be="a path", fits=lambda text: bool(text) and "\0" not in text)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The data of an event `COMMAND`: the words of the command line, and the folder in which it was run."""

    arguments: tuple[str, ...]
    folder: _Path


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedFile:
    """A file in an event `FILES`; for a complete file, also the number of bytes noted from its beginning, and their
    SHA-256.
    """

    path: _Path
    bytes: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The data of an event `FILES`."""

    files: tuple[NotedFile, ...]


ARGUMENTS: ContextVar[tuple[str, ...]] = ContextVar("ARGUMENTS", default=())
"""The words of the current command line; empty for a call from Python."""


CELL = "cell"
"""The name of the event that holds the suite's run and the cell for which a campaign is measured."""

ASKING_CELL: ContextVar[Mapping[str, str] | None] = ContextVar("ASKING_CELL", default=None)
"""The current run of a suite and its cell (`suite` and `cell`); None for a command outside a suite."""


T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Query(Generic[T_co]):
    """A query to a store, which answers with items of one kind."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignQuery(Query[Campaign]):
    """Campaigns, the newest first; each field that is not None narrows the answer.

    `finished` asks whether the last of the events "finished" and "reopened" is "finished", and `cell` asks whether the
    last event `CELL` has this data. `held` asks whether another open store of a living process has opened the campaign.
    """

    id: str | None = None
    key: str | None = None
    kind: str | None = None
    model_digest: str | None = None
    finished: bool | None = None
    cell: Mapping[str, str] | None = None
    held: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery(Query[Run]):
    """Runs of one campaign, in the order in which they were appended."""

    campaign: str
    candidate: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuery(Query[Event]):
    """Events of one campaign, in the order in which they were appended."""

    campaign: str
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The number of runs of a candidate in a campaign, and how many of them failed."""

    candidate: str
    runs: int
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TallyQuery(Query[Tally]):
    """One `Tally` for each candidate of the campaign, in the order of their first runs."""

    campaign: str


class Store(Protocol):
    """An append-only record of campaigns, their runs and their events.

    Contract (`tests.store.contract` tests it):

    - Once `open_campaign` or `append` has returned, what it added survives `kill -9` and loss of power at any later
      moment. If it raised, nothing from the call is in the record. Nothing is ever changed or removed.
    - Values come back equal to the appended ones: with the same types, in the same order, and with every sample.
    - Several processes may append to one record at the same time, each through its own store.
    - A store belongs to the thread that created it, which also closes it; after `close` every call raises.
    - `query` reads lazily and holds no lock between items, so the caller may append while iterating; it yields at
      least everything that was appended before the call.
    - Every error is a `RecordError` with a hint.
    """

    def open_campaign(self, campaign: Campaign) -> None:
        """Add the campaign, and hold it until the store is closed or its process ends.

        Nothing is added if the same campaign exists. RecordError if its id belongs to a different campaign, or if
        another open store holds it, because two stores that measure for the same campaign would reuse each other's
        runs.
        """

    def append(self, campaign: str, item: Run | Event) -> None:
        """Add a run or an event to the campaign with that id.

        RecordError if there is no such campaign, or if it already has samples of the same visit: the same candidate,
        process, block and `profiled`. A visit may fail any number of times.
        """

    def query(self, query: Query[T]) -> Iterator[T]:
        """The answer to the query, lazily. RecordError if it names an unknown campaign."""

    def close(self) -> None:
        """Release the record. Safe to call twice."""


def newest_free(store: Store, key: str, *, finished: bool | None = None) -> Campaign | None:
    """The newest campaign with the same question that no other open store holds; None if there is none.

    If `finished` is given, only finished campaigns (True) or only interrupted ones (False) count. A campaign that
    another open store holds was not interrupted, but is being measured.
    """
    return next(store.query(CampaignQuery(key=key, finished=finished, held=False)), None)


def note(store: Store, campaign: str, name: str, data: Mapping[str, object]) -> None:
    """Add an event with the current time to a campaign."""
    store.append(campaign, Event(name=name, at_s=time.time(), data=data))


def note_command(store: Store, campaign: str) -> None:
    """Note the command line and folder, or the cell of a suite, for which a campaign is run, unless the last note is
    the same.
    """
    cell = ASKING_CELL.get()
    if cell is not None and last_note(store, campaign, CELL) != cell:
        note(store, campaign, CELL, cell)
    asked = {"arguments": list(ARGUMENTS.get()), "folder": str(Path.cwd())}
    if ARGUMENTS.get() and last_note(store, campaign, COMMAND) != asked:
        note(store, campaign, COMMAND, asked)


def note_files(store: Store, campaign: str, paths: Sequence[Path], *, whole: bool = False) -> None:
    """Note the files that a job writes; with `whole`, also their sizes and digests.

    The noted bytes at the beginning of a file do not change until the file is noted again. RecordError for a file that
    cannot be read.
    """
    files: list[dict[str, object]] = [{"path": str(path.absolute())} for path in paths]
    for path, noted in zip(paths, files, strict=True):
        if whole:
            with system_errors(RecordError, f"{path} cannot be read", hint="Give --out another path."):
                content = path.read_bytes()
            noted |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    note(store, campaign, FILES, {"files": files})


def last_note(store: Store, campaign: str, name: str) -> Any:
    """The data of the last event with that name; None if there is none."""
    last = None
    for event in store.query(EventQuery(campaign=campaign, name=name)):
        last = event.data
    return last


def last_command(store: Store, campaign: str) -> Command | None:
    """The last command line of a campaign; None if no command line ever ran it. RecordError if the event is damaged."""
    last = last_note(store, campaign, COMMAND)
    return None if last is None else codec.from_json(Command, last, f"{COMMAND} of the campaign {campaign}: $")


def last_files(store: Store, campaign: str) -> tuple[NotedFile, ...]:
    """The files that a campaign's job noted last; none if it writes none. RecordError if the event is damaged."""
    last = last_note(store, campaign, FILES)
    return () if last is None else codec.from_json(Files, last, f"{FILES} of the campaign {campaign}: $").files
