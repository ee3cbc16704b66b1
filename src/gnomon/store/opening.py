"""Open the record that an address names, by the store that it needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.store.address import PostgresAddress, RecordAddress, default_record

if TYPE_CHECKING:
    from gnomon.store.postgres import PostgresStore
    from gnomon.store.sqlite import SqliteStore


def open_store(record: RecordAddress | None) -> SqliteStore | PostgresStore:
    """The record opened to be added to, and made if there is none; None: the user's own. RecordError."""
    record = default_record() if record is None else record
    return _postgres().open(record) if isinstance(record, PostgresAddress) else _sqlite().open(record)


def read_store(record: RecordAddress | None) -> SqliteStore | PostgresStore:
    """The record opened to be looked at; one that is not there is empty; None: the user's own. RecordError."""
    record = default_record() if record is None else record
    return _postgres().read(record) if isinstance(record, PostgresAddress) else _sqlite().read(record)


def _postgres() -> type[PostgresStore]:
    """Imported where a record is on a server."""
    from gnomon.store.postgres import PostgresStore

    return PostgresStore


def _sqlite() -> type[SqliteStore]:
    """Imported where a record is opened."""
    from gnomon.store.sqlite import SqliteStore

    return SqliteStore


def is_missing(record: RecordAddress) -> bool:
    """Whether a file that was named is not there; of one that cannot be looked for, opening it tells why."""
    try:
        return isinstance(record, Path) and not record.exists()
    except OSError:  # such as a name that is too long
        return False
