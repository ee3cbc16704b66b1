from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.jobs.space.kits.daskkit import ROOT, dask_cluster, until
from tests.jobs.space.kits.space_worker_kit import square

from gnomon.core.sample import Failure
from gnomon.errors import DeviceError, UsageError
from gnomon.jobs.space.profiling.training import Workers
from gnomon.system import cluster as connecting


def run_all(
    count: int, cluster: str | None, work: Callable[..., int], jobs: dict[str, tuple[Any, ...]]
) -> list[tuple[str, int | Failure]]:
    with Workers(count, cluster) as workers:
        return list(workers.run_all(work, jobs))


def test_who_ends_its_worker_is_known_and_the_others_go_on(tmp_path: Path) -> None:
    ways = {3: "kill", 5: "once"}
    jobs = {str(n): (n, ways.get(n, ""), str(tmp_path)) for n in range(8)}
    found = dict(run_all(2, None, square, jobs))
    failed = found.pop("3")
    assert isinstance(failed, Failure) and failed.kind == "crash"
    assert found == {str(n): n * n for n in range(8) if n != 3}


def test_workers_stay_for_the_next_work_unless_one_is_lost(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    with Workers(1, None) as workers:
        for folder, way in zip(folders, ("", "once", ""), strict=True):
            assert dict(workers.run_all(square, {"3": (3, way, str(folder))})) == {"3": 9}
    first, second, third = ({p.name.split("-")[1] for p in folder.iterdir()} for folder in folders)
    assert first < second and not third & second


def test_workers_that_died_between_two_works_are_replaced(tmp_path: Path) -> None:
    with Workers(1, None) as workers:
        assert dict(workers.run_all(square, {"3": (3, "", str(tmp_path))})) == {"3": 9}
        (pid,) = {int(p.name.split("-")[1]) for p in tmp_path.iterdir()}
        os.kill(pid, signal.SIGKILL)
        assert dict(workers.run_all(square, {"4": (4, "", str(tmp_path))})) == {"4": 16}


def test_what_work_raises_reaches_the_caller(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no square of 1"):
        run_all(1, None, square, {"1": (1, "raise", str(tmp_path))})


def test_workers_end_with_who_started_them(tmp_path: Path) -> None:
    program = (
        "from gnomon.jobs.space.profiling.training import Workers\n"
        "from tests.jobs.space.kits.space_worker_kit import square\n"
        "if __name__ == '__main__':\n"
        "    with Workers(2, None) as workers:\n"
        f"        list(workers.run_all(square, {{str(n): (n, 'slow', {str(tmp_path)!r}) for n in range(2)}}))\n"
    )
    script = tmp_path / "starts_workers.py"
    script.write_text(program)
    started = subprocess.Popen([sys.executable, str(script)], env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        pids = until(lambda: {int(p.name.split("-")[1]) for p in tmp_path.glob("*-*-*")}, 2)
    finally:
        started.send_signal(signal.SIGKILL)
        started.wait()
    deadline = time.monotonic() + 30
    while any(_alive(pid) for pid in pids):
        assert time.monotonic() < deadline, "a worker outlived who started it"
        time.sleep(0.1)


def test_an_address_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="scheduler"):
        run_all(1, "http://127.0.0.1:1", square, {"1": (1, "", str(tmp_path))})


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """A real Dask scheduler on loopback with two workers, each under its nanny."""
    with dask_cluster(tmp_path, workers=2) as address:
        yield address


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_a_dask_cluster_does_the_same_and_survives_a_lost_worker(cluster: str, tmp_path: Path) -> None:
    folder = tmp_path / "calls"
    folder.mkdir()
    jobs = {str(n): (n, "once" if n == 2 else "", str(folder)) for n in range(6)}
    assert dict(run_all(2, cluster, square, jobs)) == {str(n): n * n for n in range(6)}
    assert len(list(folder.glob("2-*"))) == 2


@pytest.mark.slow
def test_a_scheduler_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed: pip install '.[cluster]'")
    monkeypatch.setattr(connecting, "_CONNECT_S", 1)
    with pytest.raises(DeviceError, match="no Dask scheduler answers"):
        run_all(1, "tcp://127.0.0.1:9", square, {"1": (1, "", str(tmp_path))})


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_script_without_a_guard_is_told_so_at_once(tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(
        "from gnomon.jobs.space.profiling.training import Workers\n"
        "from tests.jobs.space.kits.space_worker_kit import square\n"
        "with Workers(2, None) as workers:\n"
        f"    list(workers.run_all(square, {{'1': (1, '', {str(tmp_path)!r})}}))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode != 0
    assert "no worker process could start" in done.stderr.splitlines()[-2]
