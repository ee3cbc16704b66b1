"""Open the record that an address names, by the store that it needs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.store.address import PostgresAddress, RecordAddress, record_address
from gnomon.store.sqlite import SqliteStore, default_path

if TYPE_CHECKING:
    from gnomon.store.postgres import PostgresStore


def default_record() -> RecordAddress:
    """The user's own record: what `GNOMON_RECORD` names, else the file `default_path()`."""
    told = os.environ.get("GNOMON_RECORD")
    if not told:
        return default_path()
    found = record_address(told)
    return found.absolute() if isinstance(found, Path) else found


def open_store(record: RecordAddress | None) -> SqliteStore | PostgresStore:
    """The record opened to be added to, and made if there is none; None: the user's own. RecordError."""
    record = default_record() if record is None else record
    return _postgres().open(record) if isinstance(record, PostgresAddress) else SqliteStore.open(record)


def read_store(record: RecordAddress | None) -> SqliteStore | PostgresStore:
    """The record opened to be looked at; one that is not there is empty; None: the user's own. RecordError."""
    record = default_record() if record is None else record
    return _postgres().read(record) if isinstance(record, PostgresAddress) else SqliteStore.read(record)


def _postgres() -> type[PostgresStore]:
    """Imported where a record is on a server."""
    from gnomon.store.postgres import PostgresStore

    return PostgresStore


def is_missing(record: RecordAddress) -> bool:
    """Whether a file that was named is not there; of one that cannot be looked for, opening it tells why."""
    try:
        return isinstance(record, Path) and not record.exists()
    except OSError:  # such as a name that is too long
        return False
