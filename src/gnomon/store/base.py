"""The store: what is kept of every measurement, append and query."""

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
"""The names of the events in which a job notes how it was asked for, where what it writes is, and what ended it: the
message and the hint of its error, or nothing where it goes on."""

CLOSED = "closed"
"""The key in the data of `FAILED` that says that the campaign is not taken up again: nobody was left to decide on."""


_Path = Annotated[str, codec.Must(be="a path", fits=lambda text: bool(text) and "\0" not in text)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The data of an event `COMMAND`: the words of the command line, and the folder in which they were given."""

    arguments: tuple[str, ...]
    folder: _Path


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedFile:
    """A file of an event `FILES`; of one that is whole how many bytes from its beginning, and their SHA-256."""

    path: _Path
    bytes: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The data of an event `FILES`."""

    files: tuple[NotedFile, ...]


ARGUMENTS: ContextVar[tuple[str, ...]] = ContextVar("ARGUMENTS", default=())
"""The words of the command line that asks now; none where Python asks."""


CELL = "cell"
"""The name of the event by which a campaign knows the run of a suite, and the cell of it, that it is measured for."""

ASKING_CELL: ContextVar[Mapping[str, str] | None] = ContextVar("ASKING_CELL", default=None)
"""The run of a suite and the cell that ask now: `suite` and `cell`; None where a command asks by itself."""


T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Query(Generic[T_co]):
    """A question to a store, which answers it with items of one kind."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignQuery(Query[Campaign]):
    """Campaigns, the newest first; each field that is not None narrows the answer.

    `finished` asks whether the last event "finished" or "reopened" is "finished", `cell` whether the last event `CELL`
    says that. `held` asks whether another store that is open, and whose process lives, has opened the campaign.
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
    """How many runs of a candidate a campaign holds, and how many of those failed."""

    candidate: str
    runs: int
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TallyQuery(Query[Tally]):
    """One `Tally` a candidate of the campaign, in the order of their first runs."""

    campaign: str


class Store(Protocol):
    """An append-only record of campaigns, their runs and their events.

    Contract (`tests.store.contract` tests it):

    - What `open_campaign` or `append` returned from survives `kill -9` and loss of power at any later
    moment. What they raised from is not in the record at all. Nothing is ever changed or removed. -
    Values come back equal to what was appended: same types, same order, every sample. - Several processes
    may append to one record at the same time, each through its own store. - A store belongs to the thread
    that made it. Who made it closes it; after `close` every call raises. - `query` reads lazily and holds
    no lock between items, so the caller may append while it iterates; it yields at least all that was
    appended before it was called. - Everything that goes wrong is a `RecordError` with a hint.
    """

    def open_campaign(self, campaign: Campaign) -> None:
        """Add the campaign, and hold it until the store is closed or its process ends.

        Nothing is added if the same campaign is there. RecordError if its id is another's, or if another open store
        holds it: two that measured for one campaign would each take up the other's runs.
        """

    def append(self, campaign: str, item: Run | Event) -> None:
        """Add a run or an event to the campaign of that id.

        RecordError if there is no such campaign, or if it has samples of the same visit already: the same candidate,
        process, block and `profiled`. A visit may fail any number of times.
        """

    def query(self, query: Query[T]) -> Iterator[T]:
        """The answer to the query, lazily. RecordError if it names an unknown campaign."""

    def close(self) -> None:
        """Release the record. Safe to call twice."""


def latest_of(store: Store, key: str) -> Campaign | None:
    """The newest campaign that asked the same question, finished or not, unless another open store holds it."""
    return next(store.query(CampaignQuery(key=key, held=False)), None)


def latest_unfinished(store: Store, key: str) -> Campaign | None:
    """The newest campaign that asked the same question and was interrupted: the one to resume.

    One that another open store holds was not interrupted: it is being measured.
    """
    return next(store.query(CampaignQuery(key=key, finished=False, held=False)), None)


def note(store: Store, campaign: str, name: str, data: Mapping[str, object]) -> None:
    """Add an event of this moment to a campaign."""
    store.append(campaign, Event(name=name, at_s=time.time(), data=data))


def note_command(store: Store, campaign: str) -> None:
    """Note by which words and in which folder, or for which cell of a suite, a campaign is asked for, unless that is
    what was noted last.
    """
    cell = ASKING_CELL.get()
    if cell is not None and last_note(store, campaign, CELL) != cell:
        note(store, campaign, CELL, cell)
    asked = {"arguments": list(ARGUMENTS.get()), "folder": str(Path.cwd())}
    if ARGUMENTS.get() and last_note(store, campaign, COMMAND) != asked:
        note(store, campaign, COMMAND, asked)


def note_files(store: Store, campaign: str, paths: Sequence[Path], *, whole: bool = False) -> None:
    """Note the files that a job writes; once they are `whole` with their sizes and digests.

    So many bytes from the beginning stay as they are until they are noted again. RecordError for one that cannot be
    read.
    """
    files: list[dict[str, object]] = [{"path": str(path.absolute())} for path in paths]
    for path, noted in zip(paths, files, strict=True):
        if whole:
            with system_errors(RecordError, f"{path} cannot be read", hint="Give --out another path."):
                content = path.read_bytes()
            noted |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    note(store, campaign, FILES, {"files": files})


def last_note(store: Store, campaign: str, name: str) -> Any:
    """The data of the last event of that name; None without one."""
    last = None
    for event in store.query(EventQuery(campaign=campaign, name=name)):
        last = event.data
    return last


def last_command(store: Store, campaign: str) -> Command | None:
    """How a campaign was asked for last; None if a command line never did. RecordError where that is damaged."""
    last = last_note(store, campaign, COMMAND)
    return None if last is None else codec.from_json(Command, last, f"{COMMAND} of the campaign {campaign}: $")


def last_files(store: Store, campaign: str) -> tuple[NotedFile, ...]:
    """The files that a campaign's job noted last; none if it writes none. RecordError where that is damaged."""
    last = last_note(store, campaign, FILES)
    return () if last is None else codec.from_json(Files, last, f"{FILES} of the campaign {campaign}: $").files
