"""How fast are the choices of `gnomon overlay`, and how often is a portfolio proven? No reference data is needed.

Analysis: theta, M, the choice, its worst regret, and estimates for 50 layers of 10,000 configurations on 100 devices.
All times are made up for each layer, once complete, and once with a fifth of them missing and a few that are
impossible. Memory is what the analysis takes in addition to the times. Portfolios: the best p of 1,000 configurations
for 100 devices, for several kinds of made-up regrets with several seeds each. A search ends after 10 seconds, and `gap`
is what is unproved by then, as a share of the value. Seconds are the wall time of one call, without making up the
times.

Files: `gnomon overlay analyze --json --no-write`, in a fresh process for each set of made-up logs in a temporary
folder: of AutoTVM (20 devices that timed the same 2,000 configurations of each of 20 layers, a file for each device and
layer), of MetaSchedule (databases of 4 devices, 2,000 configurations of each of 10 layers), and of `gnomon tune` (8
devices, 900 configurations of each of 10 layers, a file for each device). Traces are those of the golden database of
the tests, 2 KB longer and with other decisions. With --data DIR, the logs are the files and folders in it instead.
Seconds and peak memory are those of the whole process. Before each run, `json.loads` reads the same lines; `times_json`
is the processor time of the process divided by that of this reading. With --against SOURCES, the `src` of another
version, each run is paired with one of that version, and the two must give the same answers.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import parser, publish, spread
from gnomon.core.cost import Floats
from gnomon.core.overlay.choice import LayerTimes, choose, weigh_layers
from gnomon.core.overlay.portfolio import best_portfolio
from gnomon.core.overlay.records import TunedDevice, TunedModel, TuningLayer, TuningRecords
from gnomon.core.sample import Failure
from gnomon.errors import InfeasibleError
from gnomon.formats.tuning.metaschedule import RECORDS, WORKLOADS, tvm_json
from gnomon.jobs.tune.records import made_trial, write_records

LAYERS, CONFIGURATIONS, DEVICES = 50, 10_000, 100
CHOICES = 1_000  # configurations in a portfolio's problem
LIMIT_S = 10.0

Kind = Callable[[np.random.Generator], Floats]


def layers(generator: np.random.Generator, missing: float) -> list[LayerTimes]:
    """Made-up layers: log-normal times, some of them missing, and a few impossible."""
    devices = tuple(f"device{i}" for i in range(DEVICES))
    made = []
    for number in range(LAYERS):
        times_s = np.exp(generator.normal(-7, 0.5, (CONFIGURATIONS, DEVICES)))
        if missing:
            times_s[: CONFIGURATIONS // 2][generator.random((CONFIGURATIONS // 2, DEVICES)) < 2 * missing] = np.nan
            times_s[generator.integers(0, CONFIGURATIONS, 9), generator.integers(0, DEVICES, 9)] = 0.0
        made.append(
            LayerTimes(
                name=f"layer{number}",
                layer=str(number),
                weight=1 + number % 3,
                devices=devices,
                configurations=tuple(f"{c:016x}" for c in range(CONFIGURATIONS)),
                hosts=tuple((devices[c % DEVICES],) for c in range(CONFIGURATIONS)),
                times_s=times_s,
            )
        )
    return made


def analysis(seeds: int, missing: float) -> dict[str, Any]:
    """The seconds over several seeds, with three calls each, and the memory of one call per seed."""
    seconds, peaks = [], []
    for seed in range(seeds):
        made = layers(np.random.default_rng(seed), missing)
        for _ in range(3):
            begin = time.perf_counter()
            found = weigh_layers([choose(layer) for layer in made])
            seconds.append(time.perf_counter() - begin)
        assert all(choice.chosen is not None for choice in found.layers)
        tracemalloc.start()
        weigh_layers([choose(layer) for layer in made])
        peaks.append(float(tracemalloc.get_traced_memory()[1]))
        tracemalloc.stop()
    size = {"layers": LAYERS, "configurations": CONFIGURATIONS, "devices": DEVICES}
    return {**size, "missing": missing, "seeds": seeds, "seconds": spread(seconds), "peak_bytes": spread(peaks)}


def regrets(times: Floats) -> Floats:
    """The regrets of made-up times."""
    return np.asarray(times / times.min(axis=0) - 1)


def uniform(generator: np.random.Generator) -> Floats:
    """Independent regrets from 0 to 1."""
    return generator.random((CHOICES, DEVICES))


def lognormal(generator: np.random.Generator) -> Floats:
    """Independent times."""
    return regrets(np.exp(generator.normal(0, 0.5, (CHOICES, DEVICES))))


def quality(generator: np.random.Generator) -> Floats:
    """Times with a factor for each configuration that is the same on all devices."""
    return regrets(np.exp(generator.normal(0, 0.3, (CHOICES, 1)) + generator.normal(0, 0.3, (CHOICES, DEVICES))))


def clusters(generator: np.random.Generator, number: int = 4) -> Floats:
    """Times that are similar on devices of the same cluster."""
    member = generator.integers(0, number, DEVICES)
    common = generator.normal(0, 0.5, (CHOICES, number))[:, member]
    return regrets(np.exp(common + generator.normal(0, 0.15, (CHOICES, DEVICES))))


def many_clusters(generator: np.random.Generator) -> Floats:
    """Four times as many clusters as portfolios have configurations."""
    return clusters(generator, 12)


def five_factors(generator: np.random.Generator) -> Floats:
    """Times of low rank: five properties of configurations, weighted differently by each device."""
    factors = generator.normal(size=(CHOICES, 5)) @ generator.normal(size=(5, DEVICES))
    return regrets(np.exp(0.3 * factors + 0.1 * generator.normal(size=(CHOICES, DEVICES))))


def whole(generator: np.random.Generator) -> Floats:
    """Integers from 0 to 4, with many ties."""
    return generator.integers(0, 5, (CHOICES, DEVICES)).astype(float)


def mostly_one(generator: np.random.Generator) -> Floats:
    """0 with probability 0.1, otherwise 1."""
    return (generator.random((CHOICES, DEVICES)) < 0.9).astype(float)


def equal(generator: np.random.Generator) -> Floats:
    """All equal."""
    return np.full((CHOICES, DEVICES), float(generator.random()))


def nearly_equal(generator: np.random.Generator) -> Floats:
    """Equal to seven digits."""
    return np.asarray(1 + 1e-7 * generator.random((CHOICES, DEVICES)))


def twins(generator: np.random.Generator) -> Floats:
    """Each configuration twice."""
    return np.repeat(generator.random((CHOICES // 2, DEVICES)), 2, axis=0)


def heavy(generator: np.random.Generator) -> Floats:
    """Times over many orders of magnitude."""
    return regrets(np.exp(generator.normal(0, 3, (CHOICES, DEVICES))))


def holes(generator: np.random.Generator) -> Floats:
    """Independent regrets, with half of the configurations' times missing."""
    costs = generator.random((CHOICES, DEVICES))
    costs[generator.random((CHOICES, DEVICES)) < 0.5] = np.inf
    return costs


KINDS: tuple[Kind, ...] = (
    uniform,
    lognormal,
    quality,
    clusters,
    many_clusters,
    five_factors,
    whole,
    mostly_one,
    equal,
    nearly_equal,
    twins,
    heavy,
    holes,
)


def portfolios(kind: Kind, size: int, seeds: int) -> dict[str, Any]:
    """The seconds over several seeds, and what was proved."""
    seconds, gaps, proven, infeasible = [], [], 0, 0
    for seed in range(seeds):
        costs = kind(np.random.default_rng(seed))
        begin = time.perf_counter()

        def out_of_time(end: float = begin + LIMIT_S) -> bool:
            return time.perf_counter() > end

        try:
            found = best_portfolio(costs, size, out_of_time=out_of_time)
        except InfeasibleError:  # proved as well
            seconds.append(time.perf_counter() - begin)
            infeasible += 1
            continue
        seconds.append(time.perf_counter() - begin)
        proven += found.proven
        if not found.proven:
            gaps.append(1 - found.bound / found.value if found.chosen else 1.0)
    return {
        "kind": kind.__name__,
        "p": size,
        "proven": proven,
        "proven_infeasible": infeasible,
        "of": seeds,
        "seconds": spread(seconds),
        "gap": spread(gaps) if gaps else None,
    }


# The kernel's peak memory of this program: that of `wait4` includes the process before it became this program.
RUN = """
import pathlib, sys
from gnomon.cli.main import run
code = run(sys.argv[1:])
(peak,) = (line for line in pathlib.Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(peak, file=sys.stderr)
sys.exit(code)
"""
KNOBS = ("tile_ic", "tile_oc", "tile_oh", "tile_ow", "unroll_kw")
GOLDEN = Path(__file__).parents[2] / "tests/formats/golden/tuning/metaschedule/database_tuning_record.json"
FAILED = 0.03  # of all trials


def autotvm_logs(folder: Path, devices: int, configurations: int, layers: int) -> list[Path]:
    """A log for each device and layer, as AutoTVM wrote them."""
    paths = []
    for device, layer in itertools.product(range(devices), range(layers)):
        rng = np.random.default_rng([7, device, layer])
        base_s = np.exp(np.random.default_rng([8, layer]).normal(-7, 0.5, configurations))
        times_s = (base_s * np.exp(rng.normal(0, 0.3, configurations)))[:, None]
        times_s = times_s * np.exp(rng.normal(0, 0.02, (configurations, 3)))
        failed = rng.random(configurations) < FAILED
        channels = 16 + 16 * layer
        tensors = [["TENSOR", [1, channels, 56, 56], "float32"], ["TENSOR", [64, channels, 3, 3], "float32"]]
        args = [*tensors, [1, 1], [1, 1, 1, 1], [1, 1], "NCHW", "NCHW", "float32"]
        path = folder / f"layer{layer}" / f"device{device}.net.float32.json"
        path.parent.mkdir(exist_ok=True)
        with path.open("w") as file:
            for number in rng.permutation(configurations).tolist():
                sizes = [-1, 1 + number % 7, 1 + number // 7 % 11, 1 + number // 77 % 13, number // 1001]
                line = {
                    "input": [f"llvm -keys=cpu -mcpu=cpu{device}", "conv2d_NCHWc.x86", args, {}],
                    "config": {
                        "index": number,
                        "code_hash": None,
                        "entity": [[knob, "sp", [-1, size]] for knob, size in zip(KNOBS, sizes, strict=True)],
                    },
                    "result": [
                        [1e9] if failed[number] else times_s[number].tolist(),
                        4 if failed[number] else 0,
                        1.5 + number / 1000,
                        1600000000.25 + number,
                    ],
                    "version": 0.2,
                    "tvm_version": "0.12.0",
                }
                file.write(json.dumps(line) + "\n")
        paths.append(path)
    return paths


def traces() -> list[tuple[list[Any], list[Any]]]:
    """Instructions as long as those of a convolution, and decisions."""
    found = [json.loads(line)[1][0] for line in GOLDEN.read_text().splitlines()]
    more = [["GetLoops", [f"b{40 + k}"], [], [f"l{60 + 9 * k + i}" for i in range(6)]] for k in range(36)]
    return [([*instructions, *more], decisions) for instructions, decisions in found]


def metaschedule_databases(folder: Path, devices: int, configurations: int, layers: int) -> list[Path]:
    """A folder for each device, as MetaSchedule writes it."""
    found, graph = traces(), b'{"nodes": [], "metadata": {"tvm_version": "0.27.0"}}'
    function = base64.b64encode(len(graph).to_bytes(8, "little") + graph).decode()
    paths = []
    for device in range(devices):
        rng = np.random.default_rng([10, device])
        target = {"keys": ["cpu"], "kind": "llvm", "mcpu": f"cpu{device}", "num-cores": 2, "tag": ""}
        path = folder / f"device{device}.net.float32"
        path.mkdir()
        heads = (tvm_json([str(7000 + k), function]) for k in range(layers))
        (path / WORKLOADS).write_text("".join(f"{line}\n" for line in heads))
        with (path / RECORDS).open("w") as file:
            for layer, number in itertools.product(range(layers), rng.permutation(configurations).tolist()):
                instructions, decisions = found[number % len(found)]
                trace = [instructions, [*decisions, [20, number]]]
                times_s = np.exp(rng.normal(-7, 0.5) + rng.normal(0, 0.02, 3)).tolist()
                seconds = [1e10] if rng.random() < FAILED else times_s
                infos = [["TENSOR", "float32", [8, 16 + layer]], ["TENSOR", "float32", [8, 16]]]
                file.write(tvm_json([layer, [trace, seconds, target, infos]]) + "\n")
        paths.append(path)
    return paths


def own_records(folder: Path, devices: int, configurations: int, layers: int) -> list[Path]:
    """A file for each device, as `gnomon tune` writes it."""
    found = traces()
    described = tuple(
        TuningLayer(layer=str(70 + k), name=f"conv{k}", arguments=(("float32", (1, 8 + k)),), workload="AAAA")
        for k in range(layers)
    )
    paths = []
    for device in range(devices):
        rng = np.random.default_rng([9, device])
        trials = []
        for layer, number in itertools.product(described, range(configurations)):
            instructions, decisions = found[number % len(found)]
            decided = [instructions, [*decisions, [20, number]]]
            if rng.random() < FAILED:
                facts: dict[str, Any] = {
                    "failure": Failure(stage="run", kind="refused", transient=False, message="no memory")
                }
            else:
                times_s = np.exp(rng.normal(-7, 0.5) + rng.normal(0, 0.02, 3))
                facts = {"times_s": tuple(times_s.tolist()), "error": 1e-7, "server": "127.0.0.1:9091"}
            trials.append(made_trial(layer.layer, decided, **facts))
        path = folder / f"device{device}.net.float32.json"
        records = TuningRecords(
            device=TunedDevice(key=f"device{device}", target={"kind": "llvm", "mcpu": f"cpu{device}"}),
            model=TunedModel(name="net", sha256="ab" * 32),
            layers=described,
            trials=tuple(trials),
        )
        write_records(path, records)
        # Version 1, which older versions can read too; the lines are the same if each configuration has one trial.
        path.write_text(path.read_text().replace('"version": 2', '"version": 1', 1))
        paths.append(path)
    return paths


@dataclass(frozen=True, slots=True, kw_only=True)
class Analyzed:
    """A process that analysed logs: its wall seconds, processor seconds, peak bytes, and answer."""

    seconds: float
    cpu_s: float
    peak_bytes: float
    said: bytes


def analyzed(paths: list[Path], sources: Path) -> Analyzed:
    """Analyse logs in a separate process."""
    options = ["overlay", "analyze", "--json", "--quiet", "--no-write"]
    command = [sys.executable, "-c", RUN, *options, *map(str, paths)]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as told:
        began_s = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=told, env={**os.environ, "PYTHONPATH": str(sources)})
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began_s
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        told.seek(0)
        assert process.returncode == 0, told.read()
        peak = told.read().split()
        return Analyzed(
            seconds=seconds, cpu_s=used.ru_utime + used.ru_stime, peak_bytes=float(peak[-2]) * 1024, said=out.read()
        )


def decided(text: bytes) -> Iterator[tuple[Any, ...]]:
    """The results of an analysis for each layer."""
    for row in json.loads(text)["layers"]:
        yield row["name"], row["configuration"], row["M"], row["theta"], row["confidence"], row["M_low"], row["M_high"]


def plain_s(paths: list[Path]) -> float:
    """The processor seconds that `json.loads` takes for all lines of files, or of the files in folders."""
    begin = time.process_time()
    for path in paths:
        for one in path.iterdir() if path.is_dir() else (path,):
            with one.open() as file:
                for line in file:
                    json.loads(line)
    return time.process_time() - begin


def made(
    write: Callable[[Path, int, int, int], list[Path]], size: tuple[int, int, int], runs: int, against: Path | None
) -> dict[str, Any]:
    """Write logs, and return their `analyses`."""
    with tempfile.TemporaryDirectory(prefix="gnomon-logs-") as folder:
        found = analyses(write(Path(folder), *size), runs, against)
    sizes = {"devices": size[0], "configurations": size[1], "layers": size[2]}
    return {"logs": write.__name__, **sizes, "trials": size[0] * size[1] * size[2], **found}


def analyses(paths: list[Path], runs: int, against: Path | None) -> dict[str, Any]:
    """Analyse logs; each run follows one of `json.loads`, and alternates with one of the other version, if there is
    one.
    """
    mine = Path(__file__).resolve().parents[2] / "src"
    letters = sum(file.stat().st_size for path in paths for file in (path.iterdir() if path.is_dir() else (path,)))
    found: dict[Path, list[Analyzed]] = {mine: [], **({against: []} if against else {})}
    plain: list[float] = []
    for _ in range(runs):
        plain.append(plain_s(paths))
        for sources, told in found.items():
            told.append(analyzed(paths, sources))
    layers = list(decided(found[mine][0].said))
    assert all(list(decided(one.said)) == layers for told in found.values() for one in told)
    document: dict[str, Any] = {
        "files": len(paths),
        "bytes": letters,
        "decided": len(layers),
        "json_loads_cpu_s": spread(plain),
        "times_json": spread([one.cpu_s / unit for one, unit in zip(found[mine], plain, strict=True)]),
    }
    for name in ("seconds", "cpu_s", "peak_bytes"):
        parts = {sources: [float(getattr(one, name)) for one in told] for sources, told in found.items()}
        document[name] = {"here": spread(parts[mine])}
        if against:
            ratios = [other / own for other, own in zip(parts[against], parts[mine], strict=True)]
            document[name] |= {"against": spread(parts[against]), "ratio": spread(ratios)}
    return document


def main() -> None:
    """Measure all figures."""
    options = parser(__doc__)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--against", type=Path, metavar="SOURCES", help="the src folder of another version")
    options.add_argument("--runs", type=int, default=3, help="of each version on the files")
    options.add_argument("--only-files", action="store_true", help="leave out what is not read from files")
    given = options.parse_args()
    if given.data:
        read = [{"logs": str(given.data), **analyses(sorted(given.data.iterdir()), given.runs, given.against)}]
    else:
        read = [
            made(metaschedule_databases, (4, 2_000, 10), given.runs, given.against),
            made(own_records, (8, 900, 10), given.runs, given.against),
            made(autotvm_logs, (20, 2_000, 20), given.runs, given.against),
        ]
    if given.data or given.only_files:
        publish({"benchmark": "overlay_scale", "files": read}, given)
        return
    rows = [portfolios(kind, size, given.seeds) for size in (3, 1, 2) for kind in KINDS]
    rows += [portfolios(kind, size, min(given.seeds, 2)) for size in (4, 5) for kind in KINDS]
    document = {
        "benchmark": "overlay_scale",
        "analysis": [analysis(given.seeds, missing) for missing in (0.0, 0.2)],
        "files": read,
        "portfolio": {"configurations": CHOICES, "devices": DEVICES, "limit_s": LIMIT_S, "runs": rows},
    }
    publish(document, given)


if __name__ == "__main__":
    main()
