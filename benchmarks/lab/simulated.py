"""Simulated devices, and the job that is done on one: what `benchmarks.lab.suite` has workers call."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DIES_AFTER = 3
"""A device that dies does so after so many jobs."""


def simulate(task: Mapping[str, Any]) -> dict[str, Any]:
    """Wait as long as a measurement takes, and write down that it was made, as a job does in its record.

    The folder `out` has a file `dying` with the names of devices that die, and gets `done/CELL`, the answer, which a
    second call finds; a line a measurement in `measured`; and files named as this process in `workers`.
    """
    out, cell, device = Path(task["out"]), task["cell"]["id"], task["device"]
    (out / "workers" / str(os.getpid())).touch()
    answer = out / "done" / cell
    if answer.exists():
        found: dict[str, Any] = json.loads(answer.read_text())
        return found
    if device in _dying(str(out)):
        used = out / "used" / device
        count = used.stat().st_size if used.exists() else 0
        with used.open("a") as file:
            file.write(".")
        if count >= DIES_AFTER:
            error = {"kind": "device", "message": f"{device} is dead", "hint": "", "of_device": True}
            return {"error": error, "seconds": 0.0, "host": "simulated"}
    seconds = random.Random(cell).uniform(0.2, 1.0)
    time.sleep(seconds)
    told = {"error": None, "answer": "simulated", "seconds": seconds, "host": "simulated", "document": None}
    handle = os.open(out / "measured", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(handle, f"{cell}\n".encode())
    finally:
        os.close(handle)
    new = answer.with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps(told))
    new.rename(answer)
    return told


_known: dict[str, frozenset[str]] = {}


def _dying(out: str) -> frozenset[str]:
    if out not in _known:
        _known[out] = frozenset((Path(out) / "dying").read_text().split())
    return _known[out]
