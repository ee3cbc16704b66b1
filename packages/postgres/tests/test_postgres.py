"""The record in PostgreSQL: the shipped contract on a real server, and what can go wrong: kills, roles, passwords, and
other programs' schemas.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.store.contract import StoreContract, failed_run, sample_campaign, sample_run
from tests.store.joinkit import added_once
from tests.store.postgreskit import Server, running_server, why_not

import gnomon
from gnomon.core.sample import FINISHED, Event, Run
from gnomon.errors import RecordError
from gnomon.store.address import DatabaseAddress
from gnomon.store.base import (
    CELL,
    COMMAND,
    CampaignQuery,
    EventQuery,
    RunQuery,
    Store,
    TallyQuery,
    newest_free,
)
from gnomon.store.join import join_records
from gnomon.store.sqlite import SqliteStore
from gnomon_postgres.schema import STEPS, TABLES
from gnomon_postgres.store import PostgresStore

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

GRANTS = (
    "GRANT USAGE ON SCHEMA gnomon TO {role}",
    "GRANT SELECT ON ALL TABLES IN SCHEMA gnomon TO {role}",
    "GRANT INSERT ON gnomon.campaigns, gnomon.runs, gnomon.events TO {role}",
)
"""The grants that docs/record.md gives."""

WRITER = """
import sys
from gnomon.store.address import DatabaseAddress
from gnomon_postgres.store import PostgresStore
from tests.store.contract import sample_campaign, sample_run
with PostgresStore.open(DatabaseAddress(url=sys.argv[1])) as store:
    store.open_campaign(sample_campaign(sys.argv[2]))
    for block in range(int(sys.argv[3])):
        store.append(sys.argv[2], sample_run(block=block))
        print(block, flush=True)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def database(server: Server) -> str:
    return server.database()


@pytest.fixture
def address(server: Server, database: str) -> DatabaseAddress:
    return DatabaseAddress(url=server.url(database))


class TestPostgresStore(StoreContract):
    @pytest.fixture
    def reopen(self, address: DatabaseAddress) -> Callable[[], Store]:
        return lambda: PostgresStore.open(address)


def appender(server: Server, database: str, address: DatabaseAddress) -> str:
    PostgresStore.open(address).close()
    role = f"{database}_appender"
    server.run(f"CREATE ROLE {role} LOGIN PASSWORD 'sesame-{role}'")
    for grant in GRANTS:
        server.run(grant.format(role=role), database=database)
    return role


def test_a_role_that_may_only_append_can_do_all_that_is_asked_of_a_record(
    server: Server, database: str, address: DatabaseAddress
) -> None:
    role = appender(server, database, address)
    with PostgresStore.open(DatabaseAddress(url=server.url(database, role))) as store:
        with store.whole():
            store.open_campaign(sample_campaign())
        store.open_campaign(sample_campaign())
        items: list[Run | Event] = [sample_run(), failed_run(), Event(name=CELL, at_s=1.0, data={"cell": "c"})]
        for item in items:
            store.append("c1", item)
        assert [*store.query(RunQuery(campaign="c1")), *store.query(EventQuery(campaign="c1"))] == items
        assert sum(tally.runs for tally in store.query(TallyQuery(campaign="c1"))) == 2
        asked = CampaignQuery(finished=False, held=False, cell={"cell": "c"})
        assert list(store.query(asked)) == [sample_campaign()]


def writer(address: DatabaseAddress, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, address.url, name, str(count)], stdout=subprocess.PIPE, text=True
    )


def blocks(address: DatabaseAddress, campaign: str) -> list[int]:
    with PostgresStore.read(address) as store:
        return [run.block for run in store.query(RunQuery(campaign=campaign))]


def test_two_append_at_once_and_one_is_killed(address: DatabaseAddress) -> None:
    count = 90
    with writer(address, "stays", count) as stays, writer(address, "killed", 10**6) as killed:
        assert killed.stdout is not None
        for _ in range(count // 3):
            killed.stdout.readline()
        killed.send_signal(signal.SIGKILL)
        told = int((killed.stdout.read().split() or [str(count // 3 - 1)])[-1])
        stays.communicate()
    assert stays.returncode == 0
    assert blocks(address, "stays") == list(range(count))
    found = blocks(address, "killed")
    assert found == list(range(len(found)))  # none lost, none twice
    assert len(found) - (told + 1) in (0, 1)
    with PostgresStore.open(address) as store:
        newest = newest_free(store, "k", finished=False)
        assert newest is not None
        assert {c.id for c in store.query(CampaignQuery(held=False))} == {"stays", "killed"}
        store.open_campaign(replace(sample_campaign("killed")))
        with pytest.raises(RecordError) as refused:
            store.append("killed", sample_run(block=0))
        assert "Another gnomon" in refused.value.hint
        store.append("killed", sample_run(block=len(found)))


def test_what_another_holds_is_not_taken_up(address: DatabaseAddress) -> None:
    with writer(address, "a", 10**6) as holder, PostgresStore.open(address) as store:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert newest_free(store, "k", finished=False) is None
        assert [c.id for c in store.query(CampaignQuery(held=True))] == ["a"]
        with pytest.raises(RecordError, match="another gnomon"):
            store.open_campaign(sample_campaign("a"))
        holder.kill()
        holder.wait()
        assert newest_free(store, "k", finished=False) == sample_campaign("a")
        store.open_campaign(sample_campaign("a"))


def test_nothing_is_changed_or_removed(server: Server, database: str, address: DatabaseAddress) -> None:
    import psycopg

    role = appender(server, database, address)
    with PostgresStore.open(address) as store:
        store.open_campaign(sample_campaign())
        store.append("c1", sample_run())
        store.append("c1", Event(name="x", at_s=1.0))
    columns = {"campaigns": "kind", "runs": "facts", "events": "data"}
    assert columns.keys() == set(TABLES)
    for table, column in columns.items():
        for statement in ("DELETE FROM {}", f"UPDATE {{}} SET {column} = {column}", "TRUNCATE {} CASCADE"):  # noqa: S608
            told = statement.format(f"gnomon.{table}")
            with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
                server.run(told, database=database)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                server.run(told, database=database, role=role)


def test_several_make_the_record_at_once(address: DatabaseAddress) -> None:
    writers = [writer(address, f"c{number}", 5) for number in range(3)]
    for process in writers:
        process.communicate()
        assert process.returncode == 0
    for number in range(3):
        assert blocks(address, f"c{number}") == list(range(5))


def test_an_older_record_is_brought_up_to_date_by_its_owner(
    server: Server, database: str, address: DatabaseAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr("gnomon_postgres.store.STEPS", STEPS[:1])
        role = appender(server, database, address)
        with PostgresStore.open(address) as store:
            store.open_campaign(sample_campaign())
            store.append("c1", sample_run())
    with pytest.raises(
        RecordError, match=f"was written by an older gnomon: schema 1, this gnomon needs {len(STEPS)}"
    ) as refused:
        PostgresStore.open(DatabaseAddress(url=server.url(database, role)))
    assert "as the role that owns it" in refused.value.hint
    PostgresStore.open(address).close()
    with PostgresStore.open(DatabaseAddress(url=server.url(database, role))) as store:
        assert list(store.query(CampaignQuery())) == [sample_campaign()]
        store.append("c1", sample_run(block=1))
    assert blocks(address, "c1") == [0, 1]


def test_a_role_without_rights_is_told_what_it_needs(server: Server, database: str, address: DatabaseAddress) -> None:
    role = f"{database}_nobody"
    server.run(f"CREATE ROLE {role} LOGIN")
    for is_made in (False, True):
        if is_made:
            PostgresStore.open(address).close()
        with pytest.raises(RecordError, match="permission denied") as refused:
            PostgresStore.open(DatabaseAddress(url=server.url(database, role)))
        assert "docs/record.md" in refused.value.hint


def test_a_password_comes_from_its_file_and_is_told_nowhere(
    server: Server, database: str, address: DatabaseAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = appender(server, database, address)
    file = tmp_path / "pgpass"
    monkeypatch.setenv("PGPASSFILE", str(file))
    given = DatabaseAddress(url=server.url_with_password(database, role))
    for content in ("", f"127.0.0.1:*:*:{role}:wrong-sesame\n"):
        file.write_text(content)
        file.chmod(0o600)
        with pytest.raises(RecordError) as refused:
            PostgresStore.open(given)
        assert "sesame" not in f"{refused.value.message} {refused.value.hint}"
        assert "pgpass" in refused.value.hint
    file.write_text(f"127.0.0.1:*:*:{role}:sesame-{role}\n")
    with PostgresStore.open(given) as store:
        store.open_campaign(sample_campaign())
        assert "sesame" not in str(store.address)
        assert not any("sesame" in str(row) for row in server.run("SELECT * FROM pg_stat_activity"))


@pytest.mark.parametrize(
    ("statements", "told"),
    [
        (("CREATE SCHEMA gnomon",), "belongs to another program"),
        (
            (
                "CREATE SCHEMA gnomon",
                "CREATE TABLE gnomon.steps (step INTEGER)",
                f"INSERT INTO gnomon.steps VALUES ({len(STEPS) + 1})",  # noqa: S608
            ),
            "newer gnomon",
        ),
    ],
)
def test_what_is_no_record_is_refused(
    server: Server, database: str, address: DatabaseAddress, statements: tuple[str, ...], told: str
) -> None:
    for statement in statements:
        server.run(statement, database=database)
    for opened in (PostgresStore.open, PostgresStore.read):
        with pytest.raises(RecordError, match=told):
            opened(address)


def test_a_server_that_is_gone_is_an_error_with_a_next_step(server: Server) -> None:
    absent = DatabaseAddress(url="postgresql://owner@127.0.0.1:1/lab")
    with pytest.raises(RecordError, match="refused") as refused:
        PostgresStore.open(absent)
    assert "server runs" in refused.value.hint
    with pytest.raises(RecordError, match="does not exist") as missing:
        PostgresStore.open(DatabaseAddress(url=server.url("no_such_database")))
    assert "createdb" in missing.value.hint


def test_a_connection_that_is_cut_is_an_error_and_loses_nothing(
    server: Server, database: str, address: DatabaseAddress
) -> None:
    with PostgresStore.open(address) as store:
        store.open_campaign(sample_campaign())
        store.append("c1", sample_run())
        server.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'")  # noqa: S608
        with pytest.raises(RecordError) as refused:
            store.append("c1", sample_run(block=1))
        assert "start again" in refused.value.hint
    assert blocks(address, "c1") == [0]
    with PostgresStore.open(address) as store:
        store.open_campaign(sample_campaign())
        store.append("c1", sample_run(block=1))


@pytest.mark.parametrize("name", ["nul\0", "lone \ud800"])
def test_a_text_that_no_database_holds_is_refused(address: DatabaseAddress, name: str) -> None:
    with PostgresStore.open(address) as store:
        store.open_campaign(sample_campaign())
        with pytest.raises(RecordError) as refused:
            store.append("c1", replace(sample_run(), candidate=name))
        assert "Unicode without NUL" in refused.value.hint
        with pytest.raises(RecordError):
            store.open_campaign(replace(sample_campaign("c2"), kind=name))
        assert list(store.query(RunQuery(campaign="c1"))) == []
        store.append("c1", Event(name="x", at_s=1.0, data={"a": "nul\0"}))
        assert [e.data for e in store.query(EventQuery(campaign="c1"))] == [{"a": "nul\0"}]


def test_samples_are_read_by_sql(server: Server, database: str, address: DatabaseAddress) -> None:
    with PostgresStore.open(address) as store:
        store.open_campaign(sample_campaign())
        store.append("c1", sample_run())
        store.append("c1", failed_run())
        store.append("c1", Event(name=FINISHED, at_s=1.0))
    rows = server.run("SELECT sample, wall_s, cpu_s FROM gnomon.samples ORDER BY sample", database=database)
    assert [row[0] for row in rows] == [0, 1, 2]
    assert [row[1] for row in rows] == pytest.approx([(10**12 + 1) * 1e-9 / 5, 7e-9 / 5, 0])
    assert [row[2] for row in rows] == pytest.approx([1e-9 / 5, 2e-9 / 5, 3e-9 / 5])


def record_of(path: Path, count: int) -> Path:
    with SqliteStore.open(path) as store:
        store.open_campaign(sample_campaign())
        store.append("c1", failed_run())
        for block in range(count):
            store.append("c1", sample_run(block=block))
        store.append("c1", Event(name=COMMAND, at_s=1.0, data={"arguments": ["place"], "folder": "/"}))
        store.append("c1", Event(name=FINISHED, at_s=2.0))
    return path


def test_records_are_joined_both_ways_and_nothing_comes_twice(address: DatabaseAddress, tmp_path: Path) -> None:
    file = record_of(tmp_path / "there.sqlite", 3)
    first, again = (gnomon.import_runs(file, record=address) for _ in range(2))
    assert [(part.campaigns, part.runs, part.events) for part in (*first.files, *again.files)] == [(1, 4, 1), (0, 0, 0)]
    assert gnomon.read_document(first.document()).record == address.url
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(f"{line}\n" for line in gnomon.export_run("c1", record=file)))
    assert [part.runs for part in gnomon.import_runs(lines, record=address.url).files] == [0]
    new = tmp_path / "new.sqlite"
    assert [part.runs for part in gnomon.merge_runs(address.url, file, out=new).files] == [4, 0]
    with PostgresStore.read(address) as there, SqliteStore.read(new) as here:
        for query in (RunQuery(campaign="c1"), EventQuery(campaign="c1", name=FINISHED)):
            assert list(here.query(query)) == list(there.query(query))
    with pytest.raises(RecordError, match="is itself the destination"):
        gnomon.import_runs(address, record=address)
    with pytest.raises(RecordError, match="is not a file") as refused:
        gnomon.merge_runs(file, out=address)
    assert "gnomon runs import" in refused.value.hint


def test_who_reads_finds_an_empty_record_and_writes_nothing(address: DatabaseAddress) -> None:
    for _ in range(2):
        with PostgresStore.read(address) as store:
            assert list(store.query(CampaignQuery())) == []
            with pytest.raises(RecordError, match="no campaign"):
                list(store.query(RunQuery(campaign="c1")))
        PostgresStore.open(address).close()
    with PostgresStore.read(address) as store, pytest.raises(RecordError, match="read-only"):
        store.open_campaign(sample_campaign())


def test_a_file_comes_whole_or_not_at_all(address: DatabaseAddress) -> None:
    with PostgresStore.open(address) as store:
        store.open_campaign(sample_campaign())
        with pytest.raises(RecordError), store.whole():
            store.append("c1", sample_run(block=0))
            store.append("c1", replace(sample_run(block=1), candidate="nul\0"))
        assert list(store.query(RunQuery(campaign="c1"))) == []
        with store.whole():
            store.append("c1", sample_run(block=0))
            assert blocks(address, "c1") == []
        assert blocks(address, "c1") == [0]


def test_two_import_the_same_at_once_and_one_is_killed(address: DatabaseAddress, tmp_path: Path) -> None:
    file = record_of(tmp_path / "there.sqlite", 400)
    told = "import sys, gnomon; print('begins', flush=True); gnomon.import_runs(sys.argv[1], record=sys.argv[2])"
    with subprocess.Popen([sys.executable, "-c", told, file, address.url], stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        killed.stdout.readline()
        while killed.poll() is None and not _locked(address):
            pass
        killed.kill()
    before = blocks(address, "c1") if _campaigns(address) else []
    assert len(before) in (0, 401)
    gnomon.import_runs(file, record=address)
    assert sorted(blocks(address, "c1")) == sorted([failed_run().block, *range(400)])


def test_several_import_overlapping_records_at_the_same_moment(address: DatabaseAddress, tmp_path: Path) -> None:
    assert added_once(address.url, tmp_path)["campaigns"] == 8


def test_what_was_joined_is_held_no_longer(address: DatabaseAddress, tmp_path: Path) -> None:
    file = record_of(tmp_path / "there.sqlite", 3)
    with (
        SqliteStore.read(Path(file)) as there,
        PostgresStore.open(address) as one,
        PostgresStore.open(address) as other,
    ):
        assert [join_records(there, store)["runs"] for store in (one, other)] == [4, 0]
        assert list(other.query(CampaignQuery(held=True))) == []


def _locked(address: DatabaseAddress) -> bool:
    import psycopg

    with psycopg.connect(address.url) as db:
        found = db.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone()
    return found is not None and bool(found[0])


def _campaigns(address: DatabaseAddress) -> list[str]:
    with PostgresStore.read(address) as store:
        return [campaign.id for campaign in store.query(CampaignQuery())]
