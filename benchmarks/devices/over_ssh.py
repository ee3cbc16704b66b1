"""`gnomon place` over SSH: whether it decides as on this machine, how long it takes, and what SSH adds to measured
times.

A loopback SSH server with its own home and a bare Python stands for the board; numpy and onert are pushed to it. Two
models are placed, one for which a mix pays (mix.circle) and one for which it does not (EfficientNet-Lite0). For each,
the document has the decision, the ratio, the number of operators confirmed by the trace from the device, the outputs,
and the seconds of the whole command: once with everything to be pushed, and once more. Then each model is measured
whole, alternately here and over SSH, and the ratio of these times is computed.

Targets: the decisions of `place/placement.py`; 90 s for EfficientNet-Lite0 the first time, and 45 s the second time; 10
ms per command after the first; a ratio within 2 % of 1.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import arguments, model_path, own_record, publish, spread
from benchmarks.devices.board import Board, board
from benchmarks.place.placement import figures
from gnomon.core.stats import order_statistic_interval
from gnomon.devices.opening import opened
from gnomon.jobs.place.inside import InsidePlacer
from gnomon.jobs.place.job import place
from gnomon.measure.effort import Effort
from gnomon.session.model_session import open_session
from gnomon.session.reference import reference
from gnomon.session.request import THIS_MACHINE, ModelRequest

MODELS = ("mix.circle", "efficientnet-lite0.circle")
ROUNDS = 40


def commands(there: Board) -> dict[str, Any]:
    """The milliseconds that a command without any work takes, from the second command on."""
    with opened(there.config) as device:
        device.run(["true"], env={}, timeout_s=10)
        taken = []
        for _ in range(200):
            start = time.perf_counter()
            device.run(["true"], env={}, timeout_s=10)
            taken.append(1e3 * (time.perf_counter() - start))
    return spread(taken)


def placements(there: Board, name: str, record: Path, folder: Path) -> dict[str, Any]:
    """A model placed twice: first with everything to be pushed, then with nothing to be pushed."""
    there.forget()
    found = []
    for number in range(2):
        request = ModelRequest(model=model_path(name), device=there.config, record=record, fresh=True)
        start = time.monotonic()
        placed = place(request, folder / f"{name}-{number}")
        found.append({**figures(name, placed), "command_s": time.monotonic() - start})
    return {"model": name, "first": found[0], "second": found[1]}


def beside(there: Board, name: str, record: Path) -> dict[str, Any]:
    """A model run whole on its first backend, alternately in fresh processes here and over SSH: the ratios by both
    clocks.

    Both devices stay open, so that the two processes of a pair are a second or two apart, and changes of the machine
    affect both alike.
    """
    effort = Effort(processes_least=1, processes_most=1, rounds=2)
    with ExitStack() as stack:
        labs = []
        for device in (THIS_MACHINE, there.config):
            request = ModelRequest(model=model_path(name), device=device, record=record, fresh=True, effort=effort)
            session = stack.enter_context(open_session(request, kind="benchmark", question={"where": device.name}))
            reference(session)
            labs.append((session, InsidePlacer(session, session.targets[0]).singles()[0].candidate))
        pairs = []
        for number in range(ROUNDS):
            taken: dict[int, tuple[float, float]] = {}
            for which in (0, 1) if number % 2 else (1, 0):
                session, candidate = labs[which]
                again = replace(candidate, key=f"{candidate.key}/{number}")
                runs = session.runner.measure("benchmark", [again], effort)[again.key].runs
                wall = [v for run in runs if run.samples for v in run.samples.wall_s]
                cpu = [v for run in runs if run.samples for v in run.samples.cpu_s]
                taken[which] = (float(np.quantile(wall, 0.2)), float(np.median(cpu)))
            pairs.append((taken[1][0] / taken[0][0], taken[1][1] / taken[0][1]))
    low, high = order_statistic_interval([w for w, _ in pairs])
    cpu_low, cpu_high = order_statistic_interval([c for _, c in pairs])
    return {
        "model": name,
        "wall_ratio": {**spread([w for w, _ in pairs]), "low": low, "high": high},
        "cpu_ratio": {**spread([c for _, c in pairs]), "low": cpu_low, "high": cpu_high},
    }


def main() -> None:
    """Run all parts on one board."""
    given = arguments(__doc__, MODELS)
    with own_record() as record, tempfile.TemporaryDirectory() as folder, board() as there:
        found = {
            "command_ms": commands(there),
            "placements": [placements(there, name, record, Path(folder)) for name in given.models],
            "beside": [beside(there, name, record) for name in given.models],
        }
    publish({"benchmark": "over_ssh", **found}, given)


if __name__ == "__main__":
    main()
