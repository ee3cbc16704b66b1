"""Simulated devices, and the job on such a device, which `benchmarks.lab.suite` has workers call."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from gnomon.core import codec
from gnomon.jobs.suite.document import CellPart, ErrorPart, cell_part
from gnomon.jobs.suite.job import Outcome
from gnomon.jobs.suite.plan import Cell

DIES_AFTER = 3
"""The number of jobs after which a device that is chosen to die does so."""


def simulate(cell: Cell, device: str, *, out: str, **_: object) -> Outcome:
    """Wait as long as a measurement takes, and record it, as a job would in its results database.

    The folder `out` has a file `dying` with the names of the devices that die. It gets `done/CELL` with the answer,
    which a second call finds; a line for each measurement in `measured`; and files in `workers` that are named after
    the process.
    """
    folder = Path(out)
    (folder / "workers" / str(os.getpid())).touch()
    answer = folder / "done" / cell.id
    if answer.exists():
        return codec.from_json(CellPart, codec.loads(answer.read_text())), None, False
    if device in _dying(out):
        used = folder / "used" / device
        count = used.stat().st_size if used.exists() else 0
        with used.open("a") as file:
            file.write(".")
        if count >= DIES_AFTER:
            error = ErrorPart(kind="device", message=f"{device} is dead", hint="")
            return cell_part(cell, "failed", device=device, error=error, seconds=0.0, host="simulated"), None, True
    seconds = random.Random(cell.id).uniform(0.2, 1.0)
    time.sleep(seconds)
    part = cell_part(cell, "done", device=device, answer="simulated", seconds=seconds, host="simulated")
    handle = os.open(folder / "measured", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(handle, f"{cell.id}\n".encode())
    finally:
        os.close(handle)
    new = answer.with_suffix(f".{os.getpid()}")
    new.write_text(codec.dumps(part))
    new.rename(answer)
    return part, None, False


_known: dict[str, frozenset[str]] = {}


def _dying(out: str) -> frozenset[str]:
    if out not in _known:
        _known[out] = frozenset((Path(out) / "dying").read_text().split())
    return _known[out]
