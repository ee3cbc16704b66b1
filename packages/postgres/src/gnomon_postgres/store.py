"""The record in a database of a PostgreSQL server, which many hosts add to at once."""

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
"""A connection whose other end vanished is given up after a minute: its campaigns are free again."""
_PATIENCE_S = 20.0
"""What a killed process held is free once the server has seen that its connection ended."""
_MOMENT_S = 2.0
"""Who joins records holds a campaign for a moment after others see what came of it."""
_ASKED_AGAIN_S = 0.01

_VALUES = "Integers have 64 bits and texts are Unicode without NUL."
_HINTS = {
    "08": "See that the server runs and can be reached, then start again: what was recorded is kept and resumed.",
    "22": _VALUES,
    "23": "Another gnomon writes to the same campaign: end one of them, then start again.",
    "25006": "The server takes no writes now (a standby, or one without space): give it some, then start again.",
    "28": "Put the password into ~/.pgpass (or the file that PGPASSFILE names), which only you can read.",
    "3D": "Make the database first, by: createdb NAME",
    "42501": "The role needs the rights that docs/record.md grants to who appends.",
    "53100": "Free space on the server and start again: what was recorded is kept and resumed.",
    "57": "See why the server ended the connection, then start again: what was recorded is kept and resumed.",
}
"""By the beginning of the SQLSTATE."""
_OTHER = (
    "See the address (postgresql://USER@HOST:PORT/DATABASE) and the server's log; what was recorded before is kept."
)
_SAID = {"password": "28", 'FATAL: database "': "3D", 'FATAL:  database "': "3D"}
"""What a server says that lets nobody in, of which the client library keeps no SQLSTATE."""


class PostgresStore(SqlStore):
    """A `Store` in a PostgreSQL database. Make it by `open`.

    An append whose connection broke while it was confirmed raises, though the server may have kept it; a visit that
    was kept is found when the campaign is resumed, and refused a second time.
    """

    def __init__(self, db: Any, address: DatabaseAddress, *, empty: bool = False) -> None:
        self._db, self._empty = db, empty
        super().__init__(address, _HeldInServer(db, address))

    @classmethod
    def open(cls, address: DatabaseAddress) -> Self:
        """Open the record of that database, and make it if there is none.

        RecordError if it is a newer gnomon's, or one that has to be made or brought up to date where the role may not.
        """
        db = _connected(address)
        with closed_on_error(db), _translated(address):
            _bring_up_to_date(db, address)
            db.execute("SET search_path TO gnomon")
        return cls(db, address)

    @classmethod
    def read(cls, address: DatabaseAddress) -> Self:
        """Open the record of that database to look at it; a database without one is an empty record.

        RecordError as from `open`.
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
        """End the connection, and with it what the store holds. Safe to call twice."""
        self._db.close()

    def _rows(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with _translated(self.address):
            if self._empty and not self._db.closed:
                return []
            found: list[tuple[Any, ...]] = self._db.execute(statement.replace("?", "%s"), values).fetchall()
        return found

    def _insert(self, statement: str, values: Sequence[Any]) -> int:
        with _translated(self.address):
            return int(self._db.execute(statement.replace("?", "%s"), values).rowcount)

    @contextmanager
    def _at_once(self) -> Iterator[None]:
        """A transaction; others wait at their own such."""
        with _translated(self.address), self._db.transaction():
            self._db.execute("SELECT pg_advisory_xact_lock(%s)", (_number("all at once"),))
            yield


class _HeldInServer:
    """The campaigns that one connection holds, each by an advisory lock, which ends with the connection."""

    def __init__(self, db: Any, address: DatabaseAddress) -> None:
        self._db, self._address = db, address
        self._own: set[str] = set()

    def take(self, campaign: str) -> bool:
        """Hold the campaign; returns whether that is new. RecordError if another store holds it."""
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
        """Whether another open store, of any host, holds the campaign."""
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
        """Hold the campaign no more."""
        self._own.discard(campaign)
        with suppress(RecordError), _translated(self._address):
            self._db.execute("SELECT pg_advisory_unlock(%s)", (_number(campaign),))


def _number(campaign: str) -> int:
    """What stands for a campaign among the locks of its database."""
    digest = hashlib.sha256(b"gnomon campaign " + campaign.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _was_killed_here(name: str) -> bool:
    """Whether a connection is of a process of this machine that lives no more."""
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
            # The server shows at most 63 bytes of it: see `_was_killed_here`.
            application_name=f"gnomon {os.getpid()} {socket.gethostname()[:40]}",
            keepalives_idle=_IDLE_S,
            keepalives_interval=_ASKED_EACH_S,
            keepalives_count=_UNANSWERED,
        )
        with closed_on_error(db):
            db.execute(f"SET tcp_keepalives_idle TO {_IDLE_S}")
            db.execute(f"SET tcp_keepalives_interval TO {_ASKED_EACH_S}")
            db.execute(f"SET tcp_keepalives_count TO {_UNANSWERED}")
            db.execute("SET synchronous_commit TO on")  # whatever the server's own choice: what returned is safe
    return db


def _bring_up_to_date(db: Any, address: DatabaseAddress) -> None:
    """Make the tables, or apply the steps that an older record lacks, in one transaction."""
    if (version := _version(db, address)) == len(STEPS):
        return
    if version and not db.execute("SELECT has_schema_privilege('gnomon', 'CREATE')").fetchone()[0]:
        raise _too_old(address, version)
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(%s)", (_number("the schema"),))
        # Another process may have done it while this one waited for the lock.
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
    """How many steps the record has had; 0 where there is none."""
    if db.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'gnomon'").fetchone() is None:
        return 0
    if db.execute("SELECT to_regclass('gnomon.steps')").fetchone()[0] is None:
        raise RecordError(
            f"{address} has a schema named gnomon that is another program's",
            hint="Give another database; this one was not touched.",
        )
    (version,) = db.execute("SELECT coalesce(max(step), 0) FROM gnomon.steps").fetchone()
    if version > len(STEPS):
        raise RecordError(
            f"{address} was written by a newer gnomon: schema {version}, this one knows up to {len(STEPS)}",
            hint="Upgrade gnomon, or give another database; this one was not touched.",
        )
    return int(version)


def _too_old(address: DatabaseAddress, version: int) -> RecordError:
    return RecordError(
        f"{address} is an older gnomon's: schema {version}, this one needs {len(STEPS)}",
        hint="Open it once as the role that owns it, then give the rights of docs/record.md again.",
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
        told = " ".join(str(error).split()) or type(error).__name__
        raise RecordError(f"the record {address} failed: {told}", hint=(fit or [_OTHER])[0]) from error
    except (OverflowError, UnicodeError) as error:
        raise RecordError(
            f"the record {address} cannot hold a value: {error}",
            hint=_VALUES,
        ) from error
