"""A suite on boards behind labgrid, one of which disappears and returns all the time.

Loopback SSH servers, each with its own home, stand for the boards; labgrid's own coordinator and exporter lend them
out. `gnomon suite run` profiles a tiny model `--jobs` times on each board, with gnomon's defaults except that a profile
has one process. The server of one board is killed with all its sessions every 20 to 60 s, and started again 1 to 10 s
later. Target: with ten boards and twenty jobs for each, all jobs are done, and no place stays acquired.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.common import parser, publish, spread
from benchmarks.lab.many import tiny_model
from gnomon.store.base import CELL, CampaignQuery, last_note
from gnomon.store.opening import read_store


class Flapping(threading.Thread):
    """Kills the server of a board and starts it again, until `end` is called."""

    def __init__(self, server: Any, seed: int) -> None:
        super().__init__(daemon=True)
        self._server, self._random, self._ending = server, random.Random(seed), threading.Event()
        self.away_s: list[float] = []

    def run(self) -> None:
        """Kill and start the server until the end, and leave it running."""
        while not self._ending.wait(self._random.uniform(20, 60)):
            began_s = time.monotonic()
            self._server.stop()
            self._ending.wait(self._random.uniform(1, 10))
            self._server.start()
            self.away_s.append(time.monotonic() - began_s)

    def end(self) -> None:
        """Stop killing the server."""
        self._ending.set()
        self.join()


def places(boards: int, jobs: int, seed: int) -> dict[str, Any]:
    """One suite with this many jobs on each board."""
    from tests.devices.labgridkit import lab, options, service
    from tests.devices.shell.sshkit import ssh_server

    with tempfile.TemporaryDirectory(prefix="gnomon-places-") as made, ExitStack() as stack:
        folder = Path(made)
        inherited = {n: v for n, v in os.environ.items() if n in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")}
        names = [f"b{number}" for number in range(boards)]
        servers = {name: stack.enter_context(ssh_server(folder / name, environment=inherited)) for name in names}
        lines = []
        for name, server in servers.items():
            lines += [
                f"[devices.{name}]",
                f'address = "labgrid:{name}"',
                f'python = "{sys.executable}"',
                f"ssh_options = {json.dumps(options(server))}",
                'tags = ["bench"]',
            ]
        (folder / "devices.toml").write_text("\n".join(lines) + "\n")
        tiny_model(folder / "tiny.onnx")
        (folder / "suite.toml").write_text(
            f'name = "places"\n[[cells]]\njobs = ["profile"]\nmodels = ["tiny.onnx"]\ndevices = ["@bench"]\n'
            f'repeats = {jobs}\noptions = {{ runtimes = ["onnxruntime"], processes = 1 }}\n'
        )
        labgrid = stack.enter_context(lab(folder / "lab", {name: service(server) for name, server in servers.items()}))
        flapping = Flapping(servers[names[0]], seed)
        flapping.start()
        record = folder / "record.sqlite"
        argv = [sys.executable, "-c", "from gnomon.cli.main import main; main()"]
        argv += ["suite", "run", str(folder / "suite.toml"), "--record", str(record), "--json"]
        env = {**os.environ, "GNOMON_HOME": str(folder), "LG_COORDINATOR": labgrid.address}
        began_s = time.monotonic()
        done = subprocess.run(argv, env=env, cwd=folder, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - began_s
        flapping.end()
        found = json.loads(done.stdout)
        if "cells" not in found:
            raise SystemExit(f"{done.stdout}\n{done.stderr}")
        with read_store(record) as store:
            notes = [last_note(store, c.id, CELL) for c in store.query(CampaignQuery(kind="profile"))]
        measured = Counter(note["cell"] for note in notes if note)
        return {
            "boards": boards,
            "jobs": len(found["cells"]),
            "exit_code": done.returncode,
            "done": found["done"],
            "failed": found["failed"],
            "of_the_flapping_board": sum(c["device"] == names[0] and c["state"] == "done" for c in found["cells"]),
            "campaigns_a_cell": max(measured.values(), default=0),
            "times_away": len(flapping.away_s),
            "away_s": spread(flapping.away_s) if flapping.away_s else None,
            "places_held": labgrid.held(),
            "reservations": labgrid.client("reservations").splitlines(),
            "private_folders": sum(len(server.private_folders()) for server in servers.values()),
            "seconds": seconds,
            "job_seconds": spread([c["seconds"] for c in found["cells"] if c["seconds"] is not None] or [0.0]),
            "failures": sorted({c["error"]["message"] for c in found["cells"] if c["error"]})[:5],
            "last_words": done.stderr[-300:],
        }


def main() -> None:
    """Run the whole lab, or a smaller one."""
    from tests.devices.labgridkit import missing

    made = parser(__doc__)
    made.add_argument("--boards", type=int, default=10)
    made.add_argument("--jobs", type=int, default=20, help="on each board")
    made.add_argument("--seed", type=int, default=0)
    asked = made.parse_args()
    if what := missing():
        raise SystemExit(what)
    publish({"benchmark": "places", **places(asked.boards, asked.jobs, asked.seed)}, asked)


if __name__ == "__main__":
    main()
