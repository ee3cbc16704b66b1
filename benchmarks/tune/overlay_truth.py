"""Is the configuration that an overlay chooses the best one if all are measured again? No reference data is needed.

Two really different devices are made of this machine: wide (all cores, the machine's own vector units) and narrow (one
thread, x86-64 or generic code). A small network is tuned on both; all configurations are collected on both, as a user
would do it; and the overlay chooses. Then all configurations are measured again in more fresh processes. This is the
truth with which the choice is compared, layer by layer: its M with the least M, and its regret on the worst device with
that of either device's own best. `excess` is by how much the choice's mean time over devices, relative to each device's
best, exceeds that of the best choice: (N + M) / (N + least M) - 1. Only layers that take at least --share of the
network's time count: below that, times of nanoseconds are mainly those of the loop. The document also says how many
configurations of one device were built and run on the other, with outputs equal within 1e-3; the network with each
choice; and the seconds of each step. Targets: M within 10 % of the least; never worse on the worst device than either
device's own best; every record replayed.
"""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import gnomon
from benchmarks.common import parser, publish, spread
from benchmarks.tune.speed import network
from gnomon.api.tune import TuneOptions, overlay_analyze, overlay_collect, tune
from gnomon.core.overlay.choice import LayerTimes, regrets_of
from gnomon.jobs.overlay.document import CollectDocument
from gnomon.jobs.overlay.job import analyze

DEVICES = ("wide", "narrow")


def timed(seconds: dict[str, list[float]], name: str, work: Callable[[], Any]) -> Any:
    """The result of the work; its seconds are noted."""
    began_s = time.monotonic()
    made = work()
    seconds.setdefault(name, []).append(time.monotonic() - began_s)
    return made


def judged(chosen: str, truth: LayerTimes) -> dict[str, Any] | None:
    """The choice for a layer against the new times; None if the layer has none."""
    times = np.asarray(truth.times_s)
    complete = np.asarray(np.isfinite(times).all(axis=1))
    if chosen not in truth.configurations or not complete[truth.configurations.index(chosen)]:
        return None
    theta = np.nanmin(times[complete], axis=0)
    regrets = regrets_of(times, theta)
    metric = np.where(complete, regrets.sum(axis=1), np.inf)
    row = truth.configurations.index(chosen)
    own = [min(rows, key=lambda i: times[i, k]) for k, d in enumerate(truth.devices) if (rows := found(truth, d))]
    if not own:
        return None  # nothing but the untuned layer was measured
    count = len(truth.devices)
    return {
        "layer": truth.name,
        "configurations": int(complete.sum()),
        "M": float(metric[row]),
        "least_M": float(metric.min()),
        "excess": float((count + metric[row]) / (count + metric.min()) - 1),
        "within_10_percent": bool(metric[row] <= 1.1 * metric.min() + 1e-12),
        "rank": int((metric < metric[row]).sum()),
        "worst_regret": float(regrets[row].max()),
        "worst_regret_of_own_best": [float(regrets[i].max()) for i in own],
    }


def found(truth: LayerTimes, device: str) -> list[int]:
    """The configurations that were found on a device."""
    return [i for i, hosts in enumerate(truth.hosts) if device in hosts and np.isfinite(truth.times_s[i]).all()]


def one_run(seed: int, folder: Path, given: Any) -> dict[str, Any]:
    """Tune, collect, analyse, deploy; then measure the truth."""
    seconds: dict[str, list[float]] = {}
    model = folder / "network.onnx"
    network(model)
    out, again = folder / f"out{seed}", folder / f"again{seed}"
    logs = []
    for key in DEVICES:
        options: TuneOptions = {"device": key, "out": out, "seed": seed}
        done = timed(seconds, "tune", partial(tune, model, trials=given.trials, **options))
        logs.append(done.records)
    collected = []
    for key in DEVICES:
        options = TuneOptions(device=key, out=out, seed=seed, processes=given.processes)
        collected += timed(seconds, "collect", partial(overlay_collect, logs, **options)).collected
    files = [*map(Path, logs), *[Path(one.records) for one in collected]]
    analysis = timed(seconds, "analyze", lambda: analyze(files))
    prove = partial(overlay_analyze, files, prove=True, out=out, seed=seed)
    deployed = timed(seconds, "analyze, deploy and prove", prove)
    repeated: list[CollectDocument] = []
    for key in DEVICES:
        options = TuneOptions(device=key, out=again, seed=seed + 1000, processes=given.truth)
        repeated += overlay_collect(logs, **options).collected
    truth = analyze([Path(one.records) for one in repeated])
    shares = {row.layer: row.share for row in analysis.document.layers}
    chosen = analysis.chosen()
    rows = [
        row
        for times in (choice.times for choice in truth.network.layers)
        if shares.get(times.layer, 0) >= given.share and (row := judged(chosen[times.layer], times)) is not None
    ]
    carried = [layer for one in collected for layer in one.layers]
    return {
        "seed": seed,
        "layers": rows,
        "replayed": sum(layer.measured for layer in carried),
        "of": sum(layer.configurations for layer in carried),
        "failed": sum(layer.failed for layer in carried),
        "network": deployed.document()["network"],
        "seconds": {name: round(sum(values), 2) for name, values in seconds.items()},
    }


def main() -> None:
    """Measure and print."""
    options = parser(__doc__)
    options.add_argument("--runs", type=int, default=3, help="tunings, each with a seed of its own")
    options.add_argument("--trials", type=int, default=64, help="of each tuning")
    options.add_argument("--processes", type=int, default=3, help="of each configuration where the overlay chooses")
    options.add_argument("--truth", type=int, default=7, help="processes of each configuration in the truth")
    options.add_argument("--share", type=float, default=0.01, help="the least share of the network's time")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GNOMON_HOME"] = folder  # a separate file of devices
        gnomon.add_device("wide", "local", check=False)
        plainest = "x86-64" if platform.machine() == "x86_64" else "generic"
        gnomon.add_device("narrow", "local", check=False, threads=1, target=plainest)
        runs = [one_run(seed, Path(folder), given) for seed in range(given.runs)]
    rows = [row for run in runs for row in run["layers"]]
    never_worse = [row["worst_regret"] <= min(row["worst_regret_of_own_best"]) + 1e-12 for row in rows]
    document = {
        "benchmark": "overlay_truth",
        "layers": len(rows),
        "excess": spread([row["excess"] for row in rows]),
        "within_10_percent": sum(row["within_10_percent"] for row in rows),
        "not_worse_on_the_worst_device": sum(never_worse),
        "replayed": [sum(run["replayed"] for run in runs), sum(run["of"] for run in runs)],
        "runs": runs,
    }
    publish(document, given)


if __name__ == "__main__":
    main()
