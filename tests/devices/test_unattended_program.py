"""The program that keeps jobs on a device, without any device: states, ids, what is made, stopped and left behind."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gnomon.devices import unattended as program
from gnomon.devices import unattended as state
from gnomon.devices.unattended import Refused

ID = "0123abcd"


def made(root: Path, tmp_path: Path, *, id: str = ID, fresh: bool = False, subject: str = "s") -> Path:
    """A job that was made of a small tree."""
    source = tmp_path / "pushed"
    (source / "below").mkdir(parents=True, exist_ok=True)
    (source / "below" / "file").write_text("content")
    job = {"fresh": fresh, "subject": subject, "command": [], "model": "m"}
    answer = program.make({"root": str(root), "id": id, "parts": {"gnomon": str(source)}, "devices": "", "job": job})
    return Path(answer["folder"])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "it's a root" / "unattended"


def say(folder: Path, name: str, **values: Any) -> None:
    (folder / f"{name}.json").write_text(json.dumps(values))


@contextmanager
def running(folder: Path) -> Iterator[None]:
    """The lock of a job, as its process holds it."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def told(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = program.show({"root": str(root), "id": "last"})["job"]
    return found


def test_a_job_is_made_of_links_and_runs_the_same_python(root: Path, tmp_path: Path) -> None:
    folder = made(root, tmp_path)
    assert (folder / "gnomon" / "below" / "file").samefile(tmp_path / "pushed" / "below" / "file")
    python = folder / "python" / "bin" / "python3"
    line = "import json, sys; print(json.dumps([sys.version, sys.prefix, sys.path]))"
    done = subprocess.run([python, "-E", "-s", "-P", "-c", line], capture_output=True, text=True, check=True)
    version, prefix, path = json.loads(done.stdout)
    assert (version, prefix) == (sys.version, str(folder / "python"))
    assert path.index(str(folder / "gnomon")) == min(i for i, p in enumerate(path) if p.startswith(str(folder / "gn")))
    assert not list(root.glob(".part-*"))
    assert told(root)["state"] == "stopped"
    assert program.remove({"root": str(root), "id": ID})["job"]["id"] == ID
    assert list(root.iterdir()) == []
    assert (tmp_path / "pushed" / "below" / "file").read_text() == "content"


def test_the_states(root: Path, tmp_path: Path) -> None:
    folder = made(root, tmp_path)
    say(folder, "started", pid=1, boot=state.boot(), at_s=1.0, starts=1)
    assert (told(root)["state"], "killed" in told(root)["reason"]) == ("vanished", True)
    say(folder, "started", pid=1, boot="another", at_s=1.0, starts=1)
    assert (told(root)["state"], "restarted" in told(root)["reason"]) == ("vanished", True)
    for code, wanted in ((0, "done"), (2, "failed"), (7, "failed"), (130, "stopped"), (143, "stopped")):
        say(folder, "exit", code=code, at_s=2.0)
        assert (told(root)["state"], told(root)["exit_code"]) == (wanted, code)
    with running(folder):
        assert told(root)["state"] == "running"
        say(folder, "progress", stage=state.WAITING, done=0, total=1, why="process 1 measures there")
        assert (told(root)["state"], told(root)["reason"]) == ("waiting", "process 1 measures there")
        with pytest.raises(Refused, match="running"):
            program.remove({"root": str(root), "id": ID})
        assert not program.start({"root": str(root), "id": ID})["started"]
    (folder / "log").write_bytes(b"\xff\x1b" + b"line\n" * 9999)
    assert len(told(root)["log"]) == 20
    for name in ("started", "exit", "progress"):
        (folder / f"{name}.json").write_bytes(b"[1, 2")
    assert told(root)["state"] == "stopped"


def test_what_starts_is_one_session_and_stops_whole(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = "import subprocess, time; subprocess.Popen(['sleep', '600'], start_new_session=True); time.sleep(600)"
    monkeypatch.setattr(program, "_STARTER", child)
    folder = made(root, tmp_path)
    assert program.start({"root": str(root), "id": ID})["started"]
    assert state.within(20, lambda: len(state.left(str(folder))) == 2)
    assert told(root)["state"] == "running"
    assert os.getsid(json.loads((folder / "started.json").read_text())["pid"]) != os.getsid(0)
    monkeypatch.setattr(program, "_END_S", 0.2)  # what is left is not worth waiting for
    assert program.stop({"root": str(root), "id": ID})["left"] == 0
    assert told(root)["state"] == "vanished"  # this one has no gnomon in it that would say more
    assert program.stop({"root": str(root), "id": ID})["left"] == 0


@pytest.mark.parametrize("id", ["", "../..", "zz", ID + "/", "last", "*", "\0", ID[:3]])
def test_ids_that_mean_no_job(root: Path, tmp_path: Path, id: str) -> None:
    if id == ID[:3]:
        made(root, tmp_path)
        made(root, tmp_path, id="012fffff")
    for deed in (program.show, program.start, program.stop, program.remove, program.collect):
        with pytest.raises(Refused) as refused:
            deed({"root": str(root), "id": id})
        assert refused.value.args[0] == ("several" if id == ID[:3] else "missing")
    if id not in ("last", ID[:3]):
        with pytest.raises(Refused):
            made(root, tmp_path, id=id)


def test_a_full_disk_leaves_nothing(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*paths: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(paths[-1]))

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", full)
        patch.setattr(shutil, "copy2", full)
        with pytest.raises(OSError, match="No space"):
            made(root, tmp_path)
    assert list(root.iterdir()) == []
    (root / ".part-dead").mkdir()
    (root / ".part-dead" / "file").write_text("of one that was killed")
    made(root, tmp_path)
    assert [path.name for path in root.iterdir()] == [ID]


def test_a_folder_that_others_may_write_to_is_not_used(root: Path, tmp_path: Path) -> None:
    root.mkdir(parents=True)
    root.chmod(0o770)
    with pytest.raises(OSError, match="others may write"):
        made(root, tmp_path)
    assert list(root.iterdir()) == []


def test_a_new_job_begins_with_the_record_of_the_newest_like_it(root: Path, tmp_path: Path) -> None:
    for id, subject, value in (("aaaa", "s", 1), ("bbbb", "s", 2), ("cccc", "other", 3)):
        folder = made(root, tmp_path, id=id, subject=subject, fresh=True)
        with closing(sqlite3.connect(folder / "home" / "record.sqlite")) as record:
            record.execute("PRAGMA journal_mode = WAL")
            record.execute(f"CREATE TABLE t AS SELECT {value} AS v")
            record.commit()
        time.sleep(0.01)
    like = made(root, tmp_path, subject="s")
    with closing(sqlite3.connect(like / "home" / "record.sqlite")) as record:
        assert record.execute("SELECT v FROM t").fetchall() == [(2,)]
    fresh = made(root, tmp_path, id="dddd", subject="s", fresh=True)
    assert not (fresh / "home" / "record.sqlite").exists()
    listed = state.list_all({"root": str(root)})["jobs"]
    assert [job["id"] for job in listed] == ["dddd", ID, "cccc", "bbbb", "aaaa"]


def test_what_is_collected(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made(root, tmp_path)
    out = folder / "out"
    for name in ("document.json", "document.json.part", ".hidden", "package/.staging/x", "package/p/plan.json"):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(name)
    (out / "link").symlink_to("/etc/passwd")
    monkeypatch.chdir(tmp_path)
    found = program.collect({"root": str(root), "id": ID})
    assert [name for name, _ in found["files"]] == ["document.json", "package/p/plan.json"]
    assert found["record"] is None
