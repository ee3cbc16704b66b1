"""A suite on a lab of simulated devices behind one real Dask scheduler: the cost of a job beyond measuring.

Devices have tags, and each cell wants any device with a certain tag. A job waits 0.2 to 1 s instead of measuring
(`benchmarks.lab.simulated`). One in twenty devices dies after three jobs. Two workers are killed with -9, after a fifth
and after half of the jobs, and their nannies start new ones. Processor time is that of the scheduler, the client with
its results database, and all workers, from the time at which the workers are ready until the last job is recorded.
Targets for 1,000 devices and 10,000 jobs: at most 20 ms of processor time per job, nothing lost, and nothing measured
twice.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.common import parser, publish
from benchmarks.lab.many import processes_below, stat_of
from benchmarks.lab.simulated import simulate
from gnomon.devices.address import parse_address
from gnomon.devices.config import DeviceConfig
from gnomon.jobs.suite.job import SuiteRequest, measure_cells
from gnomon.jobs.suite.plan import Block, Suite, cells_of
from gnomon.store.opening import open_store

TICKS = os.sysconf("SC_CLK_TCK")

SETTINGS = {"DISTRIBUTED__WORKER__PROFILE__ENABLED": "False", "DISTRIBUTED__SCHEDULER__WORK_STEALING": "False"}
"""Dask's settings from docs/jobs/suite.md: its profiler would look at each thread of a worker a hundred times a second.
"""


class Watched(threading.Thread):
    """Observes the processor time of all that this process has started, and kills workers at the given times."""

    def __init__(self, out: Path, kill_at: list[int]) -> None:
        super().__init__(daemon=True)
        self._out, self._kill_at, self._ending = out, kill_at, threading.Event()
        self._first: dict[int, float] = {}
        self._last: dict[int, float] = {}
        self._schedulers: set[int] = set()
        self.killed: list[int] = []
        self.look(first=True)

    def look(self, *, first: bool = False) -> None:
        """Note the processor time of each process."""
        for pid in processes_below(os.getpid()):
            with suppress(OSError, IndexError):
                used = sum(map(int, stat_of(pid)[11:13])) / TICKS
                self._last[pid] = used
                if first and b"dask_scheduler" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    self._schedulers.add(pid)
                if first:
                    self._first[pid] = used

    def run(self) -> None:
        """Observe and kill until `end` is called."""
        while not self._ending.wait(2.0):
            self.look()
            measured = self._out / "measured"
            done = measured.stat().st_size // 17 if measured.exists() else 0
            if self._kill_at and done >= self._kill_at[0]:
                self._kill_at.pop(0)
                alive = [int(p.name) for p in (self._out / "workers").iterdir()]
                pid = next(p for p in alive if p in self._last and p not in self.killed)
                os.kill(pid, signal.SIGKILL)
                self.killed.append(pid)

    def end(self) -> dict[str, float]:
        """The processor seconds of all processes, by their kind."""
        self._ending.set()
        self.join()
        self.look()
        found = {"client": 0.0, "scheduler": 0.0, "workers": 0.0}
        for pid, used in self._last.items():
            who = "client" if pid == os.getpid() else "scheduler" if pid in self._schedulers else "workers"
            found[who] += used - self._first.get(pid, 0.0)
        return found


def lab(devices: int, jobs: int, workers: int, tags: int) -> dict[str, Any]:
    """One suite with this many jobs on this many devices."""
    from tests.jobs.space.kits.daskkit import dask_cluster

    names = [f"d{number}" for number in range(devices)]
    local = parse_address("local")
    known = {
        name: DeviceConfig(name=name, address=local, tags=(f"t{number % tags}",)) for number, name in enumerate(names)
    }

    def options(number: int) -> list[str]:
        mine = names[number::workers]
        resources = " ".join(f"gnomon-{name}=1" for name in mine)
        return ["--nthreads", str(len(mine)), "--resources", resources, "--memory-limit", "0"]

    with tempfile.TemporaryDirectory(prefix="gnomon-lab-") as made:
        out = Path(made) / "out"
        for name in ("done", "used", "workers"):
            (out / name).mkdir(parents=True)
        (out / "dying").write_text(" ".join(names[::20]))
        block = Block(
            jobs=("table",),
            models=tuple(f"m{number}" for number in range(jobs // tags)),
            devices=tuple(f"1 of @t{tag}" for tag in range(tags)),
        )
        suite = Suite(name="lab", cells=(block,))
        cells = cells_of(suite, out, known)
        with dask_cluster(Path(made), workers=workers, options=options) as address:
            wait_for(address, workers)
            watched = Watched(out, [jobs // 5, jobs // 2])
            watched.start()
            began_s = time.monotonic()
            asked = SuiteRequest(path=out, record=Path(made) / "record.sqlite", out=out, cluster=address)
            with open_store(asked.record) as store:
                found = measure_cells(asked, suite, cells, simulate, store)
            seconds = time.monotonic() - began_s
            cpu_s = watched.end()
        measured = Counter((out / "measured").read_text().split())
        waits_s = sum(part.seconds or 0.0 for part in found.cells)
    return {
        "devices": devices,
        "jobs": len(cells),
        "workers": workers,
        "done": found.done,
        "failed": found.failed,
        "lost": sum(cell.id not in measured for cell in cells),
        "measured_twice": sum(count > 1 for count in measured.values()),
        "devices_dead": len(names[::20]),
        "devices_out": len(found.out),
        "workers_killed": len(watched.killed),
        "seconds": seconds,
        "ideal_seconds": waits_s / devices,
        "cpu_s": cpu_s,
        "cpu_ms_a_job": 1e3 * sum(cpu_s.values()) / len(cells),
    }


def wait_for(address: str, workers: int) -> None:
    """Wait until all workers are ready."""
    from gnomon.system.cluster import connected

    with connected(address) as client:
        client.wait_for_workers(workers, timeout=120)


def main() -> None:
    """Run the whole lab, or a smaller one."""
    made = parser(__doc__)
    made.add_argument("--devices", type=int, nargs="+", default=[100, 1000])
    made.add_argument("--jobs-a-device", type=int, default=10)
    made.add_argument("--workers", type=int, default=8)
    made.add_argument("--tags", type=int, default=10)
    asked = made.parse_args()
    os.environ.update({f"DASK_{name}": value for name, value in SETTINGS.items()})
    runs = [lab(n, n * asked.jobs_a_device, asked.workers, asked.tags) for n in asked.devices]
    publish({"benchmark": "suite", "runs": runs}, asked)


if __name__ == "__main__":
    main()
