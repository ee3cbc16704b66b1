"""A campaign that a live store holds is no one else's to take up; one whose process was killed is."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.store.contract import sample_campaign

from gnomon.core.sample import Campaign
from gnomon.errors import RecordError
from gnomon.store.base import CampaignQuery, RunQuery, newest_free
from gnomon.store.sqlite import SqliteStore

HOLDER = """
import sys
from pathlib import Path
from gnomon.store.base import newest_free
from gnomon.store.sqlite import SqliteStore
from tests.store.contract import sample_campaign
with SqliteStore.open(Path(sys.argv[1])) as store:
    found = newest_free(store, "k", finished=False)
    store.open_campaign(found or sample_campaign(sys.argv[2]))
    print("resumed" if found else "new", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record.sqlite"


def holder(path: Path, id: str) -> tuple[subprocess.Popen[str], str]:
    """A process that takes up or makes a campaign and holds it until its standard input ends, and which it did."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path), id], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def unfinished(store: SqliteStore) -> str | None:
    found: Campaign | None = newest_free(store, "k", finished=False)
    return found.id if found else None


def test_a_live_campaign_of_another_process_is_not_taken_up(path: Path) -> None:
    first, did = holder(path, "a")
    second, also = holder(path, "b")
    assert (did, also) == ("new", "new")
    with first, second, SqliteStore.open(path) as store:
        assert unfinished(store) is None
        assert [c.id for c in store.query(CampaignQuery(held=True))] == ["b", "a"]
        with pytest.raises(RecordError, match="another gnomon") as refused:
            store.open_campaign(sample_campaign("a"))
        assert "Wait" in refused.value.hint
        second.send_signal(signal.SIGKILL)
        second.wait()
        assert unfinished(store) == "b"
        third, did = holder(path, "c")
        assert did == "resumed"
        with third:
            assert unfinished(store) is None
            third.communicate("")
        first.communicate("")
        assert unfinished(store) == "b"
        store.open_campaign(sample_campaign("b"))
    assert not list(path.parent.glob("*.lock"))


STARTING = """
import os, sys, time
from pathlib import Path
from gnomon.store.sqlite import SqliteStore
from tests.store.contract import sample_campaign
store = SqliteStore.open(Path(sys.argv[1]))
store.open_campaign(sample_campaign("a"))
if os.fork() == 0:
    time.sleep(0.3)
    os._exit(0)
os.kill(os.getpid(), 9)
"""


def test_one_killed_while_it_started_a_process_holds_nothing(path: Path) -> None:
    """The process that was about to be another program has the lock for a moment more."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", STARTING, str(path)], check=False, timeout=60)
    with SqliteStore.open(path) as store:
        assert not list(store.query(CampaignQuery(held=True)))
        assert unfinished(store) == "a"


def test_what_a_store_holds_itself_is_its_own_to_take_up(path: Path) -> None:
    with SqliteStore.open(path) as store, SqliteStore.open(path) as other:
        store.open_campaign(sample_campaign("a"))
        store.open_campaign(sample_campaign("a"))
        assert (unfinished(store), unfinished(other)) == ("a", None)
        with pytest.raises(RecordError):
            other.open_campaign(sample_campaign("a"))
        store.close()
        assert unfinished(other) == "a"
        other.open_campaign(sample_campaign("a"))


def test_what_is_refused_is_not_held(path: Path) -> None:
    with SqliteStore.open(path) as store, SqliteStore.open(path) as other:
        other.open_campaign(sample_campaign("a"))
        other.close()
        with pytest.raises(RecordError, match="another campaign"):
            store.open_campaign(sample_campaign("a", kind="another"))
        assert not list(path.parent.glob("*.lock"))


def test_an_id_is_no_path(path: Path) -> None:
    with SqliteStore.open(path) as store:
        store.open_campaign(sample_campaign("../../x"))
        assert [p.parent for p in path.parent.glob("*.lock")] == [path.parent]


TURN = """
import sys
from pathlib import Path
from gnomon.store.sqlite import SqliteStore
from gnomon.system import locks
from tests.store.contract import sample_campaign, sample_run
locks._PATIENCE_S = 60.0  # on a busy machine the turns of five others may take longer than a moment
with SqliteStore.open(Path(sys.argv[1])) as store:
    store.open_campaign(sample_campaign("a"))
    store.append("a", sample_run(block=int(sys.argv[2])))
"""


def test_many_who_come_at_once_take_turns(path: Path) -> None:
    """Each takes the lock of the same campaign as soon as the one before it removed that."""
    SqliteStore.open(path).close()
    made = [subprocess.Popen([sys.executable, "-c", TURN, str(path), str(k)]) for k in range(6)]
    assert [process.wait(timeout=120) for process in made] == [0] * 6
    with SqliteStore.open(path) as store:
        assert {run.block for run in store.query(RunQuery(campaign="a"))} == set(range(6))
    assert not list(path.parent.glob("*.lock"))


def test_what_killed_processes_left_is_swept(path: Path) -> None:
    """And nothing that is held, nor what is another record's."""
    other = path.with_name("record.sqlite.0123.lock")
    other.touch()
    live, _ = holder(path, "live")
    with live, SqliteStore.open(path) as store:
        left = [path.with_name(f"record.sqlite.{digit * 24}.lock") for digit in "0f"]
        for file in left:
            file.write_text("999999999")
        store.open_campaign(sample_campaign("mine"))
        assert not any(file.exists() for file in left)
        assert len([*path.parent.glob("*.lock")]) == 3  # those of both campaigns, and the other file
        with pytest.raises(RecordError, match="another gnomon"):
            store.open_campaign(sample_campaign("live"))
        assert live.stdin is not None
        live.stdin.close()
        live.wait()
    assert [*path.parent.glob("*.lock")] == [other]
