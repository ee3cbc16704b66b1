"""A job that stands for measuring: it notes each call in a file, and waits or fails as files say."""

from __future__ import annotations

import os
import time
from pathlib import Path

from gnomon.jobs.suite.document import ErrorPart, cell_part
from gnomon.jobs.suite.job import Outcome, SuiteRequest
from gnomon.jobs.suite.plan import Cell

REAL = """name = "real"
probe = false
[[cells]]
jobs = ["profile"]
models = ["m.onnx"]
devices = ["local"]
repeats = 2
options = { runtimes = ["onnxruntime"], threads = 1, processes = 1 }
"""


def laid_out(home: Path, devices: str, models: int) -> SuiteRequest:
    """Devices of one tag, named by a letter each; a suite of so many models on two of them, twice."""
    (home / "devices.toml").write_text(
        "".join(f'[devices.{name}]\naddress = "ssh://{name}"\ntags = ["x"]\n' for name in devices)
    )
    for number in range(models):
        (home / f"m{number}.onnx").touch()
    (home / "suite.toml").write_text(
        'name = "x"\n[[cells]]\njobs = ["place"]\nmodels = ["*.onnx"]\ndevices = ["2 of any @x"]\nrepeats = 2\n'
    )
    return SuiteRequest(path=home / "suite.toml", record=home / "record.sqlite", out=home)


def measure(cell: Cell, device: str, *, out: str, **_: object) -> Outcome:
    """Note the call in `out`/calls; a device in the file `out`/dead fails, and `out`/slow are seconds to wait."""
    folder = Path(out)
    with (folder / "calls").open("a") as file:
        file.write(f"{cell.id} {device} {os.getpid()}\n")
    if (folder / "slow").exists():
        time.sleep(float((folder / "slow").read_text()))
    if (folder / "dead").exists() and device in (folder / "dead").read_text().split():
        error = ErrorPart(kind="device", message=f"{device} is dead", hint="Mend it.")
        return cell_part(cell, "failed", device=device, error=error, seconds=0.0, host="here"), None, True
    with (folder / "ended").open("a") as file:
        file.write(f"{cell.id}\n")
    part = cell_part(cell, "done", device=device, answer="fine", seconds=0.1, host="here")
    return part, {"of": cell.id}, False


def calls(out: Path) -> list[tuple[str, str, int]]:
    """The calls so far: cell, device, process."""
    if not (out / "calls").exists():
        return []
    return [(c, d, int(p)) for c, d, p in (line.split() for line in (out / "calls").read_text().splitlines())]
