"""The tables of the SQLite record, and the steps that bring an older record up to date.

`PRAGMA application_id` marks the file as gnomon's and `PRAGMA user_version` counts the steps applied. A step is never
edited once it has been released: each change of the schema is a new step. docs/record.md describes the tables.
"""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

from gnomon.errors import RecordError

TABLES = ("campaigns", "runs", "events")
APPLICATION_ID = 0x676E6D6E
"""The letters "gnmn" in the header of the file."""

_TABLES = """
CREATE TABLE campaigns (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    started_at_s REAL NOT NULL,
    gnomon_version TEXT NOT NULL,
    model_name TEXT NOT NULL,
    model_digest TEXT NOT NULL,
    seed INTEGER NOT NULL,
    device TEXT NOT NULL,
    versions TEXT NOT NULL,
    options TEXT NOT NULL
);
CREATE INDEX campaigns_by_key ON campaigns (key);
CREATE TABLE runs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    campaign INTEGER NOT NULL REFERENCES campaigns (seq),
    candidate TEXT NOT NULL,
    process INTEGER NOT NULL,
    block INTEGER NOT NULL,
    started_at_s REAL NOT NULL,
    profiled INTEGER NOT NULL CHECK (profiled IN (0, 1)),
    inner INTEGER,
    wall_ns TEXT,
    cpu_ns TEXT,
    failure TEXT,
    operators TEXT NOT NULL,
    facts TEXT NOT NULL,
    CHECK ((wall_ns IS NULL) <> (failure IS NULL))
);
CREATE INDEX runs_by_campaign ON runs (campaign);
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    campaign INTEGER NOT NULL REFERENCES campaigns (seq),
    name TEXT NOT NULL,
    at_s REAL NOT NULL,
    data TEXT NOT NULL
);
CREATE INDEX events_by_campaign ON events (campaign, name)
"""

_REFUSE = """
CREATE TRIGGER {table}_no_{verb} BEFORE {verb} ON {table}
BEGIN SELECT RAISE(ABORT, 'the record is append-only'); END
"""

_VIEWS = """
CREATE INDEX runs_by_candidate ON runs (campaign, candidate);
DROP INDEX runs_by_campaign;
CREATE VIEW samples AS
SELECT campaigns.id AS campaign, candidate, process, block, profiled, wall.key AS sample,
    wall.value * 1e-9 / inner AS wall_s,
    json_extract(cpu_ns, '$[' || wall.key || ']') * 1e-9 / inner AS cpu_s
FROM runs JOIN campaigns ON campaigns.seq = runs.campaign, json_each(wall_ns) AS wall
"""

_VISITS = """
CREATE INDEX runs_by_visit ON runs (campaign, candidate, process, block);
DROP INDEX runs_by_candidate
"""

# A trigger instead of a unique index, so that duplicates in an older record stay readable.
_ONCE = """
CREATE TRIGGER runs_once BEFORE INSERT ON runs WHEN NEW.failure IS NULL AND EXISTS (
    SELECT 1 FROM runs WHERE campaign = NEW.campaign AND candidate = NEW.candidate AND process = NEW.process
    AND block = NEW.block AND profiled = NEW.profiled AND failure IS NULL
)
BEGIN SELECT RAISE(ABORT, 'the campaign has samples of this visit already'); END
"""

STEPS: tuple[tuple[str, ...], ...] = (
    (
        *_TABLES.split(";"),
        *(_REFUSE.format(table=table, verb=verb) for table in TABLES for verb in ("UPDATE", "DELETE")),
    ),
    tuple(_VIEWS.split(";")),
    (*_VISITS.split(";"), _ONCE),
    # Only these events are searched by their data.
    ("CREATE INDEX events_by_cell ON events (data) WHERE name = 'cell'",),
)
"""The statements of each version: STEPS[:v] have been applied to a record of version v."""

_NO_TRIGGER = re.compile(r"CREATE (UNIQUE )?(TABLE|VIEW|INDEX)\b", re.IGNORECASE)
_TRIGGERS = frozenset(" ".join(text.split()) for step in STEPS for text in step if "TRIGGER" in text)


def bring_up_to_date(db: sqlite3.Connection, path: Path) -> None:
    """Create the tables in an empty file, or apply the steps that an older record lacks, in one transaction.

    RecordError, without writing anything, if the file belongs to another program or a newer gnomon.
    """
    if _version(db, path) == len(STEPS):
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have done this while this one waited for the lock.
        for number, step in enumerate(STEPS[_version(db, path) :], _version(db, path) + 1):
            for statement in step:
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {number}")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def in_memory_if_old(db: sqlite3.Connection, path: Path) -> sqlite3.Connection:
    """The connection or, for an older record, a connection to an updated copy in memory."""
    if _version(db, path) == len(STEPS):
        return db
    copy = sqlite3.connect(":memory:", isolation_level=None)
    db.backup(copy)
    db.close()
    bring_up_to_date(copy, path)
    return copy


def _version(db: sqlite3.Connection, path: Path) -> int:
    # In one statement: between two statements, another process might create the tables, and the file would look
    # foreign.
    objects, mark, version = db.execute(
        "SELECT (SELECT count(*) FROM sqlite_master), application_id, user_version "
        "FROM pragma_application_id, pragma_user_version"
    ).fetchone()
    if mark == 0 and version == 0 and objects == 0:
        return 0
    if mark != APPLICATION_ID:
        raise RecordError(
            f"{path} is an SQLite file of another program", hint="Give another path; this file was not touched."
        )
    if version > len(STEPS):
        raise RecordError(
            f"{path} was written by a newer gnomon: schema {version}, this gnomon knows up to {len(STEPS)}",
            hint="Upgrade gnomon, or give another path; this file was not touched.",
        )
    if not _is_plain(db):
        raise RecordError(
            f"{path} is not as gnomon writes it: its tables are not plain, or have triggers of another program",
            hint="Do not use this file; it was not touched.",
        )
    return int(version)


def _is_plain(db: sqlite3.Connection) -> bool:
    """Return True if SQLite only reads and adds rows here, and does nothing else that a foreign file might make it do.

    So the tables must be plain tables, not views, virtual tables or tables with computed columns, and triggers must be
    gnomon's. Tables and triggers may be missing, and other objects stay unread. SQLite uses the texts in its schema and
    ignores the kinds stored next to them.
    """
    for table in TABLES:
        kinds = {row[2] for row in db.execute(f"PRAGMA table_list({table})")}
        if kinds - {"table"} or any(row[-1] for row in db.execute(f"PRAGMA table_xinfo({table})")):
            return False
    statements = db.execute("SELECT sql FROM sqlite_master WHERE sql LIKE '%trigger%'")
    texts = [" ".join(str(text).split()) for (text,) in statements]
    return all(text in _TRIGGERS for text in texts if not _NO_TRIGGER.match(text))
