"""The tables of a record in a PostgreSQL database, and the steps that bring an older record up to date.

The tables are in a separate schema, `gnomon`; its table `steps` lists the steps that have been applied. A step is never
edited once released: a change of the tables is a new step. docs/record.md describes the tables.
"""

from __future__ import annotations

TABLES = ("campaigns", "runs", "events")

_TABLES = """
CREATE TABLE campaigns (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    started_at_s DOUBLE PRECISION NOT NULL,
    gnomon_version TEXT NOT NULL,
    model_name TEXT NOT NULL,
    model_digest TEXT NOT NULL,
    seed BIGINT NOT NULL,
    device TEXT NOT NULL,
    versions TEXT NOT NULL,
    options TEXT NOT NULL
);
CREATE INDEX campaigns_by_key ON campaigns (key, seq);
CREATE INDEX campaigns_by_model ON campaigns (model_digest, seq);
CREATE TABLE runs (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    campaign BIGINT NOT NULL REFERENCES campaigns (seq),
    candidate TEXT NOT NULL,
    process BIGINT NOT NULL,
    block BIGINT NOT NULL,
    started_at_s DOUBLE PRECISION NOT NULL,
    profiled SMALLINT NOT NULL CHECK (profiled IN (0, 1)),
    "inner" BIGINT,
    wall_ns TEXT,
    cpu_ns TEXT,
    failure TEXT,
    operators TEXT NOT NULL,
    facts TEXT NOT NULL,
    CHECK ((wall_ns IS NULL) <> (failure IS NULL))
);
CREATE INDEX runs_by_campaign ON runs (campaign, seq);
CREATE UNIQUE INDEX runs_once ON runs (campaign, md5(candidate), process, block, profiled) WHERE failure IS NULL;
CREATE TABLE events (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    campaign BIGINT NOT NULL REFERENCES campaigns (seq),
    name TEXT NOT NULL,
    at_s DOUBLE PRECISION NOT NULL,
    data TEXT NOT NULL
);
CREATE INDEX events_by_campaign ON events (campaign, name, seq);
CREATE VIEW samples AS
SELECT campaigns.id AS campaign, candidate, process, block, profiled, wall.place - 1 AS sample,
    wall.ns::bigint * 1e-9::double precision / "inner" AS wall_s,
    (cpu_ns::json ->> (wall.place - 1)::int)::bigint * 1e-9::double precision / "inner" AS cpu_s
FROM runs JOIN campaigns ON campaigns.seq = runs.campaign,
    json_array_elements_text(wall_ns::json) WITH ORDINALITY AS wall (ns, place)
"""

_REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN RAISE EXCEPTION 'the record is append-only'; END $$
"""

_REFUSED = """
CREATE TRIGGER {table}_only_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} EXECUTE FUNCTION refuse()
"""

STEPS: tuple[tuple[str, ...], ...] = (
    (*_TABLES.split(";"), _REFUSE, *(_REFUSED.format(table=table) for table in TABLES)),
    # Only these events are searched by their data.
    ("CREATE INDEX events_by_cell ON events (data) WHERE name = 'cell'",),
)
"""The statements of each step: STEPS[:v] have been applied to a record if v is the largest number in `steps`."""
