"""The record in a PostgreSQL database, to which many hosts may add at the same time."""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Self

from gnomon.errors import RecordError
from gnomon.installing import needed
from gnomon.store.address import DatabaseAddress
from gnomon.store.sql import SqlStore, closed_on_error
from gnomon.system.locks import held_elsewhere, is_alive
from gnomon_postgres.schema import STEPS

_CONNECT_S = 10
_IDLE_S, _ASKED_EACH_S, _UNANSWERED = 30, 10, 3
"""A connection whose other end has vanished is closed after a minute, which releases its campaigns."""
_PATIENCE_S = 20.0
"""The time to wait for the server to notice that the connection of a killed process has ended."""
_MOMENT_S = 2.0
"""The time to wait for a process that joins records: it holds a campaign for a moment after its result is visible."""
_ASKED_AGAIN_S = 0.01

_VALUES = "Integers have 64 bits and texts are Unicode without NUL."
_HINTS = {
    "08": "Check that the server runs and can be reached, then start again: what was recorded is kept and resumed.",
    "22": _VALUES,
    "23": "Another gnomon writes to the same campaign: end one of them, then start again.",
    "25006": "The server accepts no writes (standby or full disk): use the primary or free space, and start again.",
    "28": "Put the password into ~/.pgpass (or the file that PGPASSFILE names), readable only by you.",
    "3D": "Create the database first: createdb NAME",
    "42501": "Grant the role the rights for appending in docs/record.md.",
    "53100": "Free space on the server and start again: what was recorded is kept and resumed.",
    "57": "Find out why the server ended the connection, then start again: what was recorded is kept and resumed.",
}
"""The hint about what to do next, by the beginning of the SQLSTATE."""
_OTHER = "Check the address (postgresql://USER@HOST:PORT/DATABASE) and the server's log; what was recorded is kept."
_SAID = {"password": "28", 'FATAL: database "': "3D", 'FATAL:  database "': "3D"}
"""The SQLSTATE, by words of the message, if a server refuses the connection: the client library does not report it
then.
"""


class PostgresStore(SqlStore):
    """A `Store` in a PostgreSQL database. Create it with `open`.

    If the connection breaks while an append is confirmed, the append raises, although the server may have stored the
    item. A visit that was stored in this way is known when the campaign is resumed, and is refused a second time.
    """

    def __init__(self, db: Any, address: DatabaseAddress, *, empty: bool = False) -> None:
        self._db, self._empty = db, empty
        super().__init__(address, _HeldInServer(db, address))

    @classmethod
    def open(cls, address: DatabaseAddress) -> Self:
        """Open the record in a database, and create it if it is missing.

        RecordError if a newer gnomon wrote the record, or if it has to be created or updated and the role may not.
        """
        db = _connected(address)
        with closed_on_error(db), _translated(address):
            _bring_up_to_date(db, address)
            db.execute("SET search_path TO gnomon")
        return cls(db, address)

    @classmethod
    def read(cls, address: DatabaseAddress) -> Self:
        """Open the record in a database for reading; a database without a record is an empty record.

        Raises RecordError as `open` does.
        """
        db = _connected(address)
        with closed_on_error(db), _translated(address):
            db.execute("SET default_transaction_read_only TO on")
            version = _version(db, address)
            if 0 < version < len(STEPS):
                raise _too_old(address, version)
            db.execute("SET search_path TO gnomon")
        return cls(db, address, empty=version == 0)

    def close(self) -> None:
        """End the connection, which releases the campaigns that the store holds. Safe to call twice."""
        self._db.close()

    def _rows(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with _translated(self.address):
            if self._empty and not self._db.closed:
                return []
            fetched: list[tuple[Any, ...]] = self._db.execute(statement.replace("?", "%s"), values).fetchall()
        return fetched

    def _insert(self, statement: str, values: Sequence[Any]) -> int:
        with _translated(self.address):
            return int(self._db.execute(statement.replace("?", "%s"), values).rowcount)

    @contextmanager
    def _at_once(self) -> Iterator[None]:
        """A transaction; other stores that start one in this way wait until it ends."""
        with _translated(self.address), self._db.transaction():
            self._db.execute("SELECT pg_advisory_xact_lock(%s)", (_number("all at once"),))
            yield


class _HeldInServer:
    """The campaigns that a connection holds, each by an advisory lock that ends with the connection."""

    def __init__(self, db: Any, address: DatabaseAddress) -> None:
        self._db, self._address = db, address
        self._own: set[str] = set()

    def take(self, campaign: str) -> bool:
        """Hold the campaign; return whether it was not held before. RecordError if another store holds it."""
        if campaign in self._own:
            return False
        deadline = time.monotonic() + _MOMENT_S
        with _translated(self._address):
            while not self._db.execute("SELECT pg_try_advisory_lock(%s)", (_number(campaign),)).fetchone()[0]:
                if self.by_another(campaign) and time.monotonic() > deadline:
                    raise held_elsewhere(campaign)
                time.sleep(_ASKED_AGAIN_S)
        self._own.add(campaign)
        return True

    def by_another(self, campaign: str) -> bool:
        """Whether another open store, on any host, holds the campaign."""
        high, low = divmod(_number(campaign) % 2**64, 2**32)
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            with _translated(self._address):
                holder = self._db.execute(
                    "SELECT a.application_name FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid"
                    " WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.pid <> pg_backend_pid()"
                    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
                    " AND l.classid::bigint = %s AND l.objid::bigint = %s",
                    (high, low),
                ).fetchone()
            if holder is None:
                return False
            if not _was_killed_here(holder[0] or "") or time.monotonic() > deadline:
                return True
            time.sleep(_ASKED_AGAIN_S)

    def give_up(self, campaign: str) -> None:
        """Release the campaign."""
        self._own.discard(campaign)
        with suppress(RecordError), _translated(self._address):
            self._db.execute("SELECT pg_advisory_unlock(%s)", (_number(campaign),))


def _number(campaign: str) -> int:
    """The number that represents a campaign among the locks of its database."""
    digest = hashlib.sha256(b"gnomon campaign " + campaign.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _was_killed_here(name: str) -> bool:
    """Whether a connection belongs to a process of this machine that has ended."""
    words = name.split(" ")
    ours = len(words) == 3 and words[0] == "gnomon" and words[2] == socket.gethostname()[:40]
    return ours and not is_alive(words[1].encode())


def _connected(address: DatabaseAddress) -> Any:
    """A connection in which each statement is a transaction."""
    with needed("a record in PostgreSQL needs psycopg, which cannot be loaded", "psycopg[binary]"):
        import psycopg
    with _translated(address):
        db = psycopg.connect(
            address.url,
            autocommit=True,
            connect_timeout=_CONNECT_S,
            # The server shows at most 63 bytes of this name; see `_was_killed_here`.
            application_name=f"gnomon {os.getpid()} {socket.gethostname()[:40]}",
            keepalives_idle=_IDLE_S,
            keepalives_interval=_ASKED_EACH_S,
            keepalives_count=_UNANSWERED,
        )
        with closed_on_error(db):
            db.execute(f"SET tcp_keepalives_idle TO {_IDLE_S}")
            db.execute(f"SET tcp_keepalives_interval TO {_ASKED_EACH_S}")
            db.execute(f"SET tcp_keepalives_count TO {_UNANSWERED}")
            db.execute(
                "SET synchronous_commit TO on"
            )  # whatever the server's setting, so that an append that has returned is safe
    return db


def _bring_up_to_date(db: Any, address: DatabaseAddress) -> None:
    """Create the tables, or apply the steps that an older record lacks, in one transaction."""
    if (version := _version(db, address)) == len(STEPS):
        return
    if version and not db.execute("SELECT has_schema_privilege('gnomon', 'CREATE')").fetchone()[0]:
        raise _too_old(address, version)
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(%s)", (_number("the schema"),))
        # Another process may have done this while this one waited for the lock.
        version = _version(db, address)
        if not version:
            db.execute("CREATE SCHEMA gnomon")
        db.execute("SET LOCAL search_path TO gnomon")
        if not version:
            db.execute("CREATE TABLE steps (step INTEGER PRIMARY KEY, done_at TIMESTAMPTZ NOT NULL DEFAULT now())")
        for number, step in enumerate(STEPS[version:], version + 1):
            for statement in step:
                db.execute(statement)
            db.execute("INSERT INTO steps (step) VALUES (%s)", (number,))


def _version(db: Any, address: DatabaseAddress) -> int:
    """The number of steps that have been applied to the record; 0 if there is no record."""
    if db.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'gnomon'").fetchone() is None:
        return 0
    if db.execute("SELECT to_regclass('gnomon.steps')").fetchone()[0] is None:
        raise RecordError(
            f"{address} has a schema named gnomon that belongs to another program",
            hint="Give another database; gnomon changed nothing in this one.",
        )
    (version,) = db.execute("SELECT coalesce(max(step), 0) FROM gnomon.steps").fetchone()
    if version > len(STEPS):
        raise RecordError(
            f"{address} was written by a newer gnomon: schema {version}, this gnomon knows up to {len(STEPS)}",
            hint="Upgrade gnomon, or give another database; gnomon changed nothing in this one.",
        )
    return int(version)


def _too_old(address: DatabaseAddress, version: int) -> RecordError:
    return RecordError(
        f"{address} was written by an older gnomon: schema {version}, this gnomon needs {len(STEPS)}",
        hint="Open the record once as the role that owns it, then grant the rights in docs/record.md again.",
    )


@contextmanager
def _translated(address: Any) -> Iterator[None]:
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        kinds = {psycopg.OperationalError: "08", psycopg.DataError: "22"}
        guessed = next((state for kind, state in kinds.items() if isinstance(error, kind)), "")
        state = error.sqlstate or next((state for words, state in _SAID.items() if words in str(error)), guessed)
        fit = [hint for begin, hint in _HINTS.items() if state.startswith(begin)]
        message = " ".join(str(error).split()) or type(error).__name__
        raise RecordError(f"the record {address} failed: {message}", hint=(fit or [_OTHER])[0]) from error
    except (OverflowError, UnicodeError) as error:
        raise RecordError(
            f"the record {address} cannot hold a value: {error}",
            hint=_VALUES,
        ) from error
