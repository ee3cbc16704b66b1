"""The common part of stores in SQL databases: the statements of a record, and reading in pages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from gnomon.core.codec import dumps
from gnomon.core.sample import FINISHED, REOPENED, Campaign, Event, Run
from gnomon.errors import RecordError
from gnomon.store import rows
from gnomon.store.address import RecordAddress
from gnomon.store.base import CELL, CampaignQuery, EventQuery, Query, RunQuery, Tally, TallyQuery

T = TypeVar("T")

_PAGE_ROWS = 256
_IS_FINISHED = (
    f"COALESCE((SELECT CASE e.name WHEN '{FINISHED}' THEN 1 ELSE 0 END FROM events e WHERE e.campaign = t.seq"  # noqa: S608
    f" AND e.name IN ('{FINISHED}', '{REOPENED}') ORDER BY e.seq DESC LIMIT 1), 0) = ?"
)
_IS_OF_CELL = (
    f"t.seq IN (SELECT e.campaign FROM events e WHERE e.name = '{CELL}' AND e.data = ? AND NOT EXISTS"  # noqa: S608
    f" (SELECT 1 FROM events l WHERE l.campaign = e.campaign AND l.name = '{CELL}' AND l.seq > e.seq))"
)


class Held(Protocol):
    """The campaigns that a store holds, so that no two stores measure for the same campaign."""

    def take(self, campaign: str) -> bool:
        """Hold the campaign; return False if this store already held it. RecordError if another store holds it."""

    def by_another(self, campaign: str) -> bool:
        """Return True if another open store holds the campaign."""

    def give_up(self, campaign: str) -> None:
        """Release the campaign."""


class SqlStore(ABC):
    """A `Store` in a database; used as a context manager, it closes itself."""

    def __init__(self, address: RecordAddress, held: Held) -> None:
        self.address = address
        self._held = held
        self._briefly: list[str] | None = None

    @abstractmethod
    def _rows(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """The rows that a statement returns; each `?` is a placeholder for a value. Raises RecordError."""

    @abstractmethod
    def _insert(self, statement: str, values: Sequence[Any]) -> int:
        """Insert rows and return how many were added; they are safe when this returns. Raises RecordError."""

    @abstractmethod
    def _at_once(self) -> AbstractContextManager[None]:
        """A transaction that lasts as long as the block; other transactions wait. Raises RecordError."""

    @abstractmethod
    def close(self) -> None:
        """Release the database, and the campaigns that the store holds. Safe to call twice."""

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Add everything from the block to the record at its end, and nothing if the block raises or is killed.

        Campaigns opened in the block are held only until its end, because another store's block may need them next.
        """
        self._briefly = []
        try:
            with self._at_once():
                yield
        finally:
            briefly, self._briefly = self._briefly, None
            for campaign in briefly:
                self._held.give_up(campaign)

    def open_campaign(self, campaign: Campaign) -> None:
        """Add the campaign unless it exists, and hold it; see `Store`."""
        row = rows.from_campaign(campaign)
        fresh = self._held.take(campaign.id)  # before it is in the record, where another store may find it
        if fresh and self._briefly is not None:
            self._briefly.append(campaign.id)
            fresh = False
        try:
            self._add(campaign, row)
        except BaseException:
            if fresh:
                self._held.give_up(campaign.id)
            raise

    def _add(self, campaign: Campaign, row: rows.Row) -> None:
        added = self._insert(
            f"INSERT INTO campaigns ({_names(row)}) VALUES ({_marks(row)}) ON CONFLICT (id) DO NOTHING",  # noqa: S608
            tuple(row.values()),
        )
        if not added and next(self.query(CampaignQuery(id=campaign.id))) != campaign:
            raise RecordError(
                f"the record holds another campaign with the id {campaign.id!r}",
                hint="Give the campaign a fresh id, such as uuid.uuid4().hex.",
            )

    def append(self, campaign: str, item: Run | Event) -> None:
        """Add a run or an event, which is safe when this returns; see `Store`."""
        table, row = ("runs", rows.from_run(item)) if isinstance(item, Run) else ("events", rows.from_event(item))
        added = self._insert(
            f"INSERT INTO {table} (campaign, {_names(row)})"  # noqa: S608
            f" SELECT seq, {_marks(row)} FROM campaigns WHERE id = ?",
            (*row.values(), campaign),
        )
        if not added:
            raise self._no_campaign(campaign)

    def query(self, query: Query[T]) -> Iterator[T]:
        """The answer to the query, lazily; see `Store`."""
        items: Iterator[Any]
        if isinstance(query, CampaignQuery):
            wanted: rows.Row = {
                "id = ?": query.id,
                "key = ?": query.key,
                "kind = ?": query.kind,
                "model_digest = ?": query.model_digest,
                _IS_FINISHED: None if query.finished is None else int(query.finished),
                _IS_OF_CELL: None if query.cell is None else dumps(query.cell),
            }
            items = self._pages("campaigns", rows.CAMPAIGN_COLUMNS, wanted, rows.to_campaign, newest_first=True)
            held = query.held
            return items if held is None else (c for c in items if self._held.by_another(c.id) is held)
        assert isinstance(query, RunQuery | EventQuery | TallyQuery)  # noqa: S101  # there are no others
        matches = self._rows("SELECT seq FROM campaigns WHERE id = ?", (query.campaign,))
        if not matches:
            raise self._no_campaign(query.campaign)
        seq = int(matches[0][0])
        if isinstance(query, RunQuery):
            wanted = {"campaign = ?": seq, "candidate = ?": query.candidate}
            items = self._pages("runs", rows.RUN_COLUMNS, wanted, rows.to_run)
        elif isinstance(query, EventQuery):
            wanted = {"campaign = ?": seq, "name = ?": query.name}
            items = self._pages("events", rows.EVENT_COLUMNS, wanted, rows.to_event)
        else:
            counted = self._rows(
                "SELECT candidate, count(*), count(failure) FROM runs WHERE campaign = ?"
                " GROUP BY candidate ORDER BY min(seq)",
                (seq,),
            )
            items = (Tally(candidate=name, runs=runs, failures=failures) for name, runs, failures in counted)
        return items

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _no_campaign(self, campaign: str) -> RecordError:
        newest = [c.id for _, c in zip(range(3), self.query(CampaignQuery()), strict=False)]
        hint = f"The newest are: {', '.join(newest)}." if newest else "The record is empty: measure something first."
        return RecordError(f"{self.address} has no campaign {campaign!r}", hint=hint)

    def _pages(
        self,
        table: str,
        columns: tuple[str, ...],
        wanted: rows.Row,
        build: Callable[[tuple[Any, ...]], T],
        newest_first: bool = False,
    ) -> Iterator[T]:
        """Read items in pages by sequence number, so that no read transaction stays open between items."""
        given = {clause: value for clause, value in wanted.items() if value is not None}
        clauses = " AND ".join((*given, "t.seq < ?" if newest_first else "t.seq > ?"))
        statement = (
            f"SELECT t.seq, {_names(columns)} FROM {table} t WHERE {clauses}"  # noqa: S608
            f" ORDER BY t.seq {'DESC' if newest_first else 'ASC'} LIMIT {_PAGE_ROWS}"
        )
        last = 2**62 if newest_first else 0
        while True:
            page = self._rows(statement, (*given.values(), last))
            for row in page:
                yield build(row[1:])
            if len(page) < _PAGE_ROWS:
                return
            last = page[-1][0]


@contextmanager
def closed_on_error(db: Any) -> Iterator[None]:
    """Close a connection if the block raises; otherwise it stays open."""
    try:
        yield
    except BaseException:
        db.close()
        raise


def _names(columns: Iterable[str]) -> str:
    """The quoted names of columns, because `inner` is a keyword of SQL."""
    return ", ".join(f'"{column}"' for column in columns)


def _marks(row: rows.Row) -> str:
    return ", ".join("?" * len(row))
