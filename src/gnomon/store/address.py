"""Where a record is: a file of SQLite, or a database of a server, which a package adds the store of."""

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
    """A database of a server, as `postgresql://USER@HOST:PORT/DATABASE`; it never holds a password."""

    url: str

    @property
    def kind(self) -> str:
        """The text before "://"."""
        return self.url.partition(":")[0]

    def __str__(self) -> str:
        return self.url


RecordAddress = Path | DatabaseAddress
"""Where a record is."""


RecordLike = str | os.PathLike[str] | DatabaseAddress
"""A record as a caller names it."""


def default_path() -> Path:
    """The file record.sqlite in the user's folder."""
    from gnomon.system.files import user_folder  # here: help knows addresses, and reads no files

    return user_folder() / "record.sqlite"


def whole(record: RecordAddress) -> RecordAddress:
    """The record as it is named in every folder, by whichever link it is reached."""
    return record.resolve() if isinstance(record, Path) else record


@overload
def record_address(text: None) -> None: ...
@overload
def record_address(text: RecordLike) -> RecordAddress: ...
def record_address(text: RecordLike | None) -> RecordAddress | None:
    """The record that `--record` or `GNOMON_RECORD` names: `KIND://..`, or the path of a file; None stays None.

    RecordError for an address with a password, which every list of processes would show, or one that cannot be read.
    """
    if text is None or isinstance(text, DatabaseAddress):
        return text
    address = os.fspath(text)
    server = _SERVER.match(address)
    if server is None:
        return Path(address)
    try:
        # libpq ends the user's part at the last "@", whatever stands before that: "u:p?w@host" has a password.
        secret = ":" in address.partition("://")[2].rpartition("@")[0]
        secret |= any("password" in key for key, _ in parse_qsl(urlsplit(address).query))
        if "#" in address:
            raise ValueError("libpq knows no fragments, and would read on")
    except ValueError:
        # Not told again: what cannot be read may hold a password.
        raise RecordError(
            "the address of the database cannot be read", hint=f"Give {server['kind']}://USER@HOST:PORT/DATABASE."
        ) from None
    if secret:
        raise RecordError(
            "the address of the database holds a password",
            hint="Leave it out: a PostgreSQL client reads it from ~/.pgpass, or the file that PGPASSFILE names.",
        )
    return DatabaseAddress(url=address)


def default_record() -> RecordAddress:
    """The user's own record: what `GNOMON_RECORD` names, else the file `default_path()`."""
    text = os.environ.get("GNOMON_RECORD")
    if not text:
        return default_path()
    record = record_address(text)
    return record.absolute() if isinstance(record, Path) else record
