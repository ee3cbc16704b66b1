"""Whether the times of compiled networks agree with those of a separate loop, even on a busy machine.

Three small networks are tuned for this machine, and one of them for plain code too, with one thread each. A separate
loop runs alongside all the time: fresh processes with the same libraries, which compute in turn and report CPU time.

- `proofs`: `overlay analyze --prove` of one network on two devices, next to four busy processes, run after run. Its
  ratio (the choice to the device's own best) is compared with that of the separate loop, whose processes call the two
  alternately; the geometric mean of their median ratios is the truth.
- `headlines`: the time that `gnomon tune` and `gnomon exec` report for each network, next to two busy processes. A
  core's speed changes by half and more, for a second or for ten, when its other hyperthread becomes busy or idle.
  Therefore the device is a single core, and the separate loop runs on the same core, where the two share the processor
  in slices of some milliseconds. Only those of its blocks count that ran while gnomon measured.

Targets: the separate loop's ratio is inside the 95 % interval in 17 of 20 proofs, and the half-width is at most 10
points unless the report says "undecided"; the headlines are within 2 % of the separate loop in 10 of 10.

With --out, each row is written at once, and running the same command again adds the missing rows; with --folder, tuning
results are kept for the next run. No reference data is needed.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import json
import math
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gnomon
from benchmarks.common import kept_rows, publish, row_parser
from benchmarks.tune.speed import Drawn, network
from gnomon.api.tune import TuneOptions, execute, overlay_analyze, overlay_collect, tune
from gnomon.core.overlay.trials import traces_of
from gnomon.jobs.overlay.document import AnalyzeDocument
from gnomon.jobs.overlay.job import Analysis, analyze
from gnomon.jobs.overlay.report import measured_of, network_sentence
from gnomon.measure.effort import Effort
from gnomon.tuning.networks import Network, Source
from gnomon.tuning.tvm import TvmPool

LOOP = """
import json, os, sys, time
sys.modules["torch"] = None
import numpy as np
import tvm
from tvm import relax
cores, block_s, inputs, *paths = sys.argv[1:]
os.sched_setaffinity(0, json.loads(cores))
block_s = float(block_s)
with np.load(inputs) as given:
    arrays = [given[f"in_{k}"] for k in range(len(json.loads(str(given["names"]))))]
libraries = [tvm.runtime.load_module(path) for path in paths]
def made():
    # For each turn anew, as where its memory lies makes a network some percent slower or faster.
    machines = [relax.VirtualMachine(library, tvm.cpu()) for library in libraries]
    return [(machine["main"], [tvm.runtime.tensor(array) for array in arrays]) for machine in machines]
def cpu_s(call, tensors, count):
    begun_ns = time.process_time_ns()
    for _ in range(count):
        call(*tensors)
    return (time.process_time_ns() - begun_ns) / count / 1e9
def block(one, count):
    cpu_s(*one, 1)
    return cpu_s(*one, count)
counts = [max(1, round(block_s / block(one, 5))) for one in made()]
blocks = max(1, round(0.03 / block_s))
print(flush=True)
for _ in sys.stdin:
    calls = made()
    print(json.dumps([[time.time(), *map(block, calls, counts)] for _ in range(blocks)]), flush=True)
"""
PROCESSES = 6
SAMPLE_S = 0.01
"""The length of a sample in `exec` and in proofs."""

CORE = max(os.sched_getaffinity(0))
"""The core on which headlines are measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Blocks of a process: when they began (seconds since 1970), and the CPU seconds of a call of each library."""

    process: int
    at_s: float
    calls_s: tuple[float, ...]


@contextlib.contextmanager
def own_loop(
    inputs: Path, libraries: Sequence[Path], cores: Collection[int], sample_s: float = SAMPLE_S
) -> Iterator[list[Turn]]:
    """The turns of fresh processes on these cores, of which one computes at a time, until the end of the block.

    Their samples are as long as gnomon's: if speed changes abruptly, short and long samples have different medians.
    """
    command = [sys.executable, "-c", LOOP, json.dumps(sorted(cores)), str(sample_s), str(inputs), *map(str, libraries)]
    environment = {**os.environ, "TVM_NUM_THREADS": "1"}
    turns: list[Turn] = []
    over = threading.Event()
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(
                subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    start_new_session=True,  # as for gnomon's own processes: sessions share a processor equally
                )
            )
            for _ in range(PROCESSES)
        ]
        ends = [(one.stdin, one.stdout) for one in started if one.stdin and one.stdout]
        for _, told in ends:
            told.readline()

        def take_turns() -> None:
            while not over.is_set():
                for number, (asked, told) in enumerate(ends):
                    print(file=asked, flush=True)
                    for at_s, *calls_s in json.loads(told.readline()):
                        turns.append(Turn(process=number, at_s=at_s, calls_s=tuple(calls_s)))

        taking = threading.Thread(target=take_turns)
        taking.start()
        try:
            yield turns
        finally:
            over.set()
            taking.join()


def mean(values: list[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values))


def _spin(parent: int) -> None:
    while os.getppid() == parent:
        pass


@contextlib.contextmanager
def load(count: int) -> Iterator[None]:
    """This many busy processes, until the end of the block."""
    busy = [
        multiprocessing.get_context("spawn").Process(target=_spin, args=(os.getpid(),), daemon=True)
        for _ in range(count)
    ]
    for one in busy:
        one.start()
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.join()


def mixer(path: Path) -> None:
    """Four blocks of products over tokens and over channels."""
    net = Drawn(2)
    x = "x"
    for _ in range(4):
        y = net.node(
            "Transpose",
            net.node("MatMul", net.node("Transpose", x, perm=[0, 2, 1]), net.weight(64, 64)),
            perm=[0, 2, 1],
        )
        x = net.node("Add", x, net.node("Relu", y))
        x = net.node(
            "Add",
            x,
            net.node("MatMul", net.node("Relu", net.node("MatMul", x, net.weight(128, 256))), net.weight(256, 128)),
        )
    net.save(path, (1, 64, 128), x)


def separable(path: Path) -> None:
    """Alternating depthwise and pointwise convolutions."""
    net = Drawn(3)
    x, channels = net.conv("x", (3, 16, 3), stride=2), 16
    for more, stride in ((32, 1), (64, 2), (64, 1), (96, 2), (96, 1)):
        x = net.conv(net.conv(x, (channels, channels, 3), stride=stride, group=channels), (channels, more, 1))
        channels = more
    x = net.node("Flatten", net.node("GlobalAveragePool", x))
    net.save(path, (1, 3, 96, 96), net.node("Gemm", x, net.weight(96, 10), net.weight(10)))


NETWORKS = {"convolutions": network, "mixer": mixer, "separable": separable}


def libraries(analysis: Analysis, model: Path, folder: Path) -> dict[str, tuple[Path, Path]]:
    """The network compiled for each device with the choice, and with the device's own best."""
    made = {}
    with TvmPool() as pool:
        read = Network(pool, Source(path=model))
        for device in {one.device.key: one.device for one in analysis.records}.values():
            read.layers(device.target)
            paths = []
            for name, chosen in (("overlay", analysis.chosen()), ("own", analysis.own(device.key))):
                traces: dict[Any, Any] = {}
                for one in analysis.records:
                    traces |= traces_of(one.trials, set(chosen.items()))
                choice = [
                    (layer, traces.get((layer.layer, chosen.get(layer.layer, "")))) for layer in analysis.described
                ]
                paths.append(folder / f"{device.key}-{name}.so")
                read.compile(device, choice, paths[-1], inputs=folder / "in.npz")
            made[device.key] = (paths[0], paths[1])
    return made


def truth_of(turns: Sequence[Turn], place: int) -> float:
    """The ratio of the library at this place to the next: the mean over processes of their medians over turns."""
    ratios: dict[int, list[float]] = {}
    for turn in turns:
        ratios.setdefault(turn.process, []).append(turn.calls_s[place] / turn.calls_s[place + 1])
    return mean([statistics.median(values) for values in ratios.values()])


def proved(document: AnalyzeDocument, truth: Mapping[str, float]) -> list[dict[str, Any]]:
    """A row for each device: the proof's interval, and the separate loop's ratio."""
    told = network_sentence(measured_of(document))
    rows: list[dict[str, Any]] = []
    for row in document.network:
        ratio = row.to_own
        if row.choice == "overlay" and ratio is not None:
            low, high = ratio.low or 0.0, ratio.high or math.inf
            half_points = 50 * (high - low)
            rows.append(
                {
                    "device": row.device,
                    "clock": row.time.clock if row.time else None,
                    "processes": row.time.processes if row.time else None,
                    "ratio": [ratio.ratio, low, high],
                    "own_loop": truth[row.device],
                    "inside": low <= truth[row.device] <= high,
                    "half_points": half_points,
                    "narrow_or_undecided": half_points <= 10 or "undecided" in told,
                }
            )
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The input of a proof: record files, and each device's network with the choice and with its own best."""

    files: tuple[Path, ...]
    libraries: Mapping[str, tuple[Path, Path]]


def prepared(model: Path, out: Path) -> Proof:
    """The network tuned for both devices and collected on both, unless this was done before."""
    records = out / "records"
    if len([*records.glob("*.json")]) < 6:
        logs = [tune(model, trials=24, device=key, out=out, compare=False).records for key in ("wide", "narrow")]
        for key in ("wide", "narrow"):
            overlay_collect(logs, device=key, best=2, out=out)
    files = tuple(sorted(records.glob("*.json")))
    return Proof(files=files, libraries=libraries(analyze(files), model, out))


def prove(proof: Proof, out: Path) -> dict[str, Any]:
    """A proof next to a load, and the separate loop."""
    paths = [path for pair in proof.libraries.values() for path in pair]
    with load(4), own_loop(out / "in.npz", paths, os.sched_getaffinity(0)) as turns:
        document = overlay_analyze(proof.files, prove=True, compile=False, out=out)
        busy = os.getloadavg()[0]
    truth = {key: truth_of(turns, 2 * number) for number, key in enumerate(proof.libraries)}
    return {"load": busy, "turns": len(turns), "devices": proved(document, truth)}


def beside_visits(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """The visits of the last campaign to its tuned or only network: their times, and those of the separate loop
    meanwhile.
    """
    made = []
    for line in gnomon.export_run():
        run = json.loads(line)
        if run["type"] == "run" and run["candidate"].startswith(("the network", "tvm[")) and not run["profiled"]:
            samples, at_s = run["samples"], run["started_at_s"]
            # The time of a visit is that of its beginning or its end, and on a busy machine it is noted late.
            near_s = 3e-9 * sum(samples["wall_ns"])
            own_s = [turn.calls_s[0] for turn in turns if abs(turn.at_s - at_s) <= near_s]
            made.append(
                {
                    "process": run["process"],
                    "at_s": at_s,
                    "s": [ns / samples["inner"] * 1e-9 for ns in samples["cpu_ns"]],
                    "own_s": own_s,
                }
            )
    return made


def weighted_median(values: Iterable[tuple[float, float]]) -> float:
    """The weighted median: all blocks during a visit together weigh as much as gnomon's samples of the visit."""
    ordered = sorted(values)
    weights = [*itertools.accumulate(weight for _, weight in ordered)]
    return ordered[bisect.bisect_left(weights, weights[-1] / 2)][0]


def headline(command: str, model: Path, out: Path) -> dict[str, Any]:
    """The time that `tune` or `exec` reports for a network, and that of the separate loop: its median over the same
    visits.
    """
    options: TuneOptions = {"device": "core", "out": out}
    library = out / "libraries" / f"core.{model.stem}.float32.so"
    if not library.exists():
        tune(model, trials=24, compare=False, **options)
    # The headline of `tune` is from a campaign like those of all runtimes.
    sample_s = SAMPLE_S if command == "exec" else Effort().sample_s
    with load(2), own_loop(library.with_suffix(".in.npz"), [library], [CORE], sample_s) as turns:
        if command == "exec":
            part = execute(library, layers=False, **options).network
        else:
            part = tune(model, trials=24, **options).network.tuned
        busy = os.getloadavg()[0]
    if part is None:
        raise ValueError("the network failed")
    visits = beside_visits(turns)
    own_s = weighted_median([(s, len(one["s"]) / len(one["own_s"])) for one in visits for s in one["own_s"]])
    return {
        "load": busy,
        "command": command,
        "clock": part.clock,
        "s": [part.median_s, part.low_s, part.high_s],
        "processes": part.processes,
        "own_s": own_s,
        "apart": part.median_s / own_s - 1,
        "visits": visits,
    }


def main() -> None:
    """Measure and print."""
    options = row_parser(__doc__)
    options.add_argument("--proofs", type=int, default=10, help="runs of the proof, each on two devices")
    options.add_argument(
        "--headlines", type=int, default=4, help="commands whose headline is compared, of each network"
    )
    options.add_argument("--folder", type=Path, help="what is tuned goes here, and is found here")
    given = options.parse_args()
    names = [f"{name} {number}" for number in range(given.headlines) for name in NETWORKS]
    names += [f"proof {number}" for number in range(given.proofs)]
    with tempfile.TemporaryDirectory() as text:
        folder = (given.folder or Path(text)).absolute()
        os.environ["GNOMON_HOME"] = str(folder)  # a separate file of devices and separate results
        folder.mkdir(parents=True, exist_ok=True)
        plainest = "x86-64" if platform.machine() == "x86_64" else "generic"
        if not (folder / "separable.onnx").exists():
            gnomon.add_device("wide", "local", check=False, threads=1)
            gnomon.add_device("narrow", "local", check=False, threads=1, target=plainest)
            gnomon.add_device("core", "local", check=False, threads=1, pin=(CORE,))
            for name, draw in NETWORKS.items():
                draw(folder / f"{name}.onnx")
        ready: list[Proof] = []

        def row(name: str) -> dict[str, Any]:
            what, _, number = name.partition(" ")
            if what in NETWORKS:
                command = "exec" if int(number) + 1 < given.headlines else "tune"
                return headline(command, folder / f"{what}.onnx", folder / what)
            if not ready:
                ready.append(prepared(folder / "separable.onnx", folder / "proofs"))
            return prove(ready[0], folder / "proofs")

        rows = kept_rows("tune_clock", names, row, given)
    told = [one for one in rows if "apart" in one]
    proofs = [device for one in rows for device in one.get("devices", ())]
    document = {
        "benchmark": "tune_clock",
        "headlines": {"within_2_percent": sum(abs(one["apart"]) <= 0.02 for one in told), "of": len(told)},
        "proofs": {
            "inside": sum(one["inside"] for one in proofs),
            "narrow_or_undecided": sum(one["narrow_or_undecided"] for one in proofs),
            "of": len(proofs),
        },
        "failed": sum("error" in one for one in rows),
        "rows": rows,
    }
    publish(document, given)


if __name__ == "__main__":
    main()
