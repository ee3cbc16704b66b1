"""Opens the record at an address with the right kind of store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gnomon.errors import RecordError
from gnomon.installing import package_line
from gnomon.plugins import loaded, named
from gnomon.store.address import DatabaseAddress, RecordAddress, default_record

if TYPE_CHECKING:
    from gnomon.store.sql import SqlStore

GROUP = "gnomon.stores"
"""The entry-point group for databases of servers: the text before "://" in an address names a `StoreKind`."""


class StoreKind(Protocol):
    """The class of a store for one kind of address."""

    def open(self, address: DatabaseAddress) -> SqlStore:
        """Open the record for additions; create it if missing. Raises RecordError."""

    def read(self, address: DatabaseAddress) -> SqlStore:
        """Open the record for reading; a missing record is empty. Raises RecordError."""


def open_store(record: RecordAddress | None) -> SqlStore:
    """Open the record for additions (None: the user's own); create it if missing. Raises RecordError."""
    from gnomon.store.sqlite import SqliteStore  # here and below: imported when a record is opened

    record = default_record() if record is None else record
    return SqliteStore.open(record) if isinstance(record, Path) else _kind(record).open(record)


def read_store(record: RecordAddress | None) -> SqlStore:
    """Open the record for reading (None: the user's own); a missing record is empty. Raises RecordError."""
    from gnomon.store.sqlite import SqliteStore

    record = default_record() if record is None else record
    return SqliteStore.read(record) if isinstance(record, Path) else _kind(record).read(record)


def _kind(address: DatabaseAddress) -> StoreKind:
    """The class that opens records with that kind of address. RecordError if no package provides it."""
    kinds = named(GROUP)
    if address.kind not in kinds:
        raise RecordError(
            f"no installed package supports results databases of the kind {address.kind!r}",
            hint=package_line(address.kind)
            or f"Known kinds: {', '.join(kinds) or 'none'}. Or give the path of a file.",
        )
    kind: StoreKind = loaded(kinds[address.kind], f"the kind of results database {address.kind!r}")
    return kind


def is_missing(record: RecordAddress) -> bool:
    """Return True if a record's file is missing; False if that cannot be checked, because opening the file then reports
    the reason.
    """
    try:
        return isinstance(record, Path) and not record.exists()
    except OSError:  # for example, a name that is too long
        return False
