"""The address of a record: an SQLite file, or a server's database, for which another package provides the store."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import overload
from urllib.parse import parse_qsl, urlsplit

from gnomon.errors import RecordError

_SERVER = re.compile(r"(?P<kind>[a-z][a-z0-9+.-]*)://")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseAddress:
    """The address of a server's database, such as `postgresql://USER@HOST:PORT/DATABASE`; it never contains a
    password.
    """

    url: str

    @property
    def kind(self) -> str:
        """The kind of database: the text before "://"."""
        return self.url.partition(":")[0]

    def __str__(self) -> str:
        return self.url


RecordAddress = Path | DatabaseAddress
"""The address of a record."""


RecordLike = str | os.PathLike[str] | DatabaseAddress
"""The types that a caller may use to name a record."""


def default_path() -> Path:
    """The file record.sqlite in the user's folder."""
    from gnomon.system.files import user_folder  # imported here: help needs addresses but no files

    return user_folder() / "record.sqlite"


def whole(record: RecordAddress) -> RecordAddress:
    """The address of a record, made independent of the current folder and of links."""
    return record.resolve() if isinstance(record, Path) else record


@overload
def record_address(text: None) -> None: ...
@overload
def record_address(text: RecordLike) -> RecordAddress: ...
def record_address(text: RecordLike | None) -> RecordAddress | None:
    """The record that `--record` or `GNOMON_RECORD` names, either `KIND://..` or the path of a file; None stays None.

    RecordError for an address that cannot be read, or for one with a password, because lists of processes would show
    it.
    """
    if text is None or isinstance(text, DatabaseAddress):
        return text
    address = os.fspath(text)
    server = _SERVER.match(address)
    if server is None:
        return Path(address)
    try:
        # For libpq, the user's part ends at the last "@", whatever comes before: "u:p?w@host" has a password.
        secret = ":" in address.partition("://")[2].rpartition("@")[0]
        secret |= any("password" in key for key, _ in parse_qsl(urlsplit(address).query))
        if "#" in address:
            raise ValueError("libpq knows no fragments, and would read on")
    except ValueError:
        # The address is not repeated in the message, because it may contain a password.
        raise RecordError(
            "the address of the database cannot be read", hint=f"Give {server['kind']}://USER@HOST:PORT/DATABASE."
        ) from None
    if secret:
        raise RecordError(
            "the address of the database holds a password",
            hint="Leave it out: PostgreSQL clients read passwords from ~/.pgpass, or the file that PGPASSFILE names.",
        )
    return DatabaseAddress(url=address)


def default_record() -> RecordAddress:
    """The user's own record: the one that `GNOMON_RECORD` names, or else the file at `default_path()`."""
    text = os.environ.get("GNOMON_RECORD")
    if not text:
        return default_path()
    record = record_address(text)
    return record.absolute() if isinstance(record, Path) else record
