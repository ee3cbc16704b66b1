"""Searches that run on a board by themselves: brought there, left alone, killed, stopped, gone on with, and fetched."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.bad_days.boardkit import Board, running_board, site_of, switch_off, switch_on
from tests.bad_days.livekit import add_circle, recorded
from tests.devices.shell.sshkit import becomes

import gnomon
from gnomon.cli.main import run
from gnomon.core.sample import Campaign
from gnomon.devices.config import DeviceConfig, add_device
from gnomon.devices.opening import opened
from gnomon.errors import DeviceError, GnomonError, RuntimeMissingError, UsageError
from gnomon.formats.pareto.dump import read_dump
from gnomon.jobs.devices.job import clean_device
from gnomon.jobs.pareto.job import pareto
from gnomon.jobs.pareto.records import ParetoRequest
from gnomon.jobs.pareto.search import Plan
from gnomon.jobs.unattended import job as unattended_carry
from gnomon.jobs.unattended.device import fetch_unattended
from gnomon.jobs.unattended.job import (
    carry_pareto,
    remove_unattended,
    start_unattended,
    stop_unattended,
    unattended_job,
    unattended_jobs,
)
from gnomon.measure.effort import Effort
from gnomon.session.request import THIS_MACHINE, Request
from gnomon.store.base import CampaignQuery
from gnomon.store.sqlite import SqliteStore

pytestmark = pytest.mark.devices

QUICK = Effort(processes_least=1, processes_most=1, budget_s=1.0)
BRUTE = Plan(name="brute")
MODEL = "-it's a \u00e9 model; $(rm).circle"


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """A board with a bare Python."""
    with running_board(tmp_path_factory.mktemp("board")) as running:
        yield running
        for path in jobs_of(running).glob("*/started.json"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(json.loads(path.read_text())["pid"], signal.SIGKILL)


@pytest.fixture(autouse=True)
def no_job_is_left(board: Board) -> Iterator[None]:
    """What one test leaves when it fails is nothing to the next."""
    yield
    for pid in processes(board):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(jobs_of(board), ignore_errors=True)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is put together for boards is the same for all tests."""
    return tmp_path_factory.mktemp("site")


@pytest.fixture
def model(tmp_path: Path, own_home: Path, packages: Path) -> Path:
    """A model of two backends and three operators, in a file with a name that nobody should quote wrongly."""
    own_home.mkdir()
    (own_home / "site").symlink_to(packages)
    path = tmp_path / MODEL
    path.write_bytes(add_circle())
    return path


def asked_of(model: Path, device: DeviceConfig, **changes: Any) -> ParetoRequest:
    """A search of all four assignments by operator."""
    request = Request(model=model, device=device, effort=QUICK, runtimes=("onert",))
    return replace(ParetoRequest(request=request, by="operator", plan=BRUTE), **changes)


def jobs_of(board: Board) -> Path:
    return board.server.home / ".local" / "share" / "gnomon" / "unattended"


def stage_of(board: Board, job: str) -> tuple[str, int]:
    """How far a job is, by its own file."""
    try:
        found = json.loads((jobs_of(board) / job / "progress.json").read_text())
    except FileNotFoundError:
        return "", 0
    return found["stage"], found["done"]


def process_of(board: Board, job: str) -> int:
    return int(json.loads((jobs_of(board) / job / "started.json").read_text())["pid"])


def processes(board: Board) -> list[int]:
    """What runs for jobs: it has its temporary files in their folders."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            variables = (entry / "environ").read_bytes().split(b"\0")
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if state not in "ZX" and any(v.startswith(f"TMPDIR={jobs_of(board)}".encode()) for v in variables):
                found.append(int(entry.name))
    return found


def ended(board: Board, job: str) -> bool:
    """Whether a job says so, waiting for it: by its file, so that nothing disturbs it."""
    return becomes(lambda: (jobs_of(board) / job / "exit.json").exists())


def campaigns(record: Path) -> list[Campaign]:
    with SqliteStore.open(record) as store:
        return list(store.query(CampaignQuery()))


@contextlib.contextmanager
def held(board: Board) -> Iterator[None]:
    """Somebody else measures on the board."""
    board.server.leases.mkdir(exist_ok=True)
    with (board.server.leases / "lease-local.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("4711\n")
        file.flush()
        yield


@pytest.mark.slow
def test_a_search_runs_by_itself_and_comes_home(
    board: Board, model: Path, tmp_path: Path, own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_device(board.config())
    words = ["--search", "brute", "--processes", "1", "-n", "1", "--budget", "1", "--runtime", "onert"]
    where = ["--device", "board"]
    more = ["--pick", "1", "--dumpfile", "d.json", "--out", str(tmp_path / "own"), "--quiet", "--json"]
    assert run(["pareto", *words, *where, *more, "--unattended", "--", str(model)]) == 0
    told = json.loads(capsys.readouterr().out)
    board.server.kill_sessions()
    job = told["job"]["id"]
    assert (told["started"], told["made"], told["job"]["model"]) == (True, True, MODEL)
    assert ended(board, job)
    assert becomes(lambda: not processes(board))

    out, record = tmp_path / "home coming", own_home / "record.sqlite"
    assert run(["unattended", "fetch", job[:5], *where, "--out", str(out), "--json", "--quiet"]) == 0
    fetched = json.loads(capsys.readouterr().out)
    assert fetched["job"]["state"] == "done"
    found = fetched["document"]
    assert (found["certificate"], found["search"]["evaluations"], found["device"]) == ("complete", 2, "board")
    assert found["model"]["path"] == str(model)
    assert found["verified"]["ok"]
    assert found["package"] == str(out / "own")
    assert (out / "own" / "plan.json").is_file()
    assert (out / "front.svg").is_file()
    assert len(read_dump((out / "d.json").read_bytes()).solutions) == 2
    assert found["dumpfile"] == str(out / "d.json")
    assert fetched["runs"] == sum(recorded(record).values()) > 0
    _twice_is_nothing_new(board, job, out, record)
    asked = asked_of(model, board.config(), by="type")
    _the_host_goes_on(board, asked, found, record)
    _the_same_is_there(replace(asked, pick=1, dumpfile=Path("d.json"), out=tmp_path / "own"), job)
    for word in ("list", "status"):
        assert run(["unattended", word, *([job] if word == "status" else []), *where]) == 0
        assert f"{job}" in (text := capsys.readouterr().out)
        assert "done" in text
    remove_unattended(job, device="board")
    assert unattended_jobs("board") == ()


def _twice_is_nothing_new(board: Board, job: str, out: Path, record: Path) -> None:
    before = recorded(record)
    again = fetch_unattended("last", device="board", out=out)
    assert (again.job.id, again.runs, again.campaigns) == (job, 0, 0)
    assert recorded(record) == before
    assert not [path for path in out.iterdir() if path.name.startswith(".")]


def _the_host_goes_on(board: Board, asked: ParetoRequest, found: dict[str, Any], record: Path) -> None:
    """Without the board by what it brought, and with it in the same campaign, without running anything again."""
    request = asked.request
    assert request is not None
    switch_off(board)
    try:
        again = pareto(replace(asked, request=replace(request, measure=False)))
    finally:
        switch_on(board)
    assert [point.label for point in again.front] == [p["label"] for p in found["points"] if p["number"]]
    before = recorded(record)
    live = pareto(asked)
    assert live.lived is not None
    assert (live.lived.campaign, live.searched.replayed) == (found["campaign"], 2)
    assert recorded(record) == before
    assert [c.id for c in campaigns(record)] == [found["campaign"]]


def _the_same_is_there(asked: ParetoRequest, job: str) -> None:
    again = carry_pareto(asked)
    assert (again.job.id, again.job.state, again.started, again.made) == (job, "done", False, False)
    kept = clean_device("board")
    assert kept.entries > 0
    assert kept.jobs == (job,)


@pytest.mark.slow
def test_killed_in_the_middle_and_gone_on_with(board: Board, model: Path, tmp_path: Path, own_home: Path) -> None:
    add_device(board.config())
    asked = asked_of(model, board.config(), dumpfile=Path("pareto.json"))
    job = carry_pareto(asked).job.id
    dump = jobs_of(board) / job / "out" / "dump" / "pareto.json"
    assert becomes(lambda: ("search", 0) < stage_of(board, job) < ("search", 4) and dump.exists())
    os.kill(process_of(board, job), signal.SIGSTOP)  # so that it is still there when it is fetched
    middle = fetch_unattended(job, device="board", out=tmp_path / "out")
    assert (middle.job.state, middle.document) == ("running", None)
    assert middle.job.stage is not None
    assert (middle.job.stage.name, middle.job.stage.total) == ("search", 4)
    assert middle.runs > 0
    assert 1 <= len(read_dump((tmp_path / "out" / "own-pareto.json").read_bytes()).solutions) < 4
    os.kill(process_of(board, job), signal.SIGKILL)
    assert becomes(lambda: not processes(board))
    (found,) = unattended_jobs("board")
    assert (found.state, found.id, found.exit_code) == ("vanished", job, None)
    assert "killed" in found.reason
    done = stage_of(board, job)[1]

    again = carry_pareto(asked)
    assert (again.job.id, again.started, again.made, again.job.starts) == (job, True, False, 2)
    assert ended(board, job)
    whole = fetch_unattended(job, device="board", out=tmp_path / "out")
    assert whole.job.state == "done"
    assert whole.document is not None
    assert whole.document["search"]["replayed"] >= done
    assert whole.document["search"]["evaluations"] == 4
    assert whole.document["resumed"]
    assert max(recorded(own_home / "record.sqlite").values()) == 1
    assert start_unattended(job, device="board").starts == 3  # it may be started again, and has nothing to measure
    assert ended(board, job)
    stop_unattended(job, device="board")
    remove_unattended(job, device="board")
    assert not list(jobs_of(board).iterdir())


@pytest.mark.slow
def test_two_jobs_wait_for_each_other_and_end_when_they_are_told(board: Board, model: Path, own_home: Path) -> None:
    add_device(board.config())
    asked = asked_of(model, board.config(), by="type")
    first = carry_pareto(asked).job.id
    assert (stop_unattended(first, device="board").state, processes(board)) == ("stopped", [])
    second = carry_pareto(replace(asked, objectives=("latency",))).job.id
    assert (stop_unattended("last", device="board").id, processes(board)) == (second, [])
    assert [job.id for job in unattended_jobs("board")] == [second, first]
    with pytest.raises(UsageError, match="no job 'abcdef'") as missing:
        unattended_job("abcdef", device="board")
    assert first in missing.value.hint
    with held(board):
        for job in (first, second):
            assert start_unattended(job, device="board").alive
        assert becomes(lambda: {stage_of(board, job)[0] for job in (first, second)} == {"waiting for the device"})
        waiting = unattended_job(first, device="board")
        assert (waiting.state, "4711" in waiting.reason) == ("waiting", True)
        with pytest.raises(UsageError, match="runs") as refused:
            remove_unattended(first, device="board")
        assert f"stop {first}" in refused.value.hint
        assert stop_unattended(first[:6], device="board").state == "stopped"
        assert start_unattended(first, device="board").starts == 3
    for job in (first, second):
        assert ended(board, job)
        assert remove_unattended(job, device="board").state == "done"
    assert becomes(lambda: not processes(board))


def refusal(asked: ParetoRequest) -> GnomonError:
    with pytest.raises(GnomonError) as refused:
        carry_pareto(asked)
    assert refused.value.hint
    return refused.value


def test_what_cannot_be_carried_is_told_before_anything_is_reached(model: Path) -> None:
    assert all(getattr(gnomon, name) for name in gnomon.__all__)
    with pytest.raises(UsageError, match="reached by ssh"):
        gnomon.pareto_unattended(model, search="brute")
    nowhere = replace(THIS_MACHINE, name="far")
    unreached = asked_of(model, nowhere)
    request = unreached.request
    assert request is not None
    assert "reached by ssh" in refusal(unreached).message
    for change in (
        {"source": model},
        {"request": replace(request, measure=False)},
        {"request": replace(request, effort=Effort(rounds=2))},
        {"objectives": ("beauty",)},
        {"plan": Plan(name="magic")},
        {"pick": 1, "under": {"latency": 1.0}},
    ):
        assert isinstance(refusal(replace(unreached, **change)), UsageError)


@contextlib.contextmanager
def stand_in(board: Board, program: str) -> Iterator[None]:
    """Something of the board's Python is otherwise, as on another board."""
    # Not as sitecustomize: Debian's Python has one of its own, which is found first.
    place = site_of(board.python.parent.parent)
    (place / "board_stand_in.py").write_text(program, encoding="utf-8")
    (place / "board_stand_in.pth").write_text("import board_stand_in\n", encoding="utf-8")
    try:
        yield
    finally:
        (place / "board_stand_in.pth").unlink()
        (place / "board_stand_in.py").unlink()


def test_a_board_that_lacks_something_is_told_before_anything_is_started(
    board: Board, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asked_of(model, board.config())
    with stand_in(board, "import platform\nplatform.python_version = lambda: '3.10.14'\n"):
        old = refusal(asked)
    assert isinstance(old, RuntimeMissingError)
    assert "Python 3.10.14" in old.message
    assert "3.11" in old.message
    monkeypatch.setattr(unattended_carry, "_IMPORTS", "import module_that_the_board_lacks")
    bare = refusal(asked)
    assert isinstance(bare, RuntimeMissingError)
    assert "module_that_the_board_lacks" in bare.message
    assert not jobs_of(board).exists() or not list(jobs_of(board).iterdir())
    assert board.clean()


@pytest.mark.parametrize("kind", ["a file", "others may write", "full"])
def test_a_folder_that_cannot_hold_jobs(
    board: Board, model: Path, tmp_path: Path, kind: str, mounted: Callable[[str], Path]
) -> None:
    folder = mounted("size=1m") if kind == "full" else tmp_path / "folder"
    folder.mkdir(exist_ok=True)
    if kind == "a file":
        (folder / "unattended").write_text("mine")
    elif kind == "others may write":
        (folder / "unattended").mkdir()
        (folder / "unattended").chmod(0o777)
    refused = refusal(asked_of(model, board.config(folder=str(folder))))
    assert isinstance(refused, DeviceError)
    assert str(folder) in refused.message
    assert not list(folder.glob("unattended/*"))
    assert board.clean()


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a small file system."""
    import subprocess

    folder = tmp_path / "disk"

    def mount(options: str) -> Path:
        folder.mkdir()
        line = ["mount", "-t", "tmpfs", "-o", f"mode=700,{options}", "none", str(folder)]
        done = subprocess.run(line, capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
        return folder

    yield mount
    if folder.exists():
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_visit_without_the_lease_neither_waits_nor_pushes(board: Board, tmp_path: Path, own_home: Path) -> None:
    from gnomon.devices.opening import visited

    with opened(board.config()) as holder, visited(board.config()) as guest:
        assert guest.run(["true"], env={}, timeout_s=60).ok
        pushed = holder.push(board.python.resolve(), "python")
        with pytest.raises(DeviceError, match="not held"):
            guest.push(board.python.resolve(), "python")
        guest.pull(pushed, tmp_path / "copy")
    assert (tmp_path / "copy").stat().st_size == board.python.resolve().stat().st_size
    assert board.clean()
