"""How good are estimators from a few whole nets, on public measurements? Prints one JSON document.

`--data DIR` holds `latency/{nb201,fbnet,ofa}.npz` and `latency/hat/*.csv`. Every available device is scored. Each score
has its noise ceiling, and each column is marked as measured or synthetic. For each seed, 3,000 nets are held out (400
of the 2,000 in a HAT file), and the nets to measure are chosen from the others without looking at any time. `--only`
runs some of the parts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.common import parser, publish
from benchmarks.estimator.data import Data, load
from benchmarks.estimator.scores import HELD_OUT, Split, ceiling, mean_of, scores, split_of, trimmed
from gnomon.estimate.columns import Columns, Floats, Unknown
from gnomon.estimate.estimator import Estimator, spearman
from gnomon.estimate.fit import Source, fit
from gnomon.jobs.estimator.job import fit_estimator, sources_of, suggest_nets

POOL = 2000
SOURCE_POOL = 900
SOURCES = ("1080ti_1", "1080ti_32", "1080ti_256", "1080ti_64", "silver_4114", "silver_4210r", "samsung_a50", "pixel3",
           "essential_ph_1", "samsung_s7")  # fmt: skip
LABELS = {"batch_sizes": ("1", "32", "64", "256")}

_FPGA, _TURING = (
    "essential_ph_1 gold_6226 gold_6240 pixel3 raspi4",
    "1080ti_1 1080ti_32 2080ti_32 titan_rtx_1 titanxp_1",
)
TASKS: dict[str, dict[str, tuple[str, str, float]]] = {
    "nb201": {
        "ND": ("1080ti_1 1080ti_32 1080ti_256 silver_4114 silver_4210r samsung_a50 pixel3 essential_ph_1 samsung_s7",
               "titan_rtx_256 gold_6226 fpga pixel2 raspi4 eyeriss", 0.962),
        "N1": ("eyeriss pixel3", "1080ti_1 titan_rtx_32 titanxp_1 2080ti_32 titan_rtx_1", 0.974),
        "N3": ("eyeriss", "1080ti_1 2080ti_1 titanxp_1 2080ti_32 titanxp_32", 0.963),
        "N4": ("eyeriss pixel2", "1080ti_1 2080ti_1 titan_rtx_1", 0.968),
    },
    "fbnet": {
        "FD": ("1080ti_1 1080ti_32 1080ti_64 silver_4114 silver_4210r samsung_a50 pixel3 essential_ph_1 samsung_s7",
               "titanx_1 titanx_32 titanx_64 gold_6240", 0.961),
        "F1": ("2080ti_1 essential_ph_1 silver_4114 titan_rtx_1 titan_rtx_32",
               "eyeriss fpga raspi4 samsung_a50 samsung_s7", 0.809),
        "F2": ("essential_ph_1 gold_6226 gold_6240 pixel3 raspi4",
               "1080ti_1 1080ti_32 2080ti_32 titan_rtx_1 titanxp_1", 0.871),
        "F3": ("essential_ph_1 pixel2 pixel3 raspi4 samsung_s7",
               "1080ti_1 1080ti_32 2080ti_1 titan_rtx_1 titan_rtx_32", 0.863),
        "F4": ("1080ti_64 2080ti_1 eyeriss gold_6226 gold_6240 raspi4 samsung_s7 silver_4210r titan_rtx_1 "
               "titan_rtx_32",
               "1080ti_1 pixel2 essential_ph_1", 0.831),
        "FA": ("1080ti_1 1080ti_32 1080ti_64 2080ti_1 2080ti_32 2080ti_64 titan_rtx_1 titan_rtx_32 titan_rtx_64 "
               "titanx_1 titanx_32 titanx_64 titanxp_1 titanxp_32 titanxp_64",
               "gold_6226 essential_ph_1 samsung_s7 pixel2", 0.625),
    },
}  # fmt: skip
"""The sources, the targets and NASFLAT's best result with 20 nets, by task.

They are from abdelfattah-lab/nasflat_latency, device_task_list.py and the result files in its history; the result is
the best of all its configurations. Eagle's devices, which the reference data lack, are left out, and so are the tasks
N2 and NA, which need them.
"""

Devices = list[str]


def chosen(data: Data, split: Split, count: int, seed: int, others: Mapping[str, Source] | None = None) -> Any:
    """The nets of the pool to measure."""
    places = {tuple(net): int(place) for net, place in zip(data.nets[split.pool].tolist(), split.pool, strict=True)}
    nets = suggest_nets(data.described, count, pool=data.nets[split.pool], others=others, seed=seed)
    return np.array([places[net] for net in nets])


def fitted(data: Data, device: str, nets: Any, others: Mapping[str, Source] | None = None) -> Estimator:
    """The estimator of a device from these nets."""
    return fit_estimator(data.described, data.rows(device, nets), others=others).estimator


def plain(data: Data, devices: Devices, seeds: int, counts: tuple[int, ...]) -> dict[str, Any]:
    """Scores without transfer, by device and number of measured nets: share within 10 %, rank, errors, coverage and
    width.
    """
    found: dict[str, Any] = {}
    for device in devices:
        by_count: dict[str, list[dict[str, float]]] = {}
        for seed in range(seeds):
            split = split_of(data, seed, POOL)
            for count in counts:
                nets = chosen(data, split, count, seed)
                by_count.setdefault(str(count), []).append(
                    scores(fitted(data, device, nets), data.x[split.held], data.times_s[device][split.held])
                )
        found[device] = describe(data, device) | {"nets": {n: mean_of(runs) for n, runs in by_count.items()}}
    return {"devices": found, "mean": overall(found), "counts": list(counts), "seeds": seeds}


def describe(data: Data, device: str) -> dict[str, Any]:
    """The information that is needed to interpret a score."""
    return {"column": data.source_of(device), "ceiling": ceiling(data, device, split_of(data, 0, POOL))}


def overall(found: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Means over the devices, and the number of runs with a coverage below 85 %."""
    counts = next(iter(found.values()))["nets"]
    every = {n: [device["nets"][n] for device in found.values()] for n in counts}
    return {n: mean_of([{k: v for k, v in row.items() if k != "runs"} for row in rows]) for n, rows in every.items()}


def family(device: str) -> str:
    """The family of a device; devices of a family differ in batch size or by one step of a series."""
    stem, _, last = device.rpartition("_")
    return stem if stem and (last in LABELS["batch_sizes"] or stem == "silver") else device


def transfer(data: Data, devices: Devices, seeds: int, counts: tuple[int, ...]) -> dict[str, Any]:
    """Scores with other devices as a prior, except the target's family: the rank as published, without the slowest and
    fastest tenths.
    """
    found: dict[str, Any] = {device: {} for device in devices}
    for seed in range(seeds):
        split = split_of(data, seed, SOURCE_POOL)
        assert data.described is not None
        samples = {name: data.rows(name, split.pool) for name in SOURCES if name in data.times_s}
        known = {one.name: one for one in sources_of(data.described, samples)}
        for device in devices:
            others = {name: one for name, one in known.items() if family(name) != family(device)}
            y = data.times_s[device]
            inner = trimmed(y, split.held)
            for count in counts:
                nets = chosen(data, split, count, seed, others)
                predicted = fitted(data, device, nets, others).mean_s(data.x, unknown=Unknown.WIDEN)
                run = {"spearman": spearman(predicted[inner], y[inner]), "spearman_all": spearman(
                    predicted[split.held], y[split.held]), "within_10": float(
                    np.mean(np.abs(predicted - y)[split.held] <= 0.1 * y[split.held]))}  # fmt: skip
                found[device].setdefault(str(count), []).append(run)
    for device in devices:
        found[device] = describe(data, device) | {"nets": {n: mean_of(runs) for n, runs in found[device].items()}}
    return {"devices": found, "mean": overall(found), "seeds": seeds}


def tasks(data: Data, devices: Devices, seeds: int, counts: tuple[int, ...]) -> dict[str, Any]:
    """NASFLAT's few-shot tasks with available devices: the rank over all held-out nets.

    As in NASFLAT, the sources are those of the task, including devices of the target's family.
    """
    found: dict[str, Any] = {}
    for name, (sources, targets, published) in TASKS[data.space].items():
        asked = [device for device in targets.split() if device in devices]
        known = [device for device in sources.split() if device in data.times_s]
        runs: dict[str, dict[str, list[float]]] = {}
        for seed in range(seeds if asked else 0):
            split = split_of(data, seed, SOURCE_POOL)
            assert data.described is not None
            samples = {one: data.rows(one, split.pool) for one in known}
            others = {one.name: one for one in sources_of(data.described, samples)}
            for count in counts:
                nets = chosen(data, split, count, seed, others)
                for device in asked:
                    told = fitted(data, device, nets, others).mean_s(data.x[split.held], unknown=Unknown.WIDEN)
                    rank = spearman(told, data.times_s[device][split.held])
                    runs.setdefault(device, {}).setdefault(str(count), []).append(rank)
        ranks = {device: {n: float(np.mean(r)) for n, r in by.items()} for device, by in runs.items()}
        mean = {str(n): float(np.mean([by[str(n)] for by in ranks.values()])) for n in counts} if ranks else {}
        found[name] = {
            "sources": known, "sources_lacking": [d for d in sources.split() if d not in known], "targets": ranks,
            "targets_lacking": [d for d in targets.split() if d not in asked], "mean": mean, "published": published,
        }  # fmt: skip
    return {"tasks": found, "seeds": seeds}


def hat(data: Data, devices: Devices, seeds: int, _: tuple[int, ...]) -> dict[str, Any]:
    """The error with 100 nets against that of the same method with 1,600."""
    found: dict[str, Any] = {}
    for device in devices:
        runs = []
        for seed in range(seeds):
            split = split_of(data, seed, 1600)
            y = data.times_s[device]
            few = scores(fitted(data, device, split.pool[:100]), data.x[split.held], y[split.held])
            many = scores(fitted(data, device, split.pool), data.x[split.held], y[split.held])
            runs.append(
                {"error_100": few["mean_error"], "error_1600": many["mean_error"], "spearman_100": few["spearman"]}
            )
        mean = mean_of(runs)
        found[device] = {
            "column": data.source_of(device), "recorded_noise": data.noise[device],
            "ceiling": ceiling(data, device, split_of(data, 0, 1600)), "ratio": mean["error_100"] /
            mean["error_1600"], **mean,
        }  # fmt: skip
    return {"devices": found, "seeds": seeds}


def active(data: Data, devices: Devices, seeds: int, _: tuple[int, ...]) -> dict[str, Any]:
    """Chosen nets against 50 random ones: share within 10 %, over devices and seeds."""
    counts = (10, 12, 14, 16, 18, 20, 30)
    shares: dict[str, list[float]] = {}
    for seed in range(seeds):
        split = split_of(data, seed, POOL)
        picks = {f"chosen {n}": chosen(data, split, n, seed) for n in counts} | {"random 50": split.pool[:50]}
        for device in devices:
            for name, nets in picks.items():
                run = scores(fitted(data, device, nets), data.x[split.held], data.times_s[device][split.held])
                shares.setdefault(name, []).append(run["within_10"])
    return {"within_10": {name: float(np.mean(v)) for name, v in shares.items()}, "seeds": seeds}


def outliers(data: Data, devices: Devices, seeds: int, counts: tuple[int, ...]) -> dict[str, Any]:
    """One in twenty samples (at least one) takes three times as long: share within 10 %, before and after."""
    runs: dict[str, list[dict[str, float]]] = {}
    for seed in range(seeds):
        split = split_of(data, seed, POOL)
        for count in counts:
            nets = chosen(data, split, count, seed)
            rng = np.random.default_rng(seed)
            bad = rng.choice(count, max(1, round(0.05 * count)), replace=False)
            for device in devices:
                y = data.times_s[device].copy()
                clean = fitted(data, device, nets)
                y[nets[bad]] *= 3
                spoilt = fitted(replace(data, times_s={device: y}), device, nets)
                held, truth = data.x[split.held], data.times_s[device][split.held]
                a, b = scores(clean, held, truth)["within_10"], scores(spoilt, held, truth)["within_10"]
                runs.setdefault(str(count), []).append({"clean": a, "spoilt": b, "lost": a - b})
    return {"nets": {n: mean_of(r) for n, r in runs.items()}, "seeds": seeds}


def speed() -> dict[str, float]:
    """The seconds of a fit, and the predictions per second, for a table of 126 units."""
    rng = np.random.default_rng(0)
    columns = Columns(names=tuple(f"u{i}" for i in range(126)), kinds=tuple(f"k{i % 5}" for i in range(126)),
                      prior_s=rng.uniform(1e-5, 1e-3, 126))  # fmt: skip
    x: Floats = rng.integers(0, 3, (200_000, 126)).astype(float)
    y = x[:50] @ rng.uniform(1e-5, 1e-3, 126) + 1e-3
    start = time.perf_counter()
    estimator = fit(columns, x[:50], y)
    fit_s = time.perf_counter() - start
    rates = []
    for ask in (
        lambda: estimator.mean_s(x, unknown=Unknown.WIDEN),
        lambda: estimator.predict(x, unknown=Unknown.WIDEN),
    ):
        start = time.perf_counter()
        ask()
        rates.append(len(x) / (time.perf_counter() - start))
    return {"fit_s": fit_s, "means_per_s": rates[0], "intervals_per_s": rates[1]}


Part = Callable[[Data, Devices, int, tuple[int, ...]], dict[str, Any]]
PARTS: dict[str, tuple[str, Part, tuple[int, ...]]] = {
    "nb201": ("nb201", plain, (10, 20)),
    "transfer": ("nb201", transfer, (10, 20)),
    "fbnet": ("fbnet", transfer, (10, 20)),
    "tasks of nb201": ("nb201", tasks, (20,)),
    "tasks of fbnet": ("fbnet", tasks, (20,)),
    "ofa": ("ofa", plain, (100,)),
    "hat": ("hat", hat, ()),
    "intervals": ("nb201", plain, (10, 20, 30, 50, 100)),
    "active": ("nb201", active, ()),
    "outliers": ("nb201", outliers, (20, 50, 100)),
}


def main() -> None:
    """Run the requested parts on the available devices."""
    arguments = parser(__doc__)
    arguments.add_argument(
        "--only", nargs="*", choices=[*PARTS, "speed"], default=[*PARTS, "speed"], help="parts to run"
    )
    arguments.add_argument("--devices", nargs="*", help="devices to score (all that are found)")
    arguments.add_argument("--seeds", type=int, default=10, help="seeds (10)")
    given = arguments.parse_args()
    if given.data is None and set(given.only) - {"speed"}:
        arguments.error("--data DIR is needed: the folder that has latency/nb201.npz and its like")
    document: dict[str, Any] = {"benchmark": "estimators", "held_out": HELD_OUT, "parts": {}}
    for name in given.only:
        start = time.perf_counter()
        if name == "speed":
            document["parts"][name] = speed()
            continue
        space, part, counts = PARTS[name]
        results = []
        for data in load(given.data, space):
            devices = [d for d in data.times_s if given.devices is None or d in given.devices]
            if devices:
                results.append(part(data, devices, given.seeds, counts))
        merged: dict[str, Any] = {"results": results} if len(results) != 1 else results[0]
        document["parts"][name] = merged | {"took_s": round(time.perf_counter() - start, 1)}
    publish(document, given)


if __name__ == "__main__":
    main()
