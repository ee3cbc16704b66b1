"""The SQLite record: the shipped contract, and the accidents: kill -9, two writers, a full disk, foreign
files.
"""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.store.contract import StoreContract, failed_run, sample_campaign, sample_run

from gnomon.core.sample import Event, Run, Samples
from gnomon.errors import RecordError
from gnomon.store import schema
from gnomon.store.address import default_path
from gnomon.store.base import CampaignQuery, EventQuery, RunQuery, Store
from gnomon.store.sqlite import SqliteStore

GOLDEN = Path(__file__).parent / "data" / "record_v1.sqlite"

WRITER = """
import sys
from pathlib import Path
from gnomon.store.sqlite import SqliteStore
from tests.store.contract import sample_campaign, sample_run
path, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with SqliteStore.open(path) as store:
    store.open_campaign(sample_campaign(name))
    for i in range(count):
        store.append(name, sample_run(block=i))
        print(i, flush=True)
"""


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Callable[[], Store]:
        return lambda: SqliteStore.open(tmp_path / "record.sqlite")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.sqlite"


def writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(count)], stdout=subprocess.PIPE, text=True
    )


def blocks(path: Path, campaign: str) -> list[int]:
    with SqliteStore.open(path) as store:
        return [run.block for run in store.query(RunQuery(campaign=campaign))]


@pytest.mark.parametrize("acknowledged", [1, 60])
def test_kill_9_in_mid_write_loses_nothing_acknowledged(path: Path, acknowledged: int) -> None:
    with writer(path, "c", 10**6) as process:
        assert process.stdout is not None
        for _ in range(acknowledged):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        last = int((process.stdout.read().split() or [str(acknowledged - 1)])[-1])
    found = blocks(path, "c")
    assert found == list(range(len(found)))
    # At most the one run beyond, whose acknowledgement was not yet printed.
    assert len(found) - (last + 1) in (0, 1)
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


def test_several_processes_create_and_append_at_once(path: Path) -> None:
    processes = [writer(path, f"c{i}", 40) for i in range(3)]
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    for i in range(3):
        assert blocks(path, f"c{i}") == list(range(40))


def fill(store: SqliteStore) -> int:
    store.open_campaign(sample_campaign())
    big = Run(
        candidate="a",
        process=0,
        block=0,
        started_at_s=1.0,
        samples=Samples(wall_ns=(10**9,) * 2000, cpu_ns=()),
    )
    for count in range(10_000):
        try:
            store.append("c1", replace(big, block=count))
        except RecordError as error:
            assert "full" in error.message
            assert "space" in error.hint
            return count
    raise AssertionError("the disk did not fill")


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "tiny"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_loses_nothing(tiny_disk: Path) -> None:
    with SqliteStore.open(tiny_disk / "record.sqlite") as store:
        count = fill(store)
        assert count > 0
        assert len(list(store.query(RunQuery(campaign="c1")))) == count
    assert len(blocks(tiny_disk / "record.sqlite", "c1")) == count


def test_a_full_disk_at_creation(tiny_disk: Path) -> None:
    with (tiny_disk / "ballast").open("wb") as file, pytest.raises(OSError, match="space"):
        file.write(b"x" * (2 << 20))
    with pytest.raises(RecordError) as refused:
        SqliteStore.open(tiny_disk / "record.sqlite")
    assert "space" in refused.value.hint
    (tiny_disk / "ballast").unlink()
    with SqliteStore.open(tiny_disk / "record.sqlite") as store:
        assert list(store.query(CampaignQuery())) == []


def test_nothing_is_changed_or_removed(path: Path) -> None:
    with SqliteStore.open(path) as store:
        store.open_campaign(sample_campaign())
        store.append("c1", sample_run())
        store.append("c1", Event(name="x", at_s=1.0))
        for table in ("campaigns", "runs", "events"):
            for statement in (f"DELETE FROM {table}", f"UPDATE {table} SET seq = seq + 1"):  # noqa: S608
                with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                    store._db.execute(statement)


def foreign_text(path: Path) -> None:
    path.write_text("a text of the user's, which must survive\n" * 100)


def foreign_database(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE theirs (x)")
    db.commit()
    db.close()


def newer_record(path: Path) -> None:
    SqliteStore.open(path).close()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {len(schema.STEPS) + 1}")
    db.execute("PRAGMA journal_mode = DELETE")
    db.close()


def damaged_record(path: Path) -> None:
    SqliteStore.open(path).close()
    data = bytearray(path.read_bytes())
    data[100:] = b"\xa5" * (len(data) - 100)
    path.write_bytes(data)


def cut_record(path: Path) -> None:
    SqliteStore.open(path).close()
    path.write_bytes(path.read_bytes()[:3000])


@pytest.mark.parametrize("make", [foreign_text, foreign_database, newer_record, damaged_record, cut_record])
def test_what_is_no_record_is_refused_and_kept(path: Path, make: Callable[[Path], None]) -> None:
    make(path)
    before = path.read_bytes()
    with pytest.raises(RecordError) as refused:
        SqliteStore.open(path)
    assert refused.value.hint
    assert str(path) in refused.value.message
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("table", "column", "value", "path_in_row"),
    [
        ("runs", "inner", "0", "$.samples.inner"),
        ("runs", "wall_ns", "'[1,-5]'", "$.samples.wall_ns"),
        ("runs", "started_at_s", "1e300", "$.started_at_s"),
        ("runs", "profiled", "7", "$.profiled"),
        ("runs", "candidate", "X'ff00'", "$.candidate"),
        ("runs", "operators", "'[3]'", "$.operators"),
        ("runs", "wall_ns", "NULL", "either"),
        ("campaigns", "started_at_s", "1e300", "$.started_at_s"),
        ("campaigns", "seed", "'q'", "$.context.seed"),
        ("events", "data", "'[]'", "$.data"),
    ],
)
def test_each_hostile_value_is_an_error_with_its_path(
    path: Path, table: str, column: str, value: str, path_in_row: str
) -> None:
    with SqliteStore.open(path) as store:
        store.open_campaign(sample_campaign())
        store.append("c1", sample_run())
        store.append("c1", Event(name="x", at_s=1.0))
        store._db.execute("PRAGMA ignore_check_constraints = ON")
        store._db.execute(f"DROP TRIGGER {table}_no_UPDATE")
        store._db.execute(f"UPDATE {table} SET {column} = {value}")  # noqa: S608
        reads: dict[str, Callable[[], object]] = {
            "runs": lambda: list(store.query(RunQuery(campaign="c1"))),
            "events": lambda: list(store.query(EventQuery(campaign="c1"))),
            "campaigns": lambda: list(store.query(CampaignQuery())),
        }
        with pytest.raises(RecordError) as refused:
            reads[table]()
    assert path_in_row in refused.value.message
    assert "restore it" in refused.value.hint


def test_what_could_not_be_read_back_is_not_written(path: Path) -> None:
    with SqliteStore.open(path) as store:
        store.open_campaign(sample_campaign())
        times = Samples(wall_ns=(1,), cpu_ns=(1,), inner=0)
        for item in (
            Run(candidate="a", process=0, block=0, started_at_s=1.0, samples=times),
            replace(sample_run(), started_at_s=1e300),
            replace(sample_run(), samples=Samples(wall_ns=(-1,), cpu_ns=())),
            Event(name="x", at_s=float("nan")),
        ):
            with pytest.raises(RecordError):
                store.append("c1", item)
        with pytest.raises(RecordError):
            store.open_campaign(sample_campaign("c2", at_s=-1.0))
        assert [c.id for c in store.query(CampaignQuery())] == ["c1"]
        assert list(store.query(RunQuery(campaign="c1"))) == []
        assert list(store.query(EventQuery(campaign="c1"))) == []


def test_a_directory_is_no_record(tmp_path: Path) -> None:
    with pytest.raises(RecordError):
        SqliteStore.open(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(RecordError) as refused:
        SqliteStore.open(tmp_path / "file" / "record.sqlite")
    assert "GNOMON_HOME" in refused.value.hint


NOBODY = """
import os, sys
from pathlib import Path
from gnomon.errors import RecordError
from gnomon.store.sqlite import SqliteStore
from tests.store.contract import sample_campaign
if os.getuid() == 0:
    os.setuid(65534)
try:
    SqliteStore.open(Path(sys.argv[1])).open_campaign(sample_campaign())
except RecordError as error:
    print(error.hint)
"""


@pytest.mark.parametrize("made_before", [False, True])
def test_a_place_that_cannot_be_written_is_an_error(made_before: bool) -> None:
    # pytest's own folders are closed to the other user that root becomes here.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if made_before:
            SqliteStore.open(folder / "record.sqlite").close()
            (folder / "record.sqlite").chmod(0o444)
        folder.chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-c", NOBODY, str(folder / "record.sqlite")],
            capture_output=True,
            text=True,
            check=True,
        )
        folder.chmod(0o755)
    assert "writable" in done.stdout


READER = """
import os, sys
from pathlib import Path
from gnomon.errors import RecordError
from gnomon.store.base import CampaignQuery
from gnomon.store.sqlite import SqliteStore
with SqliteStore.read(Path(sys.argv[2])) as store:  # the other user may not be let into Python's own folder
    list(store.query(CampaignQuery()))
if os.getuid() == 0:
    os.setuid(65534)
try:
    with SqliteStore.read(Path(sys.argv[1])) as store:
        print(*(campaign.id for campaign in store.query(CampaignQuery())))
except RecordError as error:
    print(error.hint)
"""


def read_where_nothing_can_be_written(folder: Path) -> str:
    """What another user reads of the record there, as from a medium that is read-only."""
    for file in folder.iterdir():
        file.chmod(0o444)
    folder.chmod(0o555)
    command = [sys.executable, "-c", READER, str(folder / "record.sqlite"), str(GOLDEN)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    folder.chmod(0o755)
    return done.stdout.strip()


def test_a_record_is_read_where_nothing_can_be_written() -> None:
    # pytest's own folders are closed to the other user that root becomes here.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with SqliteStore.open(folder / "record.sqlite") as store:
            store.open_campaign(sample_campaign())
        assert read_where_nothing_can_be_written(folder) == "c1"
        # A process that was killed leaves its last runs in the log.
        (folder / "record.sqlite-wal").write_bytes(b"log")
        assert "Copy both files" in read_where_nothing_can_be_written(folder)


def test_looking_writes_nothing(path: Path, tmp_path: Path) -> None:
    with SqliteStore.read(path) as store:
        assert list(store.query(CampaignQuery())) == []
    assert not list(tmp_path.iterdir())
    path.touch()
    with SqliteStore.read(path) as store:
        assert list(store.query(CampaignQuery())) == []
    assert path.read_bytes() == b""  # it becomes a record below
    old = tmp_path / "old.sqlite"
    shutil.copyfile(GOLDEN, old)
    with SqliteStore.read(old) as store:
        assert list(store.query(CampaignQuery()))
    assert old.read_bytes() == GOLDEN.read_bytes()
    with SqliteStore.open(path) as writer:
        writer.open_campaign(sample_campaign())
        with SqliteStore.read(path) as store:  # while another writes
            assert [c.id for c in store.query(CampaignQuery())] == ["c1"]
            with pytest.raises(RecordError, match="readonly"):
                store.append("c1", sample_run())


def test_a_clock_before_1970_is_called_wrong(path: Path) -> None:
    with SqliteStore.open(path) as store:
        with pytest.raises(RecordError, match="the clock that reported it is wrong"):
            store.open_campaign(replace(sample_campaign(), started_at_s=-3600.0))
        store.open_campaign(sample_campaign())
        for item in (replace(sample_run(), started_at_s=-1.0), Event(name="probe", at_s=-1.0, data={})):
            with pytest.raises(RecordError, match="the clock that reported it is wrong") as refused:
                store.append("c1", item)
            assert refused.value.hint.startswith("Set the clock")


def campaign_of(path: Path) -> None:
    with SqliteStore.open(path) as store:
        store.open_campaign(sample_campaign("a"))


VIEW = "CREATE VIEW campaigns AS WITH RECURSIVE n(seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n LIMIT 9) {}"


@pytest.mark.parametrize(
    "statements",
    [
        [
            "DROP TABLE campaigns",
            VIEW.format(
                "SELECT seq, 'i' || seq AS id, 'k' AS kind, 'k' AS key, 1.0 AS started_at_s, '0' AS gnomon_version,"
                " 'm' AS model_name, 'd' AS model_digest, 0 AS seed, '{}' AS device, '{}' AS versions,"
                " '{}' AS options FROM n"
            ),
        ],
        ["DROP TABLE events", "CREATE VIRTUAL TABLE events USING fts5(campaign, name, at_s, data)"],
        ["ALTER TABLE events ADD COLUMN more AS (hex(zeroblob(9)))"],
        ["CREATE TRIGGER more AFTER INSERT ON events BEGIN INSERT INTO runs SELECT * FROM runs; END"],
    ],
)
def test_a_record_that_makes_sqlite_do_more_is_refused(path: Path, statements: list[str]) -> None:
    campaign_of(path)
    with sqlite3.connect(path) as db:
        for statement in statements:
            db.execute(statement)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    before = path.read_bytes()
    for opened in (SqliteStore.read, SqliteStore.open):
        with pytest.raises(RecordError, match="is not as gnomon writes it"), opened(path) as store:
            list(store.query(CampaignQuery()))
    assert path.read_bytes() == before


def test_tables_views_and_indices_of_others_are_left_alone(path: Path) -> None:
    campaign_of(path)
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE theirs (x)")
        db.execute("CREATE VIEW many AS SELECT * FROM runs")
        db.execute("CREATE VIEW trigger_counts AS SELECT 'CREATE TRIGGER' AS trigger")
        db.execute("CREATE INDEX more ON runs (started_at_s)")
        db.execute("DROP TRIGGER runs_once")
    db.close()
    for opened in (SqliteStore.read, SqliteStore.open):
        with opened(path) as store:
            assert list(store.query(CampaignQuery()))


def pages_overwritten(path: Path) -> None:
    with SqliteStore.open(path) as store:
        for block in range(200):
            store.append("a", sample_run(block=block))
    data = bytearray(path.read_bytes())
    data[80_000:100_000] = b"\x5a" * 20_000
    path.write_bytes(data)


def values_gone(path: Path) -> None:
    """SQLite keeps no checksums: a column that cannot be empty is empty in a damaged file."""
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_schema SET sql = replace(sql, 'NOT NULL', '') WHERE name = 'campaigns'")
    with sqlite3.connect(path) as db:
        for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER {name}")
        db.execute("UPDATE campaigns SET options = NULL")


def schema_of_other_bytes(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE campaigns", b"\xff\xfeEATE TABLE campaigns"))


def column_of_other_bytes(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path.write_bytes(path.read_bytes().replace(b"seq INTEGER", b"s\xff\xfe INTEGER"))


@pytest.mark.parametrize("damage", [pages_overwritten, values_gone, schema_of_other_bytes, column_of_other_bytes])
def test_damage_is_told_when_it_is_met(path: Path, damage: Callable[[Path], None]) -> None:
    campaign_of(path)
    damage(path)
    with pytest.raises(RecordError) as told, SqliteStore.open(path) as store:
        list(store.query(CampaignQuery()))
        list(store.query(RunQuery(campaign="a")))
    assert told.value.hint


def test_another_thread_is_told_to_open_its_own(path: Path) -> None:
    errors: list[RecordError] = []
    with SqliteStore.open(path) as store:

        def use() -> None:
            try:
                list(store.query(CampaignQuery()))
            except RecordError as error:
                errors.append(error)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
    assert "one thread" in errors[0].hint


def test_the_record_of_the_first_schema_opens(path: Path) -> None:
    shutil.copy(GOLDEN, path)
    with SqliteStore.open(path) as store:
        assert list(store.query(CampaignQuery())) == [sample_campaign("golden")]
        assert list(store.query(RunQuery(campaign="golden"))) == [sample_run(), failed_run()]
        assert list(store.query(EventQuery(campaign="golden"))) == [Event(name="finished", at_s=2e9)]
        store.append("golden", sample_run(block=1))
        for pragma, value in (("user_version", len(schema.STEPS)), ("journal_mode", "wal"), ("synchronous", 2)):
            assert store._db.execute(f"PRAGMA {pragma}").fetchone() == (value,)
        assert store._db.execute("PRAGMA foreign_keys").fetchone() == (1,)


def test_a_record_that_holds_a_visit_twice_opens_but_takes_no_third(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "STEPS", schema.STEPS[:2])
    with SqliteStore.open(path) as store:
        store.open_campaign(sample_campaign())
        for _ in range(2):
            store.append("c1", sample_run())
    monkeypatch.undo()
    with SqliteStore.open(path) as store:
        assert list(store.query(RunQuery(campaign="c1"))) == [sample_run()] * 2
        with pytest.raises(RecordError, match="samples of this visit already"):
            store.append("c1", sample_run())


def test_a_visit_is_sampled_once_but_may_fail_often(path: Path) -> None:
    with SqliteStore.open(path) as store:
        for id in ("c1", "c2"):
            store.open_campaign(sample_campaign(id))
        run = sample_run()
        kept = [failed_run("cpu"), replace(failed_run("cpu"), process=0), failed_run("cpu"), run]
        kept += [replace(run, process=1), replace(run, block=1)]
        kept += [replace(run, candidate="b"), replace(run, profiled=False), replace(failed_run("cpu"), process=0)]
        for item in kept:
            store.append("c1", item)
        store.append("c2", run)
        with pytest.raises(RecordError, match="samples of this visit already") as refused:
            store.append("c1", run)
        assert "Another gnomon" in refused.value.hint
        assert list(store.query(RunQuery(campaign="c1"))) == kept


def test_who_looks_for_a_cell_looks_at_no_other_campaign(path: Path) -> None:
    with SqliteStore.open(path) as store:
        store.open_campaign(sample_campaign())
        asked: list[str] = []
        store._db.set_trace_callback(asked.append)
        assert list(store.query(CampaignQuery(kind="profile", finished=True, cell={"suite": "s", "cell": "c"}))) == []
        store._db.set_trace_callback(None)
        (statement,) = asked
        plan = [row[-1] for row in store._db.execute(f"EXPLAIN QUERY PLAN {statement}")]
    assert not [step for step in plan if step.startswith("SCAN")], plan
    assert any("events_by_cell (data=?)" in step for step in plan), plan


def test_an_upgrade_that_fails_leaves_the_old_record(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(GOLDEN, path)
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, ("CREATE TABLE fresh (x)", "no SQL at all")))
    with pytest.raises(RecordError):
        SqliteStore.open(path)
    monkeypatch.undo()
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA user_version").fetchone() == (1,)
    db.close()
    with SqliteStore.open(path) as store:
        assert len(list(store.query(RunQuery(campaign="golden")))) == 2


def test_plain_sqlite_reads_the_samples(path: Path) -> None:
    with SqliteStore.open(path) as store:
        store.open_campaign(sample_campaign())
        store.append("c1", sample_run())
        store.append("c1", failed_run())
    db = sqlite3.connect(path)
    rows = db.execute("SELECT campaign, candidate, sample, wall_s, cpu_s FROM samples ORDER BY sample").fetchall()
    db.close()
    times = sample_run().samples
    assert times is not None
    assert [row[:3] for row in rows] == [("c1", "cpu", i) for i in range(3)]
    assert [row[3] for row in rows] == pytest.approx(times.wall_s)
    assert [row[4] for row in rows] == pytest.approx(times.cpu_s)


def test_the_default_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("GNOMON_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_path() == tmp_path / ".local" / "share" / "gnomon" / "record.sqlite"
    monkeypatch.setenv("XDG_DATA_HOME", "/x")
    assert default_path() == Path("/x/gnomon/record.sqlite")
    monkeypatch.setenv("GNOMON_HOME", str(tmp_path / "g"))
    with SqliteStore.open() as store:
        assert store.path == tmp_path / "g" / "record.sqlite"


def test_the_query_in_the_documentation_runs_and_every_column_is_named_there(path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "record.md").read_text()
    query = text.partition("```sql\n")[2].partition("```")[0]
    with SqliteStore.open(path) as store:
        store.open_campaign(sample_campaign("old"))
        store.open_campaign(sample_campaign("new"))
        for process, (candidate, times) in enumerate((("b", (5, 9, 7)), ("a", (3,)))):
            samples = Samples(wall_ns=times, cpu_ns=times)
            store.append("new", Run(candidate=candidate, process=0, block=0, started_at_s=1.0, samples=samples))
            store.append("old", Run(candidate="other", process=process, block=0, started_at_s=1.0, samples=samples))
    db = sqlite3.connect(path)
    rows = db.execute(query).fetchall()
    for table in ("campaigns", "runs", "events", "samples"):
        assert all(f"`{column[1]}`" in text for column in db.execute(f"PRAGMA table_info({table})"))
    db.close()
    assert rows == [("a", pytest.approx(3e-9)), ("b", pytest.approx(7e-9))]


LOOKER = """
import sys
from pathlib import Path
from gnomon.store.sqlite import SqliteStore
with SqliteStore.read(Path(sys.argv[1])):
    pass
"""


def test_who_looks_takes_nothing_from_a_process_with_several_connections(path: Path) -> None:
    look = [sys.executable, "-c", LOOKER, str(path)]
    with SqliteStore.open(path) as first:
        first.open_campaign(sample_campaign("c"))
        with SqliteStore.open(path) as second:
            subprocess.run(look, check=True)
            assert path.with_name(f"{path.name}-wal").exists()  # who is the last to close removes it
            first.append("c", sample_run(block=0))
            second.append("c", sample_run(block=1))
        with SqliteStore.open(path) as third:
            third.append("c", sample_run(block=2))
    assert blocks(path, "c") == [0, 1, 2]


def test_tables_that_another_process_makes_meanwhile_are_a_records(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        seen: list[str] = []

        def meanwhile(statement: str) -> None:
            seen.append(statement)
            with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
                if len(seen) > 1:
                    with suppress(sqlite3.OperationalError):  # this one reads, so that nobody writes
                        schema.bring_up_to_date(other, path)

        db.set_trace_callback(meanwhile)
        schema.bring_up_to_date(db, path)
        db.set_trace_callback(None)
        assert db.execute("PRAGMA user_version").fetchone() == (len(schema.STEPS),)
        assert len(seen) > 1
