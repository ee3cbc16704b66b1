"""The record in one SQLite file, written so that an acknowledged run survives everything except a failure of
the disk.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Self

from gnomon.errors import RecordError, system_errors
from gnomon.store import schema
from gnomon.store.address import default_path
from gnomon.store.sql import SqlStore, closed_on_error
from gnomon.system.locks import HeldCampaigns

_BUSY_TIMEOUT_S = 30.0
_MAGIC = b"SQLite format 3\0"
_UNWRITABLE = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL)
_HINTS = {
    sqlite3.SQLITE_CONSTRAINT_TRIGGER: "Another gnomon writes to the same campaign: end one of them, then start again.",
    sqlite3.SQLITE_FULL: "Free space on that disk and start again: what was recorded is kept and resumed.",
    sqlite3.SQLITE_IOERR: "Free space on that disk, allow larger files (ulimit -f) or check its health (dmesg).",
    sqlite3.SQLITE_BUSY: "Another process holds the record; wait for it or stop it, then start again.",
    sqlite3.SQLITE_READONLY: "Make the file and its directory writable, or set GNOMON_HOME to another directory.",
    sqlite3.SQLITE_CANTOPEN: "Make the directory writable, or set GNOMON_HOME to another directory.",
    sqlite3.SQLITE_CORRUPT: "Move the file aside (a new one is made), and recover its data: sqlite3 FILE .recover",
    sqlite3.SQLITE_NOTADB: "Give another path; this file was not touched.",
    sqlite3.SQLITE_MISUSE: "Open the record again; a store is used by one thread, until it is closed.",
}


class SqliteStore(SqlStore):
    """A `Store` in one SQLite file. Create it with `open`; used as a context manager, it closes itself."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db = db
        self.path = path
        self._locks = HeldCampaigns(path)
        super().__init__(path, self._locks)

    @classmethod
    def open(cls, path: Path | None = None) -> Self:
        """Open the record at `path` or `default_path()`, and create it if missing.

        RecordError, without changing the file, if it is not a record of this or an older gnomon, is damaged, or cannot
        be written.
        """
        path = default_path() if path is None else path
        with _opening(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        _refuse_no_file(path)
        with _translated(path):
            db = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
            with closed_on_error(db):
                db.execute("PRAGMA trusted_schema = OFF")
                db.execute("PRAGMA foreign_keys = ON")
                db.execute("PRAGMA synchronous = FULL")
                schema.bring_up_to_date(db, path)
                _use_write_ahead_log(db)
        return cls(db, path)

    @classmethod
    def read(cls, path: Path | None = None) -> Self:
        """Open the record for reading and write nothing; this works on a read-only or full medium too.

        A missing or empty file is an empty record; the record of an older gnomon is updated in memory. Raises
        RecordError like `open`.
        """
        path = default_path() if path is None else path
        _refuse_no_file(path)
        with _translated(path):
            if not path.exists() or path.stat().st_size == 0:
                db = sqlite3.connect(":memory:", isolation_level=None)
            else:
                db = _reader(path)
            with closed_on_error(db):
                db = schema.in_memory_if_old(db, path)
        return cls(db, path)

    def _rows(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with _translated(self.path):
            return self._db.execute(statement, values).fetchall()

    def _insert(self, statement: str, values: Sequence[Any]) -> int:
        with _translated(self.path):
            return self._db.execute(statement, values).rowcount

    @contextmanager
    def _at_once(self) -> Iterator[None]:
        """A transaction; other writers wait."""
        with _translated(self.path):
            self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            with _translated(self.path):
                self._db.execute("COMMIT")
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def close(self) -> None:
        """Release the file, and the campaigns that the store holds. Safe to call twice."""
        try:
            with _translated(self.path):
                self._db.close()
        finally:
            self._locks.give_up_all()


def _use_write_ahead_log(db: sqlite3.Connection) -> None:
    """Switch to a write-ahead log; try repeatedly, because SQLite refuses this immediately while another process opens
    the same file.
    """
    give_up_at_s = time.monotonic() + _BUSY_TIMEOUT_S
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > give_up_at_s:
                raise
            time.sleep(0.01)
        else:
            return


def _reader(path: Path) -> sqlite3.Connection:
    """A connection that only reads.

    Readers of a write-ahead log share a memory file next to the record. They create it if nobody else has the record
    open, and the last one to close removes it if it can write. If that file cannot be created, nobody else can be
    writing, and the record is read as an unchanging file.
    """
    uri = path.absolute().as_uri()
    db = sqlite3.connect(f"{uri}?mode=rw", uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
    try:
        db.execute("PRAGMA query_only = ON")
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        db.close()
        log = path.with_name(f"{path.name}-wal")
        if error.sqlite_errorcode & 0xFF not in _UNWRITABLE:
            raise
        if log.exists() and log.stat().st_size:
            raise RecordError(
                f"the record {path} cannot be read in a read-only folder: its last runs are in {log}",
                hint="Copy both files into a writable folder, and read the record there.",
            ) from error
        db = sqlite3.connect(f"{uri}?mode=ro&immutable=1", uri=True, isolation_level=None)
    except BaseException:
        db.close()
        raise
    return db


def _opening(path: Path) -> AbstractContextManager[None]:
    return system_errors(RecordError, f"the record {path} cannot be opened", hint=_HINTS[sqlite3.SQLITE_CANTOPEN])


def is_record(path: Path) -> bool:
    """Return True if the file at a path is an SQLite database; False for a missing file. RecordError if it cannot be
    read.

    Do not call this for a record that this process has open: see `_refuse_no_file`.
    """
    _refuse_no_file(path)
    with _opening(path):
        try:
            with path.open("rb") as file:
                return file.read(len(_MAGIC)) == _MAGIC
        except FileNotFoundError:
            return False


def _refuse_no_file(path: Path) -> None:
    """Raise RecordError if the path exists and is not a file.

    The path is checked without opening the file: when a process closes a file, it loses all its locks on the file,
    including those of SQLite's connections in other threads. Another process would then consider itself the last one
    with the record open, and would remove its write-ahead log.
    """
    with _opening(path):
        if path.exists() and not path.is_file():
            raise RecordError(f"{path} is not a file", hint="Give the path of a file, or set GNOMON_HOME.")


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        misuse = isinstance(error, sqlite3.ProgrammingError)
        code = sqlite3.SQLITE_MISUSE if misuse else getattr(error, "sqlite_errorcode", 0)
        hint = _HINTS.get(code) or _HINTS.get(code & 0xFF, "Move the file aside (a new one is made) and report this.")
        said = (
            f"{path} is not a record of gnomon"
            if code == sqlite3.SQLITE_NOTADB
            else f"the record {path} failed: {error}"
        )
        raise RecordError(said, hint=hint) from error
    except UnicodeDecodeError as error:
        raise RecordError(
            f"the record {path} is damaged: {error}", hint="Move the file aside (a new one is made) and report this."
        ) from error
    except (OverflowError, UnicodeEncodeError) as error:
        raise RecordError(
            f"the record {path} cannot hold a value: {error}", hint="Integers have 64 bits and texts are Unicode."
        ) from error
