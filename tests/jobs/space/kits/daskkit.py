"""A real Dask cluster on loopback, for the tests of what is trained on one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

Found = TypeVar("Found")
ROOT = Path(__file__).resolve().parents[4]


@contextmanager
def dask_cluster(
    folder: Path, *, workers: int, options: Callable[[int], Sequence[str]] = lambda number: ("--nthreads", "1")
) -> Iterator[str]:
    """The address of a scheduler with so many workers, each under its nanny; skips where Dask is not installed.

    `options` are those of each worker, by its number.
    """
    pytest.importorskip("distributed", reason="Dask is not installed: pip install '.[cluster]'")
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "DASK_DISTRIBUTED__ADMIN__EVENT_LOOP_MONITOR_INTERVAL": "1s",
    }
    written = folder / "scheduler.json"
    common = ["--host", "127.0.0.1", "--no-dashboard"]
    python = [sys.executable, "-m"]
    with (folder / "dask.log").open("w") as log:

        def start(program: str, *options: str) -> subprocess.Popen[bytes]:
            command = [*python, f"distributed.cli.{program}", *common, "--scheduler-file", str(written), *options]
            return subprocess.Popen(command, env=environment, stderr=log, stdout=log, start_new_session=True)

        programs = [start("dask_scheduler", "--port", "0")]
        try:
            until(lambda: {written} if written.is_file() and written.stat().st_size else set(), 1)
            for number in range(workers):
                where = str(folder / f"worker{number}")
                programs.append(start("dask_worker", *options(number), "--local-directory", where))
            yield json.loads(written.read_text())["address"]
        finally:
            for program in reversed(programs):  # a scheduler takes its time to end when asked to
                os.killpg(program.pid, signal.SIGKILL)
                program.wait()


def until(look: Callable[[], set[Found]], count: int) -> set[Found]:
    """What a look finds once it is so many; AssertionError where it does not become so."""
    deadline = time.monotonic() + 60
    while True:
        if len(found := look()) >= count:
            return found
        assert time.monotonic() < deadline, "nothing came"
        time.sleep(0.05)
