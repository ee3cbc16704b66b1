"""Open the record that an address names, by the store that it needs."""

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
"""The entry-point group of databases of servers: what stands before an address's "://" names a `StoreKind`."""


class StoreKind(Protocol):
    """The class of a store whose records are of one kind of address."""

    def open(self, address: DatabaseAddress) -> SqlStore:
        """The record opened to be added to, and created if missing. RecordError."""

    def read(self, address: DatabaseAddress) -> SqlStore:
        """The record opened to be looked at; one that is not there is empty. RecordError."""


def open_store(record: RecordAddress | None) -> SqlStore:
    """The record opened to be added to, and created if missing; None: the user's own. RecordError."""
    from gnomon.store.sqlite import SqliteStore  # here and below: imported where a record is opened

    record = default_record() if record is None else record
    return SqliteStore.open(record) if isinstance(record, Path) else _kind(record).open(record)


def read_store(record: RecordAddress | None) -> SqlStore:
    """The record opened to be looked at; one that is not there is empty; None: the user's own. RecordError."""
    from gnomon.store.sqlite import SqliteStore

    record = default_record() if record is None else record
    return SqliteStore.read(record) if isinstance(record, Path) else _kind(record).read(record)


def _kind(address: DatabaseAddress) -> StoreKind:
    """The class that opens records of that kind of address. RecordError where no package adds it."""
    kinds = named(GROUP)
    if address.kind not in kinds:
        raise RecordError(
            f"no installed package knows results databases of the kind {address.kind!r}",
            hint=package_line(address.kind)
            or f"Known kinds: {', '.join(kinds) or 'none'}. Or give the path of a file.",
        )
    kind: StoreKind = loaded(kinds[address.kind], f"the kind of results database {address.kind!r}")
    return kind


def is_missing(record: RecordAddress) -> bool:
    """Whether a file that was named is not there; of one that cannot be looked for, opening it tells why."""
    try:
        return isinstance(record, Path) and not record.exists()
    except OSError:  # such as a name that is too long
        return False
